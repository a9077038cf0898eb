"""Kafka without a broker: the segments of a log directory, their sparse indexes, and a key index."""

from logdex._core import (
    LogSegment,
    LogWriter,
    OffsetIndex,
    ProducerState,
    RecoveredSegment,
    SegmentReader,
    Slice,
    TimeIndex,
)
from logdex.errors import KafkaError as KafkaError
from logdex.kafka.checkpoint import LeaderEpoch
from logdex.kafka.copy import copy
from logdex.kafka.files import TopicPartition
from logdex.kafka.find import FindResult, KeyExplanation, Record, UnreadRange
from logdex.kafka.log import AbortedTransaction, Log, TimedOffset
from logdex.kafka.log_dir import LogDir, build_key_index, explain, find
from logdex.kafka.recover import LogDirRecovery, recover
from logdex.kafka.writer import AppendResult, LogDirState, LogDirWriter
from logdex.statistics import WriterStatistics

__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "FindResult",
    "KeyExplanation",
    "LeaderEpoch",
    "Log",
    "LogDir",
    "LogDirRecovery",
    "LogDirState",
    "LogDirWriter",
    "LogSegment",
    "LogWriter",
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
    "WriterStatistics",
    "build_key_index",
    "copy",
    "explain",
    "find",
    "recover",
]
