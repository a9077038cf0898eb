"""Kafka: the segments of a broker's log directory, their sparse indexes, and a key index over them, without the broker."""

from logdex._core import OffsetIndex, ProducerState, TimeIndex
from logdex.kafka.file_name import TopicPartition
from logdex.kafka.find_result import FindResult
from logdex.kafka.key_index import build_key_index
from logdex.kafka.key_search import find
from logdex.kafka.log import Log
from logdex.kafka.log_dir import LogDir
from logdex.kafka.record import Record
from logdex.kafka.segment import LogSegment, Slice
from logdex.kafka.transactions import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "FindResult",
    "Log",
    "LogDir",
    "LogSegment",
    "OffsetIndex",
    "ProducerState",
    "Record",
    "Slice",
    "TimeIndex",
    "TopicPartition",
    "build_key_index",
    "find",
]
