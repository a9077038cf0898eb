"""Read the messages of a store: from its log, from the queues of a topic, in a thread ahead of the caller."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from logdex._core import (
    MessageFilter,
    QueueReader,
    StoreCheckpoint,
    certain_range,
    fork_generation,
    last_message,
)
from logdex._types import MAX_INT64
from logdex.arrow import BatchStream
from logdex.hash_index.query import MAX_TIME, MIN_TIME
from logdex.report import Damage, warn_of_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence

    from arro3.core import Array, RecordBatch

    from logdex._core import CommitLog, MessageReader, Store
    from logdex._types import Body, Progress, Scan
    from logdex.hash_index.query import TimeRange
    from logdex.report import Finding
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queues import QueueSet

Range: TypeAlias = tuple[int, int]
"""A half-open range of log offsets."""

_log = logging.getLogger(__name__)

_SCAN_BUDGET_BYTES = 1 << 30
_SHORT_BYTES = 4 << 20
"""Reading so many bytes of a log takes less time than reading the ends of some hundred queues."""
_BATCHES_AHEAD = 4


def check_scan(scan: Scan) -> None:
    """Raise `ValueError` if the argument `scan` of a search is neither "auto" nor True nor False."""
    if scan not in ("auto", True, False):
        raise ValueError(f'scan={scan!r}: expected "auto", True or False')


def valid_messages(
    log: CommitLog,
    columns: Iterable[str] | None,
    begin: int,
    end: int | None,
    *,
    salvage: bool,
    body: Body = "decoded",
    on_damage: Callable[[Finding], None],
    queue_end: int | None = None,
    selection: MessageFilter | None = None,
    threads: int | None = 1,
) -> Iterator[RecordBatch]:
    """Scan a range of a log that may be damaged; `end` None: to the end.

    With `salvage` the scan continues after damage, without messages that a broker truncated. Otherwise it ends where a broker's
    walk would. At the end it calls `on_damage` for each missing file, and with `salvage` for each place that is not a valid
    message. Messages before `queue_end`, the end of the log that the queues cover, are returned even if they look truncated.
    """
    if end is not None and begin >= end:
        return
    reader = log.scan(
        begin_phy_offset=begin,
        end_phy_offset=end,
        columns=columns,
        stop="valid" if salvage else "broker",
        body=body,
        queue_end=queue_end,
        selection=selection,
        threads=threads,
    )
    try:
        yield from reader
    finally:
        for finding in reader.report.findings:
            if salvage or finding.kind == "file-gap":
                on_damage(finding)


def is_unicode(texts: Iterable[str]) -> bool:
    """Return whether texts have no lone surrogates, which columns of Arrow cannot hold."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Reading:
    """The files of the log when a read began, the ranges and messages that it may return, and how it returns them."""

    log: CommitLog
    ranges: list[Range]
    columns: list[str] | None
    body: Body
    selection: MessageFilter
    salvage: bool
    threads: int | None
    on_damage: Callable[[Finding], None]
    reported: list[Finding] = field(default_factory=list)

    def of_log(self, begin: int, end: int = MAX_INT64, threads: int | None = None) -> Iterator[RecordBatch]:
        """Scan the log from one offset to another."""
        for low, high in self.ranges:
            yield from valid_messages(
                self.log,
                self.columns,
                max(low, begin),
                min(high, end),
                salvage=self.salvage,
                body=self.body,
                on_damage=self._report,
                selection=self.selection,
                threads=threads or self.threads,
            )

    def of_index(self, parts: list[tuple[Range, Array]], gaps: list[tuple[int, int, Finding]]) -> Iterator[RecordBatch]:
        """Read the messages at the offsets of parts of the log, and scan the log between the parts.

        The findings of `gaps` in the log, and of damage at the offsets, are reported at the end.
        """
        at = 0
        missing: list[int] = []
        for (begin, end), offsets in parts:
            yield from self.of_rest(at, begin)
            if len(offsets):
                log, names = self.log, self.columns
                reader = log.message_batches(offsets, columns=names, body=self.body, selection=self.selection)
                yield from reader
                missing += reader.missing
            at = end
        yield from self.of_rest(at)
        for _, _, finding in (*gaps, *self.log.damage(missing)):
            self._report(finding)

    def _report(self, finding: Finding) -> None:
        """Report a finding once: a part of the log that is scanned may end in a missing file, and the next one begin in it."""
        if finding not in self.reported:
            self.reported.append(finding)
            self.on_damage(finding)

    def of_rest(self, begin: int, end: int = MAX_INT64) -> Iterator[RecordBatch]:
        """Scan a part of the log. Starting threads costs more than they save if the part is short."""
        is_short = min(end, self.log.max_offset) - begin < _SHORT_BYTES
        yield from self.of_log(begin, end, 1 if is_short else None)


@dataclass(frozen=True, slots=True)
class MessageRead:
    """Reads the messages of a store that match conditions; with `salvage` also those after damage."""

    layout: StoreLayout
    log: CommitLog
    queues: QueueSet
    salvage: bool
    index: Store | None = None

    def messages(
        self,
        topics: Sequence[str] | None,
        queue_id: int | None,
        times: TimeRange,
        *,
        span: Range,
        columns: Iterable[str] | None,
        scan: Scan,
        slack_ms: int,
        keys: Collection[str] | None = None,
        tags: Iterable[str] | None = None,
        body: Body = "decoded",
        on_damage: Callable[[Finding], None] | None = None,
        threads: int | None = None,
        known_topics: Callable[..., Sequence[str] | None] | None = None,
    ) -> BatchStream:
        """Read messages in log order; see `MessageStore.messages`.

        `known_topics` returns the topics of the store, to warn of others. With `scan=False`, None: only the log has them.
        """
        check_scan(scan)
        selection = MessageFilter(
            topics=topics,
            queue_ids=None if queue_id is None else [queue_id],
            begin=times.begin,
            end=times.end,
            keys=keys,
            tags=tags,
        )
        # The files of now: one that the broker deletes before it is read is an error, and not a range that is missing.
        log = self.log.pinned()
        names = None if columns is None else list(columns)
        schema = log.messages([], columns=names, body=body).schema
        ranges = within(span, log.ranges_in_time(times.begin, times.end, slack_ms))
        size = sum(end - begin for begin, end in ranges)
        damage = Damage()
        reading = _Reading(log, ranges, names, body, selection, self.salvage, threads, on_damage or damage.add)
        bounds = (times.begin, times.end, *span)
        is_whole = bounds == (MIN_TIME, MAX_TIME, 0, MAX_INT64) and queue_id is None and keys is None and tags is None
        found: set[str] = set()

        def batches() -> Generator[RecordBatch, None, None]:
            whole = (span[0], min(span[1], log.max_offset))
            # Without topics the index may lack a deleted topic whose messages are still in the log.
            enough = _SHORT_BYTES if topics else _SCAN_BUDGET_BYTES
            parts = None
            if keys and (scan is False or (scan == "auto" and size > enough)):
                named = topics if topics is not None or known_topics is None else known_topics(scan=False)
                parts = self._indexed(named, keys, times, whole)
            if parts is not None:
                yield from reading.of_index(parts, log.gaps(begin=times.begin, end=times.end))
            elif topics is not None and (scan is False or (scan == "auto" and size > _SCAN_BUDGET_BYTES)):
                yield from self._of_queues(reading, topics, queue_id, span, found)
            else:
                yield from reading.of_log(0)
            damage.warn()

        read = batches()
        if topics and known_topics is not None:
            read = _warning_of_topics(read, topics, found, known_topics, may_scan=is_whole)
        return BatchStream(schema, read, damage.findings)

    def _indexed(
        self, topics: Sequence[str] | None, keys: Collection[str], times: TimeRange, whole: Range
    ) -> list[tuple[Range, Array]] | None:
        """Return where the index leads in a part of the log; None if there is no index, or it cannot answer."""
        # A broker's answers are those of its own walk through the log.
        if self.index is None or not topics or not self.salvage or not is_unicode(chain(topics, keys)):
            return None
        return self.index.indexed_offsets(list(topics), list(keys), begin=times.begin, end=times.end, span=whole)

    def _of_queues(
        self, reading: _Reading, topics: Sequence[str], queue_id: int | None, span: Range, found: set[str]
    ) -> Iterator[RecordBatch]:
        """Read messages through the queues of their topics, and the rest from the log; `found` receives topics with queues."""
        log = reading.log
        # The end is read first: a message that is dispatched from here on, also to a new queue, is read from the log.
        dispatched = self.dispatched_up_to(topics, reading.threads)
        directories = self.queues.directories(topics)
        found.update(topic for topic, _ in directories)
        queues = [
            (topic, number, path)
            for (topic, number), paths in directories.items()
            if queue_id in (None, number)
            for path in paths
        ]
        missing = set(topics) - {topic for topic, _, _ in queues}
        if missing:
            _log.warning("topic %r has no queue; the log is read instead", min(missing))
            yield from reading.of_log(0)
            return
        parts = [(topic, number, self.queues.open(path), None, None) for topic, number, path in queues]
        begin, end = certain_range(log, parts)
        begin = max(begin, span[0])
        end = max(begin, min(end, dispatched, log.max_offset, span[1]))
        reader = QueueReader(
            log,
            parts,
            begin_phy_offset=begin,
            end_phy_offset=end,
            columns=reading.columns,
            body=reading.body,
            selection=reading.selection,
            threads=reading.threads,
        )
        # Queues begin where the log begins now. If files expired, reading the log reports it.
        if self.log.min_offset != log.min_offset:
            yield from reading.of_log(0)
            return
        yield from reading.of_log(0, begin)
        yield from reader
        if reader.fault is not None:
            _log.warning("%s; the log is read instead, from offset %d", reader.fault, reader.position)
        yield from reading.of_rest(reader.position)

    def dispatched_up_to(
        self, topics: Collection[str] | None = None, threads: int | None = None, *, lately: bool = False
    ) -> int:
        """Return the offset up to which the queues are reliable: a broker's start would dispatch messages only from there.

        Args:
            topics: If the queues of these topics lead near the end of the log, no others are read, and the offset may be a little
                lower. None: all queues are read.
            threads: As in `MessageStore.messages`.
            lately: Allow an earlier result if it is near the end of the log.
        """
        end = None if topics is None else self.queues.dispatched_end(topics, threads)
        if end is None or self.log.max_offset - end > _SHORT_BYTES:
            end = self.queues.dispatched_end_of_all(_SHORT_BYTES if lately else 0, threads)
        # While a broker runs its queues are complete, although not all is on the disk. A logdex writer writes them one by one.
        is_running = self.layout.broker is not None and not self.layout.written_by_logdex
        if end is None or is_running or not self.layout.abort.exists():
            return end or 0
        checkpoint = StoreCheckpoint.open(self.layout.checkpoint) if self.layout.checkpoint.exists() else None
        _, _, dispatch = self.log.recovery(checkpoint, last_exit_ok=False, queue_end=end)
        return min(end, dispatch)


def _warning_of_topics(
    batches: Generator[RecordBatch, None, None],
    topics: Sequence[str],
    found: Collection[str],
    known_topics: Callable[..., Sequence[str] | None],
    *,
    may_scan: bool,
) -> Generator[RecordBatch, None, None]:
    """Yield the batches, and warn at their end of requested topics that do not exist; `found` then has those with queues."""
    rows = 0
    with closing(batches):
        for batch in batches:
            rows += batch.num_rows
            yield batch
    # If several topics are requested, one may be unknown although there are rows.
    if (rows == 0 or len(topics) > 1) and not set(topics) <= {*found}:
        known = known_topics(scan=may_scan and rows == 0)
        if known is not None:
            warn_of_topics(topics, known)


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the union of ranges as ascending ranges that neither touch nor overlap."""
    joined: list[Range] = []
    for begin, end in sorted(r for r in ranges if r[0] < r[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def within(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of ranges that are in `whole`, in the same order."""
    parts = ((max(begin, whole[0]), min(end, whole[1])) for begin, end in ranges)
    return [part for part in parts if part[0] < part[1]]


def subtract(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of `whole` that are in none of the ranges, in ascending order."""
    rest: list[Range] = []
    at, last = whole
    for begin, end in union(ranges):
        if at < min(begin, last):
            rest.append((at, min(begin, last)))
        at = max(at, end)
    if at < last:
        rest.append((at, last))
    return rest


def read_ahead(
    reader: MessageReader, progress: Progress | None = None, span: Range = (0, 0)
) -> Generator[RecordBatch, None, None]:
    """Yield the batches of a reader, which a thread reads a few ahead; close the generator to stop the thread.

    `progress` is called after each batch with the finished bytes of the range of the log, and the total.
    """
    begin, end = span
    ready: SimpleQueue[Any] = SimpleQueue()
    space = threading.Semaphore(_BATCHES_AHEAD)
    stopped = False

    def read() -> None:
        try:
            for batch in reader:
                ready.put(batch)
                space.acquire()
                if stopped:
                    return
            ready.put(None)
        except BaseException as error:  # noqa: BLE001 -- raised where the batches are taken
            ready.put(error)

    process = fork_generation()
    thread = threading.Thread(target=read, name="logdex-scan", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            if process != fork_generation():
                raise ValueError("a scan with a thread cannot be read in a process that was forked since")
            space.release()
            if progress is not None and (last := last_message(item)) is not None:
                progress(min(last[0], end) - begin, end - begin)
    finally:
        stopped = True
        space.release()
        thread.join()
