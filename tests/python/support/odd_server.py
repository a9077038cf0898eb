"""Small S3 and WebDAV server in this process. A test may change its answers.

Objects are in `objects`, by bucket and key, or by path. `hook` sees each request first and may answer it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    """Handler of one connection."""

    server: OddServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def answer(self, code: int, body: bytes = b"", **headers: str) -> bool:
        """Send a complete answer."""
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return True

    @property
    def path_and_query(self) -> tuple[str, dict[str, str]]:
        """The path without its first slash, and the query."""
        url = urllib.parse.urlsplit(self.path)
        return urllib.parse.unquote(url.path)[1:], dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))

    def do_GET(self) -> None:
        """Answer an S3 lookup or listing."""
        path, query = self.path_and_query
        self.server.seen.append(self)
        if self.server.hook(self):
            return
        if "list-type" in query:
            self._list(f"{path.rstrip('/')}/", query.get("prefix", ""))
        elif path in self.server.objects:
            self._object(path)
        else:
            self.answer(404)

    do_HEAD = do_GET  # noqa: N815 -- as the base class has it

    def _object(self, path: str) -> None:
        content, changed = self.server.objects[path]
        headers = {"Accept_Ranges": "bytes"}
        if self.server.etag_in_answers:
            headers["ETag"] = _etag(content)
        if self.server.time_in_answers:
            headers["Last_Modified"] = formatdate(changed, usegmt=True)
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self.answer(200, content, **headers)
            return
        begin, end = int(part[1]), min(len(content), int(part[2] or len(content)) + 1)
        self.answer(206, content[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(content)}", **headers)

    def _list(self, bucket: str, prefix: str) -> None:
        found, prefixes = [], set()
        for path in sorted(self.server.objects):
            key = path.removeprefix(bucket)
            if path == key or not key.startswith(prefix):
                continue
            name, slash, _ = key[len(prefix) :].partition("/")
            if slash:
                prefixes.add(f"{prefix}{name}/")
            else:
                found.append((key, *self.server.objects[path]))
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(changed))}</LastModified>"
            + (f"<ETag>{escape(_etag(content))}</ETag>" if self.server.etag_in_lists else "")
            + "</Contents>"
            for key, content, changed in found
        ]
        rows += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(prefixes)]
        self.answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>".encode()
        )

    def do_PROPFIND(self) -> None:
        """Answer a WebDAV listing."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path_and_query[0].strip("/")
        self.server.seen.append(self)
        if self.server.hook(self):
            return
        below = {each: each[len(path) + 1 :].split("/") for each in self.server.objects if each.startswith(f"{path}/")}
        if not below:
            self.answer(404)
            return
        rows = [_row(f"{path}/", "<D:resourcetype><D:collection/></D:resourcetype>", 0)]
        for each, (name, *rest) in below.items():
            content, changed = self.server.objects[each]
            if self.headers.get("Depth") != "1" or not rest:
                etag = f"<D:getetag>{escape(_etag(content))}</D:getetag>" if self.server.etag_in_lists else ""
                size = f"<D:getcontentlength>{len(content)}</D:getcontentlength>"
                rows.append(_row(each, f"<D:resourcetype/>{size}{etag}", changed))
            else:
                row = _row(f"{path}/{name}/", "<D:resourcetype><D:collection/></D:resourcetype>", 0)
                rows += [] if row in rows else [row]
        self.answer(207, f'<D:multistatus xmlns:D="DAV:">{"".join(rows)}</D:multistatus>'.encode())


def _row(path: str, facts: str, changed: int) -> str:
    return (
        f"<D:response><D:href>/{urllib.parse.quote(path)}</D:href><D:propstat><D:status>HTTP/1.1 200 OK</D:status><D:prop>"
        f"<D:getlastmodified>{formatdate(changed, usegmt=True)}</D:getlastmodified>{facts}</D:prop></D:propstat></D:response>"
    )


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


class OddServer(ThreadingHTTPServer):
    """Running server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Answers)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.hook: Callable[[Answers], bool] = lambda _: False
        self.seen: list[Answers] = []
        self._connections: set[Any] = set()
        self._ended = threading.Condition()
        self.etag_in_lists = self.etag_in_answers = self.time_in_answers = True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        with self._ended:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        with self._ended:
            self._connections.discard(request)
            self._ended.notify_all()

    def end_connections(self) -> None:
        """Close the connections that clients keep open, so that no later test meets their sockets."""
        with self._ended:
            for each in self._connections:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._ended.wait_for(lambda: not self._connections, 10)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def options(self, **others: str) -> dict[str, str]:
        """Return the storage options to use it as S3."""
        own = {
            "aws_endpoint": self.url,
            "aws_region": "x",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
        }
        return {**own, "retry_timeout": "5s", **others}

    def put(self, name: str, root: Path) -> None:
        """Copy a directory."""
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self.objects[f"{name}/{path.relative_to(root).as_posix()}"] = (path.read_bytes(), 1_700_000_000)


@contextlib.contextmanager
def serve() -> Iterator[OddServer]:
    """Run a server until the block ends."""
    with OddServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.end_connections()
