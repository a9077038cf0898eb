"""`load([a, b])`: stores of several brokers, disks of one broker, and replicas, of which one is read."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
import kafka_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_stores_of_two_brokers(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    roots = [str(shared_store(case)) for case in ("basic", "rolled")]
    rows = [golden.rows(case, "messages") for case in ("basic", "rolled")]
    read = spark.read.format("rocketmq").option("columns", "topic,phy_offset")
    frame = read.load(roots)
    assert frame.count() == sum(map(len, rows))
    topic = rows[0][0]["topic"]
    expected = sorted(row["physicalOffset"] for each in rows for row in each if row["topic"] == topic)
    found = read.option("topic", topic).option("maxPartitionBytes", 20_000).load(roots)
    assert sorted(row.phy_offset for row in found.collect()) == expected
    assert frame.where("phy_offset < 0").count() == 0


def test_indexes_of_two_brokers(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    roots = [str(shared_store(case) / "index") for case in ("basic", "rolled")]
    read = spark.read.format("rocketmq_index")
    frame = read.load(roots)
    assert frame.count() == sum(read.load(root).count() for root in roots) > 0
    named = read.option("columns", "file,position").load(roots).select("file").distinct().collect()
    assert {row.file.rpartition("/")[0] for row in named} == set(roots)


def test_disks_and_replicas_of_kafka(spark: SparkSession, tmp_path: Path) -> None:
    """A broker with two disks, and another with a longer and a shorter replica: each record once, from the longer one."""
    disks = [tmp_path / name for name in ("disk1", "disk2", "other")]
    values = [f"v{number}".encode() for number in range(6)]
    for disk, partition, count in ((0, 0, 6), (1, 1, 4), (2, 0, 3), (2, 1, 6), (2, 2, 2)):
        rows = [kafka_batches.Row(at, 1000 + at, None, values[at]) for at in range(count)]
        kafka_batches.write_segment(disks[disk] / f"t-{partition}", 0, kafka_batches.batch(rows))
    frame = spark.read.format("kafka_log").load([str(each) for each in disks])
    found = sorted((row.partition, row.offset, row.value) for row in frame.collect())
    expected = [(p, at, values[at]) for p, count in ((0, 6), (1, 6), (2, 2)) for at in range(count)]
    assert found == expected
    assert spark.read.format("kafka_log").load([str(each) for each in disks[:2]]).count() == 6 + 4

    stream = spark.readStream.format("kafka_log").option("paths", f'["{disks[0]}", "{disks[2]}"]').load()
    query = stream.writeStream.format("memory").queryName("several").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert spark.table("several").count() == 6 + 6 + 2


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("rocketmq", ["store", "store/../store"], "named twice"),
        ("kafka_log", ["logs", "logs"], "named twice"),
        ("kafka_log", ["logs", "store"], "store: no Kafka log directory"),
        ("rocketmq", ["store", "nowhere"], "no such directory.*nowhere"),
    ],
)
def test_directories_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path, name: str, given: list[str], says: str
) -> None:
    golden.unpack("basic", tmp_path)
    shutil.copytree(golden_kafka.unpack("codecs", tmp_path / "unpacked"), tmp_path / "logs")
    with pytest.raises(Exception, match=says):
        spark.read.format(name).load([str(tmp_path / each) for each in given]).count()


def test_streams_of_stores_and_writes_take_one_directory(spark: SparkSession, tmp_path: Path) -> None:
    stores = f'["{tmp_path}/a", "{tmp_path}/b"]'
    stream = spark.readStream.format("rocketmq").option("paths", stores).load()
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="a stream of format rocketmq takes one directory"):
        query.awaitTermination(120)
