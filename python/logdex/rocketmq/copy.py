"""Copy the messages of a store into a new store that a broker can load."""

from __future__ import annotations

import errno
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from logdex._core import Queues, delivered_levels, last_message, local_path
from logdex._files import refuse_broker_directory
from logdex._types import MAX_INT32
from logdex.hash_index.query import MIN_TIME, TimeRange
from logdex.report import Finding, Report
from logdex.rocketmq.broker_config import SCHEDULE_TOPIC
from logdex.rocketmq.index_service import INDEXES_TAGS
from logdex.rocketmq.write.options import DEFAULT_FILE_SIZE, StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.rocketmq.write.recovery import READING, holds_log
from logdex.rocketmq.write.schedule import DelayOffsets

if TYPE_CHECKING:
    import os
    from datetime import tzinfo
    from typing import TypeAlias

    from arro3.core import RecordBatch

    from logdex._types import Compat, Progress, Time
    from logdex.rocketmq.store import MessageStore

    _Put: TypeAlias = tuple[int, list[tuple[RecordBatch, str]]]

_COLUMNS = (
    "topic",
    "queue_id",
    # Used only for the first numbers of queues and delay levels: a put numbers messages again.
    "queue_offset",
    "phy_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "body",
    # With tags, keys and unique key, in the order in which they are stored.
    "properties",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_host",
    "store_host",
)


def copy_messages(
    store: MessageStore,
    directory: str | os.PathLike[str],
    *,
    topic: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    zone: str | tzinfo | None = None,
    compat: Compat | None = None,
    progress: Progress | None = None,
) -> Report:
    """Copy messages into a new store, including those after damage, without messages that a broker truncated.

    Bodies, properties, hosts, times and file sizes do not change. Queues begin with the queue offsets that they have. If no
    message in between is missing, the offsets of consumers and delay levels stay valid. Without a topic, scheduled messages are
    copied as well. The progress of the delay levels is copied, so only messages that still wait are delivered.

    Args:
        store: The store to read.
        directory: The new store's root: missing, or empty.
        topic: Only this topic, as stored; None: all.
        begin: First store time, ms or an aware datetime; None: no bound.
        end: Last store time, included.
        zone: Time zone of the names of index files, as for `StoreWriter.open`.
        compat: The release that is going to load the copy, as for `StoreWriter.open`.
        progress: Called with the finished bytes of the log, and the total.

    Returns:
        A report that counts messages and bytes. Findings are damaged places of the log, and messages that a log cannot hold.
        If no message is found, nothing is created.

    Raises:
        FileExistsError: The directory is not empty.
        ValueError: The directory is in the store or in another directory of a broker.
        OSError: An I/O error. The new store is then in the state of one after a crash.
    """
    target = local_path(directory)
    if holds_log(target):
        raise FileExistsError(errno.EEXIST, "expected a missing or empty directory, found a store", str(target))
    refuse_broker_directory(target, others=store.layout.directories)
    delays = DelayOffsets(store.layout.config).offsets if topic in (None, SCHEDULE_TOPIC) else {}
    findings: list[Finding] = []
    messages = (
        batch
        for batch in store.messages(
            topic, begin=begin, end=end, columns=_COLUMNS, body="stored", on_damage=findings.append
        )
        if batch.num_rows
    )
    first = next(messages, None)
    if first is None:
        return Report(findings, {"messages": 0, "log_bytes": 0})
    queues = Queues(store.root, store.commit_log, **READING)
    with closing(queues):
        offsets = _first_offsets(queues, topic, TimeRange.of(begin, end))
        parts = StoreParts(target, _options(store, queues, offsets, zone, compat))
    try:
        for (name, queue_id), offset in offsets.items():
            parts.log.set_queue_offset(name, queue_id, offset)
        # If messages are missing, the later ones get lower queue offsets, and so does the next delivery.
        delivered = {level: offsets.get((SCHEDULE_TOPIC, level - 1), 0) for level in delays}
        count, log = 0, store.commit_log
        first_byte, size = log.min_offset, log.max_offset - log.min_offset
        for batch in chain((first,), messages):
            put, refused = _put(parts, batch, delays, delivered)
            count += put
            for message, reason in refused:
                place = log.place(message.column("phy_offset")[0].as_py())
                findings.append(Finding(*place, "log-message", "a message that a log takes", reason))
            if progress is not None and (last := last_message(batch)) is not None:
                progress(last[0] - first_byte, size)
        parts.set_delay_offsets(delivered)
        log_bytes = parts.log.wrote_offset - parts.min_offset
    except BaseException:
        parts.abandon()
        raise
    parts.close()
    return Report(findings, {"messages": count, "log_bytes": log_bytes})


def _first_offsets(queues: Queues, topic: str | None, times: TimeRange) -> dict[tuple[str, int], int]:
    """Return the queue offset of the first message of each queue in a time range."""
    offsets: dict[tuple[str, int], int] = {}
    for (name, queue_id), paths in queues.directories().items():
        if topic not in (None, name):
            continue
        for queue in map(queues.open, paths):
            first = queue.min_offset if times.begin == MIN_TIME else queue.offset_by_time(times.begin)
            if first < queue.max_offset:
                offsets[name, queue_id] = first
    return offsets


def _options(
    store: MessageStore,
    queues: Queues,
    offsets: dict[tuple[str, int], int],
    zone: str | tzinfo | None,
    compat: Compat | None,
) -> StoreOptions:
    """Return the file sizes of a store, and the offset at which a copy's log begins."""
    file_size = store.commit_log.file_size or DEFAULT_FILE_SIZE
    begin = store.commit_log.min_offset // file_size * file_size
    if any(offsets.values()):
        # If the log begins with byte 0, a broker reads the filling before a queue's first message as messages.
        begin = max(begin, file_size)
    sizes = queues.file_sizes()
    files = store.index.files if store.index is not None else []
    return StoreOptions(
        file_size=file_size,
        queue_file_size=sizes.get("file_size"),
        batch_queue_file_size=sizes.get("batch_file_size"),
        extension_file_size=sizes.get("extension_file_size"),
        hash_slots=files[0].hash_slots if files else None,
        max_entries=files[0].max_entries if files else None,
        zone=zone,
        begin_phy_offset=begin,
        compat=compat or (INDEXES_TAGS if files and store.indexes_tags else None),
        # A broker reads messages of every size.
        max_message_size=MAX_INT32,
    )


def _put(parts: StoreParts, batch: RecordBatch, delays: dict[int, int], delivered: dict[int, int]) -> _Put:
    """Put and dispatch messages; return their number and those that a log does not take, with the reasons.

    `delays` is the progress of the delay levels in the store, `delivered` that of the copy.
    """
    # A queue without files begins with the queue offset of its first message.
    parts.log.set_queue_offsets(batch)
    taken, refused = parts.log.put_stored(batch)
    for messages, places in taken:
        for level, offset in delivered_levels(messages, places, delays).items():
            delivered[level] = max(delivered[level], offset)
    parts.dispatch()
    return sum(messages.num_rows for messages, _ in taken), refused
