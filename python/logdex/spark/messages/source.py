"""Format `rocketmq`: the messages of a store as a table, read from its log, or found through ids, index and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from logdex.rocketmq.layout import find_layout
from logdex.rocketmq.read import valid_messages
from logdex.spark import options as opt
from logdex.spark import workers
from logdex.spark.messages.filter import MessageFilter
from logdex.spark.messages.plan import Work
from logdex.spark.messages.read import LogReading, ReadOptions
from logdex.spark.schema import MESSAGE_COLUMNS, checked_schema, spark_schema
from logdex.spark.streams import SupportsTriggerAvailableNow, report_loss
from logdex.spark.workers import PARTITION_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from logdex.rocketmq import CommitLog

FORMAT = "rocketmq"
_POSITION = "phy_offset"
"""The offset of a stream is a position in the log: all messages that begin before it are done."""
_OPTIONS = (
    "path",
    "paths",
    "topic",
    "keys",
    "begin",
    "end",
    "columns",
    "pushdown",
    "commitLog",
    "minPartitions",
    "maxPartitionBytes",
    "startingOffset",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "failOnDataLoss",
    "access",
    "compat",
)


class MessagesSource(DataSource):
    """The data source behind `spark.read.format("rocketmq").load(store)`, and `readStream`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare all message columns, or those that the option `columns` names."""
        return spark_schema(MESSAGE_COLUMNS, opt.names(self.options, "columns"))

    def reader(self, schema: StructType) -> MessagesReader:
        """Plan a read; a schema given by the user chooses columns as the option does."""
        read = self._read_options(schema)
        return PushdownMessagesReader(read) if opt.takes_filters(self.options) else MessagesReader(read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Follow a log that grows."""
        return MessagesStreamReader(self._read_options(schema), stream_options(self.options))

    def _read_options(self, schema: StructType) -> ReadOptions:
        opt.check_names(self.options, _OPTIONS, FORMAT)
        root = opt.path(self.options, FORMAT)
        workers.require_directory(root)
        layout = find_layout(root, opt.directories(self.options, "commitLog"))
        return ReadOptions(
            layout,
            LogReading(
                layout.commit_log,
                tuple(checked_schema(MESSAGE_COLUMNS, schema)),
                access=opt.access(self.options),
                compat=opt.compat(self.options),
            ),
            MessageFilter.of_options(
                opt.texts(self.options, "topic"),
                opt.texts(self.options, "keys"),
                opt.instant(self.options, "begin", end=False),
                opt.instant(self.options, "end", end=True),
            ),
            # A broker's release has its own answers, which ids, index and queues do not give.
            pushdown=opt.pushdown(self.options) != "false" and opt.compat(self.options) is None,
            piece_bytes=opt.positive(self.options, "maxPartitionBytes") or PARTITION_BYTES,
            min_tasks=opt.positive(self.options, "minPartitions"),
        )


class MessagesReader(DataSourceReader):
    """Reads messages as Arrow batches of exactly the declared schema."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.filter = options.filter

    def partitions(self) -> list[InputPartition]:
        """Split what is wanted into tasks of about as many bytes each."""
        # Without any, Spark would call `read` once all the same.
        return [*self.options.tasks(self.filter, pushdown=self.options.pushdown)] or [Work(())]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one task's messages, in a worker."""
        if isinstance(partition, Work):
            yield from self.options.reading.rows(partition.pieces, self.filter)


class PushdownMessagesReader(MessagesReader):
    """The same where Spark hands over the filters of a query; an error where the session did not turn that on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Narrow what is read by the filters that help; Spark checks the rows against all of them again."""
        asked = list(filters)
        self.filter = self.filter.narrowed(asked)
        return asked


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    Attributes:
        starting: Position to start at: "earliest", "latest", or an offset in the log.
        max_bytes: The most bytes of log of a batch; None: all.
        max_rows: The most messages of a batch, before filters; None: all.
        fail_on_data_loss: Whether it is an error that messages are gone before they were read.
    """

    starting: str | int
    max_bytes: int | None
    max_rows: int | None
    fail_on_data_loss: bool


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream.

    Raises:
        ValueError: An option has no such value, or two of them limit a batch.
    """
    starting = options.get("startingOffset", "earliest").lower()
    if starting not in ("earliest", "latest") and not starting.isdecimal():
        msg = f"option startingOffset: {starting!r} is neither earliest nor latest nor an offset in the log"
        raise ValueError(msg)
    limits = {name: opt.positive(options, name) for name in ("maxBytesPerTrigger", "maxRowsPerTrigger")}
    if None not in limits.values():
        msg = f"give one of the options {', '.join(limits)}"
        raise ValueError(msg)
    return StreamOptions(
        int(starting) if starting.isdecimal() else starting,
        limits["maxBytesPerTrigger"],
        limits["maxRowsPerTrigger"],
        opt.flag(options, "failOnDataLoss", default=True),
    )


class MessagesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log: a batch is a range of it, so that what is read again after a restart is the same."""

    def __init__(self, options: ReadOptions, stream: StreamOptions) -> None:
        self.options = options
        self.stream = stream
        self.target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return the position that `startingOffset` means."""
        log = self.options.reading.open()
        starting = self.stream.starting
        if isinstance(starting, int):
            return {_POSITION: starting}
        return {_POSITION: log.min_offset if starting == "earliest" else log.max_offset}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the log, or less if a batch may not hold that much."""
        log = self.options.reading.open()
        end = log.max_offset if self.target is None else self.target
        if start is None:
            return {_POSITION: end}
        begin = start[_POSITION]
        if log.max_offset < begin:
            self._lost(f"the log ends at offset {log.max_offset}, and was read up to {begin}: it was cut off since")
        if end <= begin:
            return start
        return {_POSITION: _limited(log, begin, end, *_most(limit))}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return the end of the log, for the progress of the query."""
        return {_POSITION: self.options.reading.open().max_offset}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Return what a batch may hold at most."""
        from pyspark.sql.streaming import datasource as limits  # noqa: PLC0415 -- since pyspark 4.2

        if self.stream.max_bytes is not None:
            return limits.ReadMaxBytes(self.stream.max_bytes)
        return limits.ReadAllAvailable() if self.stream.max_rows is None else limits.ReadMaxRows(self.stream.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Remember where the log ends now: the query ends there."""
        self.target = self.options.reading.open().max_offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Split new messages into tasks."""
        begin, stop = start[_POSITION], end[_POSITION]
        log = self.options.reading.open()
        if begin < log.min_offset and begin < stop:
            self._lost(f"messages from offset {begin} to {min(stop, log.min_offset)} are gone: the log was expired")
        if begin >= stop:
            return []
        wanted = self.options.filter.with_bounds(_POSITION, begin, stop - 1)
        return [*self.options.tasks(wanted, pushdown=False)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's messages, in a worker."""
        if isinstance(partition, Work):
            yield from self.options.reading.rows(partition.pieces, self.options.filter)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the log is a broker's."""

    def _lost(self, what: str) -> None:
        report_loss(f"{self.options.reading.directory}: {what}", fail=self.stream.fail_on_data_loss)


def _most(limit: Any) -> tuple[int | None, int | None]:
    """Return the most bytes and rows of a batch, as the engine passes them."""
    return getattr(limit, "max_bytes", None), getattr(limit, "max_rows", None)


def _limited(log: CommitLog, begin: int, end: int, max_bytes: int | None, max_rows: int | None) -> int:
    """Return the offset of the first message that does not fit into a batch; the first one always fits."""
    if max_rows is None and (max_bytes is None or end - begin <= max_bytes):
        return end
    rows = 0
    found = valid_messages(log, ["phy_offset", "store_size"], begin, end, salvage=True, on_damage=lambda _: None)
    for batch in map(pa.record_batch, found):
        offsets, sizes = batch.columns
        full = batch.num_rows if max_rows is None else max_rows - rows
        if max_bytes is not None:
            is_behind = pc.greater(pc.add(offsets, sizes.cast(pa.int64())), begin + max_bytes)
            at = pc.index(is_behind, True).as_py()
            full = full if at < 0 else min(full, at)
        if not rows:
            full = max(full, 1)
        if full < batch.num_rows:
            return int(offsets[full].as_py())
        rows += batch.num_rows
    return end
