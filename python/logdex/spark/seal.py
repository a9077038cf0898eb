"""Sealing on Spark: tasks check the sources and pack their rows, others sort and write. The driver writes the catalog."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from logdex._core import (
    LogSealing,
    PackedSegment,
    StoreSealing,
    describe_index_file,
    describe_segment,
    discard_packed_keys,
    packed_rows,
    write_packed_keys,
)
from logdex.detection import Kind, detect
from logdex.kafka import LogDir
from logdex.kafka.sealed import missing_segments, planned_segments, sealing_target
from logdex.report import merge
from logdex.rocketmq import MessageStore
from logdex.rocketmq.sealed import sealing_target as store_target
from logdex.spark.workers import call_in_tasks, check_worker_python, driver_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

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
        header: Kafka: the name of a header whose values are sealed beside the keys.
        storage_options: Options of the stores of URLs; see `MessageStore.open`.

    Returns:
        The report of `MessageStore.seal` or `LogDir.seal`.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
        FileExistsError: The log directory of a Kafka broker, and no `out`.
        ValueError: A `header` of a RocketMQ store.
        OSError: The system refuses.
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


class _Source(Protocol):
    """An index file or a segment, which is opened in a task only: pickled, it is closed."""

    def describe(self) -> tuple[Any, Report]:
        """Check it. Return what a catalog needs of it, or None if it cannot be sealed, and why."""

    def as_described(self, facts: Any) -> _Source:
        """Return the source with what was known of it then: it may grow."""

    def parts(self) -> Sequence[int]:
        """Return where tasks begin to read it."""

    def packed(self, begin: int, bounds: Sequence[int]) -> Iterable[Any]:
        """Return the rows of a part in record batches, packed by ranges of their hashes."""


@dataclass(frozen=True)
class _IndexFile:
    opened: bytes
    entries: int = 0

    def describe(self) -> tuple[Any, Report]:
        return describe_index_file(*pickle.loads(self.opened))  # noqa: S301 -- the driver's own

    def as_described(self, facts: Any) -> _IndexFile:
        return replace(self, entries=facts[0])

    def parts(self) -> Sequence[int]:
        return range(1, self.entries + 1, _ENTRIES_A_TASK)

    def packed(self, begin: int, bounds: Sequence[int]) -> Iterable[Any]:
        log, file = pickle.loads(self.opened)  # noqa: S301 -- as above
        return [packed_rows(log, file, begin, min(_ENTRIES_A_TASK, self.entries + 1 - begin), bounds)]


@dataclass(frozen=True)
class _Segment:
    opened: bytes
    partition: tuple[str, int]
    number: int
    header: str | None
    end_offset: int = 0

    def describe(self) -> tuple[Any, Report]:
        segment, following = pickle.loads(self.opened)  # noqa: S301 -- as above
        return describe_segment(self.partition, segment, following, self.header)

    def as_described(self, facts: Any) -> _Segment:
        return replace(self, end_offset=facts[2])

    def parts(self) -> Sequence[int]:
        return [0]

    def packed(self, begin: int, bounds: Sequence[int]) -> Iterable[Any]:
        del begin
        segment, _ = pickle.loads(self.opened)  # noqa: S301 -- as above
        return PackedSegment(self.partition, self.number, segment, self.end_offset, bounds, self.header)


def _seal_store(spark: SparkSession, root: Path, store: MessageStore, out: Path | None) -> Report:
    log, files = store.commit_log, store.index.files if store.index is not None else []
    target = store_target(root, out)
    sealing = StoreSealing(root, target, log)
    sources = [_IndexFile(pickle.dumps((log, file))) for file in files]
    whole, reports = _described(spark, sources, [partial(sealing.add_facts, file.path) for file in files])
    with _discarding(target) as name:
        packed = _packed(spark, whole, sealing.bounds())
        return merge([sealing.finish_with(log, files, _written(packed, target, name)), *reports])


def _seal_logs(spark: SparkSession, root: Path, logs: Sequence[Log], out: Path | None, header: str | None) -> Report:
    target = sealing_target(root, out)
    sealing = LogSealing(root, target, [(log.topic, log.partition) for log in logs], header)
    partitions = sealing.partitions
    sources = [
        _Segment(pickle.dumps(segments), partition, partitions.index(partition), header)
        for partition, *segments in planned_segments(logs)
    ]
    whole, reports = _described(spark, sources, [sealing.add_facts] * len(sources))
    with _discarding(target) as name:
        packed = _packed(spark, whole, sealing.bounds())
        report = sealing.finish_with(_written(packed, target, name, partitions))
    return merge([report, *reports, missing_segments(logs)])


def _described(
    spark: SparkSession, sources: Sequence[_Source], adds: Sequence[Callable[[Any], None]]
) -> tuple[list[_Source], list[Report]]:
    """Check sources in tasks, and add what is known of those that can be sealed. Return these, and the reports of all."""
    described = call_in_tasks(spark, lambda source: source.describe(), sources)
    whole: list[_Source] = []
    for source, add, (facts, _) in zip(sources, adds, described, strict=True):
        if facts is not None:
            add(facts)
            whole.append(source.as_described(facts))
    return whole, [report for _, report in described]


@contextmanager
def _discarding(target: Path) -> Iterator[str]:
    """Give a job's files of keys a name, and delete them if the job fails."""
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


def _written(
    packed: DataFrame, target: Path, name: str, partitions: Sequence[tuple[str, int]] | None = None
) -> list[bytes]:
    """Sort each range, write it as a file of keys, and return the descriptions of the files."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        # Each attempt of a task has names of its own.
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        written = write_packed_keys(target, name, attempt, batches, partitions)
        yield pa.record_batch([pa.array(written, pa.binary())], names=["file"])

    return [row.file for row in packed.repartition("range").mapInArrow(write, "file binary").collect()]
