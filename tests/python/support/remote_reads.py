"""Reads of handles, for processes that import this module alone."""

from __future__ import annotations

import pickle
from typing import TypeAlias

import pyarrow as pa

from logdex.kafka import LogDir
from logdex.rocketmq import CommitLog, ConsumeQueue, IndexService, MessageStore

Handle: TypeAlias = "MessageStore | CommitLog | IndexService | ConsumeQueue | LogDir"


def read(handle: Handle) -> list[int]:
    """Read something of each part, as numbers."""
    match handle:
        case MessageStore():
            messages = pa.table(handle.messages(columns=["phy_offset", "topic", "uniq_key"]))
            topic, key = (messages.column(name)[0].as_py() for name in ("topic", "uniq_key"))
            return [*messages.column("phy_offset").to_pylist(), *(each.phy_offset for each in handle.find(topic, key))]
        case CommitLog():
            return [handle.min_offset, handle.max_offset]
        case IndexService():
            return [len(file) for file in handle.files]
        case ConsumeQueue():
            return [handle.min_offset, handle.max_offset]
        case LogDir():
            numbers: list[int] = pa.table(handle.records(columns=["offset"])).column("offset").to_pylist()
            return numbers


def look_up(store: MessageStore, logs: LogDir) -> list[int]:
    """Look up something in each part, which takes few requests, as numbers."""
    topic = store.topics[0]
    found = [message.phy_offset for message in store.find(topic, "no such key")]
    numbers = [*found, store.commit_log.max_offset, store.queue(topic, 0).max_offset]
    partition = min(logs.partitions())
    log = logs.log(partition.topic, partition.partition)
    return [*numbers, log.log_start_offset, log.log_end_offset, *(log.offset_for_timestamp(0) or ())]


def read_pickled(pickled: bytes) -> list[int]:
    """Read a handle that another process opened."""
    with pickle.loads(pickled) as handle:  # noqa: S301 -- our own
        return read(handle)
