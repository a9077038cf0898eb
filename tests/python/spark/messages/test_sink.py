"""A frame of messages becomes a new store, all of it or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

GEOMETRY = {"fileSize": "65536", "hashSlots": "100", "maxEntries": "500", "zone": "UTC"}
KEPT = "topic,queue_id,body,flag,properties,born_timestamp,born_host,store_timestamp,store_host,uniq_key,keys,tags"


def messages(spark: SparkSession, store: Path, columns: str) -> DataFrame:
    return spark.read.format("rocketmq").option("columns", f"{columns},phy_offset").load(str(store))


def in_order(frame: DataFrame) -> list[dict[str, Any]]:
    rows = frame.toArrow().to_pylist()
    return [{**row, "phy_offset": None} for row in sorted(rows, key=lambda row: row["phy_offset"])]


def save(frame: DataFrame, target: Path, **options: str) -> None:
    frame.write.format("rocketmq").mode("append").options(**{**GEOMETRY, **options}).save(str(target))


def test_a_store_is_written_again(spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path) -> None:
    """The messages of a topic, filtered and restored: in order, in their queues, found by their keys."""
    source = messages(spark, shared_store("basic"), KEPT).where("topic != 'AaTopic'")
    save(source.coalesce(1).sortWithinPartitions("phy_offset"), tmp_path / "new")
    expected = in_order(source)
    assert in_order(messages(spark, tmp_path / "new", KEPT)) == expected
    assert len(expected) > 100
    with MessageStore.open(tmp_path / "new") as store:
        assert store.verify().ok
        keyed = [row for row in expected if row["uniq_key"]]
        for row in keyed[::20]:
            assert [each.body for each in store.find(row["topic"], row["uniq_key"])] == [row["body"]]
        assert len(keyed) > 100
    assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_columns_that_are_left_out_have_defaults(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("orders", f"body {n}".encode()) for n in range(50)], "topic string, body binary")
    save(frame.coalesce(1), tmp_path / "new")
    with MessageStore.open(tmp_path / "new", hash_slots=100, max_entries=500) as store:
        assert [row["body"] for row in in_order(messages(spark, tmp_path / "new", "body"))] == [
            f"body {n}".encode() for n in range(50)
        ]
        assert store.queue("orders", 0).max_offset == 50


def test_two_tasks_with_rows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="one task writes a store"):
        save(spark.range(0, 100, 1, 4).selectExpr("'t' as topic"), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_is_no_message_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 1).selectExpr("if(id = 90, null, 't') as topic")
    with pytest.raises(Exception, match="topic"):
        save(frame, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_is_there_is_never_replaced(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    frame = spark.createDataFrame([("t",)], "topic string")
    with pytest.raises(Exception, match="expected a missing or empty directory"):
        frame.write.format("rocketmq").mode(mode).save(str(tmp_path / "new"))
    with pytest.raises(Exception, match="no message columns: value"):
        save(frame.selectExpr("topic", "1 as value"), tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"new"}
