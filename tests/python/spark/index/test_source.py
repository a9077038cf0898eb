"""Writing index files with `df.write`: what is found afterwards, what is refused, and what is left behind."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import functions as sf

from logdex import spark as ls
from logdex._core import EntryRows, entry_rows
from logdex.rocketmq import IndexFile, IndexService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = "topic string, key string, phy_offset bigint, store_timestamp bigint"
T0 = 1_700_000_000_000
SLOTS, ENTRIES = 16, 64


def rows(begin: int, end: int) -> list[tuple[str, str, int, int]]:
    """Two keys a message, one of them shared by many messages."""
    return [("T", key, 100 * n, T0 + 1500 * n) for n in range(begin, end) for key in (f"k{n}", f"s{n % 7}")]


def frame(spark: SparkSession, begin: int, end: int, partitions: int = 4) -> DataFrame:
    return spark.createDataFrame(rows(begin, end)[::-1], ROWS).repartition(partitions)


def write(df: DataFrame, directory: Path, mode: str = "append", **options: int) -> None:
    settings = {"hashSlots": SLOTS, "maxEntries": ENTRIES, **options}
    df.write.format("rocketmq_index").mode(mode).options(**settings).save(str(directory))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def index_names(directory: Path) -> list[str]:
    return [name for name in names(directory) if name != "_SUCCESS"]


def assert_holds(directory: Path, begin: int, end: int) -> None:
    assert "_SUCCESS" in names(directory)
    assert all(len(name) == 17 and name.isdecimal() for name in index_names(directory))
    with IndexService.open(directory, hash_slots=SLOTS, max_entries=ENTRIES) as index:
        assert sum(map(len, index.files)) == 2 * (end - begin)
        assert index.verify().ok
        for number in range(begin, end):
            assert 100 * number in index.query_offset("T", f"k{number}").phy_offsets
        shared = [100 * n for n in range(begin, end) if n % 7 == 3]
        assert set(shared) <= set(index.query_offset("T", "s3").phy_offsets)
        ends = [(f.header.end_phy_offset, f.header.end_timestamp) for f in index.files]
        assert ends == sorted(ends)


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_arranged_rows_are_written_in_order(spark: SparkSession, tmp_path: Path, partitions: int | None) -> None:
    write(ls.arrange(frame(spark, 0, 200), partitions), tmp_path / "index")
    assert_holds(tmp_path / "index", 0, 200)


@pytest.mark.parametrize("count", [1_000, 90_000])
def test_arranged_tasks_have_ranges_of_their_own_alike_in_size(spark: SparkSession, count: int) -> None:
    """Fewer rows than a sample needs, and enough of them."""
    df = spark.range(count).select((sf.col("id") * 7919 % count).alias("phy_offset"))
    per_task = ls.arrange(df, 3).groupBy(sf.spark_partition_id()).agg(sf.min("phy_offset"), sf.max("phy_offset"))
    ranges = sorted(tuple(row)[1:] for row in per_task.collect())
    assert ranges[0][0] == 0
    assert ranges[-1][1] == count - 1
    assert [begin for begin, _ in ranges[1:]] == [end + 1 for _, end in ranges[:-1]]
    assert all(count / 5 < end - begin < count / 2 for begin, end in ranges)


def test_arrange_for_no_task_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        ls.arrange(frame(spark, 0, 1), 0)


def test_one_task_begins_again_where_a_row_comes_out_of_order(spark: SparkSession, tmp_path: Path) -> None:
    """Several files are full already when the last row turns out to be the first."""
    data = [*rows(1, 200), ("T", "late", 0, T0)]
    write(spark.createDataFrame(data, ROWS).coalesce(1), tmp_path / "late")
    write(spark.createDataFrame([data[-1], *data[:-1]], ROWS).coalesce(1), tmp_path / "plain")
    late, plain = (
        [(tmp_path / kind / name).read_bytes() for name in index_names(tmp_path / kind)] for kind in ("late", "plain")
    )
    assert len(plain) > 3
    assert late == plain
    assert "_temporary" not in names(tmp_path / "late")


def test_one_unsorted_task_sorts_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(frame(spark, 0, 100).coalesce(1), tmp_path / "index")
    assert_holds(tmp_path / "index", 0, 100)
    with IndexService.open(tmp_path / "index") as index:
        offsets = [entry["phy_offset"].as_py() for file in index.files for entry in _entries(file)]
    assert offsets == sorted(offsets)


def _entries(file: IndexFile) -> Iterator[Any]:
    for batch in file.entries():
        for row in range(batch.num_rows):
            yield {"phy_offset": batch.column("phy_offset")[row]}


def test_rows_of_one_offset_keep_their_order(spark: SparkSession, tmp_path: Path) -> None:
    data = [("T", f"k{n}", 5, T0) for n in range(20)] + [("T", "first", 1, T0)]
    write(spark.createDataFrame(data, ROWS).coalesce(1), tmp_path / "spark", hashSlots=8, maxEntries=100)
    with IndexService.open(tmp_path / "plain", mode="a", hash_slots=8, max_entries=100) as plain:
        ordered = [data[-1], *data[:-1]]
        plain.put_batch(
            dict(zip(("topic", "key", "phy_offset", "store_timestamp"), zip(*ordered, strict=True), strict=True))
        )
    (ours,) = index_names(tmp_path / "spark")
    (theirs,) = names(tmp_path / "plain")
    assert (tmp_path / "spark" / ours).read_bytes() == (tmp_path / "plain" / theirs).read_bytes()


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), min_size=1, max_size=6))
def test_rows_come_in_offset_order_and_stay_in_order_within_one(offsets: list[list[int]]) -> None:
    numbers = itertools.count()
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(["T"] * len(part)),
                pa.array([str(next(numbers)) for _ in part]),
                *(pa.array(part, pa.int64()),) * 2,
            ],
            names=["topic", "key", "phy_offset", "store_timestamp"],
        )
        for part in offsets
    ]
    held = EntryRows()
    rows = []
    for batch in batches:
        hashed = pa.record_batch(entry_rows(*batch.columns))
        rows += hashed.to_pylist()
        held.add(hashed)
    assert held.is_ordered == (rows == sorted(rows, key=lambda row: row["phy_offset"]))
    ordered = [row for batch in held.sorted() for row in pa.record_batch(batch).to_pylist()]
    assert ordered == sorted(rows, key=lambda row: row["phy_offset"])
    found = [row["phy_offset"] for row in rows]
    assert held.spans == ((min(found), max(found)),) * 2


def test_timestamps_are_taken_like_milliseconds(spark: SparkSession, tmp_path: Path) -> None:
    df = ls.arrange(frame(spark, 0, 50), 1)
    write(df, tmp_path / "ms")
    write(df.withColumn("store_timestamp", sf.timestamp_millis("store_timestamp")), tmp_path / "us")
    read = [[(tmp_path / kind / name).read_bytes() for name in index_names(tmp_path / kind)] for kind in ("ms", "us")]
    assert read[0] == read[1]


def test_tasks_that_overlap_in_offsets_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"offset range .* overlaps .*arrange"):
        write(frame(spark, 0, 100), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_tasks_that_overlap_in_time_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    data = [("T", f"k{n}", n, T0 - n * 1000) for n in range(100)]
    with pytest.raises(Exception, match=r"time range .* overlaps .*arrange"):
        write(ls.arrange(spark.createDataFrame(data, ROWS), 3), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_append_comes_after_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    write(ls.arrange(frame(spark, 0, 100)), tmp_path / "index")
    before = {name: (tmp_path / "index" / name).read_bytes() for name in index_names(tmp_path / "index")}
    # Without options the geometry is that of the files there.
    ls.arrange(frame(spark, 100, 150)).write.format("rocketmq_index").mode("append").save(str(tmp_path / "index"))
    assert_holds(tmp_path / "index", 0, 150)
    assert index_names(tmp_path / "index")[: len(before)] == sorted(before)
    assert all((tmp_path / "index" / name).read_bytes() == content for name, content in before.items())


def test_append_before_what_is_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(ls.arrange(frame(spark, 50, 100)), tmp_path / "index")
    before = names(tmp_path / "index")
    with pytest.raises(Exception, match="only rows after those of the directory"):
        write(ls.arrange(frame(spark, 0, 60)), tmp_path / "index")
    assert names(tmp_path / "index") == before
    assert_holds(tmp_path / "index", 50, 100)


def test_append_of_another_geometry_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(ls.arrange(frame(spark, 0, 50)), tmp_path / "index")
    with pytest.raises(Exception, match="one geometry"):
        write(ls.arrange(frame(spark, 50, 60)), tmp_path / "index", maxEntries=ENTRIES + 1)
    assert_holds(tmp_path / "index", 0, 50)


def test_overwrite_replaces_index_files_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    write(ls.arrange(frame(spark, 0, 100)), tmp_path / "index")
    (tmp_path / "index" / "notes").write_text("mine")
    before = set(index_names(tmp_path / "index"))
    write(ls.arrange(frame(spark, 20, 40)), tmp_path / "index", "overwrite")
    assert before & set(names(tmp_path / "index")) == {"notes"}
    (tmp_path / "index" / "notes").unlink()
    assert_holds(tmp_path / "index", 20, 40)


def test_no_rows_make_no_files(spark: SparkSession, tmp_path: Path) -> None:
    write(frame(spark, 0, 10).where("false"), tmp_path / "index")
    assert names(tmp_path / "index") == ["_SUCCESS"]


@pytest.mark.parametrize("column", ["topic", "key", "phy_offset", "store_timestamp"])
def test_null_is_refused_and_leaves_nothing(spark: SparkSession, tmp_path: Path, column: str) -> None:
    df = ls.arrange(frame(spark, 0, 20)).withColumn(column, sf.expr(f"if(phy_offset = 300, null, {column})"))
    with pytest.raises(Exception, match=f"whose {column} is null"):
        write(df, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_mode_that_spark_refuses_leaves_nothing(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        write(frame(spark, 0, 10), tmp_path / "index", mode)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("column", "kind"), [("phy_offset", "string"), ("store_timestamp", "timestamp_ntz"), ("key", "int")]
)
def test_column_of_a_wrong_type_is_named(spark: SparkSession, tmp_path: Path, column: str, kind: str) -> None:
    df = frame(spark, 0, 10).withColumn(column, sf.lit(None).cast(kind))
    with pytest.raises(Exception, match=f"column {column} must be .* not {kind}"):
        write(df, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(("option", "value"), [("hashSlots", 0), ("maxEntries", 1), ("slots", 5)])
def test_wrong_options_are_refused(spark: SparkSession, tmp_path: Path, option: str, value: int) -> None:
    with pytest.raises(Exception, match=r"at least 1 hash slot and 2 entries|has no option slots"):
        write(frame(spark, 0, 10), tmp_path / "index", "append", **{option: value})
    assert not (tmp_path / "index").exists()


def test_missing_column_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="missing key"):
        write(frame(spark, 0, 10).drop("key"), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_failed_first_attempt_is_harmless(spark: SparkSession, tmp_path: Path) -> None:
    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 1:
            raise RuntimeError("the first attempt fails")

    arranged = ls.arrange(frame(spark, 0, 200), 3)
    write(arranged.mapInArrow(fail_once, ROWS), tmp_path / "index")
    assert_holds(tmp_path / "index", 0, 200)


def test_killed_first_attempt_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "index"

    def die_once(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
            os._exit(9)

    write(ls.arrange(frame(spark, 0, 100), 2).mapInArrow(die_once, ROWS), directory)
    assert_holds(directory, 0, 100)


def test_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 2:
            raise RuntimeError("every attempt fails")

    write(ls.arrange(frame(spark, 0, 100)), tmp_path / "index")
    before = names(tmp_path / "index")
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="every attempt fails"):
            write(ls.arrange(frame(spark, 100, 200), 3).mapInArrow(fail, ROWS), tmp_path / "index", mode)
        assert names(tmp_path / "index") == before


def test_entries_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    write(ls.arrange(frame(spark, 0, 100)), tmp_path / "index")
    entries = spark.read.format("rocketmq_index").load(str(tmp_path / "index"))
    assert entries.columns == ["position", "hash_slot", "key_hash", "phy_offset", "store_timestamp", "prev_index"]
    assert sorted(row.phy_offset for row in entries.collect()) == sorted(row[2] for row in rows(0, 100))
    with_file = spark.read.format("rocketmq_index").option("columns", "file,position").load(str(tmp_path / "index"))
    with IndexService.open(tmp_path / "index") as index:
        expected = {(file.path.name, position) for file in index.files for position in range(1, len(file) + 1)}
    assert {tuple(row) for row in with_file.collect()} == expected
