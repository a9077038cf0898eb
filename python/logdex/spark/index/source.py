"""Format `rocketmq_index`: index files as a table of entries, and any DataFrame of index entries into index files.

Each task of a write fills its own files, in the order of offsets. A broker searches files from the newest to the oldest and
stops at the first one that begins before the searched range, so files must follow one another in offset and in time. The
commit therefore rejects tasks that overlap, and files that would not follow those of the directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logdex._core import EntryRows, entry_rows, plan_files, planned_file_faults
from logdex._types import check_int64
from logdex.arrow import ENTRY_COLUMNS as WRITTEN_COLUMNS
from logdex.hash_index.files import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES, file_size
from logdex.rocketmq import IndexFile, IndexService
from logdex.spark import options as opt
from logdex.spark.index.job import RollingFiles, WrittenFile, finish_commits, index_files, make_job
from logdex.spark.log_source import LogReader, LogSource, SeveralReads, Task
from logdex.spark.schema import (
    ENTRY_COLUMNS,
    ENTRY_COLUMNS_AND_FILE,
    FILE_COLUMN,
    checked_schema,
    require_columns,
    spark_batches,
    spark_schema,
)
from logdex.spark.workers import known_geometry, require_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from logdex.report import Damage
    from logdex.spark.damage import SparkDamage
    from logdex.spark.index.job import Job, ObjectJob


FORMAT = "rocketmq_index"
_OPTIONS = ("hashSlots", "maxEntries", "zone", "access", "compat", "columns")
_TYPES = {
    "topic": ("string", "binary"),
    "key": ("string", "binary"),
    "phy_offset": ("bigint", "int"),
    "store_timestamp": ("timestamp", "bigint"),
}
_SAMPLE = 0.01
_SAMPLES_A_TASK = 100


class IndexSource(LogSource):
    """The data source of `spark.read.format("rocketmq_index")` and `df.write`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare the columns of the entries, or those that the option `columns` names."""
        chosen = opt.names(self.options, "columns")
        return spark_schema(ENTRY_COLUMNS if chosen is None else ENTRY_COLUMNS_AND_FILE, chosen)

    def reader(self, schema: StructType) -> LogReader:
        """Plan a read of the entries."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        directories = opt.paths(self.options, f"format {FORMAT}")
        for each in directories:
            require_directory(each)
            finish_commits(each)
        index_options = {
            "hash_slots": opt.integer(self.options, "hashSlots"),
            "max_entries": opt.integer(self.options, "maxEntries"),
            "access": opt.access(self.options),
            "compat": opt.compat(self.options),
        }
        columns = checked_schema(ENTRY_COLUMNS_AND_FILE, schema)
        reads = [EntriesRead(each, columns, index_options, whole_path=len(directories) > 1) for each in directories]
        return LogReader(SeveralReads.of(reads), self.reports)

    def writer(self, schema: StructType, overwrite: bool) -> IndexWriter:  # noqa: FBT001 - Spark's signature
        """Plan a write and create the directory of its job, on the driver."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        require_columns(schema.fieldNames(), WRITTEN_COLUMNS, f"format {FORMAT}")
        for name, types in _TYPES.items():
            found = schema[name].dataType.simpleString()
            if found not in types:
                raise ValueError(f"format {FORMAT}: column {name} must be {' or '.join(types)}, not {found}")
        directory = opt.path(self.options, f"a write of format {FORMAT}")
        slots, entries = (opt.integer(self.options, name) for name in ("hashSlots", "maxEntries"))
        slots, entries = _geometry(directory, slots, entries, overwrite=overwrite)
        zone, access = self.options.get("zone"), opt.access(self.options)
        job = make_job(directory, slots, entries, zone, overwrite=overwrite, access=access)
        job.start()
        return IndexWriter(job)


def _geometry(directory: Path, slots: int | None, entries: int | None, *, overwrite: bool) -> tuple[int, int]:
    """Return slots and entries of new files: those of the options, otherwise of the directory's files, otherwise the default."""
    if (slots is None) != (entries is None):
        raise ValueError("give both options hashSlots and maxEntries, or neither")
    present = [] if overwrite else index_files(directory)
    if present and slots is None:
        slots, entries = known_geometry(directory, None, None)
    slots = DEFAULT_HASH_SLOTS if slots is None else slots
    entries = DEFAULT_MAX_ENTRIES if entries is None else entries
    size = file_size((slots, entries))
    for path in present:
        found = path.stat().st_size
        if found != size:
            raise ValueError(
                f"{path} has {found} bytes and files of {slots} slots and {entries} entries have {size}: "
                "a broker opens all files of a directory with one geometry"
            )
    return slots, entries


@dataclass(frozen=True)
class EntriesRead:
    """The options of a read: one task for each file, oldest first; `whole_path`: the column `file` has paths, not names."""

    directory: Path
    columns: list[str]
    index_options: dict[str, Any]
    whole_path: bool

    def tasks(self, damage: Damage) -> list[Task]:  # noqa: ARG002 -- a directory does not show which files it lacks
        """Return the files with their geometries and entries, as the service lists them."""
        with IndexService.open(self.directory, **self.index_options) as service:
            named = service.named_files()
            planned = plan_files([file.path for _, file in named])
            return [
                Task((name, (path, file_size(at := (file.hash_slots, file.max_entries)), etag), *at, len(file)))
                for (name, file), (path, _, etag) in zip(named, planned, strict=True)
            ]

    def rows(self, pieces: Sequence[Any], damage: SparkDamage) -> Iterator[Any]:
        """Read the entries of one file, in a worker."""
        if not pieces or damage.lose_all(planned_file_faults(pieces[1:2])):
            return
        called, (path, _, _), slots, entries, count = pieces
        with (
            damage.losing(f"{count} entries"),
            IndexFile.open(path, **{**self.index_options, "hash_slots": slots, "max_entries": entries}) as file,
        ):
            if len(file) < count:
                damage.lose(path, f"{count} entries, as the driver saw", f"{len(file)}")
            name = {FILE_COLUMN: str(path) if self.whole_path else called}
            yield from spark_batches(file.entries(), ENTRY_COLUMNS_AND_FILE, self.columns, str(path), name)


def arrange(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """Divide rows by offset, so that each task writes a range of its own; the writer sorts the rows of a task.

    With `partitions`, a job first samples the offsets, and reads no other column, to make the tasks similar in size.

    Args:
        df: Rows with a column `phy_offset`.
        partitions: The number of tasks; None: Spark decides. Each creates at least one file, which reserves its full size.

    Raises:
        ValueError: There is no such column, or `partitions` is less than 1.
    """
    require_columns(df.columns, ("phy_offset",), "arrange")
    if partitions is None:
        return df.repartitionByRange("phy_offset")
    check_int64(partitions=partitions)
    if partitions < 1:
        raise ValueError(f"partitions must be 1 or more, not {partitions}")
    if not hasattr(df, "repartitionById"):  # before pyspark 4.1
        return df.repartitionByRange(partitions, "phy_offset")
    # Spark's own repartitionByRange would read all columns for its sample, and search the bounds for each row.
    at_or_above = [(sf.col("phy_offset") >= bound).cast("int") for bound in _bounds(df, partitions)]
    return df.repartitionById(partitions, sf.coalesce(reduce(add, at_or_above, sf.lit(0)), sf.lit(0)))


def _bounds(df: DataFrame, parts: int) -> list[int]:
    """Return the offsets that divide the rows into about equal parts; none if there are no rows."""
    if parts == 1:
        return []
    offsets = df.select("phy_offset").where("phy_offset is not null")
    shares = [part / parts for part in range(1, parts)]
    columns = sf.count("*").alias("rows"), sf.percentile_approx("phy_offset", shares).alias("bounds")
    found = offsets.sample(_SAMPLE).agg(*columns).collect()[0]
    if found.rows < _SAMPLES_A_TASK * parts:
        found = offsets.agg(*columns).collect()[0]
    return list(found.bounds or [])


class Span(NamedTuple):
    """Ranges of commit-log offsets and store times of one file or task, both ends included."""

    offset: tuple[int, int]
    time: tuple[int, int]
    owner: str


@dataclass(frozen=True)
class TaskFiles(WriterCommitMessage):
    """Commit message of one attempt of a task that had rows: its files, in their order, and their span."""

    files: tuple[WrittenFile, ...]
    span: Span


class IndexWriter(DataSourceArrowWriter):
    """Writes index files; the driver commits those that the tasks report."""

    def __init__(self, job: Job | ObjectJob) -> None:
        self.job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Fill the files of a task with rows as they arrive, in a worker.

        If an offset is below the one before it, the files are removed and made again from all rows, sorted. So the task holds
        its rows, 20 bytes each.

        Raises:
            ValueError: A topic, key, offset or time is null.
        """
        files = RollingFiles.start(self.job)
        held = EntryRows()
        try:
            for batch in iterator:
                rows = entry_rows(*(batch.column(name) for name in WRITTEN_COLUMNS))
                held.add(rows)
                if held.is_ordered:
                    files.put(rows)
            if (spans := held.spans) is None:
                files.discard()
                return WriterCommitMessage()
            if not held.is_ordered:
                files.discard()
                files = RollingFiles.start(self.job)
                for rows in held.sorted():
                    files.put(rows)
            task = files.directory.name.partition("-")[0]
            return TaskFiles(tuple(files.close()), Span(*spans, f"task {task}"))
        except BaseException:
            files.discard()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check that the tasks follow one another and give their files the final names, on the driver.

        Raises:
            ValueError: Two tasks, or a task and the files of the directory, overlap.
        """
        tasks = [message for message in messages if isinstance(message, TaskFiles)]
        tasks.sort(key=lambda task: task.span.offset)
        check_order([] if self.job.overwrite else _present(self.job), [task.span for task in tasks])
        self.job.commit([file for task in tasks for file in task.files])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of all attempts; the messages (None for a failed task) are not needed."""
        del messages
        self.job.abort()


def check_order(present: Sequence[Span], tasks: Sequence[Span]) -> None:
    """Check that the spans of tasks, sorted by offset, follow one another and the files of the directory.

    Two spans may share an end: all keys of a message have one offset, and two messages can have one millisecond.

    Raises:
        ValueError: Two of them overlap; the message names both and the solution.
    """
    advice = "write logdex.spark.arrange(df) instead of df"
    for kind in ("offset", "time"):
        of = attrgetter(kind)
        earlier = max(present, key=lambda span: of(span)[1], default=None)
        for span in tasks:
            if earlier is not None and of(span)[0] < of(earlier)[1]:
                if earlier in present:
                    advice = "only rows after those of the directory can be appended (mode overwrite replaces them)"
                elif kind == "time":
                    advice += "; if it is arranged already, the clock was set back: write it as one partition"
                own, other = ("{}..{}".format(*of(each)) for each in (span, earlier))
                raise ValueError(
                    "index files must follow one another in offset and time, or a broker does not find all entries: "
                    f"the {kind} range {own} of {span.owner} overlaps {other} of {earlier.owner}; {advice}"
                )
            earlier = span


def _present(job: Job | ObjectJob) -> list[Span]:
    """Return the span of each file of the directory that has entries; only headers are read."""
    spans = []
    for path in index_files(job.target):
        with IndexFile.open(path, hash_slots=job.hash_slots, max_entries=job.max_entries, access="pread") as file:
            if len(file):
                header = file.header
                low, high = sorted((header.begin_phy_offset, header.end_phy_offset))
                first, last = sorted((header.begin_timestamp, header.end_timestamp))
                spans.append(Span((low, high), (first, last), f"file {path.name}"))
    return spans
