"""Making the consume queues of a log anew, in a directory of their own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from logdex._core import ConsumeQueueWriter
from logdex.report import Report
from logdex.rocketmq.read import bytes_read, read_ahead

if TYPE_CHECKING:
    import os

    from logdex._core import CommitLog
    from logdex._types import Progress
    from logdex.rocketmq.queues import QueueSet


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
    columns = [*dict.fromkeys([*ConsumeQueueWriter.columns, "phy_offset", "store_size"])]
    # First, because it refuses what is no number of threads: nothing is made then.
    reader = log.scan(columns=columns, threads=threads)
    writer = ConsumeQueueWriter.create(directory, **sizes, extension_file_size=queues.extension_file_size())
    with closing(read_ahead(reader)) as batches:
        for batch in batches:
            writer.append_batch(batch)
            if progress is not None:
                last = batch.num_rows - 1
                end = batch.column("phy_offset")[last].as_py() + batch.column("store_size")[last].as_py()
                progress(end - first, total)
    made = writer.finish()
    return Report([*reader.report.findings, *made.findings], {**bytes_read(reader, first, total), **made.checked})
