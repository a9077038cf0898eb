"""Rebuilding the key index or the consume queues of a log in a directory of their own."""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._core import ConsumeQueueWriter, last_message
from logdex.arrow import INDEXED_COLUMNS
from logdex.hash_index.directory import list_directory
from logdex.report import Report
from logdex.rocketmq.index_service import INDEXES_TAGS, IndexService
from logdex.rocketmq.read import read_ahead

if TYPE_CHECKING:
    import os
    from datetime import tzinfo

    from logdex._core import CommitLog, MessageReader
    from logdex._types import Progress
    from logdex.rocketmq.queues import QueueSet

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
    target = Path(directory)
    if target.is_dir() and list_directory(target):
        # Index files would be overwritten, and among other files a broker would load ours as one of them.
        raise FileExistsError(errno.EEXIST, "the directory is not empty; give the index one of its own", str(target))
    hash_slots, max_entries = geometry
    first = log.min_offset
    total = log.max_offset - first
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
        closing(read_ahead(reader)) as batches,
    ):
        for batch in batches:
            entries += index.build_index(batch)
            messages += batch.num_rows
            if progress is not None and (last := last_message(batch)) is not None:
                progress(last[0] - first, total)
        index.flush()
        files = len(index.files)
    counts = {"messages": messages, "entries": entries, "index_files": files}
    return Report(list(reader.report.findings), {**_bytes_read(reader, first, total), **counts})


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
    return Report([*reader.report.findings, *made.findings], {**_bytes_read(reader, first, total), **made.checked})


def _bytes_read(reader: MessageReader, first: int, total: int) -> dict[str, int]:
    """Return how much of a log was read, and how much is behind the damage that ended the walk."""
    if not reader.report.findings or reader.end_offset is None:
        return {"log_bytes": total}
    read = reader.end_offset - first
    return {"log_bytes": read, "log_bytes_behind_damage": total - read}
