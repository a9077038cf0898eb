"""RocketMQ: a broker's store directory, its commit log and its key index, without the broker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from logdex._core import (
    CommitLog,
    ConsumeQueue,
    ConsumeQueueWriter,
    MessageFilter,
    MessageReader,
    PreparedFile,
    QueueView,
    SealedFiles,
    StoreCheckpoint,
)
from logdex.hash_index import IndexFile, IndexHeader, QueryOffsetResult, index_key, key_hash
from logdex.rocketmq.find import FindResult, LogRange
from logdex.rocketmq.index_service import IndexService
from logdex.rocketmq.message import Message
from logdex.rocketmq.store import MessageStore
from logdex.statistics import WriterStatistics

if TYPE_CHECKING:
    from logdex.broker.listener import Limits
    from logdex.broker.replica.replication import Replication, replicate
    from logdex.broker.rocketmq.server import ServeOptions, Server, serve
    from logdex.rocketmq.copy import copy_messages
    from logdex.rocketmq.explain import Explanation
    from logdex.rocketmq.write.retention import Deleted, Retention
    from logdex.rocketmq.write.store_writer import PutResult, StoreWriter, WriterState

__all__ = [
    "CommitLog",
    "ConsumeQueue",
    "ConsumeQueueWriter",
    "Deleted",
    "Explanation",
    "FindResult",
    "IndexFile",
    "IndexHeader",
    "IndexService",
    "Limits",
    "LogRange",
    "Message",
    "MessageFilter",
    "MessageReader",
    "MessageStore",
    "PreparedFile",
    "PutResult",
    "QueryOffsetResult",
    "QueueView",
    "Replication",
    "Retention",
    "SealedFiles",
    "ServeOptions",
    "Server",
    "StoreCheckpoint",
    "StoreWriter",
    "WriterState",
    "WriterStatistics",
    "copy_messages",
    "index_key",
    "key_hash",
    "replicate",
    "serve",
]

_LATER = {
    "Deleted": "rocketmq.write.retention",
    "Explanation": "rocketmq.explain",
    "Limits": "broker.listener",
    "PutResult": "rocketmq.write.store_writer",
    "Replication": "broker.replica.replication",
    "Retention": "rocketmq.write.retention",
    "ServeOptions": "broker.rocketmq.server",
    "Server": "broker.rocketmq.server",
    "StoreWriter": "rocketmq.write.store_writer",
    "WriterState": "rocketmq.write.store_writer",
    "copy_messages": "rocketmq.copy",
    "replicate": "broker.replica.replication",
    "serve": "broker.rocketmq.server",
}
"""Names that are imported when they are used: a search needs none of them. The library imports `logdex.broker` only here."""


def __getattr__(name: str) -> object:
    # asyncio and ssl take longer to import than all of the rest.
    if name in _LATER:
        return getattr(importlib.import_module(f"logdex.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
