"""Sealing on Spark: tasks read the index files, Spark sorts the rows and writes them, the driver writes the catalog."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as sf

from logdex._core import CommitLog, IndexFile, StoreSealing, sealed_directory, sealed_rows
from logdex.rocketmq import MessageStore
from logdex.spark.workers import check_worker_python, driver_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from logdex.report import Report

_ENTRIES_A_TASK = 1 << 20
_ENTRIES_A_BATCH = 1 << 16
_ROWS_A_FILE = 1 << 22
_ROWS_A_GROUP = 16_384
_ROW = "key_hash int, phy_offset bigint, store_timestamp timestamp"
_PART = "path string, hash_slots int, max_entries int, position int, count int"
# What makes Spark's files what a lookup reads: small row groups, delta encoding, nothing compressed.
_WRITING = {
    "compression": "uncompressed",
    "parquet.enable.dictionary": "false",
    "parquet.writer.version": "v2",
    "parquet.block.row.count.limit": str(_ROWS_A_GROUP),
    "parquet.block.size": "262144",
    "parquet.page.row.count.limit": str(_ROWS_A_GROUP),
    "parquet.page.size.row.check.min": "1024",
    "parquet.page.size.row.check.max": "4096",
    "parquet.block.size.row.check.min": "1024",
    "parquet.block.size.row.check.max": "4096",
}


def seal(spark: SparkSession, store: str | PathLike[str], out: str | PathLike[str] | None = None) -> Report:
    """Seal a store, see `MessageStore.seal`, with the tasks of a session: they read the index files and sort the rows.

    Args:
        spark: The session; all workers must see the same files.
        store: The store. It is only read.
        out: The directory in which `_logdex` is written, as driver and workers see it; None: the root of the store.

    Returns:
        The report of `MessageStore.seal`.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
        OSError: The system refuses.
        ValueError: `out` is a URL: seal a store in a bucket with `MessageStore.seal`.
    """
    check_worker_python(spark)
    root = driver_path(store, spark)
    target = sealed_directory(root if out is None else driver_path(out, spark))
    if "://" in str(target):
        raise ValueError(f"out={str(target)!r}: expected a local directory; MessageStore.seal writes to URLs")
    with MessageStore.open(root, sealed="never") as opened:
        log, files = opened.commit_log, opened.index.files if opened.index is not None else []
        sealing = StoreSealing(root, target, log)
        parts = [part for file in files if sealing.describe_index_file(log, file) for part in _parts(file)]
        name = uuid4().hex[:16]
        written = target / "keys" / f".{name}"
        names: list[str] = []
        try:
            if parts:
                _write(_rows(spark, str(opened.layout.commit_log), parts), written, sum(part[-1] for part in parts))
                names = _publish(written, name)
            return sealing.finish_with(log, files, names)
        finally:
            shutil.rmtree(written, ignore_errors=True)


def _parts(file: IndexFile) -> list[tuple[Any, ...]]:
    """Return the parts of an index file that tasks read: where it is, and which entries."""
    begins = range(1, len(file) + 1, _ENTRIES_A_TASK)
    path, slots, entries = str(file.path), file.hash_slots, file.max_entries
    return [(path, slots, entries, begin, min(_ENTRIES_A_TASK, len(file) + 1 - begin)) for begin in begins]


def _rows(spark: SparkSession, commit_log: str, parts: list[tuple[Any, ...]]) -> DataFrame:
    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        with CommitLog.open(commit_log) as log:
            for batch in batches:
                for part in batch.to_pylist():
                    yield from _rows_of(log, **part)

    asked = spark.createDataFrame(parts, _PART).repartition(len(parts))
    return asked.mapInArrow(rows, _ROW)


def _rows_of(
    log: CommitLog, *, path: str, hash_slots: int, max_entries: int, position: int, count: int
) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 -- on the worker

    kind = pa.schema(
        [("key_hash", pa.int32()), ("phy_offset", pa.int64()), ("store_timestamp", pa.timestamp("us", "UTC"))]
    )
    with IndexFile.open(path, hash_slots=hash_slots, max_entries=max_entries) as file:
        for begin in range(position, position + count, _ENTRIES_A_BATCH):
            rows = sealed_rows(log, file, begin, min(_ENTRIES_A_BATCH, position + count - begin))
            yield pa.record_batch(rows).cast(kind)


def _write(rows: DataFrame, directory: Path, count: int) -> None:
    """Sort the rows into files, and write them."""
    session = rows.sparkSession
    before = session.conf.get("spark.sql.parquet.outputTimestampType") or "INT96"
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    try:
        newest_first = [sf.col("key_hash"), sf.col("phy_offset").desc(), sf.col("store_timestamp").desc()]
        ranged = rows.repartitionByRange(max(1, -(-count // _ROWS_A_FILE)), "key_hash")
        ranged.sortWithinPartitions(*newest_first).write.options(**_WRITING).parquet(str(directory))
    finally:
        session.conf.set("spark.sql.parquet.outputTimestampType", before)


def _publish(written: Path, name: str) -> list[str]:
    """Move the files of a finished job beside the others, under names of their own."""
    names = []
    for number, path in enumerate(sorted(written.glob("part-*.parquet"))):
        names.append(f"{name}-{number:05}.parquet")
        path.rename(written.parent / names[-1])
    return names
