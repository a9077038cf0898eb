"""`explain` shows the search in each partition, and where producers put a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden_kafka
from kafka_search import explain, find
from logdex._core import default_partition
from logdex.kafka import LogDir, build_key_index

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory in which the topic tx-two has three partitions."""
    return golden_kafka.unpack("transactions", tmp_path_factory.mktemp("logs"))


# Of Kafka's own UtilsTest#testMurmur2.
_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", _HASHES)
def test_the_default_partition_is_that_of_java_producers(key: bytes) -> None:
    assert default_partition(key, 2**31) == _HASHES[key] & 0x7FFF_FFFF
    assert default_partition(key, 7) == (_HASHES[key] & 0x7FFF_FFFF) % 7


def test_each_partition_says_what_was_searched(logs: Path, tmp_path: Path) -> None:
    (key, *_) = pa.table(LogDir.open(logs).records("tx-two", columns=["key"])).column("key").drop_null().to_pylist()
    offsets = {(record.partition, record.offset) for record in find(logs, "tx-two", key)}
    assert offsets
    plain = explain(logs, "tx-two", key)
    build_key_index(logs, tmp_path / "index")
    indexed = explain(logs, "tx-two", key, index=tmp_path / "index")
    with LogDir.open(logs) as opened:
        opened.seal(tmp_path / "sealed")
        ends = [
            (opened.log("tx-two", number).log_start_offset, opened.log("tx-two", number).log_end_offset)
            for number in range(3)
        ]
    with LogDir.open(logs, sealed=tmp_path / "sealed") as opened:
        sealed = explain(opened, "tx-two", key)
    for explanation in (plain, indexed, sealed):
        assert explanation.found
        assert [step.partition for step in explanation.steps] == [0, 1, 2]
        assert {(step.partition, offset) for step in explanation.steps for offset in step.offsets} == offsets
        assert [(step.log_start_offset, step.log_end_offset) for step in explanation.steps] == ends
        assert explanation.default_partition == default_partition(key, 3)
    assert [step.scanned for step in plain.steps] == [end - begin for begin, end in ends]
    assert sum(step.indexed for step in indexed.steps) >= len(offsets)
    assert sum(step.sealed for step in sealed.steps) >= len(offsets)
    for explanation in (indexed, sealed):
        assert sum(step.scanned for step in explanation.steps) < sum(step.scanned for step in plain.steps)


@pytest.mark.parametrize("topic", ["tx-*", "/tx-t.*/", "tx-tw?"])
def test_a_pattern_of_topics_is_searched_and_not_explained(logs: Path, tmp_path: Path, topic: str) -> None:
    build_key_index(logs, tmp_path / "index")
    with LogDir.open(logs) as opened:
        opened.seal(tmp_path / "sealed")
        every = pa.table(opened.records(topic, columns=["key", "topic", "partition", "offset"])).to_pylist()
        key = next(row["key"] for row in every if row["key"] is not None)
        wanted = {(row["topic"], row["partition"], row["offset"]) for row in every if row["key"] == key}
        with pytest.raises(ValueError, match="expected one topic; find takes a pattern"):
            opened.explain(topic, key)
    with LogDir.open(logs, sealed=tmp_path / "sealed") as sealed:
        for source, options in ((logs, {}), (logs, {"index": tmp_path / "index"}), (sealed, {})):
            found = find(source, topic, key, **options)
            assert {(each.topic, each.partition, each.offset) for each in found} == wanted
            assert len(found) == len(wanted) > 0


def test_a_partition_that_is_elsewhere_is_named(tmp_path: Path) -> None:
    root = golden_kafka.unpack("transactions", tmp_path)
    for path in (root / "tx-two-1").iterdir():
        path.unlink()
    (root / "tx-two-1").rmdir()
    key = next(f"k{number}" for number in range(100) if default_partition(f"k{number}".encode(), 3) == 1)
    explanation = explain(root, "tx-two", key)
    assert not explanation.found
    assert explanation.text().splitlines()[:3] == [
        f"no record of tx-two carries {key}",
        "  of 3 partitions, Java producers put it in partition 1 by default, which is not in this directory",
        "  not in this directory: partition 1",
    ]
