"""Times, queue ids and topics in the options of the formats: the rules are those of the calls in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from kafka_batches import Row, batch, write_segment
from logdex import UnknownTopicWarning
from logdex import spark as ls
from logdex.rocketmq import StoreWriter
from logdex.spark.kafka_source import KafkaLogSource
from logdex.spark.messages.source import MessagesSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NEAR = "no topic 'Order' here; near spellings: Orders"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store and a Kafka log directory next to it."""
    with StoreWriter.open(tmp_path / "store", hash_slots=9, max_entries=99, services=False, file_size=65_536) as writer:
        writer.put_message("Orders", b"x", keys="k", store_timestamp=1_795_260_652_000)
    write_segment(tmp_path / "logs" / "orders-0", 0, batch([Row(0)]))
    return tmp_path


def planned(kind: type[Any], path: Path, **options: str) -> list[Any]:
    source = kind(CaseInsensitiveDict({"path": str(path), **options}))
    reader = source.reader(source.schema())
    tasks: list[Any] = reader.partitions()
    return [batch for task in tasks for batch in reader.read(task)]


@pytest.mark.parametrize(("kind", "place"), [(MessagesSource, "store"), (KafkaLogSource, "logs")])
def test_a_number_that_may_be_of_seconds_is_refused(root: Path, kind: type[Any], place: str) -> None:
    for option in ("begin", "end"):
        with pytest.raises(ValueError, match=f"option {option}=1795260652 is ambiguous: 1970-.* 2026-11-21T11:30:52"):
            planned(kind, root / place, **{option: "1795260652"})
        for accepted in ("0", "1795260652000", "1980-01-01T00:00:00Z"):
            planned(kind, root / place, **{option: accepted})


def test_ages_are_those_of_the_command_line(root: Path) -> None:
    with StoreWriter.open(root / "store", hash_slots=9, max_entries=99, services=False, file_size=65_536) as writer:
        writer.put_message("Orders", b"now")
    for begin, rows in (("-1h", 1), ("today", 1), ("now", 0), ("-90000w", 2)):
        assert sum(batch.num_rows for batch in planned(MessagesSource, root / "store", begin=begin)) == rows, begin
    with pytest.raises(ValueError, match="an age such as -2h"):
        planned(MessagesSource, root / "store", begin="-2x")


def test_tags_choose_messages(spark: SparkSession, root: Path) -> None:
    with StoreWriter.open(root / "store", hash_slots=9, max_entries=99, services=False, file_size=65_536) as writer:
        for tags in ("A", "B", None, "A"):
            writer.put_message("Orders", b"x", tags=tags)
    for tags, rows in (("A", 2), ('["A", "B"]', 3), ("C", 0)):
        found = planned(MessagesSource, root / "store", tags=tags, topic="Orders")
        assert sum(batch.num_rows for batch in found) == rows, tags
    ls.register(spark)
    options = f"path '{root / 'store'}', tags 'A', columns 'tags,queue_id'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tagged USING rocketmq OPTIONS ({options})")
    assert [row.tags for row in spark.sql("SELECT tags FROM tagged").collect()] == ["A", "A"]


def test_a_number_that_no_queue_has_is_refused(root: Path) -> None:
    for queue_id in ("-1", "[0, -1]"):
        with pytest.raises(ValueError, match="queue_id=-1: expected 0 to 2147483647"):
            planned(MessagesSource, root / "store", queue_id=queue_id)


@pytest.mark.parametrize("pushdown", ["auto", "false"])
def test_a_plan_warns_of_a_topic_that_is_not_there(root: Path, pushdown: str) -> None:
    with pytest.warns(UnknownTopicWarning) as warned:
        assert planned(MessagesSource, root / "store", topic="Order", pushdown=pushdown) == []
    assert [str(each.message) for each in warned] == [NEAR]
    with pytest.raises(ValueError, match="does not hold order; it holds orders"):
        planned(KafkaLogSource, root / "logs", topic="order")


def test_a_topic_of_one_of_several_stores_is_known(root: Path, tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "other", hash_slots=9, max_entries=99, services=False, file_size=65_536) as writer:
        writer.put_message("Payments", b"x")
    paths = f'["{root / "store"}", "{tmp_path / "other"}"]'
    assert len(planned(MessagesSource, root / "store", paths=paths, topic="Payments")) == 1
    with pytest.warns(UnknownTopicWarning, match="no topic 'Order' here"):
        planned(MessagesSource, root / "store", paths=paths, topic="Order")


def test_a_stream_warns_once(root: Path) -> None:
    source = MessagesSource(CaseInsensitiveDict({"path": str(root / "store"), "topic": "Order"}))
    reader: Any = source.streamReader(source.schema())
    start, end = reader.initialOffset(), reader.latestOffset()
    with pytest.warns(UnknownTopicWarning, match="no topic 'Order' here"):
        reader.partitions(start, end)
    # Warnings are errors in these tests.
    reader.partitions(start, end)


def test_the_driver_gets_the_warning(spark: SparkSession, root: Path) -> None:
    ls.register(spark)
    frame = spark.read.format("rocketmq").option("topic", "Order").load(str(root / "store"))
    with pytest.warns(UnknownTopicWarning, match=NEAR):
        assert frame.count() == 0
    keys = spark.createDataFrame([("Orders", "k", 1_795_260_652)], "topic string, key string, begin bigint")
    with pytest.raises(Exception, match="begin=1795260652 is ambiguous"):
        ls.find(keys, root / "store").count()
    dates = keys.selectExpr("topic", "key", "timestamp '1980-01-01 00:00:00' AS begin")
    assert ls.find(dates, root / "store").count() == 1
