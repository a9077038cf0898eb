"""Looking up and finding from Spark gives what the plain service and the plain store give."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

import golden
from logdex import spark as ls
from logdex.rocketmq import IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

CASES = ("basic", "rolled", "killed", "v5-basic")


def questions(case: str) -> list[tuple[str, str]]:
    """Return every key that a message of the store carries, some that none does, each once."""
    asked = {("TopicTest", "absent"), ("AaTopic", "BB"), ("", ""), ("TopicTest", "")}
    for message in golden.rows(case, "messages"):
        keys = [message["uniqKey"], *(message["keys"] or "").split(" ")]
        asked.update((message["topic"], key) for key in keys if key)
    return sorted(asked)


def some(case: str) -> list[tuple[str, str]]:
    """Return a few hundred of the questions, spread over all: finding reads messages, one key after another."""
    asked = questions(case)
    return asked[:: max(1, len(asked) // 300)]


def frame(spark: SparkSession, asked: list[tuple[str, str]]) -> DataFrame:
    return spark.createDataFrame(asked, "topic string, key string").repartition(3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("max_num", [None, 2])
def test_lookup_equals_the_plain_service(
    spark: SparkSession, shared_store: Callable[[str], Path], case: str, max_num: int | None
) -> None:
    index_dir = shared_store(case) / "index"
    with IndexService.open(index_dir) as index:
        expected = {
            (topic, key): offsets
            for topic, key in questions(case)
            if (offsets := index.query_offset(topic, key, max_num=max_num).phy_offsets)
        }
    rows = ls.lookup(frame(spark, questions(case)), index_dir, max_num).collect()
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        found.setdefault((row.topic, row.key), []).append(row.phy_offset)
    assert len(expected) > 100
    assert found == expected


def test_null_key_gives_a_null_row(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    index_dir = shared_store("basic") / "index"
    asked = [("AaTopic", "BB"), ("AaTopic", None), ("AaTopic", "absent"), (None, "BB"), ("AaTopic", "tx")]
    df = spark.createDataFrame(asked, "topic string, key string").coalesce(1)
    rows = [tuple(row) for row in ls.lookup(df, index_dir, 1).collect()]
    with IndexService.open(index_dir) as index:
        first, last = (index.query_offset("AaTopic", key, 1).phy_offsets[0] for key in ("BB", "tx"))
    assert rows == [
        ("AaTopic", "BB", first),
        ("AaTopic", None, None),
        (None, "BB", None),
        ("AaTopic", "tx", last),
    ]
    udf = ls.query_offset(index_dir, 1)
    lists = [row.offsets for row in df.select(udf("topic", "key").alias("offsets")).collect()]
    assert lists == [[first], None, [], None, [last]]


@pytest.mark.parametrize("case", CASES)
def test_query_offset_equals_the_plain_service(
    spark: SparkSession, shared_store: Callable[[str], Path], case: str
) -> None:
    index_dir = shared_store(case) / "index"
    udf = ls.query_offset(index_dir)
    rows = (
        frame(spark, questions(case)).withColumn("offsets", udf("topic", "key")).where(sf.size("offsets") > 0).collect()
    )
    with IndexService.open(index_dir) as index:
        expected = {(t, k): o for t, k in questions(case) if (o := index.query_offset(t, k).phy_offsets)}
    assert {(row.topic, row.key): row.offsets for row in rows} == expected


def test_query_offset_runs_once_a_row(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    udf = ls.query_offset(shared_store("basic") / "index")
    asked = spark.createDataFrame([("AaTopic", "BB")], "topic string, key string")
    plan = asked.withColumn("offsets", udf("topic", "key")).where(sf.size("offsets") > 0)
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert text.count("ArrowEvalPython") == 1


def test_query_offset_works_in_sql(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    spark.udf.register("query_offset", ls.query_offset(shared_store("basic") / "index"))
    (row,) = spark.sql("select query_offset('AaTopic', 'BB') offsets").collect()
    with IndexService.open(shared_store("basic") / "index") as index:
        assert row.offsets == index.query_offset("AaTopic", "BB").phy_offsets


@pytest.mark.parametrize("case", CASES)
def test_find_equals_the_plain_store(spark: SparkSession, shared_store: Callable[[str], Path], case: str) -> None:
    rows = ls.find(frame(spark, some(case)), shared_store(case)).collect()
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        found.setdefault((row.query_topic, row.query_key), []).append(row.phy_offset)
    with MessageStore.open(shared_store(case)) as store:
        expected = {
            (topic, key): offsets
            for topic, key in some(case)
            if (offsets := [message.phy_offset for message in store.find(topic, key)])
        }
    assert len(expected) > 100
    assert found == expected


def test_find_gives_the_message(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    df = ls.find(spark.createDataFrame([("TopicTest", "dup")], "topic string, key string"), shared_store("basic"))
    (row,) = df.collect()
    (truth,) = [m for m in golden.rows("basic", "messages") if m["uniqKey"] == "dup"]
    assert (row.query_topic, row.query_key, row.topic) == ("TopicTest", "dup", "TopicTest")
    assert (row.phy_offset, row["keys"], row.properties) == (
        truth["physicalOffset"],
        truth["keys"],
        truth["properties"],
    )
    assert len(row.body) == truth["bodyLength"]


@pytest.mark.parametrize("as_timestamp", [False, True])
def test_find_within_times_of_each_row(
    spark: SparkSession, shared_store: Callable[[str], Path], *, as_timestamp: bool
) -> None:
    begin, end = 1795260606400, 1795260607100
    asked = [
        ("order_events", "Aa", begin, end),
        ("t", "Aa", None, end),
        ("BBTopic", "BB", begin, None),
        ("t", "BB", None, None),
    ]
    df = spark.createDataFrame(asked, "topic string, key string, begin bigint, end bigint")
    if as_timestamp:
        df = df.withColumns({name: sf.timestamp_millis(name) for name in ("begin", "end")})
    found = Counter(
        (row.query_topic, row.query_key, row.phy_offset) for row in ls.find(df, shared_store("basic")).collect()
    )
    expected = Counter(
        (topic, key, message["physicalOffset"])
        for topic, key, first, last in asked
        for message in golden.rows("basic", "messages")
        if message["topic"] == topic
        and key in (message["keys"] or "").split(" ")
        and (first is None or message["storeTimestamp"] >= first)
        and (last is None or message["storeTimestamp"] <= last)
    )
    assert len(expected) > 5
    assert found == expected


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 0, True),  # microseconds after the message was stored
        (-999, 999, True),
        (1, 5000, False),
        (-5000, -1, False),
        (-(2**63), 2**63 - 1, True),
        (2**63 - 1, None, False),
        (None, -(2**63), False),
    ],
)
def test_find_takes_every_instant_that_spark_has(
    spark: SparkSession, shared_store: Callable[[str], Path], begin: int | None, end: int | None, *, found: bool
) -> None:
    message = next(row for row in golden.rows("basic", "messages") if row["keys"] and " " not in row["keys"])
    stored = message["storeTimestamp"] * 1000
    times = [None if each is None else each if abs(each) > 2**60 else stored + each for each in (begin, end)]
    df = spark.createDataFrame(
        [(message["topic"], message["keys"], *times)], "topic string, key string, begin bigint, end bigint"
    )
    df = df.withColumns({name: sf.timestamp_micros(name) for name in ("begin", "end")})
    places = [row.phy_offset for row in ls.find(df, shared_store("basic")).collect()]
    assert (message["physicalOffset"] in places) is found


def test_a_new_file_in_the_directory_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The worker's open files are checked against the directory at every task."""
    asked = spark.createDataFrame([("T", "k")], "topic string, key string").coalesce(1)
    for number in range(3):
        with IndexService.open(tmp_path, mode="a", hash_slots=4, max_entries=2) as index:
            index.put_batch(
                {"topic": ["T"], "key": ["k"], "phy_offset": [100 * number], "store_timestamp": [1000 + number]}
            )
        offsets = [row.phy_offset for row in ls.lookup(asked, tmp_path, hash_slots=4, max_entries=2).collect()]
        assert offsets == [100 * n for n in range(number, -1, -1)]


@pytest.mark.parametrize("face", ["lookup", "query_offset", "find"])
def test_missing_directory_is_named(spark: SparkSession, tmp_path: Path, face: str) -> None:
    asked = spark.createDataFrame([("T", "k")], "topic string, key string")
    nowhere = tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ls.query_offset(nowhere) if face == "query_offset" else getattr(ls, face)(asked, nowhere)


@pytest.mark.parametrize("face", ["lookup", "query_offset", "find"])
def test_other_slots_and_entries_are_refused_on_the_driver(
    spark: SparkSession, shared_store: Callable[[str], Path], face: str
) -> None:
    asked = spark.createDataFrame([("T", "k")], "topic string, key string")
    root = shared_store("basic")
    given = (root / "index",) if face == "query_offset" else (asked, root if face == "find" else root / "index")
    what = r"32 slots and 256 entries make .* but the file has 64 slots and 256 entries"
    with pytest.raises(ValueError, match=what):
        getattr(ls, face)(*given, hash_slots=32, max_entries=256)


def test_find_refuses_a_word_for_scan_on_the_driver(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    asked = spark.createDataFrame([("T", "k")], "topic string, key string")
    with pytest.raises(ValueError, match="scan='all': expected"):
        ls.find(asked, shared_store("basic"), scan="all")  # type: ignore[arg-type]


def test_missing_column_is_named(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    asked = spark.createDataFrame([("T", "k")], "topic string, id string")
    with pytest.raises(ValueError, match="missing key"):
        ls.lookup(asked, shared_store("basic") / "index")
    with pytest.raises(ValueError, match="missing key"):
        ls.find(asked, shared_store("basic"))


def test_find_uses_the_sealed_index_of_a_store(spark: SparkSession, store: Callable[[str], Path]) -> None:
    root = store("rolled")
    with MessageStore.open(root) as plain:
        plain.seal()
        files = plain.index.files if plain.index else []
        slots, entries = files[0].hash_slots, files[0].max_entries
        asked = some("rolled")
        expected = Counter(
            (topic, key, message.phy_offset) for topic, key in asked for message in plain.find(topic, key)
        )
    assert len(expected) > 100
    # Without its slots an index file finds nothing; length, time and header are as they were.
    for file in (root / "index").iterdir():
        status = file.stat()
        content = file.read_bytes()
        file.write_bytes(content[:40] + bytes(4 * slots) + content[40 + 4 * slots :])
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = ls.find(frame(spark, asked), root, hash_slots=slots, max_entries=entries, scan=False).collect()
    assert Counter((row.query_topic, row.query_key, row.phy_offset) for row in found) == expected
    with MessageStore.open(root, hash_slots=slots, max_entries=entries) as sealed:
        assert sealed.sealed is not None
    with MessageStore.open(root, hash_slots=slots, max_entries=entries, sealed="never") as plain:
        assert not any(plain.find(*each, scan=False) for each in asked[::20])
