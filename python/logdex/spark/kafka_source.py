"""Format `kafka_log`: the records of a Kafka log directory as a table, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from logdex._types import Isolation, OnError
from logdex.kafka import LogDir, TopicPartition
from logdex.spark import options as opt
from logdex.spark.kafka_offsets import (
    OFFSET_OPTIONS,
    TOPIC_OPTIONS,
    Bound,
    Topics,
    ending,
    latest,
    refuse_ending,
    starting,
    topics,
)
from logdex.spark.kafka_read import LogTask, ReadOptions, RecordFilter, earliest_of, latest_of, plan, read_ranges
from logdex.spark.schema import RECORD_COLUMNS, checked_schema, spark_schema
from logdex.spark.streams import SupportsTriggerAvailableNow, report_loss
from logdex.spark.workers import PARTITION_BYTES, require_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from logdex.kafka import Log

_Offsets = dict[TopicPartition, int]

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
# Options of a job over a live broker for its connections; only kafka.isolation.level chooses records.
_OF_BROKERS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")


class KafkaLogSource(DataSource):
    """The data source behind `spark.read.format("kafka_log").load(log_dir)`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or those of the option `columns`."""
        names = opt.names(self.options, "columns")
        if names is None:
            headers = opt.flag(self.options, "includeHeaders", default=False)
            names = tuple(name for name in RECORD_COLUMNS if headers or name != "headers")
        return spark_schema(RECORD_COLUMNS, names)

    def reader(self, schema: StructType) -> RecordReader:
        """Plan a read; a schema of the user chooses columns as the option does."""
        options = self._read_options(schema)
        # A stream may wait for the first topic. A batch over another directory would silently be empty.
        if not LogDir.exists_at(options.directory):
            raise ValueError(f"{options.directory}: no Kafka log directory, it holds no <topic>-<partition>")
        asked = (topics(self.options), starting(self.options), ending(self.options))
        size = opt.positive(self.options, "maxPartitionBytes") or PARTITION_BYTES
        reader = PushdownRecordReader if opt.takes_filters(self.options) else RecordReader
        return reader(options, *asked, piece_bytes=size, min_tasks=opt.positive(self.options, "minPartitions"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Follow growing logs."""
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
        for name, value, words in (("isolation", isolation, Isolation), ("onError", on_error, OnError)):
            if value not in get_args(words):
                raise ValueError(f"option {name}: {value!r} is not one of {', '.join(get_args(words))}")
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
        """Cut the wanted offsets into tasks of about as many bytes each."""
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
        """Return the options with the times of the query's filters."""
        begin = latest_of((self.options.begin, self.filter.begin_ms))
        return replace(self.options, begin=begin, end=earliest_of((self.options.end, self.filter.end_ms)))

    def _bounds(self, log: Log) -> tuple[Log, int, int]:
        committed = self.options.committed
        begin = max(self.first.resolve(log, committed=committed), self.filter.begin_offset, log.log_start_offset)
        end = min(self.last.resolve(log, committed=committed), self.filter.end_offset, log.log_end_offset)
        since = self._with_filter().begin
        if since is not None and begin < end:
            # The time indexes tell where the first record of that time is.
            parts = next(iter(log.parts(begin, end, since)), None)
            begin = end if parts is None or parts[1] is None else parts[1]
        return log, begin, end

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one task's records, in a worker."""
        if isinstance(partition, LogTask):
            yield from read_ranges(self._with_filter(), partition.ranges)


class PushdownRecordReader(RecordReader):
    """A reader that takes the filters of a query; an error if the session does not push filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Take the bounds of the filters; Spark checks the other filters on the rows that remain."""
        self.filter, rest = RecordFilter.of(filters)
        return rest


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the partitions of a log directory. The offsets of a batch have the form of Spark's own Kafka source."""

    def __init__(
        self,
        options: ReadOptions,
        wanted: Topics,
        first: Bound,
        *,
        piece_bytes: int,
        min_tasks: int | None,
        max_offsets: int | None,
        fail_on_data_loss: bool,
    ) -> None:
        self.options = options
        self.topics = wanted
        self.first = first
        self.piece_bytes = piece_bytes
        self.min_tasks = min_tasks
        self.max_offsets = max_offsets
        self.fail_on_data_loss = fail_on_data_loss
        self.target: _Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the offsets that the starting options mean."""
        with self.options.open() as logs:
            wanted = self.topics.choose(logs)
            self.first.check_names(wanted)
            committed = self.options.committed
            return _to_json({each: self.first.resolve(_log(logs, each), committed=committed) for each in wanted})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the ends of the logs, or lower offsets if a batch has a limit."""
        begins = _from_json(start or {})
        with self.options.open() as logs:
            self._check_ends(logs, begins)
            ends = self._ends(logs) if self.target is None else self.target
            # A new partition is read from its start.
            new = {each: _log(logs, each).log_start_offset for each in ends if start is not None and each not in begins}
        # A deleted or truncated partition ends where it was read to.
        ends = {**begins, **{each: max(end, begins.get(each, end)) for each, end in ends.items()}}
        most = _rows_of(limit, self.max_offsets)
        if most is not None and start is not None:
            ends = _limit({**new, **begins}, ends, most)
        return _to_json(ends)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Return the limit of the option `maxOffsetsPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415 -- since pyspark 4.2

        return ReadAllAvailable() if self.max_offsets is None else ReadMaxRows(self.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Store the current ends of the logs, where the query ends."""
        with self.options.open() as logs:
            self.target = self._ends(logs)

    def _ends(self, logs: LogDir) -> _Offsets:
        committed = self.options.committed
        return {each: latest(_log(logs, each), committed=committed) for each in self.topics.choose(logs)}

    def _check_ends(self, logs: LogDir, read: Mapping[TopicPartition, int]) -> None:
        """Report partitions that were deleted, or end before what was read."""
        there = set(logs.partitions())
        for each, offset in read.items():
            if each not in there:
                self._lost(f"{each} is gone, it was read up to offset {offset}")
            elif (end := _log(logs, each).log_end_offset) < offset:
                self._lost(f"{each} ends at offset {end}, and was read up to {offset}: it was cut off since")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the new offsets into tasks."""
        begins, ends = _from_json(start), _from_json(end)
        bounds = []
        with self.options.open() as logs:
            there = set(logs.partitions())
            for each, stop in sorted(ends.items()):
                if each not in there:
                    if begins.get(each, 0) < stop:
                        self._lost(f"{each} is gone, with the records up to offset {stop}")
                    continue
                log = _log(logs, each)
                first = log.log_start_offset
                begin = begins.get(each, first)
                if begin < min(first, stop):
                    self._lost(
                        f"{each}: the records from offset {begin} to {min(first, stop)} are gone, they were deleted"
                    )
                if log.log_end_offset < stop and begin < stop:
                    self._lost(f"{each} ends at offset {log.log_end_offset}, not at {stop}: it was cut off since")
                bounds.append((log, max(begin, first), stop))
            return [LogTask(ranges) for ranges in plan(bounds, self.piece_bytes, self.min_tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's records, in a worker."""
        if isinstance(partition, LogTask):
            yield from read_ranges(self.options, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the logs belong to a broker."""

    def _lost(self, what: str) -> None:
        report_loss(f"{self.options.directory}: {what}", fail=self.fail_on_data_loss)


def _log(logs: LogDir, partition: TopicPartition) -> Log:
    return logs.log(partition.topic, partition.partition)


def _to_json(offsets: _Offsets) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def _from_json(offsets: dict[str, Any]) -> _Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _rows_of(limit: Any, given: int | None) -> int | None:
    """Return the most rows of a batch: the engine's limit, or else the option."""
    if limit is None:
        return given
    rows: int | None = getattr(limit, "max_rows", None)
    return rows


def _limit(begins: _Offsets, ends: _Offsets, most: int) -> _Offsets:
    """Share the rows of a batch among partitions in proportion to what each has; each gets at least one."""
    waiting = {each: max(0, end - begins.get(each, 0)) for each, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return ends
    shares = {each: min(count, max(1, count * most // total)) if count else 0 for each, count in waiting.items()}
    return {each: min(end, begins.get(each, 0) + shares[each]) for each, end in ends.items()}
