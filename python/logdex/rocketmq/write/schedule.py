"""Scheduled messages: what was parked goes into its own topic when its time has come.

Source: ScheduleMessageService#executeOnTimeup, #messageTimeup, #correctDeliverTimestamp. A message of level *n* waits in queue
*n* - 1 of `SCHEDULE_TOPIC_XXXX`; its unit holds the time of delivery in the place of the tags code. It is put again as it was
stored, with all of its properties, under the topic and the queue that its properties name. How far a level was delivered is
kept in `DelayOffsets`; after a crash what was delivered since that was written is delivered once more.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, RecordBatch

from logdex._files import replace_file, sync_directory
from logdex.arrow import take_rows
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex._core import ConsumeQueue
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.queue_set import QueueSet

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_REAL_TOPIC = "REAL_TOPIC"
_REAL_QUEUE = "REAL_QID"
_LARGEST_ADDRESS = -(1 << 31) - 1
_LARGEST_QUEUE = (1 << 31) - 1
_UNITS_A_STEP = 1_024
_KEPT_COLUMNS = (
    "born_timestamp",
    "body",
    "properties",
    "flag",
    "sys_flag",
    "reconsume_times",
    "born_host",
    "store_host",
)

_NAME = "delayOffset.json"
_TABLE = "offsetTable"
# Texts in quotes are passed over whole; what else looks like an integer before a colon is a name.
_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<name>-?\d+)(?P<colon>\s*:)')
_ONE_A_LINE = re.compile(rf'"{_TABLE}"\s*:\s*\{{\s*\n\s*"?\d')

_log = logging.getLogger(__name__)


class DelayOffsets:
    """The next queue offset of each delay level.

    Attributes:
        offsets: Levels from 1 on, and the offset in the level's queue of what is delivered next.
    """

    def __init__(self, config: Path) -> None:
        """Read the file, or its copy `.bak` where it is missing, empty or damaged; without both nothing was delivered.

        Args:
            config: The store's directory `config`, which may be missing.

        Raises:
            CorruptFileError: Both are there and neither can be read.
            OSError: The system refuses.
        """
        self._path = config / _NAME
        self._others: dict[str, Any] = {}
        self._one_a_line = False
        self._written: dict[int, int] | None = None
        self.offsets: dict[int, int] = {}
        damage: CorruptFileError | None = None
        for path in (self._path, self._backup):
            try:
                self._load(path)
            except FileNotFoundError:
                continue
            except CorruptFileError as error:
                damage = damage or error
                continue
            return
        if damage is not None:
            raise damage

    @property
    def _backup(self) -> Path:
        return self._path.with_name(f"{_NAME}.bak")

    def _load(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            table = json.loads(_BARE_NAME.sub(_with_quotes, text))
            offsets = {_integer(level): _integer(offset) for level, offset in table.pop(_TABLE, {}).items()}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise CorruptFileError(str(path), 0, "a table of delay levels and offsets", str(error)) from None
        self.offsets, self._others = offsets, table
        self._one_a_line = _ONE_A_LINE.search(text) is not None
        if path == self._path:
            self._written = dict(offsets)

    def save(self) -> None:
        """Write the file if it does not say this already, and keep what it said before as `.bak`.

        A broker deletes the file before it gives the new one its name; here the new one takes the place of the old one.

        Raises:
            OSError: The system refuses; then the file is as it was.
        """
        if self.offsets == (self._written or {}):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            replace_file(self._backup, self._path.read_bytes())
        replace_file(self._path, self.text().encode())
        sync_directory(self._path.parent)
        self._written = dict(self.offsets)

    def text(self) -> str:
        """Give the broker's text."""
        between = ",\n\t\t" if self._one_a_line else ","
        first = "\n\t\t" if self._one_a_line else ""
        offsets = between.join(f"{level}:{offset}" for level, offset in sorted(self.offsets.items()))
        members = {name: _dumps(value) for name, value in self._others.items()}
        members[_TABLE] = f"{{{first}{offsets}\n\t}}"
        return "{\n\t" + ",\n\t".join(f'"{name}":{members[name]}' for name in sorted(members)) + "\n}"


class ScheduleService:
    """Delivers the parked messages of a store. Not for several threads at a time."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueSet,
        offsets: DelayOffsets,
        levels: Sequence[int],
        put: Callable[[RecordBatch], object],
    ) -> None:
        """Prepare; nothing is read.

        Args:
            log: The log, for reading.
            queues: Its queues, for reading.
            offsets: Up to where the levels were delivered.
            levels: The delays of the levels, in ms, level 1 first.
            put: Puts messages with bodies as they are stored.
        """
        self._log = log
        self._queues = queues
        self._offsets = offsets
        self._levels = levels
        self._put = put

    def deliver_due(self, now: int) -> int:
        """Deliver what is due in all levels; give the number of messages.

        A parked message that cannot be read, that does not say where it belongs or that no log takes is passed over with a
        warning; half messages are, too, as a broker does.

        Args:
            now: The time, ms since the epoch.

        Raises:
            OSError: The system refuses. What was delivered by then is not delivered again.
        """
        return sum(self._deliver(level, now) for level in range(1, len(self._levels) + 1))

    def _deliver(self, level: int, now: int) -> int:
        try:
            queue = self._queues.queue(SCHEDULE_TOPIC, level - 1)
        except FileNotFoundError:
            return 0
        count = 0
        end = queue.max_offset
        # The table of a store that lost queue files, or whose topic was deleted, may say anything.
        at = min(max(self._offsets.offsets.get(level, 0), queue.min_offset), end)
        while at < end:
            units = queue.units(at, min(end, at + _UNITS_A_STEP))
            due = _due_rows(self._times(queue, units), now, self._levels[level - 1])
            offsets: list[int] = list(units.column("phy_offset").to_pylist()[:due])
            places: list[int] = list(units.column("queue_offset").to_pylist())
            done = 0
            for messages in self._log.message_batches(offsets, body="stored"):
                count += self._put_all(real_messages(messages))
                done += messages.num_rows
                at = self._offsets.offsets[level] = places[done - 1] + 1
            if due < _UNITS_A_STEP:
                break
        return count

    def _times(self, queue: ConsumeQueue, units: RecordBatch) -> list[int]:
        """Give the times of delivery of units, from the extension files where they are there.

        Without them a time so far back that it looks like an address is a time, as for a broker without enableConsumeQueueExt.
        """
        codes: list[int] = list(units.column("tags_code").to_pylist())
        addresses = [code if code <= _LARGEST_ADDRESS else None for code in codes]
        if not any(addresses) or self._queues.extension(queue.path) is None:
            return codes
        extended = queue.extension_units(addresses).column("tags_code").to_pylist()
        # A lost extension file: the message is due.
        return [
            code if address is None else time if time is not None else 0
            for code, address, time in zip(codes, addresses, extended, strict=True)
        ]

    def _put_all(self, messages: RecordBatch) -> int:
        """Put messages; give the number of those that the log takes."""
        if not messages.num_rows:
            return 0
        try:
            self._put(messages)
        except ValueError as error:
            # Nothing was written. One that no log takes must not hold up the others for ever.
            if messages.num_rows == 1:
                _log.warning("a scheduled message is not delivered: %s", error)
                return 0
            return sum(self._put_all(messages.slice(row, 1)) for row in range(messages.num_rows))
        return messages.num_rows


def _due_rows(times: Sequence[int], now: int, delay: int) -> int:
    """Count the units at the beginning that are due; one that is further off than its level's delay is due, too."""
    for row, time in enumerate(times):
        if now < time <= now + delay:
            return row
    return len(times)


def real_messages(parked: RecordBatch) -> RecordBatch:
    """Turn parked messages into those that are delivered; leave out what cannot be delivered."""
    topics: list[str] = []
    queues: list[int] = []
    rows: list[int] = []
    stored = parked.column("topic").to_pylist()
    offsets = parked.column("phy_offset").to_pylist()
    for row, pairs in enumerate(parked.column("properties").to_pylist()):
        properties: dict[str, Any] = dict(pairs or ())
        topic, queue = properties.get(_REAL_TOPIC), _queue_id(properties.get(_REAL_QUEUE, ""))
        if stored[row] != SCHEDULE_TOPIC or topic is None or queue is None:
            _log.warning("the message at offset %s of the log is not delivered: no scheduled message", offsets[row])
        elif topic == _HALF_TOPIC:
            _log.warning("the message at offset %s of the log is not delivered: a half message", offsets[row])
        else:
            topics.append(topic)
            queues.append(queue)
            rows.append(row)
    kept = take_rows(parked, rows)
    columns: dict[str, Any] = {name: kept.column(name) for name in _KEPT_COLUMNS}
    columns["topic"] = Array(topics, type=DataType.utf8())
    columns["queue_id"] = Array(queues, type=DataType.int32())
    return RecordBatch.from_pydict(columns)


def _queue_id(text: str) -> int | None:
    """Give the queue that a text names; None where it is no number of a queue, from 0 to the largest i32."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= len(str(_LARGEST_QUEUE)) else _LARGEST_QUEUE + 1
    return number if number <= _LARGEST_QUEUE else None


def _with_quotes(match: re.Match[str]) -> str:
    return match[0] if match["name"] is None else f'"{match["name"]}"{match["colon"]}'


def _integer(value: str | float) -> int:
    if isinstance(value, float) or int(value) < 0:
        raise ValueError(f"no offset or level: {value!r}")
    return int(value)


def _dumps(value: Any) -> str:  # noqa: ANN401 -- what JSON holds
    """Write a value as fastjson does, at the first level of a table."""
    return json.dumps(value, indent="\t", separators=(",", ":")).replace("\n", "\n\t")
