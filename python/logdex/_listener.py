"""Connections of a server: accepted, split into frames, watched. It knows no protocol; a `Service` does.

A client that sends garbage, trickles a frame, or does not take what it asked for is dropped. Nothing of it ends the server.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence, Sized

_log = logging.getLogger(__name__)

HEAD = 4
"""Bytes at the beginning of a frame that say how long it is."""
_TICK_S = 1.0
_BACKLOG = 1024
_HANDSHAKE_S = 10.0
_SMALL = 65_536
_MOST_READ = 262_144
"""Bytes of one read of a socket."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take of a server."""

    connections: int = 2_000
    idle_s: float = 120.0
    """Without a whole frame and without an answer for so long, a connection is closed."""
    slow_s: float = 30.0
    """How long a client may take to send the rest of a frame, or to take what was sent to it."""
    unsent_bytes: int = 1 << 20
    """Bytes of answers that wait for one client, after which nothing more of it is read."""
    most_unsent_bytes: int = 64 << 20
    """Bytes of answers that wait for one client, after which it is dropped: it asked for much before it took anything."""
    received_bytes: int = 64 << 20
    """Bytes of unfinished frames of all clients."""


class Goodbye(Exception):  # noqa: N818 -- the end of a connection, and no error
    """Say something last, and close the connection."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.content = content


class Service(Protocol):
    """The protocol that is spoken."""

    def connected(self, connection: Connection) -> None:
        """Take a new connection."""

    def frame_length(self, head: bytes) -> int:
        """Return the bytes of a frame that begins with these four. `ValueError` drops the client, and `Goodbye` answers it."""

    def frames(self, connection: Connection, data: bytes) -> Sequence[Sized]:
        """Return the whole frames at the beginning of these bytes, each alone or several together, with their bytes as length.

        The first one is whole.
        """

    def received(self, connection: Connection, frame: Any) -> None:  # noqa: ANN401 -- what `frames` returned
        """Take one of the frames. `ValueError` drops the client."""

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection."""


class Connection(asyncio.BufferedProtocol):
    """A client. Every method is called by the thread of the event loop."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._needed = HEAD
        """The bytes with which the next frame is whole, as far as it is known."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_receiving = False
        self._is_paused = False
        self._is_accepted = False
        self._active = self._waits_since = listener.now()
        self.address = "?"
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether something can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: bytes) -> None:
        """Send a frame, unless the client is gone. Answers to what one read brought are one call of the system."""
        if self._transport is not None and self.is_open:
            if not self._unsent and not self._is_receiving:
                self._listener.soon(self._send_all)
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
            if self._unsent_bytes > _SMALL:
                self._send_all()

    def _send_all(self) -> None:
        if self._transport is not None and self.is_open and self._unsent:
            self._active = self._listener.now()
            self._transport.write(self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent))
            if self._transport.get_write_buffer_size() > self._listener.limits.most_unsent_bytes:
                self.drop("takes no answers")
        self._unsent.clear()
        self._unsent_bytes = 0

    def close(self) -> None:
        """Close the connection after what was sent."""
        self._send_all()
        if self._transport is not None:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close the connection at once."""
        _log.info("%s: dropped: %s", self.address, reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, unless there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- for the type checker: TCP gives no other
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if len(self._listener.connections) >= self._listener.limits.connections:
            self.drop("too many connections")
            return
        self._is_accepted = True
        transport.set_write_buffer_limits(self._listener.limits.unsent_bytes)
        self._listener.connections.add(self)
        self._listener.service.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._listener.received_bytes -= len(self._buffer)
        self._buffer.clear()
        if self._is_accepted:
            self._listener.connections.discard(self)
            self._listener.service.disconnected(self)
        self.closed.set_result(None)
        if exc is not None:
            _log.debug("%s: %s", self.address, exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- the signature of asyncio
        """Return where the next bytes go. They are taken from there at once, so that all connections share it."""
        return self._listener.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes, and pass on the frames that are whole."""
        if not self._buffer:
            self._waits_since = self._listener.now()
        self._buffer += self._listener.read_buffer[:nbytes]
        self._listener.received_bytes += nbytes
        self._split()
        too_many = self._listener.received_bytes > self._listener.limits.received_bytes
        if too_many and len(self._buffer) > _SMALL:
            self.drop("too many bytes of unfinished frames")

    def pause_writing(self) -> None:
        """Read nothing more, until the client took what was sent to it."""
        self._is_paused = True
        self._waits_since = self._listener.now()
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._is_paused = False
        self._waits_since = self._listener.now()
        if self._transport is not None and self.is_open:
            self._transport.resume_reading()
            self._split()

    def check(self, now: float) -> None:
        """Drop the client if it is idle or slow."""
        limits = self._listener.limits
        if (self._is_paused or self._buffer) and self._waits_since + limits.slow_s < now:
            self.drop("too slow")
        elif self._active + limits.idle_s < now:
            self.drop("idle")

    def _is_reading(self) -> bool:
        return not self._is_paused and self.is_open

    def _split(self) -> None:
        self._is_receiving = True
        self._pass_on_frames()
        self._is_receiving = False
        self._send_all()

    def _pass_on_frames(self) -> None:
        service, buffer = self._listener.service, self._buffer
        try:
            while self._is_reading() and len(buffer) >= self._needed:
                self._needed = service.frame_length(bytes(buffer[:HEAD]))
                if len(buffer) < self._needed:
                    break
                self._needed = HEAD
                at = 0
                for frame in service.frames(self, bytes(buffer)):
                    if not self._is_reading():
                        break
                    at += len(frame)
                    self._active = self._waits_since = self._listener.now()
                    service.received(self, frame)
                self._listener.received_bytes -= at
                del buffer[:at]
        except Goodbye as goodbye:
            self.send(goodbye.content)
            self.close()
        except ValueError as error:
            self.drop(str(error))
        except Exception:  # noqa: BLE001 -- logged
            # A fault of the server, which must not end it.
            _log.exception("%s: dropped", self.address)
            self.drop("an error of the server")


class Listener:
    """A listening socket and its connections."""

    def __init__(self, service: Service, limits: Limits | None = None) -> None:
        self.service = service
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.received_bytes = 0
        self.read_buffer = memoryview(bytearray(_MOST_READ))
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        """Return the seconds of the event loop's clock."""
        return self._loop.time() if self._loop is not None else 0.0

    def soon(self, call: Callable[[], None]) -> None:
        """Let the event loop call something in its next turn."""
        if self._loop is not None:
            self._loop.call_soon(call)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen, and return host and port.

        Raises:
            OSError: The address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        handshake: dict[str, Any] = {} if tls is None else {"ssl_handshake_timeout": _HANDSHAKE_S}
        self._server = await self._loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=_BACKLOG, **handshake
        )
        self._watch = asyncio.create_task(self._check())
        bound, number, *_ = self._server.sockets[0].getsockname()
        return bound, number

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for connection in [*self.connections]:
                connection.check(self.now())

    async def stop(self, grace_s: float) -> None:
        """Accept no more clients, send what is left to send for some seconds, and close all connections."""
        if self._server is None or self._watch is None:
            return
        self._server.close()
        self._watch.cancel()
        for connection in [*self.connections]:
            connection.close()
        if self.connections:
            await asyncio.wait([each.closed for each in self.connections], timeout=grace_s)
        for connection in [*self.connections]:
            connection.drop("the server stops")
        await asyncio.sleep(0)
        self._server = None
