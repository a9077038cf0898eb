"""Read the messages of a store: the batches of a plan, a range of the log, and a thread that reads ahead of the caller."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from logdex._core import fork_generation, last_message
from logdex.report import warn_of_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from arro3.core import RecordBatch

    from logdex._core import CommitLog, MessageFilter, MessageReader, MessageStream
    from logdex._types import Body, Progress, Scan
    from logdex.report import Finding

Range: TypeAlias = tuple[int, int]
"""A half-open range of log offsets."""

_log = logging.getLogger(__name__)

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
    batch_size: int | None = None,
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
        batch_size=batch_size,
        threads=threads,
    )
    try:
        yield from reader
    finally:
        for finding in reader.unsearched:
            on_damage(finding)
        for finding in reader.report.findings:
            if salvage or finding.kind == "file-gap":
                on_damage(finding)


def planned_messages(stream: MessageStream, on_damage: Callable[[Finding], None]) -> Generator[RecordBatch, None, None]:
    """Yield the batches of a stream; what it skips is passed to `on_damage` after the rows around it."""
    findings = texts = 0
    with closing(stream):
        for batch in chain(stream, [None]):
            if batch is not None:
                yield batch
            found, notes = stream.news(findings, texts)
            for note in notes:
                _log.warning("%s", note)
            for finding in found:
                on_damage(finding)
            findings, texts = findings + len(found), texts + len(notes)


def with_warning_of_topics(
    stream: MessageStream,
    batches: Generator[RecordBatch, None, None],
    topics: Sequence[str],
    known_topics: Callable[..., Sequence[str] | None],
    *,
    may_scan: bool,
) -> Generator[RecordBatch, None, None]:
    """Yield the batches of a stream, and warn at their end of requested topics that do not exist."""
    rows = 0
    with closing(batches):
        for batch in batches:
            rows += batch.num_rows
            yield batch
    # If several topics are requested, one may be unknown although there are rows.
    if (rows == 0 or len(topics) > 1) and not set(topics) <= {*stream.queued_topics}:
        known = known_topics(scan=may_scan and rows == 0)
        if known is not None:
            warn_of_topics(topics, known)


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
