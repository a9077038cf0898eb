"""Kafka without a broker: the segments of a log directory, their sparse indexes, and a key index."""

from logdex._core import LogSegment, OffsetIndex, ProducerState, Slice, TimeIndex
from logdex.kafka.explain import KeyExplanation, explain
from logdex.kafka.files import TopicPartition
from logdex.kafka.find import FindResult, Record, find
from logdex.kafka.key_index import build_key_index
from logdex.kafka.log import Log
from logdex.kafka.log_dir import LogDir
from logdex.kafka.transactions import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "FindResult",
    "KeyExplanation",
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
    "explain",
    "find",
]
