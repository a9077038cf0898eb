"""A master broker in Python: its log stream (HA protocol) and the requests of its slaves, over the log of a store.

Nothing here imports logdex: what a test compares with must not pass through the code under test. It does what is asked of it in
`behaviour`, also what no master does.
"""

from __future__ import annotations

import json
import socketserver
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Self

_BLANK = 0xCBD43194
_TABLES = {21: "topics.json", 43: "consumerOffset.json", 45: "delayOffset.json", 201: "subscriptionGroup.json"}


def log_of(root: Path) -> tuple[int, bytes, int]:
    """Return the offset of a store's log, its bytes up to the last message, and the size of its files."""
    files = sorted((root / "commitlog").iterdir())
    log = b"".join(file.read_bytes() for file in files)
    size = files[0].stat().st_size
    at = 0
    while at + 8 <= len(log):
        length, magic = struct.unpack_from(">II", log, at)
        if not magic:
            break
        at += size - at % size if magic == _BLANK else length
    return int(files[0].name), log[:at], size


class Master:
    """A master; a context manager. Its attributes may be changed while it runs."""

    def __init__(self, root: Path, **properties: object) -> None:
        self.begin, self.log, size = log_of(root)
        self.minimum = self.begin
        self.file_size = size
        self.end = self.begin + len(self.log)
        """What it has so far."""
        self.frame_bytes = 32_768
        self.heartbeat_s = 0.05
        self.role = "ASYNC_MASTER"
        self.properties: dict[str, object] = {"maxHashSlotNum": 100, "maxIndexNum": 400, **properties}
        self.tables = {name: _content(root / "config" / name) for name in _TABLES.values()}
        self.refused: set[int] = set()
        """Codes of requests that it refuses."""
        self.behaviour: Callable[[Master, socket.socket, int], None] = send_log
        """Called for each connection of the log stream with the first report."""
        self.reports: list[int] = []
        self.connections = 0
        self.is_stopped = False
        self._servers = [_Server(self, _Requests), _Server(self, _Stream)]

    @property
    def address(self) -> str:
        """Where it answers requests."""
        return f"127.0.0.1:{self._servers[0].server_address[1]}"

    def piece(self, offset: int) -> bytes:
        """Return the bytes of one frame: never beyond the end, and of one file."""
        left = self.file_size - offset % self.file_size
        return self.log[offset - self.begin : min(self.end, offset + min(left, self.frame_bytes)) - self.begin]

    def answer(self, code: int, ext: dict[str, str]) -> tuple[int, bytes]:
        """Return code and body of the answer to a request."""
        if code in self.refused:
            return 1, b""
        if code == 28:
            facts = {"commitLogMinOffset": str(self.minimum), "commitLogMaxOffset": str(self.end)}
            return 0, json.dumps({"table": facts}).encode()
        if code == 26:
            port = self._servers[1].server_address[1]
            config = {"mappedFileSizeCommitLog": self.file_size, "haListenPort": port, "brokerRole": self.role}
            return 0, "".join(f"{name}={value}\n" for name, value in {**self.properties, **config}.items()).encode()
        if code == 33:
            at = int(ext["offset"]) - self.begin
            size = int.from_bytes(self.log[at : at + 4], "big")
            return (0, self.log[at : at + size]) if self.minimum <= int(ext["offset"]) < self.end else (1, b"")
        return 0, self.tables[_TABLES[code]]

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopped = True
        for server in self._servers:
            server.shutdown()
            server.server_close()


def send_log(master: Master, connection: socket.socket, begin: int) -> None:
    """Send the log from a first report on, as a master of 4.9.3 does."""
    position = begin or max(0, master.end - master.end % master.file_size)
    reader = threading.Thread(target=read_reports, args=(master, connection), daemon=True)
    reader.start()
    sent = time.monotonic()
    while not master.is_stopped and reader.is_alive():
        piece = master.piece(position) if master.minimum <= position <= master.end else b""
        if piece or time.monotonic() - sent > master.heartbeat_s:
            connection.sendall(struct.pack(">qi", position, len(piece)) + piece)
            position += len(piece)
            sent = time.monotonic()
        else:
            time.sleep(0.005)


def read_reports(master: Master, connection: socket.socket) -> None:
    """Read the reports of a slave until it is gone."""
    while (report := read_exactly(connection, 8)) is not None:
        master.reports.append(int.from_bytes(report, "big"))


def read_exactly(connection: socket.socket, count: int) -> bytes | None:
    """Return so many bytes; None if the connection ends before."""
    data = b""
    while len(data) < count:
        try:
            piece = connection.recv(count - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


def _content(path: Path) -> bytes:
    return (
        path.read_bytes() if path.exists() else b'{"offsetTable":{},"topicConfigTable":{},"subscriptionGroupTable":{}}'
    )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, master: Master, handler: type[socketserver.BaseRequestHandler]) -> None:
        self.master = master
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, *_: object) -> None:
        """A slave that is gone is no error."""


class _Requests(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        while (head := read_exactly(self.request, 4)) is not None:
            rest = read_exactly(self.request, int.from_bytes(head, "big"))
            if rest is None:
                return
            members, _ = wire.split(head + rest)
            code, body = self.server.master.answer(members["code"], members.get("extFields") or {})
            header: dict[str, Any] = {"code": code, "flag": 1, "language": "JAVA", "opaque": members["opaque"]}
            text = json.dumps(header).encode()
            self.request.sendall(struct.pack(">iI", 4 + len(text) + len(body), len(text)) + text + body)


class _Stream(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        master = self.server.master
        master.connections += 1
        report = read_exactly(self.request, 8)
        if report is not None:
            master.reports.append(int.from_bytes(report, "big"))
            master.behaviour(master, self.request, master.reports[-1])
