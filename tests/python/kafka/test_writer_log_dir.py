"""`LogDirWriter`: topics, checkpoints, the marker of a clean shutdown, locks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from logdex import KafkaError, LockedError
from logdex.kafka import LogDir, LogDirWriter, LogWriter, checkpoint
from logdex.kafka.files import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

ID = "bG9nZGV4LXRvcGljLWlkMA"


def test_a_closed_directory_has_all_files_of_a_broker(tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path / "logs", cluster_id=ID, node_id=3, broker_epoch=-2) as writer:
        assert writer.create_topic("orders", 2, topic_id=ID, config={"segment.bytes": 500}) == ID
        for number in range(20):
            writer.append("orders", number % 2, {"value": [b"%d" % number * 20]})
        writer.log("orders", 0).delete_records(4)
        assert writer.topics == {"orders": [0, 1]}
        assert writer.statistics().put_messages == 20
        states = [writer.state]
    assert [state.status for state in [*states, writer.state]] == ["open", "closed"]
    logs = tmp_path / "logs"
    lines = dict(line.split("=") for line in (logs / "meta.properties").read_text().splitlines())
    assert (lines["version"], lines["cluster.id"], lines["node.id"], len(lines["directory.id"])) == ("1", ID, "3", 22)
    assert json.loads((logs / checkpoint.CLEAN_SHUTDOWN).read_text()) == {"version": 0, "brokerEpoch": -2}
    ends = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 10}
    assert checkpoint.read_offsets(logs, checkpoint.RECOVERY_POINT) == ends
    assert checkpoint.read_offsets(logs, checkpoint.HIGH_WATERMARK) == ends
    assert checkpoint.read_offsets(logs, checkpoint.LOG_START) == {TopicPartition("orders", 0): 4}
    assert (logs / "orders-1" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {ID}"
    with LogDir.open(logs) as directory:
        assert directory.verify().ok
        assert len(directory.records().read_all()) == 16


def test_a_directory_goes_on_where_it_ended(tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path) as writer:
        writer.create_topic("a", 1)
        writer.create_topic("b", 1)
        writer.append("a", 0, {"value": [b"1"]})
        writer.log("a", 0).become_leader(5)
    before = (tmp_path / "meta.properties").read_text()
    with LogDirWriter.open(tmp_path) as writer:
        assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
        assert writer.append("a", 0, {"value": [b"2"]}).last_offset == 1
        assert writer.log("a", 0).high_watermark == 2
    assert (tmp_path / "meta.properties").read_text() == before
    points = checkpoint.read_offsets(tmp_path, checkpoint.RECOVERY_POINT)
    assert points == {TopicPartition("a", 0): 2, TopicPartition("b", 0): 0}
    assert [epoch.epoch for epoch in checkpoint.read_leader_epochs(tmp_path / "a-0")] == [0, 5]


@pytest.mark.parametrize(("text", "epoch"), [('{"version":0,"brokerEpoch":23}', 23), ("", -1), ("[]", -1), ("{}", -1)])
def test_the_epoch_of_the_last_broker_is_kept(text: str, epoch: int, tmp_path: Path) -> None:
    marker = tmp_path / checkpoint.CLEAN_SHUTDOWN
    marker.write_text(text)
    LogDirWriter.open(tmp_path).close()
    assert json.loads(marker.read_text()) == {"version": 0, "brokerEpoch": epoch}


def test_an_abandoned_directory_is_recovered(tmp_path: Path) -> None:
    writer = LogDirWriter.open(tmp_path)
    writer.append("a", 0, {"value": [b"1"]})
    writer.append("a", 0, {"value": [b"2"]})
    writer.abandon()
    log = tmp_path / "a-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
    with LogDirWriter.open(tmp_path) as writer:
        assert writer.log("a", 0).end_offset == 1
    assert (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path) as writer:
        with pytest.raises(LockedError):
            LogDirWriter.open(tmp_path)
        writer.create_topic("a", 1)
        with pytest.raises(LockedError):
            LogWriter.open(tmp_path / "a-0")
    LogDirWriter.open(tmp_path).close()


def test_names_numbers_and_ids_are_checked(tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path) as writer:
        for topic in ("", "a b", "..", "x" * 250):
            with pytest.raises(ValueError, match="topic"):
                writer.create_topic(topic, 1)
        with pytest.raises(ValueError, match="partitions"):
            writer.create_topic("a", 0)
        topic_id = writer.create_topic("a", 1)
        assert writer.create_topic("a", 2) == topic_id
        writer.log("a", 1).close()
    with LogDirWriter.open(tmp_path) as writer, pytest.raises(KafkaError) as told:
        writer.log("a", 0, topic_id=ID)
    assert (told.value.error, told.value.code) == ("InconsistentTopicIdException", 103)
    with pytest.raises(ValueError, match="closed"):
        writer.append("a", 0, {})


def test_what_a_kill_left_is_completed(tmp_path: Path) -> None:
    """A kill while a topic was created, or while a file was replaced."""
    writer = LogDirWriter.open(tmp_path)
    topic_id = writer.create_topic("orders", 1)
    writer.append("orders", 0, {"value": [b"1"]})
    writer.abandon()
    (tmp_path / "orders-1").mkdir()
    left = [
        tmp_path / ".recovery-point-offset-checkpoint.77.3",
        tmp_path / "orders-0" / ".leader-epoch-checkpoint.77.4",
        tmp_path / "orders-0" / f".{1:020}.snapshot.78.12",
        tmp_path / "orders-1" / ".partition.metadata.77.5",
    ]
    others = [tmp_path / "orders-0" / ".other.77.5", tmp_path / "orders-0" / ".leader-epoch-checkpoint.new"]
    for path in [*left, *others]:
        path.write_bytes(b"0")
    with LogDirWriter.open(tmp_path) as writer:
        assert writer.create_topic("orders", 2) == topic_id
        assert writer.append("orders", 1, {"value": [b"2"]}).last_offset == 0
        with pytest.raises(KafkaError, match="topic id"):
            writer.log("orders", 1).assign_topic_id(ID)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)
    for number in range(2):
        assert (tmp_path / f"orders-{number}" / "partition.metadata").read_text().endswith(topic_id)


def test_appends_are_counted_with_the_flush(tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path, flush="sync") as writer:
        assert writer.statistics()[:2] == (0, 0)
        writer.append("a", 0, {"value": [b"1", b"2"]})
        writer.log("b", 0).append({"value": [b"3"]})
        now = writer.statistics()
        assert (now.put_messages, sum(now.put_times.values()), now.dispatch_behind_bytes) == (3, 3, 0)
        assert now.put_bytes == sum(path.stat().st_size for path in tmp_path.glob("*/*.log"))
        assert now.longest_put_ms > 0
        assert 0 < now.disk_ratio <= 1
    with pytest.raises(ValueError, match="closed"):
        writer.statistics()
