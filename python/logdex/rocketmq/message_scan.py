"""Reading messages by topic, queue and time: from the queues where that is wanted, else from the log."""

from __future__ import annotations

import heapq
import logging
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from arro3.core import DataType

from logdex._core import StoreCheckpoint, broker_lock_holder
from logdex.arrow import BatchStream, take_rows
from logdex.hash_index.query import MAX_TIME, MIN_TIME
from logdex.rocketmq.find import check_scan
from logdex.rocketmq.queue_set import parts
from logdex.rocketmq.sound import sound_messages, warn
from logdex.rocketmq.unit_facts import FACTS, facts_at, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from arro3.core import RecordBatch

    from logdex._core import ConsumeQueue
    from logdex._types import Body, Scan
    from logdex.hash_index.query import TimeRange
    from logdex.report import Finding
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queue_set import QueueSet
    from logdex.rocketmq.ranges import Range

_log = logging.getLogger(__name__)

_SCAN_BUDGET_BYTES = 1 << 30
_MESSAGES_A_STEP = 8_192
_BATCH_BYTES = 64 << 20
_FACTS = (*FACTS, "store_size")
_Unit: TypeAlias = tuple[int, int, int, int]
"""Where a message begins, its size, its queue and its place there."""


class UntrueUnitError(Exception):
    """A queue holds what cannot be true, so the log is read instead."""


class MessageScan:
    """Reads the messages of a store that filters let pass."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: QueueSet, *, salvage: bool) -> None:
        """Prepare; nothing is read.

        Args:
            layout: Where the parts of the store lie.
            log: Its log.
            queues: Its queues.
            salvage: Go on behind damage; otherwise end where a broker's walk would.
        """
        self._layout = layout
        self._log = log
        self._queues = queues
        self._salvage = salvage

    def messages(
        self,
        filters: Filter,
        columns: Iterable[str] | None,
        scan: Scan,
        slack_ms: int,
        *,
        body: Body = "decoded",
        on_damage: Callable[[Finding], None] = warn,
    ) -> BatchStream:
        """Read messages in log order; see `MessageStore.messages`."""
        check_scan(scan)
        wanted = self._log.messages([], columns=columns, body=body).schema
        names = wanted.names
        read = list(dict.fromkeys([*names, *filters.columns, *_FACTS]))
        ranges = ranges_in_time(self._log, filters.times, slack_ms)
        size = sum(end - begin for begin, end in ranges)
        by_queues = scan is False or (scan == "auto" and size > _SCAN_BUDGET_BYTES)

        def batches() -> Iterator[RecordBatch]:
            at = 0
            try:
                if by_queues and filters.topic is not None:
                    # Asked for once: what is dispatched while the queues are read is not among what is read of them.
                    limit = self.dispatched_up_to()
                    for batch, at in self._by_queues(filters, read, body, limit):  # noqa: B007 -- how far counts after an error
                        yield batch.select(names)
                    at = max(at, limit)
            except UntrueUnitError as error:
                _log.warning("%s; the log is read instead, from offset %d", error, at)
            for begin, end in ranges:
                for batch in sound_messages(
                    self._log, read, max(begin, at), end, salvage=self._salvage, body=body, on_damage=on_damage
                ):
                    kept = filters.apply(batch)
                    if kept.num_rows:
                        yield kept.select(names)

        return BatchStream(wanted, batches())

    def _by_queues(
        self, filters: Filter, read: Sequence[str], body: Body, limit: int
    ) -> Iterator[tuple[RecordBatch, int]]:
        """Read the messages before an offset of the log that the queues of a topic lead to.

        Yields:
            A batch, and the offset behind its last message.

        Raises:
            UntrueUnitError: A unit leads to something else than its message.
        """
        streams = [
            self._rising(topic, _units(self._queues.open(path), queue_id, filters.times), limit)
            for (topic, queue_id), paths in self._queues.directories().items()
            if topic == filters.topic and filters.queue_id in (None, queue_id)
            for path in paths
        ]
        if not streams:
            raise UntrueUnitError(f"there is no queue of {filters.topic!r}")
        step: list[_Unit] = []
        size = 0
        for unit in heapq.merge(*streams):
            if unit[0] < self._log.min_offset:
                continue
            step.append(unit)
            size += unit[1]
            if len(step) >= _MESSAGES_A_STEP or size >= _BATCH_BYTES:
                yield from self._checked(step, filters, read, body)
                step, size = [], 0
        yield from self._checked(step, filters, read, body)

    def _rising(self, topic: str, units: Iterator[_Unit], limit: int) -> Iterator[_Unit]:
        """Give the units of a queue that lead to messages before an offset, each when it is known not to lead too far.

        One that did would come late, after messages behind its own were given, from where the log is read.

        Raises:
            UntrueUnitError: A unit leads no further than the one before, or the last one not to its message.
        """
        held: _Unit | None = None
        for unit in units:
            if held is not None:
                if unit[0] <= held[0]:
                    raise UntrueUnitError(
                        f"unit {unit[3]} of queue {unit[2]} of {topic!r} leads back to offset {unit[0]}"
                    )
                if held[0] >= limit:
                    break
                yield held
            held = unit
        if held is None:
            return
        if held[0] >= self._log.min_offset and not self._is_true(topic, held):
            raise _untrue(topic, held)
        if held[0] < limit:
            yield held

    def _is_true(self, topic: str, unit: _Unit) -> bool:
        """Say whether a unit leads to its message."""
        phy_offset, size, queue_id, queue_offset = unit
        return facts_at(self._log, phy_offset, _FACTS) == (topic, queue_id, queue_offset, phy_offset, size)

    def _checked(
        self, units: list[_Unit], filters: Filter, read: Sequence[str], body: Body
    ) -> Iterator[tuple[RecordBatch, int]]:
        rest = iter(units)
        for batch in self._log.message_batches([unit[0] for unit in units], columns=read, body=body):
            end = 0
            for found, unit in zip(facts_of(batch, _FACTS), rest, strict=False):
                phy_offset, size, queue_id, queue_offset = unit
                if found != (filters.topic, queue_id, queue_offset, phy_offset, size):
                    raise _untrue(str(filters.topic), unit)
                end = phy_offset + size
            yield filters.apply(batch), end

    def dispatched_up_to(self) -> int:
        """Give the offset up to which the queues can be trusted: what a broker's start would not dispatch again."""
        last_units = [
            (unit, topic)
            for (topic, queue_id), paths in self._queues.directories().items()
            for path in paths
            if (unit := _last_unit(self._queues.open(path), queue_id)) is not None
        ]
        # A damaged one must not vouch for what no queue leads to.
        farthest = sorted(last_units, reverse=True)
        end = next((unit[0] + unit[1] for unit, topic in farthest if self._is_true(topic, unit)), -1)
        if end < 0 or not self._layout.abort.exists() or _is_running(self._layout):
            return max(end, 0)
        checkpoint = StoreCheckpoint.open(self._layout.checkpoint) if self._layout.checkpoint.exists() else None
        _, _, dispatch = self._log.core.recovery(checkpoint, last_exit_ok=False, queue_end=end)
        return min(end, dispatch)


def ranges_in_time(log: CommitLog, times: TimeRange, slack_ms: int) -> list[Range]:
    """Give the ranges of the log that may hold messages of a time range: its files, by the times of their first messages."""
    table = log.core.file_table()
    begins, ends = (table.column(name).to_pylist() for name in ("begin_phy_offset", "end_phy_offset"))
    firsts = table.column("first_store_timestamp").cast(DataType.int64()).to_pylist()
    ranges: list[Range] = []
    for place, (begin, end, first) in enumerate(zip(begins, ends, firsts, strict=True)):
        after = firsts[place + 1] if place + 1 < len(firsts) else None
        known = None not in (first, after)
        if known and (max(first, after) + slack_ms < times.begin or min(first, after) - slack_ms > times.end):
            continue
        if first is not None and after is None and first - slack_ms > times.end:
            continue
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((begin, end))
    return ranges


def _is_running(layout: StoreLayout) -> bool:
    """Say whether a broker on this machine has the store open: its queues are whole, although not all is on disk.

    What logdex writes itself is not meant: its queues come to their files one after the other.
    """
    if layout.written_by_logdex:
        return False
    try:
        return broker_lock_holder(layout.root / "lock") is not None
    except OSError:
        return False


def _untrue(topic: str, unit: _Unit) -> UntrueUnitError:
    phy_offset, _, queue_id, queue_offset = unit
    return UntrueUnitError(
        f"unit {queue_offset} of queue {queue_id} of {topic!r} leads to offset {phy_offset}, where no such message begins"
    )


def _last_unit(queue: ConsumeQueue, queue_id: int) -> _Unit | None:
    """Give the last unit of a queue, None without units."""
    units = queue.units(queue.max_offset - 1) if queue.max_offset > queue.min_offset else None
    if units is None or not units.num_rows:
        return None
    last = units.num_rows - 1
    phy_offset, size, queue_offset = (
        units.column(name)[last].as_py() for name in ("phy_offset", "size", "queue_offset")
    )
    return phy_offset, size, queue_id, queue_offset


def _units(queue: ConsumeQueue, queue_id: int, times: TimeRange) -> Iterator[_Unit]:
    """Read units.

    Raises:
        UntrueUnitError: A unit is missing.
    """
    begin = queue.min_offset if times.begin == MIN_TIME else queue.offset_by_time(times.begin)
    end = queue.max_offset
    if times.end != MAX_TIME:
        end = min(end, queue.offset_by_time(times.end, boundary="upper") + 1)
    expected = None if queue.kind == "batch" else begin
    for first, last in parts(queue.kind, begin, end):
        units = queue.units(first, last)
        columns: list[Any] = [units.column(name).to_pylist() for name in ("phy_offset", "size", "queue_offset")]
        for phy_offset, size, queue_offset in zip(*columns, strict=True):
            if queue_offset < first and first > begin:
                # Its first messages are in the part before.
                continue
            if expected is not None and queue_offset != expected:
                raise UntrueUnitError(f"{queue.path} has no unit {expected}")
            yield phy_offset, size, queue_id, queue_offset
            expected = None if expected is None else expected + 1
        if expected is not None and expected != last:
            raise UntrueUnitError(f"{queue.path} has no unit {expected}")


class Filter:
    """Which messages pass: by topic, queue and store time; None does not filter."""

    def __init__(self, topic: str | None, queue_id: int | None, times: TimeRange) -> None:
        """Keep the wanted values.

        Raises:
            TypeError: The topic is no text, or the queue no integer: nothing would pass, and nobody would know why.
        """
        if topic is not None and not isinstance(topic, str):
            raise TypeError(f"a topic is str, not {type(topic).__name__}")
        self.topic = topic
        self.queue_id = None if queue_id is None else operator.index(queue_id)
        self.times = times

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the filter looks at."""
        looked_at: list[str] = []
        if self.topic is not None:
            looked_at.append("topic")
        if self.queue_id is not None:
            looked_at.append("queue_id")
        if (self.times.begin, self.times.end) != (MIN_TIME, MAX_TIME):
            looked_at.append("store_timestamp")
        return tuple(looked_at)

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """Give the rows that pass."""
        names = self.columns
        if not names:
            return batch
        rows: Iterable[int] = range(batch.num_rows)
        if self.topic is not None:
            topics = batch.column("topic").to_pylist()
            rows = [row for row in rows if topics[row] == self.topic]
        if self.queue_id is not None:
            queues = batch.column("queue_id").to_pylist()
            rows = [row for row in rows if queues[row] == self.queue_id]
        if "store_timestamp" in names:
            times = batch.column("store_timestamp").cast(DataType.int64()).to_pylist()
            begin, end = self.times.begin, self.times.end
            rows = [row for row in rows if times[row] is not None and begin <= times[row] <= end]
        chosen = list(rows)
        if len(chosen) == batch.num_rows:
            return batch
        return take_rows(batch, chosen)
