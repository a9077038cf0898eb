"""Scheduled messages: what was parked goes into its own topic when its time has come.

Source: ScheduleMessageService#executeOnTimeup, #messageTimeup, #correctDeliverTimestamp. A message of level *n* waits in queue
*n* - 1 of `SCHEDULE_TOPIC_XXXX`; its unit holds the time of delivery in the place of the tags code. It is put again as it was
stored, with all of its properties, under the topic and the queue that its properties name. How far a level was delivered is
kept in `DelayOffsets`; after a crash what was delivered since that was written is delivered once more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, RecordBatch

from logdex.arrow import take_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logdex._core import CommitLog, ConsumeQueue
    from logdex.rocketmq.delay_offsets import DelayOffsets
    from logdex.rocketmq.queues import QueueSet

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

_log = logging.getLogger(__name__)


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
