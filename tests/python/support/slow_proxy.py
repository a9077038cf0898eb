"""A proxy between client and HTTP server that is as slow as a far network, counts, and does harm on request.

A test gives a function that chooses a fault for each request; None lets it pass. What happened is in `requests`.

Requests that are in flight together are one *round*: a request belongs to the round after the last one whose answer had
been sent when the request came. So the number of rounds is the length of the longest chain of requests of which none began
before the one before it had ended: how often a client waited for the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

Fault = Literal[
    "500",  # an answer of the server that clients repeat
    "503",  # likewise: slow down
    "403",  # refused
    "404",  # deleted
    "cut",  # the connection ends without an answer
    "cut in head",  # it ends within the first line
    "truncated",  # it ends within the body
    "short",  # a whole answer with fewer bytes than were asked for
    "stall",  # nothing comes for a while, then the connection ends
    "stall in body",  # likewise after half of the body
    "other etag",  # another object has the name; its bytes are others
    "other length",  # the object has grown, which its length alone shows: a server with ETags would send another one
    "other place",  # the answer is about another range
]
FAULTS: tuple[Fault, ...] = get_args(Fault)

_CHUNK = 1 << 18


@dataclass
class Request:
    """One request as the proxy saw it: times in seconds."""

    method: str
    target: str
    range: str | None
    began: float
    signature: str | None = None
    fault: Fault | None = None
    ended: float | None = None

    @property
    def is_of_object(self) -> bool:
        """Whether it asks for bytes of an object, not for a list or a head."""
        return self.method == "GET" and "list-type" not in self.target


@dataclass
class SlowProxy:
    """Passes requests on to a port of this machine, each `delay_s` seconds later."""

    upstream: int
    delay_s: float = 0.0
    choose: Callable[[Request], Fault | None] = lambda _request: None
    stall_s: float = 1.0
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Count anew."""
        self.requests = []

    @property
    def rounds(self) -> int:
        """The rounds of the requests so far."""
        return rounds(self.requests)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-proxy", daemon=True)
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop
        ).result()
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, *args: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        # A connection that is being accepted while the server closes would never be closed.
        while accepting := asyncio.all_tasks() - {asyncio.current_task()} - self._clients.keys():
            await asyncio.gather(*accepting, return_exceptions=True)
        self._server.close()
        clients = dict(self._clients)
        for task, writer in clients.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        # Connections are closed in the next step of the loop.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._clients[task] = writer
        # A task that was cancelled before its first step closed nothing.
        task.add_done_callback(lambda task: self._clients.pop(task).close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the client, by one connection to the server."""
        to_server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await _head(reader):
                if to_server is None:
                    to_server = await asyncio.open_connection("127.0.0.1", self.upstream, limit=_CHUNK)
                if not await self._answer(head, writer, *to_server):
                    break
        for each in (writer, to_server and to_server[1]):
            if each:
                each.close()

    async def _answer(
        self,
        head: list[bytes],
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; False: the connection is to end."""
        method, target, _ = head[0].decode().split(" ", 2)
        request = Request(method, target, _value(head, b"range"), time.monotonic(), _value(head, b"authorization"))
        self.requests.append(request)
        request.fault = self.choose(request)
        try:
            await asyncio.sleep(self.delay_s)
            if request.fault in ("500", "503", "403", "404"):
                to_client.write(f"HTTP/1.1 {request.fault} Refused\r\nContent-Length: 0\r\n\r\n".encode())
                await to_client.drain()
                return True
            if request.fault in ("cut", "stall"):
                await asyncio.sleep(self.stall_s if request.fault == "stall" else 0)
                to_client.transport.abort()
                return False
            to_server.write(b"".join(head) + b"\r\n")
            await to_server.drain()
            answer = await _head(from_server)
            if answer is None:
                raise asyncio.IncompleteReadError(b"", 1)
            length = 0 if method == "HEAD" else int(_value(answer, b"content-length") or 0)
            return await self._pass_on(request, answer, length, from_server, to_client)
        finally:
            request.ended = time.monotonic()

    async def _pass_on(
        self,
        request: Request,
        head: list[bytes],
        length: int,
        from_server: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
    ) -> bool:
        fault = request.fault if length or request.fault == "cut in head" else None
        if fault is None:
            to_client.write(b"".join(head) + b"\r\n")
            while length:
                part = await from_server.read(min(length, _CHUNK))
                if not part:
                    return False
                length -= len(part)
                to_client.write(part)
                await to_client.drain()
            return True
        body = await from_server.readexactly(length)
        if fault == "cut in head":
            to_client.write(b"HTTP/1.1 20")
        elif fault == "short":
            to_client.write(b"".join(_with(head, b"Content-Length", str(length // 2))) + b"\r\n" + body[: length // 2])
        elif fault.startswith("other"):
            to_client.write(b"".join(_of_other(head, fault)) + b"\r\n" + bytes(byte ^ 0xFF for byte in body))
            await to_client.drain()
            return True
        else:
            to_client.write(b"".join(head) + b"\r\n" + body[: length // 2])
        await to_client.drain()
        if fault == "short":
            return True
        await asyncio.sleep(self.stall_s if fault == "stall in body" else 0)
        to_client.close()
        return False


def rounds(requests: list[Request]) -> int:
    """Return the number of rounds of requests; see the head of this file."""
    ends: list[tuple[float, int]] = []
    most = 0
    for request in sorted(requests, key=lambda request: request.began):
        of = 1 + max((number for ended, number in ends if ended <= request.began), default=0)
        ends.append((float("inf") if request.ended is None else request.ended, of))
        most = max(most, of)
    return most


async def _head(reader: asyncio.StreamReader) -> list[bytes] | None:
    """Read the lines of a head; None at the end of the connection."""
    lines: list[bytes] = []
    while line := await reader.readline():
        if line == b"\r\n":
            return lines
        lines.append(line)
    return None


def _value(head: list[bytes], name: bytes) -> str | None:
    for line in head[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip().decode()
    return None


def _with(head: list[bytes], name: bytes, value: str) -> list[bytes]:
    """Return a head with another value."""
    others = [line for line in head if line.partition(b":")[0].lower() != name.lower()]
    return [*others, name + b": " + value.encode() + b"\r\n"]


def _of_other(head: list[bytes], fault: Fault) -> list[bytes]:
    """Return the head of another object, or of another part of it."""
    if fault == "other etag" and _value(head, b"etag"):
        return _with(head, b"ETag", '"0123456789abcdef0123456789abcdef"')
    place, _, length = (_value(head, b"content-range") or "bytes 0-0/0").removeprefix("bytes ").partition("/")
    first, _, last = place.partition("-")
    if fault == "other length":
        head = [line for line in head if not line.lower().startswith(b"etag:")]
        return _with(head, b"Content-Range", f"bytes {place}/{int(length) + 4096}")
    return _with(head, b"Content-Range", f"bytes {int(first) + 1}-{int(last) + 1}/{int(length) + 1}")
