"""An overview of a store."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from arro3.core import DataType, RecordBatchReader

from logdex._core import StoreCheckpoint, subtract_ranges
from logdex.errors import LogdexError
from logdex.report import Damage
from logdex.rocketmq.queues import totals
from logdex.source import Usage, days

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import Array

    from logdex._core import CommitLog, ConsumeQueue, Queues, Store
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout


def overview(
    layout: StoreLayout,
    log: CommitLog,
    queues: Queues,
    index: IndexService | None,
    search: Store,
) -> dict[str, Any]:
    """Return facts that are cheap to read, by name; `topics` and `index_files` are lists of rows."""
    first, end = log.min_offset, log.max_offset
    flushed: dict[str, int | None] = {}
    with suppress(OSError, LogdexError):
        flushed = checkpoint_times(StoreCheckpoint.open(layout.checkpoint))
    index_files = index.files if index is not None else []
    headers = [file.header for file in index_files if len(file)]
    gaps, counted = log.gaps(), totals(queues)
    Damage.of([*gaps, *counted.gaps]).warn()
    indexed = max((header.end_phy_offset for header in headers), default=None)
    return {
        "commit_log": str(layout.commit_log),
        "log_files": len(log.files),
        "log_file_bytes": log.file_size,
        "min_offset": first,
        "max_offset": end,
        "log_bytes": end - first,
        "missing_log_bytes": sum(end - begin for begin, end, _ in gaps) or None,
        "missing_queue_bytes": sum(end - begin for begin, end, _ in counted.gaps) or None,
        "not_indexed_bytes": sum(end - begin for begin, end in subtract_ranges((first, end), search.covered())),
        "first_message_timestamp": first_time(log, first),
        **flushed,
        "broker": _broker(layout),
        "queues": sum(each.queues for each in counted.topics) if queues.is_readable() else None,
        "index_entries": sum(map(len, index_files)) if index is not None else None,
        "hash_slots": index_files[0].hash_slots if index_files else None,
        "max_entries": index_files[0].max_entries if index_files else None,
        "indexed_up_to_offset": indexed,
        "sealed_index": search.sealed_words,
        "topics": [each[:3] for each in counted.topics],
        "index_files": [
            (file.path.name, len(file), file.header.begin_timestamp, file.header.end_timestamp) for file in index_files
        ],
    }


def first_time(log: CommitLog, begin: int, end: int | None = None) -> int | None:
    """Return the store time in ms of the first message in a range of the log, or None."""
    scan = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=("store_timestamp",), batch_size=1)
    for batch in RecordBatchReader.from_stream(scan):
        if batch.num_rows:
            time: int = batch.column(0).cast(DataType.int64()).to_pylist()[0]
            return time
    return None


def store_times(log: CommitLog, queues: Queues, topic: str | None) -> list[int]:
    """Return store times in ms of the first and last message of each queue of a topic; without queues, of the log."""
    counted = totals(queues, None if topic is None else [topic])
    offsets: Array | list[int] = counted.ends
    if not counted.topics and log.files:
        newest = log.scan(begin_phy_offset=int(log.files[-1].name), columns=("phy_offset",))
        offsets = [log.min_offset, *(batch.column(0)[-1].as_py() for batch in newest if batch.num_rows)]
    times = log.messages(offsets, columns=("store_timestamp",)).column(0).cast(DataType.int64()).to_pylist()
    return [time for time in times if time is not None]


def usage(log: CommitLog, queues: Queues, *, by_day: bool) -> Iterator[Usage]:
    """Return the messages of each queue, and the bytes of their frames in the log, by the queue's units."""
    for (topic, queue_id), paths in queues.directories().items():
        for queue in map(queues.open, paths):
            first, end = queue.min_offset, queue.max_offset
            parts = (
                days(first, end, partial(_time_at, log, queue), queue.offset_by_time)
                if by_day
                else [(None, first, end)]
            )
            for day, begin, until in parts:
                yield Usage(topic, queue_id, day, *queue.measure(begin, until))


def _time_at(log: CommitLog, queue: ConsumeQueue, offset: int) -> int | None:
    """Return the store time in ms of the message of a unit; None if the log does not have it."""
    found = log.messages(queue.units(offset, offset + 1).column("phy_offset"), columns=("store_timestamp",))
    time: int | None = found.column(0).cast(DataType.int64())[0].as_py() if found.num_rows else None
    return time


def checkpoint_times(checkpoint: StoreCheckpoint) -> dict[str, int | None]:
    """Return the times in ms up to which log, queues and index were flushed, or None."""
    return {
        "log_flushed_up_to_timestamp": checkpoint.physic_msg_timestamp or None,
        "queues_flushed_up_to_timestamp": checkpoint.logics_msg_timestamp or None,
        "index_flushed_up_to_timestamp": checkpoint.index_msg_timestamp or None,
    }


def _broker(layout: StoreLayout) -> str:
    if (process := layout.broker) is not None:
        return f"running, process {process}"
    crashed = "stopped without warning, or running elsewhere (abort is there)"
    return crashed if layout.abort.exists() else "stopped cleanly"
