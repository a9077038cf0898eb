"""The master, as its slave reaches it: by requests for its state, tables and messages, and by the stream of its log.

Source: SlaveSynchronize, AdminBrokerProcessor.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import RemotingCommand
from logdex._types import MAX_INT64, MIN_INT64
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.errors import CorruptFileError
from logdex.rocketmq.broker_config import DELAY_OFFSETS, GROUPS, OFFSETS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from logdex.rocketmq.broker_config import ConfigName

ANSWER_S = 3.0
"""Seconds that an answer may take, as for a slave of 4.9.3."""
_SIZES = {
    "queue_file_size": "mappedFileSizeConsumeQueue",
    "hash_slots": "maxHashSlotNum",
    "max_entries": "maxIndexNum",
}
_HEAD = 4
_TRIES = 4
_PAUSE_S = 1.0
_PIECE = 65_536
_MOST_DIGITS = 20
_PORTS = range(1, 1 << 16)

_LOOK_S = 0.2
"""Interval at which a wait checks whether it is stopped."""
HEADER = struct.Struct(">qi")
REPORT = struct.Struct(">q")
SILENT_S = 20.0
"""A master sends something every 5 s. After this long without a byte the connection counts as lost."""
REPORT_S = 5.0
"""Seconds between two reports; after 20 s without one a master closes the connection."""
WAIT_S = 0.5
"""Longest wait of a call for bytes."""
_RECEIVE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class MasterState:
    """The state of a master's log, and its configuration."""

    min_offset: int
    """Offset of the first byte of its log."""
    max_offset: int
    """Offset after the last byte of its log."""
    file_size: int
    """Bytes of a file of its log (mappedFileSizeCommitLog)."""
    ha_port: int
    """The port of its log stream (haListenPort)."""
    role: str
    """ASYNC_MASTER, SYNC_MASTER or SLAVE."""
    store_options: dict[str, Any]
    """Sizes of its queue and index files, its delay levels and `multi_dispatch`, with the names of `StoreOptions`."""


class MasterClient:
    """Client of a master's remoting protocol. Any thread may call it; each call opens a connection."""

    def __init__(self, address: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Set the address `host:port` or `[ipv6]:port`. Requests end with `StoppedError` when `is_stopped` returns True.

        Raises:
            ValueError: The address is invalid.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or len(port) > _MOST_DIGITS or int(port) not in _PORTS:
            raise ValueError(f"master={address!r}: expected HOST:PORT, where the broker listens (listenPort, 10911)")
        self.address = address
        self.host = host.removeprefix("[").removesuffix("]")
        self._port = int(port)
        self._is_stopped = is_stopped

    def state(self) -> MasterState:
        """Return the state of the master.

        Raises:
            CorruptFileError: The answer lacks a value or has an impossible one.
            OSError: It cannot be reached, or does not answer in time.
        """
        with self._connection() as connection:
            table = self._members(connection.ask_again(RequestCode.GET_BROKER_RUNTIME_INFO).body).get("table")
            config = _properties(connection.ask(RequestCode.GET_BROKER_CONFIG).body)
        facts = {**config, **table} if isinstance(table, dict) else config
        bounds = [self._number(facts, name) for name in ("commitLogMinOffset", "commitLogMaxOffset")]
        file_size, ha_port = (self._number(facts, name) for name in ("mappedFileSizeCommitLog", "haListenPort"))
        if file_size < 1:
            raise CorruptFileError(self.address, 0, "a broker's mappedFileSizeCommitLog", str(file_size))
        if ha_port not in _PORTS:
            raise CorruptFileError(self.address, 0, "a broker's haListenPort, 1 to 65535", str(ha_port))
        options = {option: self._number(facts, name) for option, name in _SIZES.items() if name in facts}
        if facts.get("enableConsumeQueueExt") == "true":
            options["extension_file_size"] = self._number(facts, "mappedFileSizeConsumeQueueExt")
        options["multi_dispatch"] = facts.get("enableMultiDispatch") == "true"
        if "messageDelayLevel" in facts:
            options["delay_levels"] = facts["messageDelayLevel"]
        # A log without files begins with -1.
        return MasterState(max(0, bounds[0]), bounds[1], file_size, ha_port, str(facts.get("brokerRole", "")), options)

    def tables(self) -> dict[ConfigName, bytes]:
        """Return the content of the tables that a slave copies.

        Raises:
            OSError: The master cannot be reached, does not answer in time, or refuses.
        """
        with self._connection() as connection:
            # In the order of a slave.
            return {
                TOPICS: connection.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body,
                OFFSETS: connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body,
                DELAY_OFFSETS: connection.ask(RequestCode.GET_ALL_DELAY_OFFSET).body,
                GROUPS: connection.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body,
            }

    def message(self, phy_offset: int) -> bytes | None:
        """Return the message at an offset of the log as it is stored; None if the master finds none there.

        Raises:
            OSError: The master cannot be reached, or does not answer in time.
        """
        with self._connection() as connection:
            answer = connection.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(phy_offset)}, may_refuse=True)
        return answer.body if answer.code == ResponseCode.SUCCESS else None

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        with closing(Wire(self.host, self._port, ANSWER_S, self._is_stopped)) as wire:
            yield _Connection(wire, self.address)

    def _members(self, body: bytes) -> dict[str, Any]:
        try:
            members = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(self.address, 0, "the runtime information of a broker", str(error)) from None
        return members if isinstance(members, dict) else {}

    def _number(self, facts: dict[str, Any], name: str) -> int:
        text = str(facts.get(name))
        is_number = len(text) <= _MOST_DIGITS and text.removeprefix("-").isdecimal()
        if not is_number or not MIN_INT64 <= int(text) <= MAX_INT64:
            raise CorruptFileError(self.address, 0, f"a broker's {name}", f"{text:.40}")
        return int(text)


@dataclass(slots=True)
class _Connection:
    _wire: Wire
    _address: str
    _asked: int = 0

    def ask(self, code: int, ext: dict[str, str] | None = None, *, may_refuse: bool = False) -> RemotingCommand:
        """Return the answer to a request; raise OSError if there is none in time, or a refusal."""
        self._asked += 1
        # A master that sends single bytes gets no more time.
        until = time.monotonic() + ANSWER_S
        self._wire.send(RemotingCommand.request(code, self._asked, ext or {}), until)
        try:
            answer = RemotingCommand.decode(self._read(until))
            while not answer.is_answer or answer.opaque != self._asked:
                answer = RemotingCommand.decode(self._read(until))
        except ValueError as error:
            raise ConnectionError(f"{self._address}: expected the answer of a broker, found a {error}") from None
        if answer.code != ResponseCode.SUCCESS and not may_refuse:
            raise ConnectionRefusedError(
                f"{self._address}: request {code} is refused with code {answer.code}: {answer.remark}"
            )
        return answer

    def ask_again(self, code: int) -> RemotingCommand:
        """Return the answer to a request that a broker refuses in its first seconds, when it has no statistics."""
        for _ in range(_TRIES):
            answer = self.ask(code, may_refuse=True)
            if answer.code == ResponseCode.SUCCESS:
                return answer
            self._wire.pause(_PAUSE_S)
        return self.ask(code)

    def _read(self, until: float) -> bytes:
        frame = bytearray()
        piece = memoryview(bytearray(_PIECE))
        length = _HEAD
        while len(frame) < length:
            count = self._wire.receive_into(piece[: length - len(frame)], until)
            if not count:
                raise ConnectionResetError(f"{self._address}: closed before it answered")
            frame += piece[:count]
            if len(frame) == _HEAD:
                length = RemotingCommand.frame_length(bytes(frame))
        return bytes(frame)


def _properties(body: bytes) -> dict[str, Any]:
    """Return the properties of a text with a line `name=value` each."""
    lines = body.decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


class StoppedError(Exception):
    """The wait was stopped."""


class Wire:
    """A connection. Its errors name the address."""

    def __init__(self, host: str, port: int, seconds: float, is_stopped: Callable[[], bool]) -> None:
        """Connect to the addresses of the host in turn, with a timeout for each.

        Raises:
            OSError: None of them can be reached.
            StoppedError: `is_stopped` returned True.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_stopped = is_stopped
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise OSError(error.errno, error.strerror, self._address) from None
        failed = self._error(errno.EADDRNOTAVAIL)
        for family, kind, protocol, _, address in found:
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._connect(address, seconds)
            except OSError as error:
                self._socket.close()
                failed = error
            except BaseException:
                self._socket.close()
                raise
            else:
                return
        raise failed

    def _connect(self, address: tuple[object, ...], seconds: float) -> None:
        self._socket.settimeout(0)
        number = self._socket.connect_ex(address)
        if number == errno.EINPROGRESS:
            self._wait(select.POLLOUT, time.monotonic() + seconds)
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise self._error(number)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes, until: float) -> None:
        """Send all of the bytes until a time on the monotonic clock.

        Raises:
            OSError: The connection is broken, or the time is over.
            StoppedError: `is_stopped` returned True.
        """
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)
            except OSError as error:
                raise self._error(error.errno) from None

    def receive_into(self, buffer: memoryview, until: float) -> int:
        """Return how many bytes were received, 0 at the end of the connection. Wait until a time on the monotonic clock.

        Raises:
            TimeoutError: The time is over.
            OSError: The connection is broken.
            StoppedError: `is_stopped` returned True.
        """
        while True:
            try:
                return self._socket.recv_into(buffer)
            except BlockingIOError:
                self._wait(select.POLLIN, until)
            except OSError as error:
                raise self._error(error.errno) from None

    def pause(self, seconds: float) -> None:
        """Wait some seconds or until the connection is broken.

        Raises:
            StoppedError: `is_stopped` returned True.
        """
        with suppress(TimeoutError):
            self._wait(0, time.monotonic() + seconds)

    def _wait(self, event: int, until: float) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while not self._is_stopped():
            left = until - time.monotonic()
            if poll.poll(max(0.0, 1000 * min(_LOOK_S, left))):
                return
            if left <= 0:
                raise self._error(errno.ETIMEDOUT)
        raise StoppedError

    def _error(self, number: int | None) -> OSError:
        number = number or errno.EIO
        return OSError(number, os.strerror(number), self._address)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class ConnectionLostError(ConnectionError):
    """The connection to the master is closed, silent or broken. A new connection may continue the copy."""


class LogStream:
    """A connection to a master that sends its log from one offset on (HA protocol).

    ```text
    slave to master, at any time:   offset i64                          the end of its copy: where to begin, then what it has
    master to slave:                offset i64, size i32, size bytes    the log from this offset on; size 0: a heartbeat
    ```

    All integers are big-endian; there is no greeting, no version and no checksum. The master cuts its log anywhere, so a message
    may begin in one frame and end in the next. Source: HAConnection, HAService.HAClient.
    """

    def __init__(self, host: str, port: int, begin: int, file_size: int, is_stopped: Callable[[], bool]) -> None:
        """Connect, and request the log from an offset on, or with 0 from its newest file on.

        Raises:
            ConnectionLostError: The master cannot be reached.
            StoppedError: `is_stopped` returned True. Every call may raise it.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._position = begin
        self._file_size = file_size
        self._left = 0
        self._unread = bytearray()
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._heard = self._reported = time.monotonic()
        try:
            self._wire = Wire(host, port, SILENT_S, is_stopped)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None

    def report(self, offset: int) -> None:
        """Report the end of the copy to the master: everything before it is acknowledged.

        Raises:
            ConnectionLostError: The master cannot be reached.
        """
        try:
            self._wire.send(REPORT.pack(offset), time.monotonic() + SILENT_S)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        self._reported = time.monotonic()

    @property
    def is_report_due(self) -> bool:
        """True if the last report is so old that the master needs another one."""
        return self._reported + REPORT_S <= time.monotonic()

    def receive(self, log: bytearray) -> None:
        """Wait a moment for bytes of the log, and append them.

        Raises:
            ConnectionLostError: The master closed the connection, or sent nothing for 20 s.
            CorruptFileError: The bytes are not the log from the next offset on.
        """
        try:
            count = self._wire.receive_into(self._buffer, time.monotonic() + WAIT_S)
        except TimeoutError:
            if self._heard + SILENT_S <= time.monotonic():
                raise ConnectionLostError(f"{self._address}: silent for {SILENT_S:.0f} s") from None
            return
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        if not count:
            raise ConnectionLostError(f"{self._address}: the master closed the connection")
        self._heard = time.monotonic()
        self._take(self._buffer[:count], log)

    def _take(self, received: memoryview, log: bytearray) -> None:
        """Take the headers out of what was received."""
        at = 0
        while at < len(received):
            if self._left:
                piece = received[at : at + self._left]
                log += piece
                self._left -= len(piece)
                self._position += len(piece)
                at += len(piece)
                continue
            piece = received[at : at + HEADER.size - len(self._unread)]
            self._unread += piece
            at += len(piece)
            if len(self._unread) == HEADER.size:
                offset, size = HEADER.unpack(self._unread)
                self._unread.clear()
                self._check(offset, size)
                self._left = size

    def _check(self, offset: int, size: int) -> None:
        if offset != self._position:
            raise CorruptFileError(
                self._address,
                self._position,
                f"the log from offset {self._position} on, where the copy ends",
                f"offset {offset}",
            )
        if not 0 <= size <= self._file_size:
            expected = f"0 to {self._file_size} bytes, those of a file of the log"
            raise CorruptFileError(self._address, offset, expected, f"{size} bytes")

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()
