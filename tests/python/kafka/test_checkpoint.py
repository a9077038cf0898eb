"""The text checkpoints beside the segments, as real brokers left them and as damage may leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden_kafka
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.files import TopicPartition

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
        pytest.param("0\n1\n0 " + "9" * 5000 + "\n", 4, id="more digits than Python takes"),
        ("0", 2),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_its_place(tmp_path: Path, text: str, offset: int) -> None:
    path = tmp_path / checkpoint.LEADER_EPOCHS
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorruptFileError) as caught:
        checkpoint.read_leader_epochs(tmp_path)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@given(
    content=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"0", b"1", b"-", b" ", b"\n", b"9" * 30, b"topic", b"\r", b"\xff"]), max_size=24).map(
        b"".join
    )
)
def test_any_bytes_are_a_checkpoint_or_refused_with_a_place(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("partition")
    for name in (checkpoint.LEADER_EPOCHS, checkpoint.LOG_START):
        (directory / name).write_bytes(content)
    lines = content.count(b"\n") + content.count(b"\r")
    for read in (
        lambda: checkpoint.read_leader_epochs(directory),
        lambda: list(checkpoint.read_offsets(directory, checkpoint.LOG_START)),
    ):
        found, place = 0, 0
        try:
            found = len(read())
        except CorruptFileError as error:
            place = error.offset
        # The head has two lines. What is missing is missing behind the end.
        assert 0 <= found <= max(lines - 1, 0)
        assert 0 <= place <= len(content) + 1
