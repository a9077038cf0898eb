"""The files of a log directory: their names, what a directory is, and which files of a partition form its log.

A broker tidies a partition's directory when it starts; the listing decides the same and changes nothing.
Source: LogFileUtils#filenamePrefixFromOffset, LocalLog#parseTopicPartitionName, LogLoader#load.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logdex._core import local_path
from logdex._types import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CHECKPOINT = ".checkpoint"
"""A snapshot of KRaft's metadata: batches as in a `.log`, with offsets of its own."""
SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)

_DELETED, _CLEANED, _SWAP = _LEFTOVERS = (".deleted", ".cleaned", ".swap")
"""Endings that a broker adds while it deletes a file, writes it, or swaps it in."""
_PARTITION_METADATA = "partition.metadata"
_TEXT_FILES = {
    f"{name}{ending}"
    for name in ("leader-epoch-checkpoint", _PARTITION_METADATA, "quorum-state")
    for ending in ("", ".tmp")
}

MAX_OFFSET = MAX_INT64
_MAX_PARTITION = 2**31 - 1

_SEGMENT_FILE = re.compile(r"(\d{1,20})(\.[a-z]+)")
_UNREAD = re.compile(r"(\d{1,20})\.log[.~_-].*")
"""A log under another name, such as a compressed one."""
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


def existing_directory(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a directory; raise `OSError` with what is missing if there is none."""
    place = local_path(path)
    if not place.is_dir():
        raise OSError(errno.ENOTDIR if place.exists() else errno.ENOENT, f"no {what}", str(place))
    return place


def has_segments(directory: Path) -> bool:
    """Return whether a path is a directory with a `.log` file."""
    return directory.is_dir() and any(
        (parsed := parse_segment_file(entry.name)) is not None and parsed[1] == LOG for entry in directory.iterdir()
    )


def is_partition(directory: Path) -> bool:
    """Return whether a directory is a partition's, which may have lost its segments, and not only named like one."""
    if not directory.is_dir():
        return False
    names = (entry.name for entry in directory.iterdir())
    return any(name == _PARTITION_METADATA or name.endswith(LOG) or _is_unread(name) for name in names)


def _is_unread(name: str) -> bool:
    return _UNREAD.fullmatch(name) is not None and not name.endswith(_LEFTOVERS)


@dataclass(slots=True)
class Listing:
    """The files of a partition.

    Attributes:
        segments: The files of each segment by base offset, in ascending order: suffix to path. Each has a `.log`.
        snapshots: Producer snapshots by offset, in ascending order.
        orphans: Index files without a `.log`, which a broker deletes.
        leftovers: Files that wait for deletion or belong to an unfinished compaction.
        strays: Other files, except the text files beside the segments.
        unread: Names of files that show a lost segment, by its base offset: a log that was compressed, or an index before the
            first segment.
    """

    segments: dict[int, dict[str, Path]] = field(default_factory=dict)
    snapshots: dict[int, Path] = field(default_factory=dict)
    orphans: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    strays: list[Path] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)


def list_partition(directory: Path, next_offset: Callable[[Path], int]) -> Listing:
    """List the files of a partition.

    `next_offset` returns the offset after the last batch of a `.log` file. It is called only after an interrupted swap.
    """
    found = Listing()
    files: dict[int, dict[str, Path]] = {}
    swaps: dict[int, dict[str, Path]] = {}
    cleaned: list[int] = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        path = directory / entry.name
        leftover = next((ending for ending in _LEFTOVERS if path.name.endswith(ending)), "")
        parsed = parse_segment_file(path.name.removesuffix(leftover))
        if parsed is None or not entry.is_file():
            if path.name not in _TEXT_FILES and _METADATA_SNAPSHOT.fullmatch(path.name) is None:
                found.strays.append(path)
            continue
        offset, suffix = parsed
        if not leftover and suffix == SNAPSHOT:
            found.snapshots[offset] = path
        elif not leftover:
            files.setdefault(offset, {})[suffix] = path
        elif leftover == _SWAP:
            swaps.setdefault(offset, {})[suffix] = path
        else:
            found.leftovers.append(path)
            if leftover == _CLEANED:
                cleaned.append(offset)
    _swap_in(found, files, swaps, min(cleaned, default=None), next_offset)
    for offset, parts in sorted(files.items()):
        if LOG in parts:
            found.segments[offset] = parts
        else:
            found.orphans += parts.values()
    _name_unread(found)
    return found


def _name_unread(found: Listing) -> None:
    """Name the files of lost segments."""
    # A broker that deletes a segment renames its log first.
    deleted = {path.name.split(".")[0] for path in found.leftovers}
    first = min(found.segments, default=MAX_OFFSET)
    lost = [path for path in found.orphans if path.name.split(".")[0] not in deleted and int(path.stem) < first]
    for path in (*lost, *(path for path in found.strays if _is_unread(path.name))):
        base_offset = int(path.name.split(".")[0])
        if base_offset not in found.segments and base_offset <= MAX_OFFSET:
            found.unread[base_offset] = path.name


def _swap_in(
    found: Listing,
    files: dict[int, dict[str, Path]],
    swaps: dict[int, dict[str, Path]],
    first_cleaned: int | None,
    next_offset: Callable[[Path], int],
) -> None:
    """Replace segments by the finished ones that were made from them."""
    # If cleaned files remain, the split was not finished, and its swap files are void.
    void = [offset for offset in swaps if first_cleaned is not None and offset >= first_cleaned]
    for offset in void:
        found.leftovers += swaps.pop(offset).values()
    logs = {offset: parts[LOG] for offset, parts in swaps.items() if LOG in parts}
    if logs:
        first = min(logs)
        end = max(next_offset(path) for path in logs.values())
        for offset in [offset for offset in files if first <= offset < end and LOG in files[offset]]:
            found.leftovers += files.pop(offset).values()
    for offset, parts in swaps.items():
        # A file without the ending was renamed already, so only its indexes remain here.
        files[offset] = {**files.get(offset, {}), **parts}
