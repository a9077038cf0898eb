"""Rebuilding the consume queues of a log in a directory of their own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from logdex._core import ConsumeQueueWriter, last_message
from logdex.report import Report
from logdex.rocketmq.read_ahead import bytes_read, read_ahead

if TYPE_CHECKING:
    import os

    from logdex._types import Progress
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.queue_set import QueueSet


def build_queues(
    log: CommitLog,
    queues: QueueSet,
    directory: str | os.PathLike[str],
    *,
    threads: int,
    progress: Progress | None,
) -> Report:
    """Write the queues of a log by the broker's rules; see `MessageStore.build_queues`."""
    first = log.min_offset
    total = log.max_offset - first
    sizes: dict[str, Any] = dict(queues.file_sizes())
    # Opened first: it checks the number of threads, before a directory is created.
    reader = log.scan(columns=ConsumeQueueWriter.columns, threads=threads)
    writer = ConsumeQueueWriter.create(directory, **sizes, extension_file_size=queues.extension_file_size())
    with closing(read_ahead(reader)) as batches:
        for batch in batches:
            writer.append_batch(batch)
            if progress is not None and (last := last_message(batch)) is not None:
                progress(last[0] - first, total)
    made = writer.finish()
    return Report([*reader.report.findings, *made.findings], {**bytes_read(reader, first, total), **made.checked})
