"""`decode=` with the URL of a schema registry, on a real HTTP server."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from logdex import _schema_registry
from logdex.cli import main
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**OLDER, "fields": [*OLDER["fields"], {"name": "country", "type": "string", "default": "?"}]}
_PASSWORD = "s3cr:t/@"  # noqa: S105 -- of the test's server


class _Registry(ThreadingHTTPServer):
    """A registry with schemas by number, and the paths that were requested."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.authorization: str | None = None
        self.is_silent, self.interrupts, self.released = False, False, threading.Event()

    def add(self, number: int, **answer: object) -> None:
        self.answers[f"/api/schemas/ids/{number}"] = (200, json.dumps(answer).encode())

    def url(self, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_port}/api/"


class _Handler(BaseHTTPRequestHandler):
    server: _Registry

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


@pytest.fixture
def registry() -> Iterator[_Registry]:
    with _Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _avro(schema: dict[str, Any], value: dict[str, Any], number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def _store(root: Path, bodies: list[bytes]) -> Path:
    with StoreWriter.open(root) as writer:
        writer.put_messages({"topic": ["T"] * len(bodies), "body": bodies})
    return root


def _bodies(root: Path, url: str) -> list[tuple[Any, str | None]]:
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": f"avro:{url}"}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def test_each_schema_is_requested_once(tmp_path: Path, registry: _Registry) -> None:
    registry.add(3, schema=json.dumps(OLDER))
    registry.add(12, schema=json.dumps(NEWER), schemaType="AVRO")
    registry.add(90, schema=json.dumps(OLDER))
    registry.add(20, schema='syntax = "proto3";', schemaType="PROTOBUF")
    registry.add(21, schema=json.dumps(OLDER), references=[{"name": "x", "subject": "x", "version": 1}])
    bodies = [
        _avro(NEWER if row % 3 else OLDER, {"id": row, "country": "de"}, 12 if row % 3 else 3) for row in range(9_000)
    ]
    bodies += [_avro(OLDER, {"id": -1}, 90), *(_avro(OLDER, {"id": 1}, number) for number in (20, 21, 22, 22)), b"x"]
    found = _bodies(_store(tmp_path / "store", bodies), registry.url())
    assert found[:9_000] == [({"id": row, "country": "de" if row % 3 else "?"}, None) for row in range(9_000)]
    # Only the first batch shows the type.
    assert found[9_000] == ({"id": -1, "country": "?"}, None)
    assert [body for body, _ in found[9_001:]] == [None] * 5
    errors = [error or "" for _, error in found[9_001:]]
    assert errors[0] == "schema 20: expected one of Avro, found PROTOBUF"
    assert errors[1].startswith("schema 21 refers to others")
    assert errors[2:4] == ["no schema with the number 22"] * 2
    assert sorted(registry.requests) == sorted(f"/api/schemas/ids/{number}" for number in (3, 12, 90, 20, 21, 22))


def test_credentials_are_sent_and_not_shown(
    tmp_path: Path, registry: _Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.add(3, schema=json.dumps(OLDER))
    registry.authorization = "Basic " + base64.b64encode(f"me:{_PASSWORD}".encode()).decode()
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    user = "me:s3cr%3At%2F%40@"
    assert _bodies(root, registry.url(user)) == [({"id": 5}, None)]
    assert main(["cat", str(root), "--decode", f"body=avro:{registry.url(user)}", "--json"]) == 0
    assert '"body": {"id":5}' in capsys.readouterr().out
    with pytest.raises(OSError, match=r"http://\*\*\*@127\.0\.0\.1:\d+/api/: /schemas/ids/3: .* 401") as caught:
        _bodies(root, registry.url("me:wrongpw@"))
    assert "wrongpw" not in str(caught.value)
    assert main(["cat", str(root), "--decode", f"body=avro:{registry.url('me:wrongpw@')}"]) == 2
    assert "wrongpw" not in capsys.readouterr().err


def test_bad_answers_end_the_read(tmp_path: Path, registry: _Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    path = "/api/schemas/ids/3"
    monkeypatch.setattr(_schema_registry, "_MOST_BYTES", 100_000)
    for code, body, message in [
        (500, b"no", "the registry answered 500"),
        (302, b"", "the registry answered 302"),
        (200, b"{", "expected a JSON object"),
        (200, b"[]", "expected a JSON object, found list"),
        (200, b"{}", "expected an object with a schema"),
        (200, b" " * 200_000, "at most 100,000 bytes"),
    ]:
        registry.answers[path] = (code, body)
        with pytest.raises(OSError, match=message):
            _bodies(root, registry.url())
    assert registry.requests == [path] * 6
    registry.add(3, schema="{")
    with pytest.raises(ValueError, match=r"/api/: schema 3: "):
        _bodies(root, registry.url())
    registry.server_close()
    with pytest.raises(OSError, match="refused"):
        _bodies(root, "http://127.0.0.1:9")


def test_a_silent_registry_is_not_awaited_for_ever(
    tmp_path: Path, registry: _Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    registry.is_silent = True
    with monkeypatch.context() as patch:
        patch.setattr(_schema_registry, "_TIMEOUT_S", 0.2)
        with pytest.raises(OSError, match="timed out"):
            _bodies(root, registry.url())
    registry.interrupts = True
    try:
        with pytest.raises(KeyboardInterrupt):
            _bodies(root, registry.url())
    finally:
        registry.released.set()


def test_a_store_without_values_has_no_fields(tmp_path: Path, registry: _Registry) -> None:
    found = _bodies(_store(tmp_path / "store", [b"x"]), registry.url())
    assert found == [(None, "expected a zero and the number of a schema")]
    assert not registry.requests
