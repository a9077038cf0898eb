"""The text checkpoints beside the segments, as real brokers left them and as damage may leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden_kafka
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.file_name import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_log_start_offsets_are_the_brokers(kafka_logs: Callable[[str], Path]) -> None:
    compared = 0
    for case in ("compacted", "compacted-4x"):
        starts = checkpoint.read_offsets(kafka_logs(case), checkpoint.LOG_START)
        assert starts
        for row in golden_kafka.rows(case, "lookups"):
            partition = TopicPartition(row.get("topic", ""), row.get("partition", 0))
            if row["kind"] == "beginningOffset" and partition in starts:
                assert starts[partition] == row["result"], row
                compared += 1
    assert compared >= 4


def test_leader_epochs_of_every_partition_are_read(kafka_logs: Callable[[str], Path]) -> None:
    found = 0
    for case in golden_kafka.SOUND:
        for directory in sorted(path.parent for path in kafka_logs(case).glob("*/leader-epoch-checkpoint")):
            epochs = checkpoint.read_leader_epochs(directory)
            assert epochs == sorted(epochs)
            found += len(epochs)
    assert found >= 60


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    assert checkpoint.read_offsets(tmp_path, checkpoint.LOG_START) == {}
    assert checkpoint.read_leader_epochs(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("1\n0\n", 0),
        ("0\n2\n0 0\n", 2),
        ("0\n1\n0 0\n5 5\n", 2),
        ("0\n1\n0\n", 4),
        ("0\n2\n0 0\n5 x\n", 8),
        ("0\n1\n0 \u0665\n", 4),
        ("0", 2),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_its_place(tmp_path: Path, text: str, offset: int) -> None:
    path = tmp_path / checkpoint.LEADER_EPOCHS
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorruptFileError) as caught:
        checkpoint.read_leader_epochs(tmp_path)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)
