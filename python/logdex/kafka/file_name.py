"""The names in a Kafka log directory: partition directories and the files of their segments.

Source: LogFileUtils#filenamePrefixFromOffset, #offsetFromFileName; LocalLog#parseTopicPartitionName.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex._types import MAX_INT64

if TYPE_CHECKING:
    from pathlib import Path

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CHECKPOINT = ".checkpoint"
"""A snapshot of KRaft's metadata: batches as in a `.log`, with offsets of its own."""
SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
LEFTOVERS = (".deleted", ".cleaned", ".swap")
"""What a broker puts behind a file's name while it deletes it, makes it, or swaps it in."""

MAX_OFFSET = MAX_INT64
"""The largest offset that there can be."""

_OFFSET_DIGITS = 20
_MAX_PARTITION = 2**31 - 1

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})", re.DOTALL)
_METADATA_SNAPSHOT = re.compile(
    r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})(?P<ending>\.checkpoint(?:\.deleted)?|-[0-9]+\.checkpoint\.part)"
)
_RENAMED = re.compile(r"\.[0-9a-f]{32}-(?P<why>delete|future|stray)$")


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Give the name of a segment's file: 20 digits and the suffix."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Give the base offset and the suffix of a segment's file; None for any other name.

    Zeros in front are not required, and digits may be those of any script, as with a broker: its JVM's locale chooses them.

    Example:
        >>> parse_segment_file("00000000000000000042.timeindex")
        (42, '.timeindex')
        >>> parse_segment_file("00000000000000000042.log.deleted") is None
        True
    """
    stem, dot, suffix = name.partition(".")
    if dot + suffix not in SUFFIXES or not stem.isdecimal() or len(stem) > _OFFSET_DIGITS or int(stem) > MAX_OFFSET:
        return None
    return int(stem), dot + suffix


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """Give the end offset and the epoch of a KRaft metadata snapshot, `<20 digits>-<10 digits>.checkpoint`; else None.

    Source: Snapshots#parse.
    """
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None or match["ending"] != CHECKPOINT:
        return None
    return int(match["offset"]), int(match["epoch"])


def is_metadata_snapshot(name: str) -> bool:
    """Say whether a file is a KRaft metadata snapshot, or one that is being written or waits for its deletion."""
    return _METADATA_SNAPSHOT.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic.

    Attributes:
        topic: The topic's name.
        partition: Its number, from 0.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        """Join the two as a broker names the directory."""
        return f"{self.topic}-{self.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Give the topic and partition of a live replica's directory; None for any other name.

    A replica that waits for its deletion, moves between log directories, or should not be here has a longer name and
    is no live one; see `renamed_partition`.

    Example:
        >>> parse_partition_directory("my-topic-12")
        TopicPartition(topic='my-topic', partition=12)
    """
    return None if renamed_partition(name) is not None else _split(name)


def _split(name: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(name)
    # A name that is no text stands for its bytes with what no column of text can hold; no topic has one.
    if match is None or _text(name) != name or int(match["partition"]) > _MAX_PARTITION:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def renamed_partition(name: str) -> str | None:
    """Say why a directory is no live replica: "delete", "future" or "stray"; None for any other name."""
    match = _RENAMED.search(name)
    return None if match is None else match["why"]


def partition_of(directory: Path) -> TopicPartition:
    """Give the topic and partition of a directory, by its name; what it was before a broker renamed it.

    A directory of another name, as a copy may have it, is partition 0 of a topic of that name.
    """
    name = _RENAMED.sub("", directory.absolute().name)
    return _split(name) or TopicPartition(_text(name), 0)


def _text(name: str) -> str:
    """Give a file's name with marks in the place of bytes that are no text."""
    return os.fsencode(name).decode(errors="replace")
