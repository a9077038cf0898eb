"""Consume queues against the log: every message has its unit, every unit its message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from logdex.report import Finding, Report, merge
from logdex.rocketmq.topics import configured_topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import ConsumeQueue
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queue_set import QueueSet

_TRANSACTION = 0xC
_IN_QUEUES = (0x0, 0x8)
"""Transaction types that get a unit: none and COMMIT."""

_UNIT_BYTES = {"plain": 20, "batch": 46}
_UNITS_A_STEP = 8_192
_UNITS_IN_MEMORY = 1 << 20
_FEWEST_UNITS_AHEAD = 256
_DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
_MAX_EXTENSION_ADDRESS = -(1 << 31) - 1
_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
_LMQ = "%LMQ%"
_UNIT = tuple[int, int, int]


@dataclass
class _Queue:
    """What is known of one queue while the log goes by."""

    path: Path
    kind: str
    is_extended: bool
    open: Callable[[Path], ConsumeQueue]
    ahead: int = _UNITS_A_STEP
    units: dict[int, _UNIT] = field(default_factory=dict)
    begin: int = 0
    matched: int = 0

    @property
    def queue(self) -> ConsumeQueue:
        """The queue; there may be too many to keep them open."""
        return self.open(self.path)

    def unit(self, queue_offset: int) -> _UNIT | None:
        """Give the unit of a queue offset as (phy_offset, size, tags_code); steps through the queue as the log goes by."""
        if not self.begin <= queue_offset < self.begin + self.ahead or not self.units:
            self.begin = queue_offset
            self.units = _read(self.queue, queue_offset, queue_offset + self.ahead)
        return self.units.get(queue_offset)

    def tags_code(self, code: int) -> int | None:
        """Give the tags code that a unit's own means; None where that is an address at which no extension unit is."""
        if code > _MAX_EXTENSION_ADDRESS:
            return code
        if not self.is_extended:
            return None
        found: int | None = self.queue.extension_units([code]).column("tags_code")[0].as_py()
        return found


@dataclass
class _Run:
    """Messages one after another that lack their unit."""

    begin: int
    end: int
    first_phy_offset: int


class QueueCheck:
    """Compares units with messages as the log goes by."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: QueueSet) -> None:
        """Open the queues."""
        self._layout = layout
        self._log = log
        self._readable = queues.is_readable()
        self._queues: dict[tuple[str, int], _Queue] = {}
        reports = []
        end = 0
        for key, paths in queues.directories().items():
            for path in paths:
                queue = queues.open(path)
                reports.append(queue.check_files())
                known = _Queue(path, queue.kind, queues.extension(path) is not None, queues.open)
                self._queues[key] = known
                last = _read(queue, max(queue.min_offset, queue.max_offset - 1), queue.max_offset)
                end = max([end, *(phy_offset + size for phy_offset, size, _ in last.values())])
        for known in self._queues.values():
            # There may be many thousands of queues.
            known.ahead = max(_FEWEST_UNITS_AHEAD, min(_UNITS_A_STEP, _UNITS_IN_MEMORY // len(self._queues)))
        self._files = merge(reports)
        # Without a clean stop the end of the log may not have come to the queues yet.
        self._dispatched = end if layout.abort.exists() else None
        self._configured = frozenset(configured_topics(layout.config))
        self._findings: list[Finding] = []
        self._missing: dict[tuple[str, int], list[_Run]] = {}
        self._without_queue = 0
        self._undispatched = 0

    def check_messages(self, batch: RecordBatch) -> None:
        """Compare the messages of a batch with their units."""
        if not self._queues:
            return
        names = ("topic", "queue_id", "queue_offset", "phy_offset", "store_size", "sys_flag", "tags")
        for topic, queue_id, queue_offset, phy_offset, size, flag, tags in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            if flag & _TRANSACTION not in _IN_QUEUES:
                continue
            known = self._queues.get((topic, queue_id))
            unit = None if known is None else known.unit(queue_offset)
            if known is not None and unit is not None and unit[:2] == (phy_offset, size):
                known.matched += 1
                if not _tags_fit(known, topic, tags, unit[2]):
                    self._add(
                        known,
                        queue_offset,
                        "queue-tags",
                        f"tags code {tags_code(tags)} of {tags!r}, for the message at {phy_offset}",
                        str(unit[2]),
                    )
            elif self._dispatched is not None and phy_offset >= self._dispatched:
                self._undispatched += 1
            elif known is None and self._configured and topic not in self._configured:
                self._without_queue += 1
            else:
                self._miss((topic, queue_id), queue_offset, phy_offset)

    def _miss(self, key: tuple[str, int], queue_offset: int, phy_offset: int) -> None:
        runs = self._missing.setdefault(key, [])
        if runs and runs[-1].end == queue_offset:
            runs[-1].end += 1
        else:
            runs.append(_Run(queue_offset, queue_offset + 1, phy_offset))

    def _add(self, known: _Queue, queue_offset: int, kind: str, expected: str, found: str) -> None:
        path, at = _place(known.queue, queue_offset)
        self._findings.append(Finding(path, at, kind, expected, found))

    def finish(self) -> Report:
        """Say what was found, after looking at the units that no message of the log had."""
        units = 0
        for key, known in self._queues.items():
            count = self._check_units(key, known)
            units += count
        for key, runs in self._missing.items():
            self._report_missing(key, runs)
        checked = {"queues": len(self._queues), "units_followed": units}
        if self._undispatched:
            checked["messages_not_dispatched"] = self._undispatched
        if self._without_queue:
            checked["messages_of_deleted_topics"] = self._without_queue
        return merge([self._files, Report(self._findings, checked)])

    def _report_missing(self, key: tuple[str, int], runs: list[_Run]) -> None:
        known = self._queues.get(key)
        for run in runs:
            count = run.end - run.begin
            which = f"unit {run.begin}" if count == 1 else f"units {run.begin} to {run.end - 1}"
            what = "a message" if count == 1 else f"{count} messages"
            expected = f"{which} for {what} of the log, from offset {run.first_phy_offset}"
            if known is None:
                path = self._layout.queues / key[0] / str(key[1])
                self._findings.append(Finding(str(path), 0, "queue-missing", expected, "no queue"))
            else:
                unit = known.unit(run.begin)
                found = "nothing" if unit is None else f"a unit that leads to offset {unit[0]}, size {unit[1]}"
                self._add(known, run.begin, "queue-missing", expected, found)

    def _check_units(self, key: tuple[str, int], known: _Queue) -> int:
        """Look at the units of a queue; only where the messages did not account for all of them."""
        queue = known.queue
        begin, end = queue.min_offset, queue.max_offset
        if known.kind == "plain" and known.matched == end - begin:
            return known.matched
        count = 0
        first_offset, end_offset = self._log.min_offset, self._log.max_offset
        for first in range(begin, end, _UNITS_A_STEP):
            units = _read(queue, first, min(end, first + _UNITS_A_STEP))
            count += len(units)
            # What lies before the log begins was deleted with it.
            within = {offset: unit for offset, unit in units.items() if unit[0] >= first_offset}
            self._check_leads(key, known, within, end_offset)
        return count

    def _check_leads(self, key: tuple[str, int], known: _Queue, units: dict[int, _UNIT], end_offset: int) -> None:
        columns = ("topic", "queue_id", "queue_offset", "store_size")
        rows = self._log.messages([unit[0] for unit in units.values()], columns=columns)
        facts = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        for (queue_offset, (phy_offset, size, _)), fact in zip(units.items(), facts, strict=True):
            topic, queue_id, own_offset, own_size = fact
            if (topic, queue_id, own_offset, own_size) == (*key, queue_offset, size):
                continue
            if topic is None:
                found = "the end of the log" if phy_offset >= end_offset else "no good message"
            elif own_size == size and self._is_dispatched_to(key, queue_offset, phy_offset):
                continue
            else:
                found = f"a message of {topic!r}, queue {queue_id}, queue offset {own_offset}, size {own_size}"
            expected = f"message {queue_offset} of {key[0]!r}, queue {key[1]}, size {size}, at offset {phy_offset}"
            self._add(known, queue_offset, "queue-message", expected, found)

    def _is_dispatched_to(self, key: tuple[str, int], queue_offset: int, phy_offset: int) -> bool:
        """Say whether a message of another topic says itself that it has a unit here (multi-dispatch)."""
        message = self._log.message(phy_offset)
        if message is None:
            return False
        names = message.properties.get(_MULTI_DISPATCH, "").split(",")
        offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
        queue_id = 0 if key[0].startswith(_LMQ) else message.queue_id
        return (key[0], str(queue_offset)) in zip(names, offsets, strict=False) and queue_id == key[1]


def _read(queue: ConsumeQueue, begin: int, end: int) -> dict[int, _UNIT]:
    units = queue.units(begin, end)
    names = ("queue_offset", "phy_offset", "size", "tags_code")
    rows = zip(*(units.column(name).to_pylist() for name in names), strict=True)
    return {queue_offset: (phy_offset, size, code) for queue_offset, phy_offset, size, code in rows}


def _place(queue: ConsumeQueue, queue_offset: int) -> tuple[str, int]:
    """Give the file in which a unit stands, and the byte; of a batch queue, whose units are not numbered, its directory."""
    if queue.kind == "batch":
        return str(queue.path), 0
    at = queue_offset * _UNIT_BYTES[queue.kind]
    for path in reversed(queue.files):
        if re.fullmatch(r"\d{20}", path.name) and int(path.name) <= at:
            return str(path), at - int(path.name)
    return str(queue.path), at


def _tags_fit(known: _Queue, topic: str, tags: str | None, code: int) -> bool:
    """Compare a unit's tags code with the tags of its message (MessageExtBrokerInner#tagsString2tagsCode)."""
    if topic == _DELAY_TOPIC:
        # There the time of delivery, by a table of levels that the store does not hold.
        return True
    return known.tags_code(code) == tags_code(tags)


@lru_cache(maxsize=65_536)
def tags_code(tags: str | None) -> int:
    """Give Java's `String.hashCode` of tags, 0 without any."""
    units = (tags or "").encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return code - (1 << 32) if code >> 31 else code
