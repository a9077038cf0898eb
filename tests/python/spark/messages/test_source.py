"""Format `rocketmq`: what Spark reads is what a sequential scan gives."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import golden
from logdex import spark as ls
from logdex._core import entry_rows
from logdex.errors import DamageWarning, LogdexError
from logdex.rocketmq import CommitLog, MessageStore
from logdex.spark.messages.source import MessagesSource
from logdex.spark.schema import MESSAGE_COLUMNS, arrow_schema, microseconds, spark_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

MAX_INT64 = 2**63 - 1


def scanned(store: Path, columns: list[str]) -> pa.Table:
    log = CommitLog.open(store / "commitlog")
    batches = spark_batches(log.scan(), MESSAGE_COLUMNS, columns, str(store))
    return pa.Table.from_batches(batches, arrow_schema(MESSAGE_COLUMNS, columns))


def by_offset(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: row["phy_offset"])


@pytest.mark.parametrize("case", golden.STORES)
def test_read_equals_sequential_scan(spark: SparkSession, shared_store: Callable[[str], Path], case: str) -> None:
    frame = spark.read.format("rocketmq").load(str(shared_store(case)))
    assert frame.columns == list(MESSAGE_COLUMNS)
    expected = scanned(shared_store(case), list(MESSAGE_COLUMNS))
    assert expected.num_rows == len(golden.rows(case, "messages"))
    assert by_offset(frame.toArrow()) == by_offset(expected)


@pytest.mark.parametrize(("name", "warnings"), [("crc-early-clean", 1), ("magic-last", 0)])
def test_damage_in_the_middle_is_said_with_a_brokers_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, warnings: int
) -> None:
    """The same reader as in a worker, whose log cannot be seen from here."""
    root = golden.unpack_damaged(name, tmp_path)
    source = MessagesSource(CaseInsensitiveDict({"path": str(root), "columns": "phy_offset", "compat": "4.9.3"}))
    reader = source.reader(source.schema())
    with pytest.warns(DamageWarning) if warnings else nullcontext():
        read = [n for part in reader.partitions() for batch in reader.read(part) for n in batch.column(0).to_pylist()]
    log = CommitLog.open(root / "commitlog", compat="4.9.3")
    scan = [row["phy_offset"] for batch in log.scan() for row in pa.record_batch(batch).to_pylist()]
    assert read[: len(scan)] == scan
    assert len(caplog.records) == warnings
    assert (len(read) > len(scan)) == bool(warnings)


@pytest.mark.parametrize("name", ["crc-early-clean", "magic-last"])
def test_damage_in_the_middle_is_passed_over(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = golden.unpack_damaged(name, tmp_path)
    frame = spark.read.format("rocketmq").options(columns="phy_offset", maxPartitionBytes="20000").load(str(root))
    with MessageStore.open(root) as store, pytest.warns(DamageWarning):
        expected = pa.table(store.messages(columns=["phy_offset"])).column(0).to_pylist()
    assert len(expected) > 500
    assert sorted(row.phy_offset for row in frame.collect()) == expected


def test_partitions_are_balanced_by_bytes(shared_store: Callable[[str], Path]) -> None:
    root = shared_store("basic")
    size = sum(file.stat().st_size for file in (root / "commitlog").iterdir())

    def sizes(**options: str) -> list[int]:
        source = MessagesSource(CaseInsensitiveDict({"path": str(root), **options}))
        return [sum(each.size for each in part.pieces) for part in source.reader(source.schema()).partitions()]  # type: ignore[attr-defined]

    assert sizes() == [size]
    for cut in (sizes(maxPartitionBytes="20000"), sizes(minPartitions=str(size // 20_000))):
        assert sum(cut) == size
        assert len(cut) >= size // 20_000 > 10
        assert max(cut) < 25_000  # a cut lies where a message begins


def test_a_worker_without_the_store_says_so(tmp_path: Path) -> None:
    root = golden.unpack("sync", tmp_path)
    source = MessagesSource(CaseInsensitiveDict({"path": str(root)}))
    reader = source.reader(source.schema())
    parts = reader.partitions()
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(LogdexError, match=f"{root}.*no such directory on .*driver and workers"):
        list(reader.read(parts[0]))


def test_a_log_that_lies_elsewhere_is_an_option(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    expected = by_offset(spark.read.format("rocketmq").load(str(root)).toArrow())
    one, other = tmp_path / "one", tmp_path / "other"
    (root / "commitlog").rename(one)
    other.mkdir()
    with pytest.raises(Exception, match="storePathCommitLog"):
        spark.read.format("rocketmq").load(str(root)).toArrow()
    reader = spark.read.format("rocketmq").option("commitLog", str(one))
    assert by_offset(reader.load(str(root)).toArrow()) == expected
    for path in sorted(one.iterdir())[1::2]:
        path.rename(other / path.name)
    both = spark.read.format("rocketmq").option("commitLog", f"{one},{other}")
    assert by_offset(both.load(str(root)).toArrow()) == expected
    keyed = both.option("topic", "AaTopic").option("keys", "BB").load(str(root)).toArrow()
    assert keyed.num_rows == 16


@pytest.mark.parametrize("chosen", [["keys", "phy_offset"], ["phy_offset"]])
def test_columns_are_chosen_by_option_and_by_schema(
    spark: SparkSession, shared_store: Callable[[str], Path], chosen: list[str]
) -> None:
    reader = spark.read.format("rocketmq")
    by_option = reader.option("columns", ", ".join(chosen)).load(str(shared_store("basic")))
    assert by_option.columns == chosen
    declared = by_option.schema
    by_schema = spark.read.format("rocketmq").schema(declared).load(str(shared_store("basic")))
    expected = by_offset(scanned(shared_store("basic"), chosen))
    assert by_offset(by_option.toArrow()) == by_offset(by_schema.toArrow()) == expected


@pytest.mark.parametrize("pushdown", ["auto", "false"])
@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({"topic": "AaTopic"}, lambda m: m["topic"] == "AaTopic"),
        ({"topic": '["AaTopic", "t"]'}, lambda m: m["topic"] in ("AaTopic", "t")),
        ({"topic": "A*"}, lambda m: m["topic"].startswith("A")),
        ({"topic": '["/[A-Z].*/", "never*"]'}, lambda m: m["topic"][0].isupper()),
        ({"keys": "Aa"}, lambda m: "Aa" in (m["keys"] or "").split(" ")),
        (
            {"keys": '["order-4", "Aa"]', "topic": "t"},
            lambda m: m["topic"] == "t" and "Aa" in (m["keys"] or "").split(" "),
        ),
        ({"begin": "1795260606700"}, lambda m: m["storeTimestamp"] >= 1795260606700),
        ({"end": "1795260606700"}, lambda m: m["storeTimestamp"] <= 1795260606700),
        (
            {"begin": "2026-11-21T11:30:06.500Z", "end": "2026-11-21T11:30:06.700+00:00"},
            lambda m: 1795260606500 <= m["storeTimestamp"] <= 1795260606700,
        ),
    ],
)
def test_options_filter(
    spark: SparkSession,
    shared_store: Callable[[str], Path],
    options: dict[str, str],
    keeps: Callable[[dict[str, object]], bool],
    pushdown: str,
) -> None:
    frame = (
        spark.read.format("rocketmq")
        .options(columns="phy_offset", pushdown=pushdown, **options)
        .load(str(shared_store("basic")))
    )
    expected = sorted(m["physicalOffset"] for m in golden.rows("basic", "messages") if keeps(m))
    assert expected
    assert sorted(row.phy_offset for row in frame.collect()) == expected


def test_unique_key_is_a_key(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    wanted = golden.rows("basic", "messages")[7]
    frame = spark.read.format("rocketmq").option("keys", wanted["uniqKey"]).load(str(shared_store("basic")))
    assert wanted["physicalOffset"] in [row.phy_offset for row in frame.select("phy_offset").collect()]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "t"}, "has no option topics"),
        ({"columns": "topic,nothing"}, "unknown columns nothing"),
        ({"pushdown": "maybe"}, "not one of auto, true, false"),
        ({"queue_id": "1..2"}, "queue_id: '1..2' is not a whole number"),
        ({"queue_offset": "1..x"}, "queue_offset: 'x' is not a whole number"),
        ({"phy_offset": "[1.5]"}, "phy_offset: every item of the JSON array must be a whole number"),
        ({"msg_id": "[1]"}, "msg_id: every item of the JSON array must be a text"),
        ({"begin": "last week"}, "neither milliseconds, an age such as -2h, nor ISO 8601"),
        ({"columns": ""}, "columns: '' names nothing"),
        ({"commitLog": ","}, "commitLog: ',' names nothing"),
        ({"minPartitions": "0"}, "minPartitions: 0 is not above 0"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, shared_store: Callable[[str], Path], options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        spark.read.format("rocketmq").options(**options).load(str(shared_store("basic"))).count()


def test_schema_with_another_type_is_refused(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    with pytest.raises(Exception, match="column phy_offset is bigint, not string"):
        spark.read.format("rocketmq").schema("phy_offset string").load(str(shared_store("basic"))).count()
    with pytest.raises(Exception, match="column phy_offset may be null"):
        spark.read.format("rocketmq").schema("phy_offset bigint not null").load(str(shared_store("basic"))).count()
    with pytest.raises(Exception, match="the schema has no column"):
        spark.read.format("rocketmq").schema(StructType([])).load(str(shared_store("basic"))).count()


def test_missing_directory_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"no such directory.*{tmp_path}/nowhere"):
        spark.read.format("rocketmq").load(str(tmp_path / "nowhere")).count()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai"])
def test_instants_do_not_depend_on_the_sessions_zone(
    spark: SparkSession, shared_store: Callable[[str], Path], zone: str
) -> None:
    asked = spark.createDataFrame([("TopicTest", "dup")], "topic string, key string")
    truth = {m["physicalOffset"]: m["storeTimestamp"] for m in golden.rows("basic", "messages")}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        read = (
            spark.read.format("rocketmq")
            .option("columns", "phy_offset,store_timestamp")
            .load(str(shared_store("basic")))
        )
        found = ls.find(asked, shared_store("basic"))
        columns = sf.col("phy_offset"), sf.unix_millis("store_timestamp").alias("ms")
        rows = read.select(*columns).collect(), found.select(*columns).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert {row.phy_offset: row.ms for row in rows[0]} == truth
    assert [row.ms for row in rows[1]] == [truth[row.phy_offset] for row in rows[1]] != []


def test_instants_outside_of_microseconds_are_null_and_counted() -> None:
    largest = MAX_INT64 // 1000
    times = pa.array([0, None, largest, largest + 1, MAX_INT64, -MAX_INT64, -1], pa.timestamp("ms", tz="UTC"))
    converted, lost = microseconds(times)
    assert lost == 3
    assert converted.cast(pa.int64()).to_pylist() == [0, None, largest * 1000, None, None, None, -1000]


def test_microseconds_become_milliseconds_rounding_down() -> None:
    times = pa.array([1999, -1, -1000, -1001], pa.timestamp("us", tz="UTC"))
    rows = entry_rows(["T"] * 4, ["k"] * 4, [1] * 4, times)
    assert pa.record_batch(rows).column("store_timestamp").to_pylist() == [1, -1, -1, -2]
