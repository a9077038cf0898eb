"""Rebuilding the key index or the consume queues of a log in a directory of their own."""

from __future__ import annotations

import errno
from contextlib import closing
from typing import TYPE_CHECKING, Any

from logdex._core import ConsumeQueueWriter, commit_log_directories, local_path
from logdex._files import refuse_broker_directory
from logdex.arrow import INDEXED_COLUMNS
from logdex.hash_index.files import list_directory
from logdex.report import Report
from logdex.rocketmq.index_service import INDEXES_TAGS, IndexService
from logdex.rocketmq.read import read_ahead

if TYPE_CHECKING:
    import os
    from datetime import tzinfo

    from logdex._core import CommitLog, MessageReader, Queues
    from logdex._types import Progress
    from logdex.rocketmq.read import Range

_COLUMNS = (*INDEXED_COLUMNS, "store_size")


def build_index(
    log: CommitLog,
    directory: str | os.PathLike[str],
    geometry: tuple[int | None, int | None],
    zone: str | tzinfo | None,
    *,
    tags: bool,
    threads: int,
    progress: Progress | None,
) -> Report:
    """Index the messages of a log by the broker's rules; see `MessageStore.build_index`."""
    target = local_path(directory)
    if target.is_dir() and list_directory(target):
        # Index files would be overwritten, and among other files a broker would load ours as one of them.
        raise FileExistsError(errno.EEXIST, "the directory is not empty; give the index one of its own", str(target))
    # If the broker is stopped, the index may be written into its own directory.
    own = [target] if target.name == "index" else []
    refuse_broker_directory(target, own=own, others=commit_log_directories(log.path))
    hash_slots, max_entries = geometry
    span = (log.min_offset, log.max_offset)
    messages = entries = 0
    reader = log.scan(columns=_COLUMNS, threads=threads)
    with (
        IndexService.open(
            target,
            mode="a",
            hash_slots=hash_slots,
            max_entries=max_entries,
            zone=zone,
            # Every release writes the same files, except for tags.
            compat=INDEXES_TAGS if tags else None,
        ) as index,
        closing(read_ahead(reader, progress, span)) as batches,
    ):
        for batch in batches:
            entries += index.build_index(batch)
            messages += batch.num_rows
        index.flush()
        files = len(index.files)
    counts = {"messages": messages, "entries": entries, "index_files": files}
    return Report(list(reader.report.findings), {**_bytes_read(reader, span), **counts})


def build_queues(
    log: CommitLog,
    queues: Queues,
    directory: str | os.PathLike[str],
    *,
    threads: int,
    progress: Progress | None,
) -> Report:
    """Write the queues of a log by the broker's rules; see `MessageStore.build_queues`."""
    refuse_broker_directory(local_path(directory), others=commit_log_directories(log.path))
    span = (log.min_offset, log.max_offset)
    sizes: dict[str, Any] = queues.file_sizes()
    # Opened first: it checks the number of threads, before a directory is created.
    reader = log.scan(columns=ConsumeQueueWriter.columns, threads=threads)
    writer = ConsumeQueueWriter.create(directory, **sizes)
    with closing(read_ahead(reader, progress, span)) as batches:
        for batch in batches:
            writer.append_batch(batch)
    made = writer.finish()
    return Report([*reader.report.findings, *made.findings], {**_bytes_read(reader, span), **made.checked})


def _bytes_read(reader: MessageReader, span: Range) -> dict[str, int]:
    """Return how much of a log was read, and how much follows the damage that ended the walk."""
    begin, end = span
    if reader.end_offset is None or all(finding.kind == "file-gap" for finding in reader.report.findings):
        return {"log_bytes": end - begin}
    return {"log_bytes": reader.end_offset - begin, "log_bytes_behind_damage": end - reader.end_offset}
