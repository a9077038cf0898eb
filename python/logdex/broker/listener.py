"""Connections of a server: accept them, split their bytes into frames, enforce limits. A `Service` has the protocol.

A client that sends garbage, sends a frame too slowly, or does not read its answers is dropped. No client can end the server.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Sequence, Sized

_log = logging.getLogger(__name__)

HEAD = 4
"""Bytes of the length at the start of a frame."""
_TICK_S = 1.0
_TURN_S = 0.01
"""Time for frames in one turn of the event loop. After it, each client has one frame served per turn."""
_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 16
_ACCEPT_AGAIN_S = 1.0
_HANDSHAKE_S = 10.0
_HANDSHAKES = 256
"""Concurrent TLS handshakes. Each takes 270 KB before the client has sent a request."""
_RESERVED_DESCRIPTORS = 320
"""Descriptors that are reserved for files of the store and log files."""
_IDLE_S = (0.1, 10.0)
"""Seconds after which an idle connection may be closed for a new one: before its first frame, and afterwards."""
_NO_IDLE_S = 0.1
_SMALL = 65_536
_MOST_READ = 262_144
"""Bytes of one read of a socket."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what clients may use of a server."""

    connections: int = 2_000
    """Connections of all clients; fewer if the process may not open as many files (`ulimit -n`)."""
    connections_of_address: int = 1_000
    """Connections of one address."""
    idle_s: float = 120.0
    """A connection without a whole frame and without an answer for this long is closed."""
    slow_s: float = 30.0
    """Time that a client may take to send the rest of a frame, or to read what was sent to it."""
    unsent_bytes: int = 1 << 20
    """Bytes of unsent answers to one client above which its requests are not read."""
    most_unsent_bytes: int = 64 << 20
    """Bytes of unsent answers to one client above which it is dropped: it requests much and reads nothing."""
    all_unsent_bytes: int = 256 << 20
    """Unsent bytes for all clients. Above this, the clients that have received nothing for the longest time are dropped."""
    received_bytes: int = 64 << 20
    """Bytes of unfinished frames of all clients. Above this, the clients with the oldest unfinished frames are dropped."""


class Goodbye(Exception):  # noqa: N818 -- the end of a connection, and no error
    """Send a last answer and close the connection."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.content = content


class Service(Protocol):
    """The protocol of a server."""

    def connected(self, connection: Connection) -> None:
        """Add a new connection."""

    def frame_length(self, head: bytes) -> int:
        """Return the length of a frame that starts with these four bytes. `ValueError` drops the client, `Goodbye` answers it."""

    def frames(self, connection: Connection, data: bytes) -> Sequence[Sized]:
        """Return the whole frames at the start of these bytes, each alone or several together. `len` of each is its bytes.

        The first one is whole.
        """

    def received(self, connection: Connection, frame: Any) -> None:  # noqa: ANN401 -- what `frames` returned
        """Process one of the frames. `ValueError` drops the client."""

    def disconnected(self, connection: Connection) -> None:
        """Remove a connection."""


class Connection(asyncio.BufferedProtocol):
    """A client. Every method is called by the thread of the event loop."""

    def __init__(self, listener: Listener, accepted: socket.socket, peer: Sequence[Any]) -> None:
        self._listener = listener
        self._accepted = accepted
        self._transport: asyncio.Transport | None = None
        self._under: asyncio.WriteTransport | None = None
        host, port, *_ = peer or ("?", 0)
        self.host: str = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._buffer = bytearray()
        self._needed = HEAD
        """Bytes that the next frame needs, as far as they are known."""
        self._frames: deque[Sized] = deque()
        """Whole frames that are split from the buffer but not served yet."""
        self._bytes_of_frames = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_receiving = False
        self._is_paused = False
        self._pauses = 0
        self._is_connected = False
        self._has_spoken = False
        self._active = self._waits_since = listener.now()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """True if something can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: bytes) -> None:
        """Send a frame unless the client is gone. All answers to the requests of one read are one system call."""
        if self._transport is not None and self.is_open:
            if not self._unsent and not self._is_receiving:
                self._listener.soon(self._send_all)
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
            if self._unsent_bytes > _SMALL:
                self._send_all()

    def _send_all(self) -> None:
        if not self._unsent:
            return
        if self._transport is not None and self.is_open:
            self._active = self._listener.now()
            # A view, because asyncio slices the bytes that the socket does not accept at once.
            self._transport.write(memoryview(self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)))
            size = self.unsent_bytes
            if size > self._listener.limits.most_unsent_bytes:
                self.drop("takes no answers")
            elif size:
                self._listener.count_unsent(self, size)
        self._unsent.clear()
        self._unsent_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not received yet."""
        if self._transport is None:
            return 0
        size = self._transport.get_write_buffer_size()
        return size if self._under is None else size + self._under.get_write_buffer_size()

    @property
    def received_bytes(self) -> int:
        """Bytes of the client's frames that are unfinished or not served yet."""
        return len(self._buffer) + self._bytes_of_frames

    @property
    def waits_since(self) -> float:
        """Time at which the unfinished frame began."""
        return self._waits_since

    @property
    def active(self) -> float:
        """Time of the last whole frame or of the last sent answer."""
        return self._active

    @property
    def is_idle(self) -> bool:
        """True if the connection may be closed for a new one."""
        return self._active + _IDLE_S[self._has_spoken] <= self._listener.now()

    def close(self) -> None:
        """Close the connection after what was sent."""
        self._send_all()
        if self._transport is None:
            self._end_handshake()
        else:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close the connection at once."""
        _log.info("%s: dropped: %s", self.address, reason)
        self._forget()
        if self._transport is None:
            self._end_handshake()
        else:
            self._transport.abort()

    def _end_handshake(self) -> None:
        # asyncio owns the socket and detects the end of the stream.
        with suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)

    def _forget(self) -> None:
        self._listener.received_bytes -= self.received_bytes
        self._buffer.clear()
        self._frames.clear()
        self._bytes_of_frames = 0
        self._listener.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve the client, after the TLS handshake if TLS is on."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- for the type checker: TCP gives no other
        self._transport = transport
        # With TLS, asyncio counts only what is not yet passed on to the socket's own transport.
        self._under = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        if self not in self._listener.connections:
            # The connection was dropped meanwhile.
            transport.abort()
            return
        self._is_connected = True
        transport.set_write_buffer_limits(self._listener.limits.unsent_bytes)
        self._listener.service.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the client."""
        self._forget()
        if self._is_connected:
            self._listener.service.disconnected(self)
        self.closed.set_result(None)
        if exc is not None:
            _log.debug("%s: %s", self.address, exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- the signature of asyncio
        """Return the buffer for the next bytes. All connections share it, because the bytes are copied out at once."""
        return self._listener.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Copy the received bytes and process the whole frames."""
        if not self._buffer:
            self._waits_since = self._listener.now()
        self._buffer += self._listener.read_buffer[:nbytes]
        self._listener.received_bytes += nbytes
        self._split()
        self._listener.check_received()

    def pause_writing(self) -> None:
        """Stop reading until the client has read what was sent to it."""
        self._is_paused = True
        self._waits_since = self._listener.now()
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read."""
        self._is_paused = False
        self._waits_since = self._listener.now()
        self._go_on()

    def pause(self) -> None:
        """Process no further frame until `resume` was called as often as `pause`."""
        self._pauses += 1
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue after a `pause`."""
        self._pauses -= 1
        self._waits_since = self._listener.now()
        self._go_on()

    def _go_on(self) -> None:
        if self._transport is not None and self._is_reading():
            self._transport.resume_reading()
            self._split()

    def check(self, now: float) -> None:
        """Drop the client if it is idle or slow."""
        limits = self._listener.limits
        owes = self._is_paused or (self._buffer and not self._pauses)
        if owes and self._waits_since + limits.slow_s < now:
            self.drop("too slow")
        elif self._active + limits.idle_s < now:
            self.drop("idle")

    def _is_reading(self) -> bool:
        return not self._is_paused and not self._pauses and self.is_open

    def _split(self) -> None:
        self._is_receiving = True
        self._pass_on_frames()
        self._is_receiving = False
        self._send_all()

    def _pass_on_frames(self) -> None:
        listener, buffer, frames = self._listener, self._buffer, self._frames
        service, now = listener.service, listener.now()
        until = listener.turn_end(now)
        try:
            while (frames or len(buffer) >= self._needed) and self._is_reading():
                if not frames:
                    self._needed = service.frame_length(bytes(buffer[:HEAD]))
                    if len(buffer) < self._needed:
                        break
                    self._needed = HEAD
                    frames.extend(service.frames(self, bytes(buffer)))
                    self._bytes_of_frames = len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
                    del buffer[: self._bytes_of_frames]
                frame = frames.popleft()
                size = len(frame) if frames else self._bytes_of_frames
                self._bytes_of_frames -= size
                listener.received_bytes -= size
                self._active = self._waits_since = now
                if not self._has_spoken:
                    self._has_spoken = True
                    listener.note_frame(self)
                service.received(self, frame)
                if frames:
                    now = listener.now()
                    if now > until and self._is_reading():
                        # The next frames wait until the event loop has served other clients.
                        self.pause()
                        listener.soon(self.resume)
        except Goodbye as goodbye:
            self.send(goodbye.content)
            self.close()
        except ValueError as error:
            self.drop(str(error))
        except Exception:  # noqa: BLE001 -- logged
            # A bug in logdex must not end the server.
            _log.exception("%s: dropped", self.address)
            self.drop("an error of the server")


class Listener:
    """Listening sockets and their connections."""

    def __init__(self, service: Service, limits: Limits | None = None) -> None:
        self.service = service
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        """Connections that are accepted and not yet closed or dropped."""
        self.received_bytes = 0
        self.read_buffer = memoryview(bytearray(_MOST_READ))
        self._of_host: Counter[str] = Counter()
        self._silent: dict[str, dict[Connection, None]] = {}
        """Connections without any frame yet, by host, the oldest first."""
        self._no_idle: tuple[str, float] = ("", 0.0)
        """A host without an idle connection, and the time until which this is not checked again."""
        self._capacity = self.limits.connections
        self._is_full = False
        self.handshakes: dict[Connection, float] = {}
        """TLS handshakes that are under way, and when they began, the oldest first."""
        self._opening: set[asyncio.Task[None]] = set()
        self._unsent: dict[Connection, tuple[int, float]] = {}
        """Bytes that wait for a client, and the time since which it has received none."""
        self.unsent_bytes = 0
        self.sockets: list[socket.socket] = []
        self._watch: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_end = 0.0
        self._is_turn_set = False
        """True if the end of this turn of the event loop is set. It is set once a turn."""

    def now(self) -> float:
        """Return the seconds of the event loop's clock."""
        return self._loop.time() if self._loop is not None else 0.0

    def soon(self, call: Callable[[], None]) -> None:
        """Schedule a call for the next turn of the event loop."""
        if self._loop is not None:
            self._loop.call_soon(call)

    def turn_end(self, now: float) -> float:
        """Return the time until which frames of all clients are served before the event loop's next turn.

        Several short turns have the same end, because a callback for each turn costs as much as a frame.
        """
        if now >= self._turn_end and not self._is_turn_set:
            self._turn_end = now + _TURN_S
            self._is_turn_set = True
            self.soon(self._begin_turn)
        return self._turn_end

    def _begin_turn(self) -> None:
        self._is_turn_set = False

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen, and return host and port. Another call listens on another address.

        Raises:
            OSError: The address cannot be used.
            ValueError: The port is invalid.
        """
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port={port}: expected 0 to 65535")
        self._loop = asyncio.get_running_loop()
        try:
            found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise OSError(error.errno, error.strerror, host) from None
        listening = _listen(dict.fromkeys((family, address) for family, *_, address in found))
        if self._watch is None:
            self._capacity = min(self.limits.connections, _free_descriptors())
            self._watch = asyncio.create_task(self._check())
        self.sockets += listening
        for each in listening:
            self._loop.add_reader(each, self._accept, each, tls)
        bound, number, *_ = listening[0].getsockname()
        return bound, number

    # Connections

    def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept some of the waiting clients."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listening, tls, error)
                return
            accepted.settimeout(0)
            connection = Connection(self, accepted, peer)
            if not self._admit(connection.host):
                _log.info("%s: dropped: too many connections", connection.address)
                accepted.close()
                continue
            self.connections.add(connection)
            self._of_host[connection.host] += 1
            self._silent.setdefault(connection.host, {})[connection] = None
            assert self._loop is not None  # noqa: S101 -- it listens
            task = self._loop.create_task(self._open(self._loop, connection, accepted, tls))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _pause_accepting(self, listening: socket.socket, tls: ssl.SSLContext | None, error: OSError) -> None:
        """Pause accepting: the process or the machine has no descriptor or no memory for a connection."""
        assert self._loop is not None  # noqa: S101 -- it listens
        self._log_full(str(error))
        self._loop.remove_reader(listening)

        def again() -> None:
            if listening in self.sockets and self._loop is not None:
                self._loop.add_reader(listening, self._accept, listening, tls)

        self._loop.call_later(_ACCEPT_AGAIN_S, again)

    async def _open(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        accepted: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        handshake: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": _HANDSHAKE_S}
        is_ours = True
        try:
            if tls is not None:
                await asyncio.wait_for(_readable(loop, accepted), _HANDSHAKE_S)
                if connection not in self.connections or not self._admit_handshake():
                    raise ConnectionAbortedError("no TLS handshake")
                self.handshakes[connection] = self.now()
            is_ours = False
            await loop.connect_accepted_socket(lambda: connection, accepted, **handshake)
        except (OSError, asyncio.TimeoutError) as error:
            _log.debug("%s: %s", connection.address, error)
            self.forget(connection)
            if not connection.closed.done():
                connection.closed.set_result(None)
        finally:
            if is_ours:
                accepted.close()
            self.handshakes.pop(connection, None)

    def _admit(self, host: str) -> bool:
        """Return whether one more connection of an address is allowed. If there are too many, an idle one is closed for it."""
        if self._of_host[host] >= self.limits.connections_of_address:
            crowd = host
        elif len(self.connections) >= self._capacity:
            crowd = max(self._of_host, key=self._of_host.__getitem__)
        else:
            return True
        self._log_full(f"{len(self.connections)} connections, {self._of_host[crowd]} of them of {crowd}")
        idle = self._idle_of(crowd)
        if idle is not None:
            idle.drop("idle, and there are too many connections")
        return idle is not None

    def _idle_of(self, host: str) -> Connection | None:
        """Return the connection of a host to close first for a new one; None if all are in use."""
        silent = next(iter(self._silent.get(host, ())), None)
        if silent is not None and silent.is_idle:
            return silent
        known_host, until = self._no_idle
        if host == known_host and self.now() < until:
            return None
        of_host = (each for each in self.connections if each.host == host)
        oldest = min(of_host, key=lambda each: each.active, default=None)
        if oldest is not None and oldest.is_idle:
            return oldest
        # So that a new client does not always cost a check of all connections.
        self._no_idle = (host, self.now() + _NO_IDLE_S)
        return None

    def _admit_handshake(self) -> bool:
        """Return whether one more client may start a TLS handshake. A slow handshake is ended for it."""
        if len(self.handshakes) < _HANDSHAKES:
            return True
        oldest, began = next(iter(self.handshakes.items()))
        if began + _IDLE_S[0] > self.now():
            return False
        del self.handshakes[oldest]
        oldest.drop("no TLS handshake, and there are too many")
        return True

    def _log_full(self, why: str) -> None:
        """Log once that clients are refused, until there is space for more."""
        if not self._is_full:
            self._is_full = True
            _log.warning("%s: idle clients are closed for new ones, or these are turned away", why)

    def note_frame(self, connection: Connection) -> None:
        """Record that a connection has sent a frame."""
        silent = self._silent.get(connection.host, {})
        silent.pop(connection, None)
        if not silent:
            self._silent.pop(connection.host, None)

    def forget(self, connection: Connection) -> None:
        """Stop counting a connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._of_host[connection.host] -= 1
            if not self._of_host[connection.host]:
                del self._of_host[connection.host]
            self.note_frame(connection)
        self.unsent_bytes -= self._unsent.pop(connection, (0, 0.0))[0]

    # Memory

    def count_unsent(self, connection: Connection, size: int) -> None:
        """Record the unsent bytes of a client, and drop slow clients if all clients have too many."""
        before, since = self._unsent.get(connection, (0, self.now()))
        self._unsent[connection] = (size, since)
        self.unsent_bytes += size - before
        if self.unsent_bytes > self.limits.all_unsent_bytes:
            self._check_unsent()
            # Drop more than needed, so that the next bytes do not cause another check.
            slow = sorted(self._unsent, key=lambda each: (self._unsent[each][1], -self._unsent[each][0]))
            while slow and self.unsent_bytes > self.limits.all_unsent_bytes * 7 // 8:
                slow.pop(0).drop("takes no answers, and too many bytes wait for all clients")

    def _check_unsent(self) -> None:
        """Update the counts of unsent bytes by the bytes that clients have received."""
        now = self.now()
        for connection, (before, since) in [*self._unsent.items()]:
            size = connection.unsent_bytes
            self.unsent_bytes += size - before
            if size:
                self._unsent[connection] = (size, now if size <= before - _SMALL else since)
            else:
                del self._unsent[connection]

    def check_received(self) -> None:
        """Drop slow clients if there are too many bytes of unfinished frames."""
        if self.received_bytes > self.limits.received_bytes:
            slow = sorted((each for each in self.connections if each.received_bytes), key=lambda each: each.waits_since)
            while slow and self.received_bytes > self.limits.received_bytes * 7 // 8:
                slow.pop(0).drop("too many bytes of unfinished frames")

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._check_unsent()
            for connection in [*self.connections]:
                connection.check(self.now())
            if len(self.connections) <= self._capacity * 7 // 8:
                self._is_full = False

    async def stop(self, grace_s: float) -> None:
        """Accept no more clients, send what is left to send for some seconds, and close all connections."""
        if self._loop is None or self._watch is None:
            return
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        self.sockets.clear()
        self._watch.cancel()
        self._watch = None
        for connection in [*self.connections]:
            connection.close()
        if self.connections:
            await asyncio.wait([each.closed for each in self.connections], timeout=grace_s)
        for connection in [*self.connections]:
            connection.drop("the server stops")
        for task in [*self._opening]:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        await asyncio.sleep(0)


async def _readable(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
    """Wait for the first bytes of a client. TLS needs much memory, which is not allocated for silent clients."""
    came = asyncio.Event()
    loop.add_reader(accepted, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(accepted)


def _listen(addresses: Iterable[tuple[int, Any]]) -> list[socket.socket]:
    """Return listening sockets for the addresses of a host."""
    listening: list[socket.socket] = []
    failed: OSError | None = None
    for family, address in addresses:
        try:
            listening.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            listening[-1].settimeout(0)
            # Accepted sockets inherit it. asyncio sets it only on sockets that name their protocol.
            listening[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            number = error.errno or errno.EADDRNOTAVAIL
            failed = OSError(number, os.strerror(number), f"{address[0]}:{address[1]}")
            # A machine without IPv6 may still have a name for an IPv6 address.
            if number not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                break
    else:
        if listening:
            return listening
    for each in listening:
        each.close()
    raise failed or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


def _free_descriptors() -> int:
    """Return how many descriptors connections may use, so that store and log files can always be opened."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return max(1, limit - used - min(_RESERVED_DESCRIPTORS, limit // 2))
