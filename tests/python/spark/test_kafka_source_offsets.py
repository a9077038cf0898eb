"""Options of `kafka_log` that say where a read begins and ends, and how it is cut into tasks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logdex.kafka import TopicPartition
from logdex.spark.kafka_source import OffsetRange, ending, starting, topics
from logdex.spark.log_source import pack

ORDERS = TopicPartition("orders", 1)


def _log() -> Any:
    """Stand in for a log of the offsets 10..90, whose record at offset o has the timestamp 10 * o."""

    def offset_for_timestamp(time: int, *, special: bool) -> tuple[int, int] | None:
        assert not special, "Spark's options have words for the ends of a log"
        offset = max(10, -(-time // 10))
        return (10 * offset, offset) if offset < 90 else None

    return SimpleNamespace(
        topic="orders",
        partition=1,
        log_start_offset=10,
        log_end_offset=90,
        offset_for_timestamp=offset_for_timestamp,
    )


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, 10, 90),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 10, 90),
        ({"startingOffsets": '{"orders": {"0": 3, "1": 20}}', "endingOffsets": '{"orders": {"1": 40}}'}, 20, 40),
        ({"startingOffsets": '{"orders": {"1": -2}}', "endingOffsets": '{"orders": {"1": -1}}'}, 10, 90),
        ({"startingOffsets": '{"other": {"1": 20}}'}, 10, 90),
        ({"startingTimestamp": "305", "endingTimestamp": "400"}, 31, 40),
        ({"endingTimestamp": "5000"}, 10, 90),
        ({"startingOffsetsByTimestamp": '{"orders": {"1": 500}}'}, 50, 90),
        ({"startingOffsetsByTimestamp": '{"orders": {"1": 500}}', "startingTimestamp": "300"}, 30, 90),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, 90, 90),
    ],
)
def test_bounds(options: dict[str, str], first: int, last: int) -> None:
    assert (starting(options).resolve(_log()), ending(options).resolve(_log())) == (first, last)


def test_a_stream_may_begin_at_the_latest() -> None:
    for latest in ("latest", '{"orders": {"1": -1}}'):
        assert starting({"startingOffsets": latest}, stream=True).resolve(_log()) == 90


def test_a_time_counts_before_an_offset_of_no_use() -> None:
    assert starting({"startingOffsets": "latest", "startingTimestamp": "305"}).resolve(_log()) == 31
    assert ending({"endingOffsets": "earliest", "endingTimestamp": "400"}).resolve(_log()) == 40


def test_a_batch_that_can_only_be_empty_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="startingOffsets: a batch that begins at the latest offset reads nothing"):
        starting({"startingOffsets": "latest"})
    with pytest.raises(ValueError, match="startingOffsets, orders-1: a batch that begins at the latest"):
        starting({"startingOffsets": '{"orders": {"0": 3, "1": -1}}'})


def test_a_start_behind_the_newest_record_is_an_error() -> None:
    with pytest.raises(ValueError, match="no record at or after 5000"):
        starting({"startingTimestamp": "5000"}).resolve(_log())


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "newest"},
        {"startingOffsets": "latest"},
        {"startingOffsets": " Latest"},
        {"startingOffsets": '{"orders": {"0": 3, "1": -1}}'},
        {"endingOffsets": '{"orders": {"1": -2}}'},
        {"startingOffsets": '{"orders": 5}'},
        {"startingOffsets": '{"orders": {"x": 5}}'},
        {"startingOffsets": '{"orders": {"1_0": 5}}'},
        {"startingOffsets": '{"orders": {"1": "1_0"}}'},
        {"startingOffsets": '["orders"]'},
        {"startingOffsets": '{"orders": {"1": -3}}'},
        {"startingOffsets": '{"orders": {"1": 1.5}}'},
        {"startingOffsets": '{"orders": {"1": true}}'},
        {"endingOffsets": "earliest"},
        {"startingTimestamp": "soon"},
        {"startingOffsetsByTimestampStrategy": "guess"},
    ],
)
def test_what_cannot_be_read_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="option"):
        (starting(options), ending(options))


def test_topics_by_name_by_pattern_and_by_partition() -> None:
    there = [TopicPartition("orders", 0), ORDERS, TopicPartition("other", 0)]

    def partitions(names: Any = None) -> list[TopicPartition]:
        return [each for each in there if names is None or each.topic in names]

    logs: Any = SimpleNamespace(partitions=partitions, topics={"orders": [0, 1], "other": [0]}, path="/data")
    assert topics({}).choose(logs) == there
    for name in ("topic", "subscribe"):
        assert topics({name: "orders"}).choose(logs) == there[:2]
    assert topics({"subscribe": "orders, other"}).choose(logs) == there
    assert topics({"topic": '["orders", "other"]'}).choose(logs) == there
    assert topics({"subscribePattern": "o.*r$"}).choose(logs) == there[2:]
    assert topics({"assign": '{"orders": [1]}'}).choose(logs) == [ORDERS]
    for options in ({"subscribe": "order"}, {"assign": '{"orders": [7]}'}):
        with pytest.raises(ValueError, match="does not hold"):
            topics(options).choose(logs)
    with pytest.raises(ValueError, match="give one of"):
        topics({"topic": "orders", "subscribe": "orders"})
    for wrong in (
        "orders",
        "[]",
        "{}",
        '{"orders": []}',
        '{"orders": 1}',
        '{"orders": "12"}',
        '{"orders": [1.5]}',
        '{"orders": [true]}',
    ):
        with pytest.raises(ValueError, match="option assign"):
            topics({"assign": wrong})
    with pytest.raises(ValueError, match="option subscribePattern: '\\[' is not a regular expression"):
        topics({"subscribePattern": "["})


def test_tasks_hold_about_as_many_bytes_each() -> None:
    ranges = [OffsetRange("t", n, 0, 10, size, Path("t-0")) for n, size in enumerate((40, 40, 40, 200, 10, 95))]
    assert [[each.size for each in task] for task in pack(ranges, 100)] == [[40, 40], [40], [200], [10], [95]]
    assert pack([], 100) == []
