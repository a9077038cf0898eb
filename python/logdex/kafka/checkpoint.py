"""The text files next to the segments: offset checkpoints of a log directory, leader epochs of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logdex._core import read_checkpoint, recorded_offset
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


def read_offsets(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    """Read one of `LOG_DIR_FILES`; a missing file is empty. Raises `CorruptFileError`."""
    lines = read_checkpoint(log_dir / name, has_topic=True)
    return {TopicPartition(topic or "", partition): offset for topic, partition, offset in lines}


def recorded(log_dir: Path, name: str, partition: TopicPartition) -> int | None:
    """Return the offset of a partition in one of `LOG_DIR_FILES`; None if it is not recorded.

    A damaged checkpoint counts as missing: a broker then begins with the first segment, too.

    Raises:
        OSError: It may be there, and cannot be read.
    """
    return recorded_offset(log_dir / name, partition.topic, partition.partition)


class LeaderEpoch(NamedTuple):
    """An epoch of a partition's leader, and the first offset that was written in it."""

    epoch: int
    begin_offset: int


def read_leader_epochs(partition_dir: Path) -> list[LeaderEpoch]:
    """Read the leader epochs of a partition, in the order of the file; a missing file is empty."""
    return [
        LeaderEpoch(epoch, start) for _, epoch, start in read_checkpoint(partition_dir / LEADER_EPOCHS, has_topic=False)
    ]
