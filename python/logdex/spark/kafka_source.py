"""Format `kafka_log`: the records of a Kafka log directory as a table, with the columns of Spark's own Kafka source."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from logdex import _core
from logdex.kafka import LogDir
from logdex.kafka.log import ISOLATION
from logdex.spark import options as opt
from logdex.spark.kafka_filter import RecordFilter
from logdex.spark.kafka_offsets import (
    OFFSET_OPTIONS,
    TOPIC_OPTIONS,
    Bound,
    Topics,
    ending,
    refuse_ending,
    starting,
    topics,
)
from logdex.spark.kafka_plan import OffsetRange, plan
from logdex.spark.schema import (
    RECORD_COLUMNS,
    arrow_schema,
    checked_schema,
    lay_out,
    spark_schema,
    warn_of_lost_instants,
)
from logdex.spark.workers import PARTITION_BYTES, require_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from logdex.kafka import Log

logger = logging.getLogger("logdex.spark")

FORMAT = "kafka_log"

_OPTIONS = (
    "path",
    "paths",
    *TOPIC_OPTIONS,
    *OFFSET_OPTIONS,
    "begin",
    "end",
    "columns",
    "includeHeaders",
    "isolation",
    "kafka.isolation.level",
    "onError",
    "minPartitions",
    "maxPartitionBytes",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "pushdown",
    "access",
    "compat",
)
# What a job over a live broker says of connections; only kafka.isolation.level chooses records.
_OF_BROKERS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
_ON_ERROR = ("raise", "skip", "stop")
_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class ReadOptions:
    """What a task needs to know.

    Attributes:
        directory: The log directory.
        columns: Names of columns.
        begin: First timestamp in ms; None: no bound.
        end: Last timestamp in ms, included.
        isolation: Whether aborted transactions are left out.
        on_error: What a damaged batch does.
        access: How files are read.
        compat: A Kafka release whose answers are wanted.
    """

    directory: str
    columns: tuple[str, ...]
    begin: int | None = None
    end: int | None = None
    isolation: Any = "read_uncommitted"
    on_error: Any = "raise"
    access: Any = "auto"
    compat: str | None = None

    @property
    def committed(self) -> bool:
        """Whether only what was committed is read."""
        return bool(self.isolation == "read_committed")

    def open(self) -> LogDir:
        """Open the directory."""
        return LogDir.open(self.directory, access=self.access, compat=self.compat)


@dataclass(frozen=True)
class LogTask(InputPartition):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]


class KafkaLogSource(DataSource):
    """The data source behind `spark.read.format("kafka_log").load(log_dir)`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare the columns of Spark's Kafka source, or those that the option `columns` names."""
        names = opt.names(self.options, "columns")
        if names is None:
            headers = opt.flag(self.options, "includeHeaders", default=False)
            names = tuple(name for name in RECORD_COLUMNS if headers or name != "headers")
        return spark_schema(RECORD_COLUMNS, names)

    def reader(self, schema: StructType) -> RecordReader:
        """Plan a read; a schema given by the user chooses columns as the option does."""
        options = self._read_options(schema)
        # A stream may wait for the first topic; a batch over another directory would read as empty.
        if not LogDir.lies_at(options.directory):
            msg = f"{options.directory}: no Kafka log directory, it holds no <topic>-<partition>"
            raise ValueError(msg)
        asked = (topics(self.options), starting(self.options), ending(self.options))
        size = opt.positive(self.options, "maxPartitionBytes") or PARTITION_BYTES
        reader = PushdownRecordReader if opt.takes_filters(self.options) else RecordReader
        return reader(options, *asked, piece_bytes=size, min_tasks=opt.positive(self.options, "minPartitions"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Follow growing logs."""
        from logdex.spark.kafka_stream import RecordStreamReader  # noqa: PLC0415 -- it imports this module

        options = self._read_options(schema)
        refuse_ending(self.options)
        return RecordStreamReader(
            options,
            topics(self.options),
            starting(self.options, stream=True),
            piece_bytes=opt.positive(self.options, "maxPartitionBytes") or PARTITION_BYTES,
            min_tasks=opt.positive(self.options, "minPartitions"),
            max_offsets=opt.positive(self.options, "maxOffsetsPerTrigger"),
            fail_on_data_loss=opt.flag(self.options, "failOnDataLoss", default=True),
        )

    def _read_options(self, schema: StructType) -> ReadOptions:
        opt.check_names(self.options, _OPTIONS, FORMAT, ignored_prefixes=_OF_BROKERS)
        directory = opt.path(self.options, FORMAT)
        require_directory(directory)
        isolation = self.options.get("kafka.isolation.level", self.options.get("isolation", "read_uncommitted")).lower()
        on_error = self.options.get("onError", "raise").lower()
        for name, value, allowed in (("isolation", isolation, ISOLATION), ("onError", on_error, _ON_ERROR)):
            if value not in allowed:
                msg = f"option {name}: {value!r} is not one of {', '.join(allowed)}"
                raise ValueError(msg)
        return ReadOptions(
            str(directory),
            tuple(checked_schema(RECORD_COLUMNS, schema)),
            begin=opt.instant(self.options, "begin", end=False),
            end=opt.instant(self.options, "end", end=True),
            isolation=isolation,
            on_error=on_error,
            access=opt.access(self.options),
            compat=self.options.get("compat"),
        )


class RecordReader(DataSourceReader):
    """Reads records as Arrow batches of exactly the declared schema."""

    def __init__(
        self,
        options: ReadOptions,
        wanted: Topics,
        first: Bound,
        last: Bound,
        *,
        piece_bytes: int,
        min_tasks: int | None,
    ) -> None:
        self.options = options
        self.topics = wanted
        self.first = first
        self.last = last
        self.piece_bytes = piece_bytes
        self.min_tasks = min_tasks
        self.filter = RecordFilter()

    def partitions(self) -> list[InputPartition]:
        """Cut what is wanted into tasks of about as many bytes each."""
        with self._with_filter().open() as logs:
            chosen = self.topics.choose(logs)
            for bound in (self.first, self.last):
                bound.check_names(chosen)
            wanted = [each for each in chosen if self.filter.takes(each)]
            bounds = [self._bounds(logs.log(each.topic, each.partition)) for each in wanted]
            tasks = plan(bounds, self.piece_bytes, self.min_tasks)
        # Without any, Spark would call `read` once all the same.
        return [LogTask(ranges) for ranges in tasks] or [LogTask(())]

    def _with_filter(self) -> ReadOptions:
        """Narrow the times asked for by option to those of the query."""
        begins = [time for time in (self.options.begin, self.filter.begin_ms) if time is not None]
        ends = [time for time in (self.options.end, self.filter.end_ms) if time is not None]
        return replace(self.options, begin=max(begins, default=None), end=min(ends, default=None))

    def _bounds(self, log: Log) -> tuple[Log, int, int]:
        committed = self.options.committed
        begin = max(self.first.resolve(log, committed=committed), self.filter.begin_offset, log.log_start_offset)
        end = min(self.last.resolve(log, committed=committed), self.filter.end_offset, log.log_end_offset)
        since = self._with_filter().begin
        if since is not None and begin < end:
            # The time indexes say where the first record of that time lies.
            parts = next(iter(log.parts(begin, end, since)), None)
            begin = end if parts is None or parts[1] is None else parts[1]
        return log, begin, end

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one task's records, in a worker."""
        if isinstance(partition, LogTask):
            yield from read_ranges(self._with_filter(), partition.ranges)


class PushdownRecordReader(RecordReader):
    """The same where Spark hands over the filters of a query; an error where the session did not turn that on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Narrow topics, partitions, offsets and times; Spark checks the rows that remain against all filters again."""
        self.filter, rest = RecordFilter.of(filters)
        return rest


def read_ranges(options: ReadOptions, ranges: tuple[OffsetRange, ...]) -> Iterator[Any]:
    """Read the records of some ranges as Arrow batches for Spark."""
    schema = arrow_schema(RECORD_COLUMNS, options.columns)
    lost = 0
    findings: list[Any] = []
    with options.open() as logs:
        for each in ranges:
            stream = _core.read_records(
                list(
                    logs.log(each.topic, each.partition).parts(
                        each.begin, each.end, options.begin, isolation=options.isolation
                    )
                ),
                begin=options.begin,
                end=options.end,
                # Without any column an Arrow batch has no number of rows.
                columns=options.columns or ("offset",),
                batch_size=_BATCH_ROWS,
                on_error=options.on_error,
            )
            # Not as an Arrow stream: an error is to arrive as what it is, and what was passed over to be told.
            for batch in map(pa.record_batch, stream):
                rows, out_of_range = lay_out(batch, schema)
                lost += out_of_range
                if rows.num_rows:
                    yield rows
            findings += stream.findings
    where = f"{options.directory}: {', '.join(map(str, ranges))}"
    warn_of_lost_instants(lost, where)
    for finding in findings:
        logger.warning("%s at byte %d: %s, found %s", finding.path, finding.offset, finding.kind, finding.found)
