"""Consume queues against the log: every message has its unit, every unit its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex._core import QueueFollower
from logdex.report import Finding, Report, merge
from logdex.rocketmq.layout import OFFSET_NAME, configured_topics
from logdex.rocketmq.queues import UNIT_BYTES, parts
from logdex.rocketmq.store_root import written_by_logdex

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import CommitLog, ConsumeQueue
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queues import QueueSet

_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
_LMQ = "%LMQ%"
_UNIT = tuple[int, int]


@dataclass(frozen=True)
class _Queue:
    """One queue; `number` is the follower's, None where no message can name it."""

    path: Path
    kind: str
    number: int | None
    open: Callable[[Path], ConsumeQueue]

    @property
    def queue(self) -> ConsumeQueue:
        """The queue; there may be too many to keep them open."""
        return self.open(self.path)


class QueueCheck:
    """Compares units with messages as the log goes by."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: QueueSet) -> None:
        """Look at the files of the queues."""
        self._layout = layout
        self._log = log
        unclean = layout.abort.exists()
        reports = []
        end = 0
        directories = queues.directories()
        for paths in directories.values():
            for path in paths:
                queue = queues.open(path)
                reports.append(queue.check_files())
                if unclean:
                    last = _read(queue, max(queue.min_offset, queue.max_offset - 1), queue.max_offset)
                    end = max([end, *(phy_offset + size for phy_offset, size in last.values())])
        self._files = merge(reports)
        # What logdex writes comes to the files of one queue after the other, so each of them may end earlier.
        self._one_by_one = unclean and written_by_logdex(layout)
        # Without a clean stop the end of the log may not have come to the queues yet.
        dispatched = end if unclean else None
        self._follower = QueueFollower(dispatched=dispatched, topics=configured_topics(layout.config))
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._numbered: dict[int | None, _Queue] = {}
        for key, paths in directories.items():
            queue = queues.open(paths[-1])
            known = _Queue(paths[-1], queue.kind, self._follower.add(*key, queue), queues.open)
            self._queues[key] = self._numbered[known.number] = known
        self._findings: list[Finding] = []
        self._absent: list[str] = []
        if not self._queues:
            in_rocksdb = layout.queues.is_dir() and not queues.is_readable()
            self._absent = ["consume queues (kept in a RocksDB)" if in_rocksdb else "consume queues"]

    def check_messages(self, batch: RecordBatch) -> None:
        """Compare the messages of a batch with their units."""
        if not self._queues:
            return
        for number, queue_offset, phy_offset, tags, expected, found in self._follower.follow(batch):
            code = f"tags code {expected} of {tags!r}, for the message at {phy_offset}"
            self._add(self._numbered[number], queue_offset, "queue-tags", code, str(found))

    def _add(self, known: _Queue, queue_offset: int, kind: str, expected: str, found: str) -> None:
        path, at = _place(known.queue, queue_offset)
        self._findings.append(Finding(path, at, kind, expected, found))

    def finish(self) -> Report:
        """Say what was found, after looking at the units that no message of the log had."""
        units = sum(self._check_units(key, known) for key, known in self._queues.items())
        undispatched = self._follower.undispatched
        for topic, queue_id, begin, end, phy_offset in self._follower.missing():
            key, run = (topic, queue_id), range(begin, end)
            if self._one_by_one and self._is_on_its_way(key, run, phy_offset):
                undispatched += len(run)
            else:
                self._report_missing(key, run, phy_offset)
        checked = {"queues": len(self._queues), "units_followed": units}
        if undispatched:
            checked["messages_not_dispatched"] = undispatched
        if self._follower.without_queue:
            checked["messages_of_deleted_topics"] = self._follower.without_queue
        return merge([self._files, Report(self._findings, checked, self._absent)])

    def _is_on_its_way(self, key: tuple[str, int], run: range, phy_offset: int) -> bool:
        """Say whether messages without units lie behind the end of their queue, which may have grown since they were compared."""
        known = self._queues.get(key)
        if known is None:
            return True
        if known.number is None:
            return False
        queue = known.queue
        written = range(run.start, min(run.stop, queue.max_offset))
        units = _read(queue, written.start, written.stop) if written else {}
        return len(units) == len(written) and (not units or units.get(run.start, (-1, 0))[0] == phy_offset)

    def _report_missing(self, key: tuple[str, int], run: range, phy_offset: int) -> None:
        known = self._queues.get(key)
        count = len(run)
        which = f"unit {run.start}" if count == 1 else f"units {run.start} to {run.stop - 1}"
        what = "a message" if count == 1 else f"{count} messages"
        expected = f"{which} for {what} of the log, from offset {phy_offset}"
        if known is None or known.number is None:
            path = self._layout.queues / key[0] / str(key[1])
            self._findings.append(Finding(str(path), 0, "queue-missing", expected, "no queue"))
        else:
            unit = self._follower.unit(known.number, run.start)
            found = "nothing" if unit is None else f"a unit that leads to offset {unit[0]}, size {unit[1]}"
            self._add(known, run.start, "queue-missing", expected, found)

    def _check_units(self, key: tuple[str, int], known: _Queue) -> int:
        """Look at the units of a queue; only where the messages did not account for all of them."""
        queue = known.queue
        begin, end = queue.min_offset, queue.max_offset
        matched = 0 if known.number is None else self._follower.matched(known.number)
        if known.kind == "plain" and matched == end - begin:
            return matched
        count = 0
        first_offset, end_offset = self._log.min_offset, self._log.max_offset
        for first, last in parts(known.kind, begin, end):
            units = {at: unit for at, unit in _read(queue, first, last).items() if at >= first or first == begin}
            count += len(units)
            # What lies before the log begins was deleted with it.
            within = {offset: unit for offset, unit in units.items() if unit[0] >= first_offset}
            self._check_leads(key, known, within, end_offset)
        return count

    def _check_leads(self, key: tuple[str, int], known: _Queue, units: dict[int, _UNIT], end_offset: int) -> None:
        columns = ("topic", "queue_id", "queue_offset", "store_size")
        rows = self._log.messages([unit[0] for unit in units.values()], columns=columns)
        facts = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        for (queue_offset, (phy_offset, size)), fact in zip(units.items(), facts, strict=True):
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
    names = ("queue_offset", "phy_offset", "size")
    rows = zip(*(units.column(name).to_pylist() for name in names), strict=True)
    return {queue_offset: (phy_offset, size) for queue_offset, phy_offset, size in rows}


def _place(queue: ConsumeQueue, queue_offset: int) -> tuple[str, int]:
    """Give the file in which a unit stands, and the byte; of a batch queue, whose units are not numbered, its directory."""
    if queue.kind == "batch":
        return str(queue.path), 0
    at = queue_offset * UNIT_BYTES[queue.kind]
    for path in reversed(queue.files):
        if OFFSET_NAME.fullmatch(path.name) and int(path.name) <= at:
            return str(path), at - int(path.name)
    return str(queue.path), at
