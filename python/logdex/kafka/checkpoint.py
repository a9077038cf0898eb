"""The text files beside the segments: offset checkpoints of a log directory, leader epochs of a partition.

All of them have one form: a version, a number of lines, then that many lines. Source: CheckpointFile#write,
OffsetCheckpointFile, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.errors import CorruptFileError
from logdex.kafka.file_name import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

LOG_START = "log-start-offset-checkpoint"
RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LOG_DIR_FILES = (LOG_START, RECOVERY_POINT, HIGH_WATERMARK, CLEANER)
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = "0"
_HEAD_LINES = 2
_MOST_DIGITS = 20
"""Of a number of 64 bits, with its sign."""


def read_offsets(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint of a log directory; empty where there is none.

    Args:
        log_dir: The log directory.
        name: One of `LOG_DIR_FILES`.

    Raises:
        CorruptFileError: It is no checkpoint.
    """
    offsets: dict[TopicPartition, int] = {}
    for _, fields in _lines(log_dir / name, 3):
        topic, partition, offset = fields
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def log_start(log_dir: Path, partition: TopicPartition) -> int:
    """Give the first offset that was not deleted of a partition; 0 where that is not recorded.

    A checkpoint that cannot be read counts as none: a broker begins with the first segment then, too.
    """
    try:
        return read_offsets(log_dir, LOG_START).get(partition, 0)
    except (CorruptFileError, OSError):
        return 0


def read_leader_epochs(partition_dir: Path) -> list[tuple[int, int]]:
    """Read the leader epochs of a partition as (epoch, first offset), in the order of the file; empty where there is none.

    Raises:
        CorruptFileError: It is no checkpoint.
    """
    return [(int(epoch), int(start)) for _, (epoch, start) in _lines(partition_dir / LEADER_EPOCHS, 2)]


def _lines(path: Path, fields: int) -> list[tuple[int, list[str]]]:
    """Give the lines after the head, each with its byte offset, split into fields of which all but the first are numbers."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    lines = text.split("\n")
    if len(lines) < _HEAD_LINES and not text:
        return []  # a checkpoint that was never written
    if lines[0] != _VERSION:
        raise CorruptFileError(str(path), 0, f"version {_VERSION}", repr(lines[0]))
    body = [line for line in lines[_HEAD_LINES:] if line]
    if len(lines) < _HEAD_LINES or lines[1] != str(len(body)):
        count = lines[1] if len(lines) > 1 else "none"
        raise CorruptFileError(
            str(path), len(lines[0]) + 1, f"a count of {len(body)}, as many as there are lines", count
        )
    found = []
    at = len(lines[0]) + len(lines[1]) + _HEAD_LINES
    for line in body:
        # A topic has no space in it.
        parts = line.split(" ")
        if len(parts) != fields or not all(_is_number(part) for part in parts[fields - 2 :]):
            raise CorruptFileError(str(path), at, f"{fields} fields", repr(line))
        found.append((at, parts))
        at += len(line) + 1
    return found


def _is_number(text: str) -> bool:
    return len(text) <= _MOST_DIGITS and text.removeprefix("-").isdecimal() and text.isascii()
