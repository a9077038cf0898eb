"""Sealing on Spark: tasks check the sources and pack their rows, others sort and write. The driver writes the catalog."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from logdex._core import Sealing, SealSource, discard_packed_keys, write_packed_keys
from logdex.kafka import LogDir
from logdex.kafka.files import MAX_OFFSET
from logdex.kafka.sealed import missing_segments, planned_segments, sealing_target
from logdex.report import merge
from logdex.rocketmq import MessageStore
from logdex.rocketmq.sealed import sealing_target as store_target
from logdex.source import Kind, detect
from logdex.spark.workers import call_in_tasks, check_worker_python, driver_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from logdex._core import CommitLog, IndexFile
    from logdex.kafka import Log
    from logdex.report import Report

_ENTRIES_A_TASK = 1 << 21


def seal(
    spark: SparkSession,
    store: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    header: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Seal a store or a Kafka log directory with the tasks of a session; see `MessageStore.seal` and `LogDir.seal`.

    Tasks read each index file or segment twice: to check it, and for its rows. The catalog is written last, so a reader sees the
    former sealed index or the new one.

    Args:
        spark: The session; all workers must see the same files.
        store: The store or log directory: a directory or a URL. It is only read.
        out: The directory or URL in which `_logdex` is written, as driver and workers see it; None: the root of the store.
        header: Kafka: the name of a header whose values are sealed next to the keys.
        storage_options: Options of the stores of URLs; see `MessageStore.open`.

    Returns:
        The report of `MessageStore.seal` or `LogDir.seal`.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
        FileExistsError: The log directory of a Kafka broker, and no `out`.
        ValueError: A `header` of a RocketMQ store.
        OSError: An I/O error.
    """
    check_worker_python(spark)
    root = driver_path(store, spark, storage_options)
    place = None if out is None else driver_path(out, spark, storage_options)
    if detect(root, sealed="never") is Kind.LOG_DIR:
        with LogDir.open(root, sealed="never") as log_dir:
            logs = [log_dir.log(each.topic, each.partition) for each in log_dir.partitions()]
            return _seal_logs(spark, root, logs, place, header)
    if header is not None:
        raise ValueError(f"header={header!r}: expected a Kafka log directory, found {store}")
    with MessageStore.open(root, sealed="never") as opened:
        return _seal_store(spark, root, opened, place)


@dataclass(frozen=True)
class _Source:
    """An index file or a segment, which is opened in a task only: pickled, it is closed."""

    kind: Literal["index_file", "segment"]
    arguments: bytes
    begin: int
    rows_per_task: int
    end: int = 0

    def opened(self) -> SealSource:
        make: Callable[..., SealSource] = getattr(SealSource, self.kind)
        return make(*pickle.loads(self.arguments))  # noqa: S301 -- the driver's own

    def parts(self) -> Sequence[int]:
        """Return where tasks begin to read the source."""
        return range(self.begin, self.end, self.rows_per_task)

    def packed(self, begin: int, bounds: Sequence[int]) -> Iterable[Any]:
        """Return the rows of a part in record batches, packed by ranges of their hashes."""
        return self.opened().packed(begin, min(begin + self.rows_per_task, self.end), bounds)


def _index_file(log: CommitLog, file: IndexFile) -> _Source:
    return _Source("index_file", pickle.dumps((log, file)), 1, _ENTRIES_A_TASK)


def _segment(*arguments: Any) -> _Source:
    return _Source("segment", pickle.dumps(arguments), 0, MAX_OFFSET)


def _seal_store(spark: SparkSession, root: Path, store: MessageStore, out: Path | None) -> Report:
    log, files = store.commit_log, store.index.files if store.index is not None else []
    target = store_target(root, out)
    sealing = Sealing.of_store(root, target, log, files)
    return merge(_sealed(spark, sealing, [_index_file(log, file) for file in files], target))


def _seal_logs(spark: SparkSession, root: Path, logs: Sequence[Log], out: Path | None, header: str | None) -> Report:
    target = sealing_target(root, out)
    sealing = Sealing.of_logs(root, target, [(log.topic, log.partition) for log in logs], header)
    sources = [_segment(*planned, header) for planned in planned_segments(logs)]
    return merge([*_sealed(spark, sealing, sources, target), missing_segments(logs)])


def _sealed(spark: SparkSession, sealing: Sealing, sources: Sequence[_Source], target: Path) -> list[Report]:
    """Seal sources, and return the reports."""
    whole, reports = _described(spark, sealing, sources)
    with _discarding(target) as name:
        packed = _packed(spark, whole, sealing.bounds())
        return [sealing.finish(_written(packed, target, name, sealing.partitions)), *reports]


def _described(spark: SparkSession, sealing: Sealing, sources: Sequence[_Source]) -> tuple[list[_Source], list[Report]]:
    """Check sources in tasks, and add what is known of those that can be sealed. Return these, and the reports of all."""
    described = call_in_tasks(spark, lambda source: source.opened().describe(), sources)
    whole: list[_Source] = []
    for source, (facts, _) in zip(sources, described, strict=True):
        if facts is not None:
            sealing.add_facts(facts)
            # A source may grow.
            whole.append(replace(source, end=facts[-1]))
    return whole, [report for _, report in described]


@contextmanager
def _discarding(target: Path) -> Iterator[str]:
    """Name a job's files of keys, and delete them if the job fails."""
    name = uuid4().hex[:16]
    try:
        yield name
    except BaseException:
        discard_packed_keys(target, name)
        raise


def _packed(spark: SparkSession, sources: Sequence[_Source], bounds: Sequence[int]) -> DataFrame:
    """Return the rows of sources, packed by ranges of their hashes."""
    parts = [(source, begin) for source in sources for begin in source.parts()]

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                source, begin = parts[number]
                yield from map(pa.record_batch, source.packed(begin, bounds))

    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(pack, "range int, rows binary")


def _written(packed: DataFrame, target: Path, name: str, partitions: Sequence[tuple[str, int]] | None) -> list[bytes]:
    """Sort each range, write it as a file of keys, and return the descriptions of the files."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        # Each attempt of a task has names of its own.
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        written = write_packed_keys(target, name, attempt, batches, partitions)
        yield pa.record_batch([pa.array(written, pa.binary())], names=["file"])

    return [row.file for row in packed.repartition("range").mapInArrow(write, "file binary").collect()]
