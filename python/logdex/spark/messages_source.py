"""Format `rocketmq`: the messages of a store as a table, read from its log, or found through ids, index and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from logdex._types import MAX_INT64
from logdex.rocketmq.layout import find_layout
from logdex.spark import options as opt
from logdex.spark import workers
from logdex.spark.message_filter import MessageFilter
from logdex.spark.message_plan import MessagePlan
from logdex.spark.message_rows import LogReading
from logdex.spark.message_work import Work
from logdex.spark.schema import MESSAGE_COLUMNS, checked_schema, spark_schema
from logdex.spark.workers import PARTITION_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from logdex.rocketmq.layout import StoreLayout

FORMAT = "rocketmq"
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
        """Give the name for `format`."""
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
        from logdex.spark.messages_stream import MessagesStreamReader, stream_options  # noqa: PLC0415 -- imports this module

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


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the options of a read say.

    Attributes:
        layout: Where the store's parts lie.
        reading: What workers need to know.
        filter: What is wanted.
        pushdown: Whether ids, index and queues are asked, or ranges of the log read.
        piece_bytes: The most bytes of a task, about.
        min_tasks: The least number of tasks; None: as few as the bytes allow.
    """

    layout: StoreLayout
    reading: LogReading
    filter: MessageFilter
    pushdown: bool
    piece_bytes: int = PARTITION_BYTES
    min_tasks: int | None = None

    def tasks(self, wanted: MessageFilter, *, pushdown: bool) -> list[Work]:
        """Cut what is wanted into tasks."""
        plan = MessagePlan(self.layout, self.reading.open(), wanted)
        # What a broker's walk would pass over must stay whole files, or a cut would go on behind its end.
        piece_bytes = self.piece_bytes if self.reading.compat is None else MAX_INT64
        return plan.tasks(piece_bytes, self.min_tasks, pushdown=pushdown)


class MessagesReader(DataSourceReader):
    """Reads messages as Arrow batches of exactly the declared schema."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.filter = options.filter

    def partitions(self) -> list[InputPartition]:
        """Cut what is wanted into tasks of about as many bytes each."""
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
