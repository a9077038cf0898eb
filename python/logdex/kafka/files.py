"""The files of a log directory: their names, what a directory is, which files of a partition form its log; remote storage.

Source: LogFileUtils#filenamePrefixFromOffset, LocalLog#parseTopicPartitionName.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from logdex import _core
from logdex._types import MAX_INT64

if TYPE_CHECKING:
    from pathlib import Path

Key: TypeAlias = str | PathLike[str]
"""A private key: a text in PEM, or the path of such a file."""
Keys: TypeAlias = Key | Mapping[str, Key]
"""A key for all key pairs, or a key for each by its name."""

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CHECKPOINT = ".checkpoint"
"""A snapshot of KRaft's metadata: batches as in a `.log`, with offsets of its own."""
META_PROPERTIES = "meta.properties"
"""The file that a broker writes into each of its log directories."""
METADATA_TOPIC = "__cluster_metadata"
"""The log of the controllers, which no broker loads as a topic."""
SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)

MAX_OFFSET = MAX_INT64
_MAX_PARTITION = 2**31 - 1

_SEGMENT_FILE = re.compile(r"(\d{1,20})(\.[a-z]+)")
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.DOTALL)
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})(\.checkpoint(?:\.deleted)?|-[0-9]+\.checkpoint\.part)")
_RENAMED = re.compile(r"\.[0-9a-f]{32}-(delete|future|stray)$")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A topic's name, and the number of one of its partitions, from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the name of the partition's directory."""
        return f"{self.topic}-{self.partition}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return the base offset and the suffix of a segment's file; None for any other name.

    Leading zeros are not required, as for a broker. The locale of the broker's JVM chooses the script of the digits.

    Example:
        >>> parse_segment_file("00000000000000000042.timeindex")
        (42, '.timeindex')
        >>> parse_segment_file("00000000000000000042.log.deleted") is None
        True
    """
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or match[2] not in SUFFIXES or int(match[1]) > MAX_OFFSET:
        return None
    return int(match[1]), match[2]


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """Return the end offset and the epoch of a KRaft metadata snapshot, `<20 digits>-<10 digits>.checkpoint`; else None.

    Source: Snapshots#parse.
    """
    match = _METADATA_SNAPSHOT.fullmatch(name)
    return None if match is None or match[3] != CHECKPOINT else (int(match[1]), int(match[2]))


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the topic and partition of a live replica's directory; None for any other name.

    A replica that waits for its deletion, moves between log directories or is a stray has a longer name; see
    `renamed_partition`.

    Example:
        >>> parse_partition_directory("my-topic-12")
        TopicPartition(topic='my-topic', partition=12)
    """
    return None if renamed_partition(name) is not None else _split(name)


def _split(name: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(name)
    # No topic has a name that is not UTF-8, and no column of text can hold one.
    if match is None or _text(name) != name or int(match[2]) > _MAX_PARTITION:
        return None
    return TopicPartition(match[1], int(match[2]))


def renamed_partition(name: str) -> str | None:
    """Return why a broker renamed a directory: "delete", "future" or "stray"; None for any other name."""
    match = _RENAMED.search(name)
    return None if match is None else match[1]


def partition_of(directory: Path) -> TopicPartition:
    """Return the topic and partition of a directory by its name, or by the name before a broker renamed it.

    A directory of another name, as a copy may have it, is partition 0 of a topic of that name.
    """
    name = _RENAMED.sub("", directory.absolute().name)
    return _split(name) or TopicPartition(_text(name), 0)


def _text(name: str) -> str:
    """Return a file's name with replacement characters for bytes that are not UTF-8."""
    return os.fsencode(name).decode(errors="replace")


class Listing(NamedTuple):
    """The files of a partition, as `logdex._core.list_partition` returns them.

    Attributes:
        segments: The files of each segment by base offset, in ascending order: suffix to path. Each has a `.log`.
        snapshots: Producer snapshots by offset, in ascending order.
        orphans: Index files without a `.log`, which a broker deletes.
        leftovers: Files that wait for deletion or belong to an unfinished compaction.
        strays: Other files, except the text files of a partition.
        unread: The files found instead of lost segments, by base offset: a log that was compressed, an index before the first
            segment, a missing object.
    """

    segments: dict[int, dict[str, Path]]
    snapshots: dict[int, Path]
    orphans: list[Path]
    leftovers: list[Path]
    strays: list[Path]
    unread: dict[int, str]


def join_log_dir(
    log_dir: Path | None, tiered: str | PathLike[str], keys: Keys | None, storage_options: Mapping[str, str] | None
) -> Path:
    """Return the path of a log directory with the files of both; None: remote storage alone."""
    by_name = keys if isinstance(keys, Mapping) else {} if keys is None else {"": keys}
    return _core.join_tiered(None if log_dir is None else log_dir.absolute(), tiered, by_name, storage_options)


def join_partition(
    partition_dir: Path, tiered: str | PathLike[str], keys: Keys | None, storage_options: Mapping[str, str] | None
) -> Path:
    """Return the path of a partition with the files of both."""
    place = partition_dir.absolute()
    return join_log_dir(place.parent, tiered, keys, storage_options) / place.name
