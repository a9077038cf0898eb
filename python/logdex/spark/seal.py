"""Sealing on Spark: tasks read the index files, Spark sorts the rows and writes them, the driver writes the catalog."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as sf

from logdex._core import (
    CommitLog,
    IndexFile,
    StoreSealing,
    delete_remote,
    forget_lists,
    list_remote,
    locate,
    sealed_directory,
    sealed_rows,
    write_sealed_keys,
)
from logdex._files import RemotePath
from logdex.rocketmq import MessageStore
from logdex.spark.workers import check_worker_python, driver_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from logdex.report import Report

_ENTRIES_A_TASK = 1 << 20
_ENTRIES_A_BATCH = 1 << 16
_ROWS_A_FILE = 1 << 22
_ROWS_A_GROUP = 16_384
_ROW = "key_hash int, phy_offset bigint, store_timestamp timestamp"
_PART = "file int, position int, count int"
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


def seal(
    spark: SparkSession,
    store: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Seal a store, see `MessageStore.seal`, with the tasks of a session: they read the index files and sort the rows.

    The catalog is written last, so a reader sees the former sealed index or the new one.

    Args:
        spark: The session; all workers must see the same files.
        store: The store: a directory or a URL. It is only read.
        out: The directory or URL in which `_logdex` is written, as driver and workers see it; None: the root of the store.
        storage_options: Options of the stores of URLs; see `MessageStore.open`.

    Returns:
        The report of `MessageStore.seal`.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
        OSError: The system refuses.
    """
    check_worker_python(spark)
    root = driver_path(store, spark, storage_options)
    target = sealed_directory(root if out is None else driver_path(out, spark, storage_options))
    with MessageStore.open(root, sealed="never") as opened:
        log, files = opened.commit_log, opened.index.files if opened.index is not None else []
        sealing = StoreSealing(root, target, log)
        sealed = [file for file in files if sealing.describe_index_file(log, file)]
        parts = [part for number, file in enumerate(sealed) for part in _parts(number, file)]
        name = uuid4().hex[:16]
        keys, names = target / "keys", list[str]()
        try:
            if parts:
                write = _write_objects if isinstance(target, RemotePath) else _write_files
                names = write(_sorted(_rows(spark, log, sealed, parts), sum(map(len, sealed))), keys, name)
            return sealing.finish_with(log, files, names)
        except BaseException:
            _remove(keys, name)
            raise


def _parts(number: int, file: IndexFile) -> list[tuple[int, int, int]]:
    """Return the parts of an index file that tasks read: which file, and which entries."""
    begins = range(1, len(file) + 1, _ENTRIES_A_TASK)
    return [(number, begin, min(_ENTRIES_A_TASK, len(file) + 1 - begin)) for begin in begins]


def _rows(
    spark: SparkSession, log: CommitLog, files: Sequence[IndexFile], parts: list[tuple[int, int, int]]
) -> DataFrame:
    # Paths of a store in a bucket are pickled with its options.
    paths = [file.path for file in files]
    slots, entries = files[0].hash_slots, files[0].max_entries

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for part in batch.to_pylist():
                with IndexFile.open(paths[part["file"]], hash_slots=slots, max_entries=entries) as file:
                    yield from _rows_of(log, file, part["position"], part["count"])

    asked = spark.createDataFrame(parts, _PART).repartition(len(parts))
    return asked.mapInArrow(rows, _ROW)


def _rows_of(log: CommitLog, file: IndexFile, position: int, count: int) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 -- on the worker

    kind = pa.schema(
        [("key_hash", pa.int32()), ("phy_offset", pa.int64()), ("store_timestamp", pa.timestamp("us", "UTC"))]
    )
    for begin in range(position, position + count, _ENTRIES_A_BATCH):
        rows = sealed_rows(log, file, begin, min(_ENTRIES_A_BATCH, position + count - begin))
        yield pa.record_batch(rows).cast(kind)


def _sorted(rows: DataFrame, count: int) -> DataFrame:
    """Sort rows into partitions of which each becomes a file."""
    newest_first = [sf.col("key_hash"), sf.col("phy_offset").desc(), sf.col("store_timestamp").desc()]
    ranged = rows.repartitionByRange(max(1, -(-count // _ROWS_A_FILE)), "key_hash")
    return ranged.sortWithinPartitions(*newest_first)


def _write_files(rows: DataFrame, keys: Path, name: str) -> list[str]:
    """Write sorted rows with Spark's own writer, and move the files of the finished job beside the others."""
    session = rows.sparkSession
    written = keys / f".{name}"
    before = session.conf.get("spark.sql.parquet.outputTimestampType") or "INT96"
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    try:
        rows.write.options(**_WRITING).parquet(str(written))
    finally:
        session.conf.set("spark.sql.parquet.outputTimestampType", before)
    names = []
    for number, path in enumerate(sorted(written.glob("part-*.parquet"))):
        names.append(f"{name}-{number:05}.parquet")
        path.rename(keys / names[-1])
    shutil.rmtree(written, ignore_errors=True)
    return names


def _write_objects(rows: DataFrame, keys: Path, name: str) -> list[str]:
    """Write sorted rows into an object store, each partition as one object of its task's attempt."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 -- on the worker
        from pyspark import TaskContext  # noqa: PLC0415 -- as above

        context = TaskContext.get()
        if context is None:
            raise ValueError("expected a task of Spark")
        place = f"{name}-{context.partitionId():05}-{context.taskAttemptId()}.parquet"
        if write_sealed_keys(keys / place, batches):
            yield pa.record_batch([pa.array([place])], names=["name"])

    return [row.name for row in rows.mapInArrow(write, "name string").collect()]


def _remove(keys: Path, name: str) -> None:
    """Remove what a job wrote that failed."""
    with contextlib.suppress(OSError):
        if isinstance(keys, RemotePath):
            # Not what this process listed before the tasks wrote.
            forget_lists()
            for path, _ in list_remote(locate(keys)):
                if path.name.startswith(name):
                    delete_remote(path)
        else:
            shutil.rmtree(keys / f".{name}", ignore_errors=True)
