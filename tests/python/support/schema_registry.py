"""A schema registry with the interface of Confluent's, on a real HTTP server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Registry(ThreadingHTTPServer):
    """A registry with schemas by number, and the paths that were requested."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.authorization: str | None = None
        self.is_silent, self.interrupts, self.released = False, False, threading.Event()

    def add(self, number: int, **answer: object) -> None:
        self.answers[f"/api/schemas/ids/{number}"] = (200, json.dumps(answer).encode())

    def add_version(self, subject: str, version: int, **answer: object) -> None:
        self.answers[f"/api/subjects/{subject}/versions/{version}"] = (200, json.dumps(answer).encode())

    def url(self, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_port}/api/"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.server.is_silent:
            if self.server.interrupts:
                os.kill(os.getpid(), signal.SIGINT)
            self.server.released.wait(30)
            return
        code, body = self.server.answers.get(self.path, (404, b'{"error_code":40403,"message":"Schema not found"}'))
        if self.server.authorization not in (None, self.headers.get("Authorization")):
            code, body = 401, b"no"
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.server.url().replace("127.0.0.1", "localhost") + "elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serve() -> Iterator[Registry]:
    """Serve a registry on a free port of this machine."""
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
