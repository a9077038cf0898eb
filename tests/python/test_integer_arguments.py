"""Integers of more than 64 bits as arguments: a `ValueError` that names the argument, at every call that takes an integer."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType

import golden
import golden_kafka
import logdex
from logdex import kafka, rocketmq
from logdex.kafka import Log, LogDir, LogDirWriter, LogSegment, LogWriter, OffsetIndex, TimeIndex
from logdex.rocketmq import (
    CommitLog,
    ConsumeQueue,
    ConsumeQueueWriter,
    IndexFile,
    IndexService,
    MessageStore,
    StoreCheckpoint,
    StoreWriter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

TOPIC, KEY = "TopicTest", "k"
PARTITION = ("cod-none", 0)


@dataclass(frozen=True)
class Opened:
    """One of each, open for reading and, where there is such a thing, for writing."""

    folder: Path
    file: IndexFile
    index: IndexService
    checkpoint: StoreCheckpoint
    store: MessageStore
    writer: StoreWriter
    queue: ConsumeQueue
    logs: LogDir
    log: Log
    segment: LogSegment
    offsets: OffsetIndex
    times: TimeIndex
    log_writer: LogWriter
    log_dir_writer: LogDirWriter
    made: list[Path] = field(default_factory=list)

    def new(self) -> Path:
        """Return a path where nothing lies; a call that is refused leaves nothing there."""
        self.made.append(self.folder / f"new-{len(self.made)}")
        return self.made[-1]

    @property
    def commit_log(self) -> CommitLog:
        return self.store.commit_log

    def entries(self, **columns: Any) -> dict[str, Any]:
        return {"topic": ["T"], "key": ["k"], "phy_offset": [0], "store_timestamp": [0], **columns}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("faces")
    root = golden.unpack("basic", folder)
    (folder / "kafka").mkdir()
    logs = LogDir.open(golden_kafka.unpack("codecs", folder / "kafka"))
    store = MessageStore.open(root)
    topic = store.topics[0]
    yield Opened(
        folder=folder,
        file=IndexFile.create(folder / "file", hash_slots=10, max_entries=10),
        index=IndexService.open(folder / "index", mode="a", hash_slots=10, max_entries=10),
        checkpoint=StoreCheckpoint.open(folder / "checkpoint", mode="r+"),
        store=store,
        writer=StoreWriter.open(folder / "written", file_size=65_536, hash_slots=9, max_entries=99, services=False),
        queue=store.queue(topic, 0),
        logs=logs,
        log=logs.log(*PARTITION),
        segment=logs.log(*PARTITION).segments[0],
        offsets=OffsetIndex.create(folder / f"{0:020}.index", 0),
        times=TimeIndex.create(folder / f"{0:020}.timeindex", 0),
        log_writer=LogWriter.open(folder / "t-0"),
        log_dir_writer=LogDirWriter.open(folder / "log-dir"),
    )
    store.close()
    logs.close()


def _set(checkpoint: StoreCheckpoint, name: str, n: int) -> None:
    setattr(checkpoint, name, n)


Call: TypeAlias = "Callable[[Opened, int], object]"

INDEX_FILE: dict[str, Call] = {
    "create:hash_slots": lambda o, n: IndexFile.create(o.new(), hash_slots=n, max_entries=9),
    "create:max_entries": lambda o, n: IndexFile.create(o.new(), hash_slots=9, max_entries=n),
    "create:begin_timestamp": lambda o, n: IndexFile.create(o.new(), begin_timestamp=n),
    "create:begin_phy_offset": lambda o, n: IndexFile.create(o.new(), begin_phy_offset=n),
    "open:hash_slots": lambda o, n: IndexFile.open(o.file.path, hash_slots=n, max_entries=9),
    "open:max_entries": lambda o, n: IndexFile.open(o.file.path, hash_slots=9, max_entries=n),
    "from_bytes:hash_slots": lambda _, n: IndexFile.from_bytes(b"", hash_slots=n, max_entries=9),
    "from_bytes:max_entries": lambda _, n: IndexFile.from_bytes(b"", hash_slots=9, max_entries=n),
    "put_key:phy_offset": lambda o, n: o.file.put_key("k", n, 0),
    "put_key:store_timestamp": lambda o, n: o.file.put_key("k", 0, n),
    "put_batch:phy_offsets": lambda o, n: o.file.put_batch(["k"], [n], [0]),
    "put_batch:store_timestamps": lambda o, n: o.file.put_batch(["k"], [0], [n]),
    "put_batch:start": lambda o, n: o.file.put_batch(["k"], [0], [0], start=n),
    "put_batch:threads": lambda o, n: o.file.put_batch(["k"], [0], [0], threads=n),
    "select_phy_offset:max_num": lambda o, n: o.file.select_phy_offset("k", n),
    "select_phy_offset:begin": lambda o, n: o.file.select_phy_offset("k", None, n),
    "select_phy_offset:end": lambda o, n: o.file.select_phy_offset("k", None, None, n),
    "select_batch:max_num": lambda o, n: o.file.select_batch(["k"], max_num=n),
    "select_batch:begin": lambda o, n: o.file.select_batch(["k"], begin=n),
    "select_batch:end": lambda o, n: o.file.select_batch(["k"], end=n),
    "is_time_matched:begin": lambda o, n: o.file.is_time_matched(n, 0),
    "is_time_matched:end": lambda o, n: o.file.is_time_matched(0, n),
    "is_time_matched:clock_slack_ms": lambda o, n: o.file.is_time_matched(0, 0, n),
    "entries:batch_size": lambda o, n: o.file.entries(n),
}
INDEX_SERVICE: dict[str, Call] = {
    "open:hash_slots": lambda o, n: IndexService.open(o.new(), mode="a", hash_slots=n, max_entries=9),
    "open:max_entries": lambda o, n: IndexService.open(o.new(), mode="a", hash_slots=9, max_entries=n),
    "open:clock_slack_ms": lambda o, n: IndexService.open(o.new(), mode="a", clock_slack_ms=n),
    "put_batch:threads": lambda o, n: o.index.put_batch(o.entries(), threads=n),
    "put_key:phy_offset": lambda o, n: o.index.put_key("T#k", n, 0),
    "put_key:store_timestamp": lambda o, n: o.index.put_key("T#k", 0, n),
    "put_batch:phy_offset": lambda o, n: o.index.put_batch(o.entries(phy_offset=[n])),
    "put_batch:store_timestamp": lambda o, n: o.index.put_batch(o.entries(store_timestamp=[n])),
    "query_offset:max_num": lambda o, n: o.index.query_offset("T", "k", n),
    "query_offset:begin": lambda o, n: o.index.query_offset("T", "k", None, n),
    "query_offset:end": lambda o, n: o.index.query_offset("T", "k", None, None, n),
    "query_batch:max_num": lambda o, n: o.index.query_batch(["T"], ["k"], max_num=n),
    "query_batch:begin": lambda o, n: o.index.query_batch(["T"], ["k"], begin=n),
    "query_batch:end": lambda o, n: o.index.query_batch(["T"], ["k"], end=n),
    "delete_expired_files:min_phy_offset": lambda o, n: o.index.delete_expired_files(n),
}
STORE_CHECKPOINT: dict[str, Call] = {
    f"{name}:{name}": lambda o, n, name=name: _set(o.checkpoint, name, n)  # type: ignore[misc]
    for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
}
COMMIT_LOG: dict[str, Call] = {
    "find:begin": lambda o, n: o.log.find(o.log.topic, "k", begin=n),
    "find:end": lambda o, n: o.log.find(o.log.topic, "k", end=n),
    "find:max_num": lambda o, n: o.log.find(o.log.topic, "k", max_num=n),
    "explain:begin": lambda o, n: o.log.explain(o.log.topic, "k", begin=n),
    "explain:end": lambda o, n: o.log.explain(o.log.topic, "k", end=n),
    "open:max_body_bytes": lambda o, n: CommitLog.open(o.commit_log.path, max_body_bytes=n),
    "from_bytes:max_body_bytes": lambda _, n: CommitLog.from_bytes({}, max_body_bytes=n),
    "messages:phy_offsets": lambda o, n: o.commit_log.messages([n]),
    "stored_frames:phy_offsets": lambda o, n: o.commit_log.stored_frames([n], 1),
    "stored_frames:max_bytes": lambda o, n: o.commit_log.stored_frames([0], n),
    "message_batches:phy_offsets": lambda o, n: list(o.commit_log.message_batches([n])),
    "scan:begin_phy_offset": lambda o, n: o.commit_log.scan(begin_phy_offset=n),
    "scan:end_phy_offset": lambda o, n: o.commit_log.scan(end_phy_offset=n),
    "scan:batch_size": lambda o, n: o.commit_log.scan(batch_size=n),
    "scan:threads": lambda o, n: o.commit_log.scan(threads=n),
    "scan:queue_end": lambda o, n: o.commit_log.scan(queue_end=n),
    "place:phy_offset": lambda o, n: o.commit_log.place(n),
    "is_uncommitted:phy_offset": lambda o, n: o.commit_log.is_uncommitted(n),
    "is_cut_short:end_phy_offset": lambda o, n: o.commit_log.is_cut_short(n),
    "batch_end:begin_phy_offset": lambda o, n: o.commit_log.batch_end(n, 1),
    "batch_end:end_phy_offset": lambda o, n: o.commit_log.batch_end(0, n),
    "batch_end:max_bytes": lambda o, n: o.commit_log.batch_end(0, 1, max_bytes=n),
    "batch_end:max_num": lambda o, n: o.commit_log.batch_end(0, 1, max_num=n),
    "gaps:begin": lambda o, n: o.commit_log.gaps(begin=n),
    "gaps:end": lambda o, n: o.commit_log.gaps(end=n),
    "gaps:clock_slack_ms": lambda o, n: o.commit_log.gaps(clock_slack_ms=n),
    "missing:begin_phy_offset": lambda o, n: o.commit_log.missing(n, 1),
    "missing:end_phy_offset": lambda o, n: o.commit_log.missing(0, n),
    "recovery:queue_end": lambda o, n: o.commit_log.recovery(last_exit_ok=True, queue_end=n),
}
CONSUME_QUEUE: dict[str, Call] = {
    "open:log_end": lambda o, n: ConsumeQueue.open(o.queue.path, log_end=n),
    "open:clock_slack_ms": lambda o, n: ConsumeQueue.open(o.queue.path, clock_slack_ms=n),
    "units:begin": lambda o, n: o.queue.units(n),
    "units:end": lambda o, n: o.queue.units(None, n),
    "measure:begin": lambda o, n: o.queue.measure(n),
    "measure:end": lambda o, n: o.queue.measure(None, n),
    "store_timestamp:queue_offset": lambda o, n: o.queue.store_timestamp(n),
    "extension_units:addresses": lambda o, n: o.queue.extension_units([n]),
    "offset_by_time:t": lambda o, n: o.queue.offset_by_time(n),
    "due_messages:begin": lambda o, n: o.queue.due_messages(n, now=0, delay_ms=0),
    "due_messages:now": lambda o, n: o.queue.due_messages(0, now=n, delay_ms=0),
    "due_messages:delay_ms": lambda o, n: o.queue.due_messages(0, now=0, delay_ms=n),
}
MESSAGE_STORE: dict[str, Call] = {
    "open:hash_slots": lambda o, n: MessageStore.open(o.store.root, hash_slots=n, max_entries=9),
    "open:max_entries": lambda o, n: MessageStore.open(o.store.root, hash_slots=9, max_entries=n),
    "open:clock_slack_ms": lambda o, n: MessageStore.open(o.store.root, clock_slack_ms=n),
    "find:begin": lambda o, n: o.store.find(TOPIC, KEY, begin=n),
    "find:end": lambda o, n: o.store.find(TOPIC, KEY, end=n),
    "find:max_num": lambda o, n: o.store.find(TOPIC, KEY, max_num=n),
    "find:body_budget": lambda o, n: o.store.find(TOPIC, KEY, body_budget=n),
    "find_batch:begin": lambda o, n: o.store.find_batch([TOPIC], [KEY], begin=n),
    "find_batch:end": lambda o, n: o.store.find_batch([TOPIC], [KEY], end=n),
    "find_batch:max_num": lambda o, n: o.store.find_batch([TOPIC], [KEY], max_num=n),
    "find_batch:batch_size": lambda o, n: o.store.find_batch([TOPIC], [KEY], batch_size=n),
    "messages:batch_size": lambda o, n: o.store.messages(batch_size=n),
    "indexed_offsets:begin": lambda o, n: o.store.indexed_offsets([TOPIC], [KEY], begin=n),
    "indexed_offsets:end": lambda o, n: o.store.indexed_offsets([TOPIC], [KEY], end=n),
    "messages:threads": lambda o, n: list(o.store.messages(threads=n)),
    "messages:queue_id": lambda o, n: o.store.messages(TOPIC, n),
    "messages:begin_phy_offset": lambda o, n: o.store.messages(begin_phy_offset=n),
    "messages:end_phy_offset": lambda o, n: o.store.messages(end_phy_offset=n),
    "start_of_last:num": lambda o, n: o.store.start_of_last(n),
    "page:begin": lambda o, n: o.store.page(begin=n),
    "page:end": lambda o, n: o.store.page(end=n),
    "messages:begin": lambda o, n: o.store.messages(begin=n),
    "messages:end": lambda o, n: o.store.messages(end=n),
    "explain:begin": lambda o, n: o.store.explain(TOPIC, KEY, begin=n),
    "explain:end": lambda o, n: o.store.explain(TOPIC, KEY, end=n),
    "build_index:hash_slots": lambda o, n: o.store.build_index(o.new(), hash_slots=n, max_entries=9),
    "build_index:max_entries": lambda o, n: o.store.build_index(o.new(), hash_slots=9, max_entries=n),
    "build_index:threads": lambda o, n: o.store.build_index(o.new(), threads=n),
    "build_queues:threads": lambda o, n: o.store.build_queues(o.new(), threads=n),
}
OFFSET_INDEX: dict[str, Call] = {
    "open:base_offset": lambda o, n: OffsetIndex.open(o.offsets.path, base_offset=n),
    "create:base_offset": lambda o, n: OffsetIndex.create(o.new(), n),
    "create:max_bytes": lambda o, n: OffsetIndex.create(o.new(), 0, n),
    "entry:n": lambda o, n: o.offsets.entry(n),
    "lookup:offset": lambda o, n: o.offsets.lookup(n),
    "lookup_batch:offsets": lambda o, n: o.offsets.lookup_batch([n]),
    "fetch_upper_bound_offset:position": lambda o, n: o.offsets.fetch_upper_bound_offset(n, 0),
    "fetch_upper_bound_offset:fetch_size": lambda o, n: o.offsets.fetch_upper_bound_offset(0, n),
    "entries:batch_size": lambda o, n: o.offsets.entries(n),
    "append:offset": lambda o, n: o.offsets.append(n, 0),
    "append:position": lambda o, n: o.offsets.append(0, n),
    "truncate_to:offset": lambda o, n: o.offsets.truncate_to(n),
    "resize:max_bytes": lambda o, n: o.offsets.resize(n),
}
TIME_INDEX: dict[str, Call] = {
    "open:base_offset": lambda o, n: TimeIndex.open(o.times.path, base_offset=n),
    "create:base_offset": lambda o, n: TimeIndex.create(o.new(), n),
    "create:max_bytes": lambda o, n: TimeIndex.create(o.new(), 0, n),
    "entry:n": lambda o, n: o.times.entry(n),
    "lookup:timestamp": lambda o, n: o.times.lookup(n),
    "lookup_batch:timestamps": lambda o, n: o.times.lookup_batch([n]),
    "entries:batch_size": lambda o, n: o.times.entries(n),
    "maybe_append:timestamp": lambda o, n: o.times.maybe_append(n, 0),
    "maybe_append:offset": lambda o, n: o.times.maybe_append(0, n),
    "truncate_to:offset": lambda o, n: o.times.truncate_to(n),
    "resize:max_bytes": lambda o, n: o.times.resize(n),
}
LOG_SEGMENT: dict[str, Call] = {
    "open:partition": lambda o, n: LogSegment.open(o.segment.path, partition=n),
    "open:max_batch_bytes": lambda o, n: LogSegment.open(o.segment.path, max_batch_bytes=n),
    "batches:begin_position": lambda o, n: o.segment.batches(begin_position=n),
    "batches:end_position": lambda o, n: o.segment.batches(end_position=n),
    "batches:batch_size": lambda o, n: o.segment.batches(batch_size=n),
    "records:begin_offset": lambda o, n: o.segment.records(begin_offset=n),
    "records:end_offset": lambda o, n: o.segment.records(end_offset=n),
    "records:begin": lambda o, n: o.segment.records(begin=n),
    "records:end": lambda o, n: o.segment.records(end=n),
    "records:batch_size": lambda o, n: o.segment.records(batch_size=n),
    "records:aborted": lambda o, n: o.segment.records(aborted=[(1, 0, n)]),
    "translate_offset:offset": lambda o, n: o.segment.translate_offset(n),
    "translate_offset:starting_position": lambda o, n: o.segment.translate_offset(0, n),
    "read:offset": lambda o, n: o.segment.read(n, 1),
    "read:max_bytes": lambda o, n: o.segment.read(0, n),
    "read:max_position": lambda o, n: o.segment.read(0, 1, max_position=n),
    "slice_bytes:position": lambda o, n: o.segment.slice_bytes(n, 0),
    "slice_bytes:size": lambda o, n: o.segment.slice_bytes(0, n),
    "offset_for_timestamp:t": lambda o, n: o.segment.offset_for_timestamp(n),
    "offset_for_timestamp:starting_offset": lambda o, n: o.segment.offset_for_timestamp(0, n),
    "find_timestamp:t": lambda o, n: o.segment.find_timestamp(n),
    "find_timestamp:starting_offset": lambda o, n: o.segment.find_timestamp(0, n),
    "largest_data_timestamp:start": lambda o, n: o.segment.largest_data_timestamp(n),
    "records:begin_position": lambda o, n: o.segment.records(begin_position=n),
    "records:end_position": lambda o, n: o.segment.records(end_position=n),
    "recover:index_interval_bytes": lambda o, n: o.segment.recover(index_interval_bytes=n),
    "recover:max_index_bytes": lambda o, n: o.segment.recover(max_index_bytes=n),
    "verify_in_log:epochs": lambda o, n: o.segment.verify_in_log([(0, n)]),
    "verify_in_log:previous_end": lambda o, n: o.segment.verify_in_log([], previous_end=n),
    "rebuild_indexes:index_interval_bytes": lambda o, n: o.segment.rebuild_indexes(o.new(), index_interval_bytes=n),
    "rebuild_indexes:max_index_bytes": lambda o, n: o.segment.rebuild_indexes(o.new(), max_index_bytes=n),
}
LOG: dict[str, Call] = {
    "find:begin": lambda o, n: o.log.find(o.log.topic, "k", begin=n),
    "find:end": lambda o, n: o.log.find(o.log.topic, "k", end=n),
    "find:max_num": lambda o, n: o.log.find(o.log.topic, "k", max_num=n),
    "explain:begin": lambda o, n: o.log.explain(o.log.topic, "k", begin=n),
    "explain:end": lambda o, n: o.log.explain(o.log.topic, "k", end=n),
    "missing_segments:begin_offset": lambda o, n: o.log.missing_segments(n),
    "missing_segments:end_offset": lambda o, n: o.log.missing_segments(0, n),
    "open:partition": lambda o, n: Log.open(o.log.path, partition=n),
    "open:max_batch_bytes": lambda o, n: Log.open(o.log.path, max_batch_bytes=n),
    "read:offset": lambda o, n: o.log.read(n, 1),
    "read:max_bytes": lambda o, n: o.log.read(0, n),
    "offset_for_timestamp:t": lambda o, n: o.log.offset_for_timestamp(n),
    "aborted_transactions:begin_offset": lambda o, n: o.log.aborted_transactions(n),
    "aborted_transactions:end_offset": lambda o, n: o.log.aborted_transactions(None, n),
    "records:begin_offset": lambda o, n: o.log.records(n),
    "records:end_offset": lambda o, n: o.log.records(None, n),
    "records:begin": lambda o, n: o.log.records(begin=n),
    "records:end": lambda o, n: o.log.records(end=n),
    "records:batch_size": lambda o, n: o.log.records(batch_size=n),
    "records:threads": lambda o, n: o.log.records(threads=n),
    "parts:begin_offset": lambda o, n: o.log.parts(n),
    "parts:end_offset": lambda o, n: o.log.parts(None, n),
    "parts:begin": lambda o, n: list(o.log.parts(begin=n)),
    "rebuild_indexes:index_interval_bytes": lambda o, n: o.log.rebuild_indexes(o.new(), index_interval_bytes=n),
    "rebuild_indexes:max_index_bytes": lambda o, n: o.log.rebuild_indexes(o.new(), max_index_bytes=n),
}
LOG_DIR: dict[str, Call] = {
    "groups:as_of": lambda o, n: o.logs.groups(as_of=n),
    "find:begin": lambda o, n: o.logs.find("cod-none", "k", begin=n),
    "find:end": lambda o, n: o.logs.find("cod-none", "k", end=n),
    "find:max_num": lambda o, n: o.logs.find("cod-none", "k", max_num=n),
    "explain:begin": lambda o, n: o.logs.explain("cod-none", "k", begin=n),
    "explain:end": lambda o, n: o.logs.explain("cod-none", "k", end=n),
    "open:max_batch_bytes": lambda o, n: LogDir.open(o.logs.path, max_batch_bytes=n).log(*PARTITION),
    "records:begin_offset": lambda o, n: o.logs.records(begin_offset=n),
    "records:end_offset": lambda o, n: o.logs.records(end_offset=n),
    "records:begin": lambda o, n: o.logs.records(begin=n),
    "records:end": lambda o, n: o.logs.records(end=n),
    "records:batch_size": lambda o, n: o.logs.records(batch_size=n),
    "records:threads": lambda o, n: o.logs.records(threads=n),
}
FUNCTIONS: dict[str, Call] = {
    "build_key_index:max_entries": lambda o, n: kafka.build_key_index(o.logs, o.new(), max_entries=n),
}
STORE_WRITER: dict[str, Call] = {
    **{
        f"open:{name}": lambda o, n, name=name: StoreWriter.open(o.new(), **{name: n})  # type: ignore[misc]
        for name in (
            "file_size",
            "queue_file_size",
            "batch_queue_file_size",
            "extension_file_size",
            "begin_phy_offset",
            "max_message_size",
        )
    },
    "open:hash_slots": lambda o, n: StoreWriter.open(o.new(), hash_slots=n, max_entries=9),
    "open:max_entries": lambda o, n: StoreWriter.open(o.new(), hash_slots=9, max_entries=n),
    **{
        f"put_message:{name}": lambda o, n, name=name: o.writer.put_message("T", **{name: n})  # type: ignore[misc]
        for name in ("queue_id", "delay_level", "flag", "sys_flag", "born_timestamp", "store_timestamp")
    },
    "put_messages:queue_id": lambda o, n: o.writer.put_messages({"topic": ["T"], "queue_id": [n]}),
    "put_messages:store_timestamp": lambda o, n: o.writer.put_messages({"topic": ["T"], "store_timestamp": [n]}),
    "put_messages:prepared_transaction_offset": lambda o, n: o.writer.put_messages(
        {"topic": ["T"], "prepared_transaction_offset": [n]}
    ),
    "deliver_due:now": lambda o, n: o.writer.deliver_due(n),
}
QUEUE_WRITER: dict[str, Call] = {
    **{
        f"create:{name}": lambda o, n, name=name: ConsumeQueueWriter.create(o.new(), **{name: n})  # type: ignore[misc]
        for name in ("file_size", "batch_file_size", "extension_file_size")
    },
    **{
        f"open:{name}": lambda o, n, name=name: ConsumeQueueWriter.open(  # type: ignore[misc]
            o.new(), **{"end_phy_offset": 0, name: n}
        )
        for name in ("begin_phy_offset", "end_phy_offset", "file_size", "batch_file_size", "extension_file_size")
    },
    **{
        f"check_files:{name}": lambda o, n, name=name: ConsumeQueueWriter.check_files(o.new(), **{name: n})  # type: ignore[misc]
        for name in ("file_size", "batch_file_size", "extension_file_size")
    },
    "delete_expired:min_phy_offset": lambda o, n: ConsumeQueueWriter.open(
        o.folder / "queues", end_phy_offset=0
    ).delete_expired(n),
}
LOG_WRITER: dict[str, Call] = {
    **{
        f"open:{name}": lambda o, n, name=name: LogWriter.open(o.new(), **{name: n})  # type: ignore[misc]
        for name in ("recovery_point", "log_start_offset", "producer_id_expiration_ms")
    },
    **{
        f"copy:{name}": lambda o, n, name=name: o.log_writer.copy([], **{name: n})  # type: ignore[misc]
        for name in ("begin", "end", "as_of")
    },
    "end_transactions:timestamp": lambda o, n: o.log_writer.end_transactions(n),
    "become_leader:epoch": lambda o, n: o.log_writer.become_leader(n),
    "append_batches:leader_epoch": lambda o, n: o.log_writer.append_batches(b"", leader_epoch=n),
    "append_batches:transaction_version": lambda o, n: o.log_writer.append_batches(
        b"", leader_epoch=0, transaction_version=n
    ),
    "append_chunks:chunks": lambda o, n: o.log_writer.append_chunks([(o.folder / "f", 0, n, 1)]),
    "append:level": lambda o, n: o.log_writer.append({"key": [b"k"]}, level=n),
    "append:batch_bytes": lambda o, n: o.log_writer.append({"key": [b"k"]}, batch_bytes=n),
    "append:timestamp": lambda o, n: o.log_writer.append({"timestamp": [n]}),
    "advance_high_watermark:to": lambda o, n: o.log_writer.advance_high_watermark(n),
    "delete_records:to": lambda o, n: o.log_writer.delete_records(n),
    "truncate_to:offset": lambda o, n: o.log_writer.truncate_to(n),
    "truncate_fully:offset": lambda o, n: o.log_writer.truncate_fully(n),
}
LOG_DIR_WRITER: dict[str, Call] = {
    **{
        f"open:{name}": lambda o, n, name=name: LogDirWriter.open(o.new(), **{name: n})  # type: ignore[misc]
        for name in ("node_id", "producer_id_expiration_ms", "broker_epoch")
    },
    "log:log_start_offset": lambda o, n: o.log_dir_writer.log("t", 1, log_start_offset=n),
    "create_topic:partitions": lambda o, n: o.log_dir_writer.create_topic("t", n),
    "log:partition": lambda o, n: o.log_dir_writer.log("t", n),
    "append:partition": lambda o, n: o.log_dir_writer.append("t", n, {}),
    "append:level": lambda o, n: o.log_dir_writer.append("t", 0, {}, level=n),
    "append:batch_bytes": lambda o, n: o.log_dir_writer.append("t", 0, {}, batch_bytes=n),
    "append_batches:partition": lambda o, n: o.log_dir_writer.append_batches("t", n, b"", leader_epoch=0),
    "append_batches:leader_epoch": lambda o, n: o.log_dir_writer.append_batches("t", 0, b"", leader_epoch=n),
    "append_batches:transaction_version": lambda o, n: o.log_dir_writer.append_batches(
        "t", 0, b"", leader_epoch=0, transaction_version=n
    ),
}
CALLS: dict[type, dict[str, Call]] = {
    IndexFile: INDEX_FILE,
    IndexService: INDEX_SERVICE,
    StoreCheckpoint: STORE_CHECKPOINT,
    CommitLog: COMMIT_LOG,
    ConsumeQueue: CONSUME_QUEUE,
    MessageStore: MESSAGE_STORE,
    StoreWriter: STORE_WRITER,
    ConsumeQueueWriter: QUEUE_WRITER,
    OffsetIndex: OFFSET_INDEX,
    TimeIndex: TIME_INDEX,
    LogSegment: LOG_SEGMENT,
    Log: LOG,
    LogDir: LOG_DIR,
    LogWriter: LOG_WRITER,
    LogDirWriter: LOG_DIR_WRITER,
}
ALL = {f"{kind.__name__}.{name}": call for kind, calls in CALLS.items() for name, call in calls.items()} | FUNCTIONS

ANSWERED: dict[str, Call] = {
    "CommitLog.message:phy_offset": lambda o, n: o.commit_log.message(n) is None,
    "CommitLog.damage:phy_offsets": lambda o, n: o.commit_log.damage([n]) == [],
    "CommitLog.is_cut_off:phy_offset": lambda o, n: o.commit_log.is_cut_off(n) is False,
    "MessageStore.message:key": lambda o, n: o.store.message(n) is None,
    "MessageStore.queue:queue_id": lambda o, n: _is_missing(lambda: o.store.queue(TOPIC, n)),
    "LogDir.records:partitions": lambda o, n: o.logs.records(partitions=n).read_all().num_rows == 0,
    "LogDir.log:partition": lambda o, n: _is_missing(lambda: o.logs.log("cod-none", n)),
}
"""Calls that have an answer to any number: there is no such thing."""

OWN = {
    "IndexService.open_to_recover:geometry",
    "IndexService.open_to_recover:log_end",
    "ConsumeQueueWriter.flush:least_pages",
    "StoreWriter.follow:seen",
    "ConsumeQueue.offsets_near_times:times",
    "MessageStore.page:position",
    "MessageStore.page:limit",
    "MessageStore.page:queue_id",
    "MessageStore.start_of_last:queue_id",
    "LogSegment.from_bytes:max_batch_bytes",
    "LogSegment.from_bytes:partition",
    "LogWriter.open:clock",
    "LogWriter.copy:progress",
    "LogWriter.end_transactions:committed",
    "LogDirWriter.open:clock",
}
"""Arguments that the package gives itself, or that have a check of their own."""


def _is_missing(call: Callable[[], object]) -> bool:
    with pytest.raises(FileNotFoundError):
        call()
    return True


@pytest.mark.parametrize("n", [2**70, -(2**70)], ids=["large", "small"])
@pytest.mark.parametrize("name", ALL)
def test_an_integer_of_more_than_64_bits_is_refused_by_name(opened: Opened, name: str, n: int) -> None:
    argument, before = name.partition(":")[2], len(opened.made)
    with pytest.raises(ValueError) as told:
        ALL[name](opened, n)
    # Its own text: PyO3's notes name the argument in any case.
    assert re.search(rf"\b{argument}s?\b", str(told.value)), told.value
    assert not any(path.exists() for path in opened.made[before:])


@pytest.mark.parametrize("n", [2**70, -(2**70)], ids=["large", "small"])
@pytest.mark.parametrize("name", ANSWERED)
def test_some_calls_have_an_answer_to_any_number(opened: Opened, name: str, n: int) -> None:
    assert ANSWERED[name](opened, n)


def test_an_arrow_integer_of_64_bits_without_sign_is_refused_by_name(opened: Opened) -> None:
    column = Array([2**64 - 1], type=DataType.uint64())
    with pytest.raises(ValueError, match="offsets"):
        opened.offsets.lookup_batch(column)
    with pytest.raises(ValueError, match="phy_offset"):
        opened.index.put_batch(opened.entries(phy_offset=column))


def _integers_in(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        words = ast.unparse(argument.annotation) if argument.annotation else ""
        if {"int", "Time", "_Ints", "_Times"} & set(
            words.replace("[", " ").replace("]", " ").replace(",", " ").split()
        ):
            yield argument.arg


def _declared(kind: type) -> Iterator[str]:
    """Return the integer arguments of the public methods of a class, as its sources declare them."""
    native = getattr(logdex._core, kind.__name__, None) is kind
    for each in kind.__mro__:
        if each.__module__ in ("abc", "builtins", "logdex._files", "logdex.source"):
            continue
        file = Path(logdex.__file__).with_name("_core.pyi") if native else Path(inspect.getfile(each))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == each.__name__)
        for method in body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                yield from (f"{kind.__name__}.{method.name}:{argument}" for argument in _integers_in(method))


@pytest.mark.parametrize("kind", CALLS)
def test_no_integer_argument_is_left_out(kind: type) -> None:
    declared = list(_declared(kind))
    assert declared or kind is StoreCheckpoint
    assert set(declared) <= {*ALL, *ANSWERED, *OWN}


def test_what_is_public_and_opened_is_in_the_list() -> None:
    public = {
        value
        for module in (rocketmq, kafka)
        for name in module.__all__
        if hasattr(value := getattr(module, name), "open")
    }
    assert public <= set(CALLS)
