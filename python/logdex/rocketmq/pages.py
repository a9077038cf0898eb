"""A page of messages next to a position in the log, newest or oldest first: what a person reads, and where to read on."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from logdex._core import MessageFilter, messages_near
from logdex._types import MAX_INT64
from logdex.hash_index.query import MAX_TIME, MIN_TIME, TimeRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from arro3.core import Array, RecordBatch

    from logdex._core import CommitLog, ConsumeQueue
    from logdex._types import Stop
    from logdex.report import Finding
    from logdex.rocketmq.read import MessageRead, Range

_FIRST_WINDOW, _MOST_WINDOW = 256 << 10, 64 << 20
"""Bytes of the log that are read together, at first and at most: a page without filters needs few."""
_MOST_UNITS = 8_192
_SHORT = 64 << 10
"""Bytes of the log in which a time is not looked for more exactly."""


@dataclass(frozen=True, slots=True, repr=False)
class MessagePage:
    """Some messages next to a position in the log.

    Attributes:
        batch: The messages, in the order asked for.
        next_position: Where the next page begins; None: nothing is left in this direction.
        done: Bytes of the log from where the filters let a reader begin to where this page ends.
        total: Bytes of the log that the filters leave.
        by_queues: The messages were read through the queues of their topic, not from the log.
        findings: The missing and damaged places that this page passed over.
    """

    batch: RecordBatch
    next_position: int | None
    done: int
    total: int
    by_queues: bool
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        """Return the number of messages and the position, not the messages."""
        damage = f", {len(self.findings)} findings" if self.findings else ""
        return f"MessagePage({self.batch.num_rows} messages, next_position={self.next_position}{damage})"


@dataclass(frozen=True, slots=True)
class PageFilter:
    """The conditions of a page, all of which must hold; None: no condition."""

    topic: str | None
    queue_id: int | None
    times: TimeRange
    keys: Collection[str] | None
    tags: Collection[str] | None

    def selection(self) -> MessageFilter:
        """Return the conditions as the core takes them."""
        return MessageFilter(
            topics=None if self.topic is None else [self.topic],
            queue_ids=None if self.queue_id is None else [self.queue_id],
            begin=self.times.begin,
            end=self.times.end,
            keys=self.keys,
            tags=self.tags,
        )


class PageRead:
    """Reads one page. It ends when it has its messages, at the end of the log, or when its time is over."""

    def __init__(self, read: MessageRead, wanted: PageFilter, *, limit: int, backwards: bool, seconds: float) -> None:
        self._read = read
        # The files of now: one that the broker deletes before it is read is an error.
        self._log: CommitLog = read.log.pinned()
        self._starts = [int(path.name) for path in self._log.files]
        self._end = self._log.max_offset
        self._wanted = wanted
        self._selection = wanted.selection()
        self._limit = limit
        self._backwards = backwards
        self._until = time.monotonic() + seconds
        self._has_begun = False
        self._offsets: list[int] = []
        self._findings: list[Finding] = []

    def page(self, position: int | None, columns: Iterable[str] | None, slack_ms: int) -> MessagePage:
        """Read the messages next to a position; None: from the end of the log that the order begins with."""
        times = self._wanted.times
        ranges = self._in_times(self._log.ranges_in_time(times.begin, times.end, slack_ms))
        # After the end there is nothing, or damage with messages behind it. These bytes are not counted.
        end = self._end
        total = sum(min(high, end) - low for low, high in ranges if low < end)
        divide = self._divide() if self._queue_paths() else 0
        # Opened after it, because the offset may be beyond a unit, or a queue, that was written meanwhile.
        queues = self._queues() if divide else None
        left = [part for part in (self._clipped(each, position) for each in ranges) if part[0] < part[1]]
        edges = sorted({0, min(divide, end), end, MAX_INT64})
        parts = [(max(low, a), min(high, b)) for low, high in left for a, b in pairwise(edges)]
        parts = [part for part in parts if part[0] < part[1]]
        at = None
        if parts:
            at = parts[-1][1] if self._backwards else parts[0][0]
        for low, high in reversed(parts) if self._backwards else parts:
            if self._is_over():
                # Where the part before ended.
                break
            at = self._by_queues(queues, low, high) if queues and high <= divide else self._by_log(low, high)
        clipped = [] if at is None else [self._clipped(each, at) for each in ranges]
        rest = sum(max(0, min(high, end) - low) for low, high in clipped)
        is_left = any(self._holds_messages(*part) for part in clipped)
        offsets = self._offsets[: self._limit]
        return MessagePage(
            self._log.messages(offsets, columns=columns),
            at if is_left else None,
            total - rest,
            total,
            queues is not None,
            tuple(self._findings),
        )

    def _holds_messages(self, low: int, high: int) -> bool:
        """Return whether a range may hold messages. Behind the end of the log there are some only if it is damaged."""
        if low >= high or low < self._end:
            return low < high
        columns, _ = self._walk(low, high, "valid")
        return any(len(column) for column in columns)

    def _clipped(self, part: Range, position: int | None) -> Range:
        low, high = part
        if position is None:
            return part
        return (low, min(high, position)) if self._backwards else (max(low, position), high)

    def _is_over(self) -> bool:
        # A page goes on by one step at least, however slow the disk is: else its reader would ask for it again and again.
        is_late = self._has_begun and time.monotonic() >= self._until
        return is_late or len(self._offsets) >= self._limit

    def _queue_paths(self) -> list[Path]:
        """Return the directories of the wanted queues; none without a topic."""
        wanted = self._wanted
        places = {} if wanted.topic is None else self._read.queues.directories([wanted.topic])
        return [path for (_, number), paths in places.items() if wanted.queue_id in (None, number) for path in paths]

    def _queues(self) -> list[tuple[ConsumeQueue, int, int]] | None:
        """Return the queues of the topic with their first and last offsets; None: the log must be read."""
        opened = [*map(self._read.queues.open, self._queue_paths())]
        # Units are counted from the first one that exists: with a missing file they belong to other messages.
        if not opened or any(queue.gaps() for queue in opened):
            return None
        return [(queue, queue.min_offset, queue.max_offset) for queue in opened]

    def _in_times(self, ranges: Sequence[Range]) -> list[Range]:
        """Return the parts of ranges that have the messages of the asked times, if the broker's clock never stepped back."""
        times = self._wanted.times
        if not ranges or (times.begin, times.end) == (MIN_TIME, MAX_TIME):
            return [*ranges]
        low, high = ranges[0][0], min(ranges[-1][1], self._end)
        first = low if times.begin == MIN_TIME else self._bisect(low, high, times.begin)[0]
        last = high if times.end == MAX_TIME else self._bisect(first, high, times.end + 1)[1]
        parts = [(max(low, first), min(high, last)) for low, high in ranges]
        return [part for part in parts if part[0] < part[1]]

    def _bisect(self, low: int, high: int, store_time: int) -> tuple[int, int]:
        """Return a short range of the log that has the first message of a time or later."""
        while high - low > _SHORT:
            middle = (low + high) // 2
            at = self._log.next_message(middle, high)
            found = None if at is None else self._log.message(at)
            if at is not None and found is not None and found.store_timestamp < store_time:
                low = at
            else:
                high = middle
        return low, high

    def _divide(self) -> int:
        """Return the offset up to which the queues have every message."""
        topic = self._wanted.topic
        return self._read.dispatched_up_to(None if topic is None else [topic], lately=True)

    def _by_queues(self, queues: Sequence[tuple[ConsumeQueue, int, int]], low: int, high: int) -> int:
        """Read messages of [low, high) through their units; return the position where to read on."""
        at, most = (high if self._backwards else low), self._limit
        while not self._is_over():
            self._has_begun = True
            offsets, _ = messages_near(queues, at, most, backwards=self._backwards)
            inside = [offset for offset in offsets if low <= offset < high]
            if not inside:
                return low if self._backwards else high
            reader = self._log.message_batches(inside, columns=("phy_offset",), selection=self._selection)
            need = self._limit - len(self._offsets)
            for batch in reader:
                self._offsets += batch.column(0).slice(0, min(need + 1, batch.num_rows)).to_pylist()
            last = inside[-1]
            if len(self._offsets) > self._limit:
                del self._offsets[self._limit :]
                last = self._offsets[-1]
            at = last if self._backwards else last + 1
            if len(inside) < len(offsets) and last == inside[-1]:
                return low if self._backwards else high
            most = min(most * 4, _MOST_UNITS)
        return at

    def _by_log(self, low: int, high: int) -> int:
        """Read messages of [low, high) from the log; return the position where to read on."""
        window = _FIRST_WINDOW if low < self._end else high - low
        while low < high and not self._is_over():
            self._has_begun = True
            if self._backwards:
                high = self._step_back(low, high, window)
            else:
                low = self._step_on(low, min(high, low + window))
            window = min(window * 2, _MOST_WINDOW)
        return high if self._backwards else low

    def _step_back(self, low: int, high: int, window: int) -> int:
        """Read the messages of one window before `high`; return its begin, or the last message that is wanted."""
        start = self._starts[max(0, bisect_left(self._starts, high) - 1)]
        begin = max(low, start, high - window)
        if begin > max(low, start):
            # Frames are only found by walking, or by the offset that they state.
            first = self._log.next_message(begin, high)
            if first is None:
                return begin
            begin = first
        columns, _ = self._scan(begin, high)
        need = self._limit - len(self._offsets)
        found: list[int] = []
        for column in reversed(columns):
            if len(found) > need:
                break
            found += reversed(column.slice(max(0, len(column) - need - 1)).to_pylist())
        self._offsets += found[:need]
        return found[need - 1] if len(found) > need else begin

    def _step_on(self, low: int, end: int) -> int:
        """Read the messages of one window; return where the next begins, or the first message that is not wanted."""
        columns, reached = self._scan(low, end)
        need = self._limit - len(self._offsets)
        found: list[int] = []
        for column in columns:
            if len(found) > need:
                break
            found += column.slice(0, min(len(column), need + 1)).to_pylist()
        self._offsets += found[:need]
        return found[need] if len(found) > need else reached

    def _scan(self, begin: int, end: int) -> tuple[list[Array], int]:
        """Return the offsets of the messages of a range that pass the filters, and where the next message begins."""
        found, reached = self._walk(begin, end, "broker") if begin < self._end else ([], begin)
        if reached < end and self._read.salvage:
            # Damage, or a missing file.
            more, reached = self._walk(reached, end, "valid")
            found += more
        return found, max(reached, end)

    def _walk(self, begin: int, end: int, stop: Stop) -> tuple[list[Array], int]:
        reader = self._log.scan(
            begin_phy_offset=begin, end_phy_offset=end, columns=("phy_offset",), stop=stop, selection=self._selection
        )
        found = [batch.column(0) for batch in reader]
        told = [each for each in reader.report.findings if _is_within(each, begin, end)]
        self._findings += [each for each in told if stop == "valid" or each.kind == "file-gap"]
        reached = reader.end_offset
        return found, end if reached is None else reached


def _is_within(finding: Finding, begin: int, end: int) -> bool:
    """Return whether a finding of a file of the log is in a range. A missing file counts always."""
    name = PurePath(finding.path).name
    return not name.isdecimal() or finding.kind == "file-gap" or begin <= int(name) + finding.offset < end
