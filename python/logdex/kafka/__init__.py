"""Kafka without a broker: the segments of a log directory, their sparse indexes, and a key index."""

from logdex._core import (
    LogSegment,
    OffsetIndex,
    ProducerState,
    RecoveredSegment,
    SegmentReader,
    Slice,
    TimeIndex,
)
from logdex.kafka.checkpoint import LeaderEpoch
from logdex.kafka.explain import KeyExplanation
from logdex.kafka.files import TopicPartition
from logdex.kafka.find import FindResult, Record, UnreadRange
from logdex.kafka.log import Log, TimedOffset
from logdex.kafka.log_dir import LogDir, build_key_index, explain, find
from logdex.kafka.transactions import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "FindResult",
    "KeyExplanation",
    "LeaderEpoch",
    "Log",
    "LogDir",
    "LogSegment",
    "OffsetIndex",
    "ProducerState",
    "Record",
    "RecoveredSegment",
    "SegmentReader",
    "Slice",
    "TimeIndex",
    "TimedOffset",
    "TopicPartition",
    "UnreadRange",
    "build_key_index",
    "explain",
    "find",
]
