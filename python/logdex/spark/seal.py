"""Sealing on Spark: tasks check index files and pack their rows, others sort and write. The driver writes the catalog."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from logdex._core import (
    IndexFile,
    StoreSealing,
    describe_index_file,
    packed_rows,
    sealed_directory,
    write_packed_keys,
)
from logdex.report import merge
from logdex.rocketmq import MessageStore
from logdex.spark.workers import call_in_tasks, check_worker_python, driver_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from logdex._core import CommitLog
    from logdex.report import Report

_ENTRIES_A_TASK = 1 << 21


def seal(
    spark: SparkSession,
    store: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Seal a store, see `MessageStore.seal`, with the tasks of a session: they read the index files and sort the rows.

    Tasks read each index file twice: to check it, and for its rows. The catalog is written last, so a reader sees the former
    sealed index or the new one.

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
        described = call_in_tasks(spark, partial(_describe, log), [_File.of(file) for file in files])
        parts = []
        for file, (facts, _) in zip(files, described, strict=True):
            if facts is not None:
                sealing.add_facts(file.path, facts)
                parts += [(_File.of(file), position) for position in range(1, len(file) + 1, _ENTRIES_A_TASK)]
        name = uuid4().hex[:16]
        try:
            written = _write(_pack(spark, log, parts, sealing.bounds()), target, name)
            report = sealing.finish_with(log, files, written)
        except BaseException:
            sealing.discard(name)
            raise
        return merge([report, *(found for _, found in described)])


class _File(NamedTuple):
    """An index file that tasks open. The path of one in a bucket is pickled with its options."""

    path: Path
    hash_slots: int
    max_entries: int

    @classmethod
    def of(cls, file: IndexFile) -> _File:
        return cls(file.path, file.hash_slots, file.max_entries)

    def open(self) -> IndexFile:
        return IndexFile.open(self.path, hash_slots=self.hash_slots, max_entries=self.max_entries)


def _describe(log: CommitLog, file: _File) -> tuple[Any, Report]:
    with file.open() as opened:
        return describe_index_file(log, opened)


def _pack(spark: SparkSession, log: CommitLog, parts: Sequence[tuple[_File, int]], bounds: Sequence[int]) -> DataFrame:
    """Read the rows of parts of index files, each of so many entries from a position on, packed by ranges of their hashes."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                file, position = parts[number]
                with file.open() as opened:
                    yield pa.record_batch(packed_rows(log, opened, position, _ENTRIES_A_TASK, bounds))

    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(pack, "range int, rows binary")


def _write(packed: DataFrame, directory: Path, name: str) -> list[bytes]:
    """Write each range as a file of keys, of which a task's attempt has one of its own, and return what they hold."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        written = write_packed_keys(directory, name, context.taskAttemptId() if context is not None else 0, batches)
        yield pa.record_batch([pa.array(written, pa.binary())], names=["file"])

    return [row.file for row in packed.repartition("range").mapInArrow(write, "file binary").collect()]
