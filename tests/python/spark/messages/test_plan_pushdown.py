"""Format `rocketmq`: filters give the same rows, whether ids, index and queues answer them or a scan, and are never lost."""

from __future__ import annotations

import json
import random
import shutil
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict

import golden
from logdex.rocketmq import StoreWriter
from logdex.spark.messages.plan import LogPiece, OffsetsPiece, QueuePiece
from logdex.spark.messages.source import MessagesSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SEED = 20261121
_TRANSACTION = 12
_ROLLBACK = 12
_PREPARED = 4


def _read(root: Path, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read as Spark does with these options; give the pieces that are read, and the rows."""
    source = MessagesSource(CaseInsensitiveDict({"path": str(root), **{k: str(v) for k, v in options.items()}}))
    reader = source.reader(source.schema())
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    pieces = [piece for part in parts for piece in part.pieces]  # type: ignore[attr-defined]
    return pieces, sorted(rows, key=lambda row: row["phy_offset"])


def _at(ms: int, us: int = 0) -> str:
    return (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms, microseconds=us)).isoformat()


def _words(message: dict[str, Any]) -> set[str]:
    return {*(message["keys"] or "").split(" "), message["uniqKey"]} - {"", None}


def _questions(messages: list[dict[str, Any]], chance: random.Random) -> Iterator[tuple[dict[str, Any], Any]]:
    """Return options with what they mean."""
    for _ in range(2):
        m, other = chance.sample([each for each in messages if each["keys"] and each["uniqKey"]], 2)
        topic = m["topic"]
        word = m["keys"].split(" ")[0]
        yield {"topic": topic, "keys": word}, lambda x, m=m, w=word: x["topic"] == m["topic"] and w in _words(x)
        yield {"keys": word}, lambda x, w=word: w in _words(x)
        both = [word, other["uniqKey"]]
        yield {"keys": json.dumps(both)}, lambda x, both=both: not _words(x).isdisjoint(both)
        yield {"msg_id": m["msgId"]}, lambda x, m=m: x["msgId"] == m["msgId"]
        yield {"msg_id": m["msgId"].lower()}, lambda x, m=m: x["msgId"] == m["msgId"].lower()
        places = [m["physicalOffset"], other["physicalOffset"] + 1, -5, 1 << 60]
        yield {"phy_offset": json.dumps(places)}, lambda x, places=places: x["physicalOffset"] in places
        yield {"phy_offset": m["physicalOffset"]}, lambda x, m=m: x["physicalOffset"] == m["physicalOffset"]
        low, high = sorted((m["physicalOffset"], other["physicalOffset"]))
        between = {"phy_offset": f"{low + 1}..{high}"}
        yield between, lambda x, low=low, high=high: low < x["physicalOffset"] <= high
        yield {"phy_offset": f"{high}.."}, lambda x, high=high: x["physicalOffset"] >= high
        yield {"phy_offset": f"..{low}"}, lambda x, low=low: x["physicalOffset"] <= low
        yield {"phy_offset": ".."}, lambda _: True
        begin, end = sorted((m["storeTimestamp"], other["storeTimestamp"]))
        yield (
            {"begin": _at(begin), "end": _at(end, 999)},
            lambda x, begin=begin, end=end: begin <= x["storeTimestamp"] <= end,
        )
        yield (
            {"topic": topic, "keys": word, "begin": _at(begin, -1)},
            lambda x, m=m, w=word, b=begin: x["topic"] == m["topic"] and w in _words(x) and x["storeTimestamp"] >= b,
        )
        queue = {"topic": topic, "queue_id": m["queueId"]}
        yield queue, lambda x, m=m: (x["topic"], x["queueId"]) == (m["topic"], m["queueId"])
        yield (
            {**queue, "queue_offset": "2..8"},
            lambda x, m=m: (x["topic"], x["queueId"]) == (m["topic"], m["queueId"]) and 2 <= x["queueOffset"] <= 8,
        )
        yield (
            {"queue_id": [m["queueId"], 77], "queue_offset": [1, 3]},
            lambda x, m=m: x["queueId"] in (m["queueId"], 77) and x["queueOffset"] in (1, 3),
        )
        yield {"topic": "nobody's"}, lambda _: False
        yield {"keys": ""}, lambda _: False
        yield {"phy_offset": "9..8"}, lambda _: False
        yield {"queue_id": "[]"}, lambda _: False


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_the_same_rows_with_and_without_pushdown(shared_store: Callable[[str], Path], case: str) -> None:
    root, messages = shared_store(case), golden.rows(case, "messages")
    kinds = set()
    for filters, keeps in _questions(messages, random.Random(SEED)):
        expected = [m["physicalOffset"] for m in messages if keeps(m)]
        scanned = _read(root, **filters, pushdown="false")
        assert {type(piece) for piece in scanned[0]} <= {LogPiece}
        assert [row["phy_offset"] for row in scanned[1]] == sorted(expected), filters
        pieces, rows = _read(root, **filters, maxPartitionBytes="20000")
        kinds |= {type(piece) for piece in pieces}
        # What a broker neither indexes nor puts into queues: raw messages of transactions, before 4.3.0.
        by_queue = any(isinstance(piece, QueuePiece) for piece in pieces)
        unheard = {_ROLLBACK, _PREPARED} if by_queue else {_ROLLBACK}
        left_out = [row for row in scanned[1] if row not in rows]
        assert [row for row in scanned[1] if row in rows] == rows
        assert {row["sys_flag"] & _TRANSACTION for row in left_out} <= unheard, filters
    assert kinds == {LogPiece, OffsetsPiece, QueuePiece} or case in ("killed", "v5-killed", "rolled")
    assert {LogPiece, OffsetsPiece} <= kinds


def test_options_find_messages(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    rows = golden.rows("basic", "messages")
    wanted = next(row for row in rows if row["keys"] == "Aa")

    def read(**options: str) -> DataFrame:
        given = {"topic": wanted["topic"], "keys": "Aa", "minPartitions": "9", **options}
        return spark.read.format("rocketmq").options(**given).load(str(shared_store("basic")))

    expected = [row["physicalOffset"] for row in rows if row["topic"] == wanted["topic"] and "Aa" in _words(row)]
    found = {word: sorted(row.phy_offset for row in read(pushdown=word).collect()) for word in ("auto", "false")}
    assert found["auto"] == found["false"] == sorted(expected)
    # Nine tasks are asked for; what the index leads to is less.
    assert read().rdd.getNumPartitions() < 9 <= read(pushdown="false").rdd.getNumPartitions()


PUSHED = ("false", "true")
"""Values of Spark's setting that hands the filters of a query to a Python source."""


@pytest.mark.parametrize("setting", PUSHED)
@pytest.mark.parametrize(("pushdown", "aqe"), [("auto", "false"), ("auto", "true"), ("true", "true")])
def test_a_query_loses_no_rows_by_the_filters_of_another(
    spark: SparkSession, shared_store: Callable[[str], Path], setting: str, pushdown: str, aqe: str
) -> None:
    offsets = sorted(row["physicalOffset"] for row in golden.rows("basic", "messages"))
    few, all_rows = sum(offset < offsets[5] for offset in offsets), len(offsets)
    settings = {"spark.sql.python.filterPushdown.enabled": setting, "spark.sql.adaptive.enabled": aqe}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        options = {"columns": "phy_offset,tags", "pushdown": pushdown}
        frame = spark.read.format("rocketmq").options(**options).load(str(shared_store("basic")))
        first = frame.where(sf.col("phy_offset") < offsets[5])
        rest = frame.where(sf.col("phy_offset") >= offsets[5])
        # One query after the other, planned before or after it, filtered or not.
        assert first.count() == few
        assert frame.count() == all_rows
        first.explain()
        assert rest.count() == all_rows - few
        assert len(first.collect()) == few
        assert frame.where("tags like '%' or tags is null").count() == all_rows
        # Both sides of one query.
        assert first.union(rest).count() == all_rows
        assert first.union(frame).count() == few + all_rows
        assert first.join(frame, "phy_offset", "right").count() == all_rows
        assert frame.alias("a").join(first.alias("b"), "phy_offset").count() == few
        assert frame.join(first, "phy_offset", "left_anti").count() == all_rows - few
        assert rest.groupBy().count().join(first.groupBy().count()).collect()[0][:] == (all_rows - few, few)
        # A cached frame is read when it is first used, here after another query was planned.
        kept = rest.cache()
        assert first.count() == few
        assert kept.count() == kept.count() == all_rows - few
        assert kept.union(first).count() == all_rows
        kept.unpersist()
        # A view, by name.
        frame.createOrReplaceTempView("messages")
        query = "select (select count(*) from messages where phy_offset < :end), count(*) from messages"
        assert spark.sql(query, {"end": offsets[5]}).collect()[0][:] == (few, all_rows)
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.catalog.dropTempView("messages")


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@pytest.mark.parametrize("gone", ["index", "consumequeue"])
def test_parts_of_the_store_may_be_missing(tmp_path: Path, gone: str) -> None:
    root = golden.unpack("basic", tmp_path)
    shutil.rmtree(root / gone)
    messages = golden.rows("basic", "messages")
    for filters, keeps in _questions(messages, random.Random(SEED)):
        expected = sorted(m["physicalOffset"] for m in messages if keeps(m) and m["sysFlag"] & _TRANSACTION in (0, 8))
        found = [row["phy_offset"] for row in _read(root, **filters)[1] if row["sys_flag"] & _TRANSACTION in (0, 8)]
        assert found == expected, filters


def test_a_damaged_queue_gives_way_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = golden.unpack("basic", tmp_path)
    messages = golden.rows("basic", "messages")
    topic, queue_id = messages[0]["topic"], messages[0]["queueId"]
    filters = {"topic": topic, "queue_id": queue_id}
    pieces, sound = _read(root, **filters)
    assert any(isinstance(piece, QueuePiece) for piece in pieces)
    assert len(sound) > 2
    file = min((root / "consumequeue" / topic / str(queue_id)).iterdir())
    with file.open("r+b") as units:
        units.seek(20)
        units.write((5).to_bytes(8, "big"))  # the second unit leads into the middle of a message
    assert _read(root, **filters)[1] == sound
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
    read, rows = _read(tmp_path, topic="T", minPartitions=pieces)
    assert size == 1 << 30 or any(isinstance(piece, QueuePiece) for piece in read)
    assert [row["phy_offset"] for row in rows] == put
