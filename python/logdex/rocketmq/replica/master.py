"""What a slave asks its master over the remoting protocol: bounds of the log, file size, role, tables, single messages.

Source: SlaveSynchronize, AdminBrokerProcessor.
"""

from __future__ import annotations

import json
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import RemotingCommand
from logdex._types import MAX_INT64, MIN_INT64
from logdex.errors import CorruptFileError
from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.replica.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


@dataclass(frozen=True, slots=True)
class MasterState:
    """What a master says of itself."""

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


class Master:
    """A broker that is asked over the remoting protocol. Any thread may ask; each call is a connection."""

    def __init__(self, address: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Set the address `host:port` or `[ipv6]:port`. Requests end with `StoppedError` when `is_stopped` returns True.

        Raises:
            ValueError: It is no such address.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or len(port) > _MOST_DIGITS or int(port) not in _PORTS:
            raise ValueError(f"master={address!r}: expected HOST:PORT, where the broker listens (listenPort, 10911)")
        self.address = address
        self.host = host.removeprefix("[").removesuffix("]")
        self._port = int(port)
        self._is_stopped = is_stopped

    def state(self) -> MasterState:
        """Return what the master says of itself.

        Raises:
            CorruptFileError: It does not say what a broker says.
            OSError: It cannot be reached, or does not answer in time.
        """
        with self._connection() as connection:
            table = self._members(connection.ask_again(Ask.GET_BROKER_RUNTIME_INFO).body).get("table")
            config = _properties(connection.ask(Ask.GET_BROKER_CONFIG).body)
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

    def tables(self) -> dict[str, bytes]:
        """Return the tables that a slave copies, by the names of their files.

        Raises:
            OSError: The master cannot be reached, does not answer in time, or refuses.
        """
        with self._connection() as connection:
            # In the order of a slave.
            return {
                "topics.json": connection.ask(Ask.GET_ALL_TOPIC_CONFIG).body,
                "consumerOffset.json": connection.ask(Ask.GET_ALL_CONSUMER_OFFSET).body,
                "delayOffset.json": connection.ask(Ask.GET_ALL_DELAY_OFFSET).body,
                "subscriptionGroup.json": connection.ask(Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body,
            }

    def message(self, phy_offset: int) -> bytes | None:
        """Return the message at an offset of the log as it is stored; None if the master finds none there.

        Raises:
            OSError: The master cannot be reached, or does not answer in time.
        """
        with self._connection() as connection:
            answer = connection.ask(Ask.VIEW_MESSAGE_BY_ID, {"offset": str(phy_offset)}, may_refuse=True)
        return answer.body if answer.code == Code.SUCCESS else None

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
        if answer.code != Code.SUCCESS and not may_refuse:
            raise ConnectionRefusedError(
                f"{self._address}: request {code} is refused with code {answer.code}: {answer.remark}"
            )
        return answer

    def ask_again(self, code: int) -> RemotingCommand:
        """Return the answer to a request that a broker refuses in its first seconds, when it has no statistics."""
        for _ in range(_TRIES):
            answer = self.ask(code, may_refuse=True)
            if answer.code == Code.SUCCESS:
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
