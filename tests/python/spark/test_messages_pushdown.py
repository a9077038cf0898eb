"""Format `rocketmq`: a filter gives the same rows, whether ids, index and queues answer it or a scan."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

import golden
from logdex.rocketmq import StoreWriter
from logdex.rocketmq.queues import QueueSet
from logdex.spark.damage import DamageReports
from logdex.spark.log_source import PushdownLogReader
from logdex.spark.messages.plan import LogPiece, OffsetsPiece, QueuePiece
from logdex.spark.messages.source import MessagesSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter

SEED = 20261121
_TRANSACTION = 12
_ROLLBACK = 12
_PREPARED = 4


def _read(root: Path, filters: list[Filter], **options: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read as Spark does with these filters; give the pieces that are read, and the rows before Spark looks at them."""
    source = MessagesSource(CaseInsensitiveDict({"path": str(root), **options}))
    reader = PushdownLogReader(source.reader(source.schema()).options, DamageReports())
    assert list(reader.pushFilters(filters)) == filters
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    pieces = [piece for part in parts for piece in part.pieces]  # type: ignore[attr-defined]
    return pieces, sorted(rows, key=lambda row: row["phy_offset"])


def _at(ms: int, us: int = 0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms, microseconds=us)


def _questions(messages: list[dict[str, Any]], chance: random.Random) -> Iterator[tuple[list[Filter], Any]]:
    """Return filters with what they mean."""
    for _ in range(2):
        m, other = chance.sample([each for each in messages if each["keys"] and each["uniqKey"]], 2)
        topic = EqualTo(("topic",), m["topic"])
        yield [topic, EqualTo(("keys",), m["keys"])], lambda x, m=m: (x["topic"], x["keys"]) == (m["topic"], m["keys"])
        yield [EqualTo(("keys",), m["keys"])], lambda x, m=m: x["keys"] == m["keys"]
        word = m["keys"].split(" ")[0]
        yield [topic, EqualTo(("keys",), word)], lambda x, m=m, w=word: (x["topic"], x["keys"]) == (m["topic"], w)
        both = [m["keys"], other["keys"]]
        yield [In(("keys",), tuple(both))], lambda x, both=both: x["keys"] in both
        yield (
            [EqualNullSafe(("uniq_key",), m["uniqKey"]), IsNotNull(("uniq_key",))],
            lambda x, m=m: x["uniqKey"] == m["uniqKey"],
        )
        yield [EqualTo(("msg_id",), m["msgId"])], lambda x, m=m: x["msgId"] == m["msgId"]
        yield [EqualTo(("msg_id",), m["msgId"].lower())], lambda x, m=m: x["msgId"] == m["msgId"].lower()
        places = [m["physicalOffset"], other["physicalOffset"] + 1, -5, 1 << 60]
        yield [In(("phy_offset",), tuple(places))], lambda x, places=places: x["physicalOffset"] in places
        low, high = sorted((m["physicalOffset"], other["physicalOffset"]))
        yield (
            [GreaterThan(("phy_offset",), low), LessThanOrEqual(("phy_offset",), high)],
            lambda x, low=low, high=high: low < x["physicalOffset"] <= high,
        )
        begin, end = sorted((m["storeTimestamp"], other["storeTimestamp"]))
        yield (
            [GreaterThanOrEqual(("store_timestamp",), _at(begin)), LessThan(("store_timestamp",), _at(end, 1))],
            lambda x, begin=begin, end=end: begin <= x["storeTimestamp"] <= end,
        )
        yield (
            [topic, EqualTo(("keys",), m["keys"]), GreaterThan(("store_timestamp",), _at(begin, -1))],
            lambda x, m=m, b=begin: (x["topic"], x["keys"]) == (m["topic"], m["keys"]) and x["storeTimestamp"] >= b,
        )
        queue: list[Filter] = [topic, EqualTo(("queue_id",), m["queueId"])]
        yield queue, lambda x, m=m: (x["topic"], x["queueId"]) == (m["topic"], m["queueId"])
        yield (
            [*queue, GreaterThan(("queue_offset",), 1), LessThan(("queue_offset",), 9)],
            lambda x, m=m: (x["topic"], x["queueId"]) == (m["topic"], m["queueId"]) and 1 < x["queueOffset"] < 9,
        )
        yield [EqualTo(("topic",), "nobody's")], lambda _: False
        yield [EqualTo(("keys",), "")], lambda x: x["keys"] == ""
        yield [EqualTo(("topic",), m["topic"]), EqualTo(("topic",), "nobody's")], lambda _: False


@pytest.mark.parametrize("case", golden.STORES)
def test_the_same_rows_with_and_without_pushdown(shared_store: Callable[[str], Path], case: str) -> None:
    root, messages = shared_store(case), golden.rows(case, "messages")
    kinds = set()
    for filters, keeps in _questions(messages, random.Random(SEED)):
        expected = [m["physicalOffset"] for m in messages if keeps(m)]
        scanned = _read(root, filters, pushdown="false")
        assert {type(piece) for piece in scanned[0]} <= {LogPiece}
        assert [row["phy_offset"] for row in scanned[1]] == sorted(expected), filters
        pieces, rows = _read(root, filters, maxPartitionBytes="20000")
        kinds |= {type(piece) for piece in pieces}
        # What a broker neither indexes nor puts into queues: raw messages of transactions, before 4.3.0.
        by_queue = any(isinstance(piece, QueuePiece) for piece in pieces)
        unheard = {_ROLLBACK, _PREPARED} if by_queue else {_ROLLBACK}
        left_out = [row for row in scanned[1] if row not in rows]
        assert [row for row in scanned[1] if row in rows] == rows
        assert {row["sys_flag"] & _TRANSACTION for row in left_out} <= unheard, filters
    assert kinds == {LogPiece, OffsetsPiece, QueuePiece} or case in ("killed", "v5-killed", "rolled")
    assert {LogPiece, OffsetsPiece} <= kinds


def test_filters_of_a_query_find_messages(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    root = shared_store("basic")
    rows = golden.rows("basic", "messages")
    wanted = next(row for row in rows if row["keys"] == "Aa")

    def read(**options: str) -> DataFrame:
        frame = spark.read.format("rocketmq").options(**options).load(str(root))
        return frame.where(
            (sf.col("topic") == wanted["topic"])
            & (sf.col("keys") == "Aa")
            & (sf.col("store_timestamp") >= sf.timestamp_millis(sf.lit(wanted["storeTimestamp"])))
        )

    expected = [
        row["physicalOffset"]
        for row in rows
        if (row["topic"], row["keys"]) == (wanted["topic"], "Aa") and row["storeTimestamp"] >= wanted["storeTimestamp"]
    ]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        words = ("auto", "true", "false")
        on = {name: sorted(row.phy_offset for row in read(pushdown=name).collect()) for name in words}
        # Nine tasks are asked for; what the index leads to fits into one.
        tasks = [read(pushdown=name, minPartitions="9").rdd.getNumPartitions() for name in ("true", "false")]
        assert tasks[0] < 9 <= tasks[1]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    off = sorted(row.phy_offset for row in read().collect())
    assert on["auto"] == on["true"] == on["false"] == off == sorted(expected)
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        read(pushdown="true").count()


def test_the_filters_of_one_query_are_not_those_of_the_next(
    spark: SparkSession, shared_store: Callable[[str], Path]
) -> None:
    rows = golden.rows("basic", "messages")
    offsets = sorted(row["physicalOffset"] for row in rows)
    few = sum(offset < offsets[5] for offset in offsets)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("rocketmq").option("columns", "phy_offset,tags").load(str(shared_store("basic")))
        first = frame.where(sf.col("phy_offset") < offsets[5])
        rest = frame.where(sf.col("phy_offset") >= offsets[5])
        assert first.count() == few
        assert frame.count() == len(rows)
        assert frame.where("tags like '%' or tags is null").count() == len(rows)
        assert first.union(rest).count() == len(rows)
        assert first.union(frame).count() == few + len(rows)
        assert first.join(frame, "phy_offset", "right").count() == len(rows)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("gone", ["index", "consumequeue"])
def test_parts_of_the_store_may_be_missing(tmp_path: Path, gone: str) -> None:
    root = golden.unpack("basic", tmp_path)
    shutil.rmtree(root / gone)
    messages = golden.rows("basic", "messages")
    for filters, keeps in _questions(messages, random.Random(SEED)):
        expected = sorted(m["physicalOffset"] for m in messages if keeps(m) and m["sysFlag"] & _TRANSACTION in (0, 8))
        found = [row["phy_offset"] for row in _read(root, filters)[1] if row["sys_flag"] & _TRANSACTION in (0, 8)]
        assert found == expected, filters


def test_a_damaged_queue_gives_way_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = golden.unpack("basic", tmp_path)
    messages = golden.rows("basic", "messages")
    topic, queue_id = messages[0]["topic"], messages[0]["queueId"]
    filters: list[Filter] = [EqualTo(("topic",), topic), EqualTo(("queue_id",), queue_id)]
    pieces, sound = _read(root, filters)
    assert any(isinstance(piece, QueuePiece) for piece in pieces)
    assert len(sound) > 2
    file = min((root / "consumequeue" / topic / str(queue_id)).iterdir())
    with file.open("r+b") as units:
        units.seek(20)
        units.write((5).to_bytes(8, "big"))  # the second unit leads into the middle of a message
    assert _read(root, filters)[1] == sound
    assert "the log is read instead" in caplog.text


@pytest.mark.parametrize("unit", [0, 5, 6, 11])
@pytest.mark.parametrize(
    ("phy_offset", "size"), [(1 << 60, None), (20_000, None), (500, None), (None, 1 << 30), (None, 1)]
)
@pytest.mark.parametrize("pieces", ["1", "4"])
def test_a_unit_that_leads_elsewhere_hides_no_message(
    tmp_path: Path, unit: int, phy_offset: int | None, size: int | None, pieces: str
) -> None:
    options = {"file_size": 1 << 20, "hash_slots": 10, "max_entries": 1000, "services": False}
    with StoreWriter.open(tmp_path, **options) as writer:  # type: ignore[arg-type]
        put = []
        for _ in range(12):
            writer.put_message("Other", bytes(2_000), keys="k")
            put.append(writer.put_message("T").phy_offset)
        writer.put_message("Other", bytes(8_000))
    file = min((tmp_path / "consumequeue" / "T" / "0").iterdir())
    with file.open("r+b") as units:
        for at, value, length in ((0, phy_offset, 8), (8, size, 4)):
            units.seek(unit * 20 + at)
            units.write(b"" if value is None else value.to_bytes(length, "big"))
    read, rows = _read(tmp_path, [EqualTo(("topic",), "T")], minPartitions=pieces)
    assert size == 1 << 30 or any(isinstance(piece, QueuePiece) for piece in read)
    assert [row["phy_offset"] for row in rows] == put


def test_a_queue_that_is_begun_while_a_read_is_planned_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter.open(tmp_path, file_size=1 << 20, hash_slots=10, max_entries=1000, services=False) as writer:
        for _ in range(100):
            writer.put_message("Other", bytes(1000))
        first, second = (writer.put_message("T", queue_id=number).phy_offset for number in range(2))
    listed = QueueSet.directories
    times: list[None] = []

    def directories(self: QueueSet) -> dict[tuple[str, int], list[Path]]:
        times.append(None)
        return {queue: paths for queue, paths in listed(self).items() if len(times) > 1 or queue != ("T", 1)}

    monkeypatch.setattr(QueueSet, "directories", directories)
    pieces, rows = _read(tmp_path, [EqualTo(("topic",), "T")])
    assert any(isinstance(piece, QueuePiece) for piece in pieces)
    assert [row["phy_offset"] for row in rows] == [first, second]


def test_filters_that_do_not_help_are_left_to_spark(shared_store: Callable[[str], Path]) -> None:
    filters: list[Filter] = [
        Not(EqualTo(("keys",), "Aa")),
        GreaterThan(("tags",), "T"),
        EqualTo(("properties", "a"), "b"),
    ]
    assert len(_read(shared_store("basic"), filters)[1]) == len(golden.rows("basic", "messages"))
