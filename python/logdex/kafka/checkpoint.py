"""The text files beside the segments: offset checkpoints of a log directory, leader epochs of a partition.

All have one form: a version, a number of lines, then that many lines. Source: CheckpointFile#write, OffsetCheckpointFile,
LeaderEpochCheckpointFile.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logdex._types import MAX_INT64
from logdex.errors import CorruptFileError
from logdex.kafka.files import TopicPartition

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
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def read_offsets(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    """Read one of `LOG_DIR_FILES`; a missing file is empty. Raises `CorruptFileError`."""
    lines = _lines(log_dir / name, 3)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in lines}


def log_start(log_dir: Path, partition: TopicPartition) -> int:
    """Return the first offset of a partition that was not deleted; 0 if it is not recorded.

    A checkpoint that cannot be read counts as missing: a broker then begins with the first segment, too.
    """
    try:
        return read_offsets(log_dir, LOG_START).get(partition, 0)
    except (CorruptFileError, OSError):
        return 0


def read_leader_epochs(partition_dir: Path) -> list[tuple[int, int]]:
    """Read the leader epochs of a partition as (epoch, first offset), in the order of the file; a missing file is empty."""
    return [(int(epoch), int(start)) for epoch, start in _lines(partition_dir / LEADER_EPOCHS, 2)]


def _lines(path: Path, fields: int) -> list[list[str]]:
    """Return the lines after the head, split into fields of which the last two are numbers."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    if not text:
        return []  # a checkpoint that was never written
    version, *rest = text.split("\n")
    if version != _VERSION:
        raise CorruptFileError(str(path), 0, f"version {_VERSION}", repr(version))
    body = [line for line in rest[1:] if line]
    if not rest or rest[0] != str(len(body)):
        expected = f"a count of {len(body)}, as many as there are lines"
        raise CorruptFileError(str(path), len(version) + 1, expected, rest[0] if rest else "none")
    found = []
    at = len(version) + len(rest[0]) + _HEAD_LINES
    for line in body:
        # A topic has no space in it.
        parts = line.split(" ")
        if len(parts) != fields or not all(map(_is_int64, parts[-2:])):
            raise CorruptFileError(str(path), at, f"{fields} fields", repr(line))
        found.append(parts)
        at += len(line) + 1
    return found


def _is_int64(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and abs(int(text)) <= MAX_INT64
