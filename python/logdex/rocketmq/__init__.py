"""RocketMQ: a broker's store directory, its commit log and its key index, without the broker."""

from logdex._core import CommitLog, ConsumeQueue, ConsumeQueueWriter, StoreCheckpoint
from logdex.hash_index import IndexFile, IndexHeader, QueryOffsetResult, index_key, key_hash
from logdex.rocketmq.copy import copy_messages
from logdex.rocketmq.explain import Explanation
from logdex.rocketmq.find import FindResult
from logdex.rocketmq.index_service import IndexService
from logdex.rocketmq.message import Message
from logdex.rocketmq.server import Server, serve
from logdex.rocketmq.store import MessageStore
from logdex.rocketmq.write.store_writer import PutResult, StoreWriter, WriterState

__all__ = [
    "CommitLog",
    "ConsumeQueue",
    "ConsumeQueueWriter",
    "Explanation",
    "FindResult",
    "IndexFile",
    "IndexHeader",
    "IndexService",
    "Message",
    "MessageStore",
    "PutResult",
    "QueryOffsetResult",
    "Server",
    "StoreCheckpoint",
    "StoreWriter",
    "WriterState",
    "copy_messages",
    "index_key",
    "key_hash",
    "serve",
]
