"""Format `rocketmq`: the messages of a store as a table, one partition per commit-log file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from logdex.spark import files
from logdex.spark import options as opt
from logdex.spark.message_filter import MessageFilter
from logdex.spark.schema import (
    MESSAGE_COLUMNS,
    arrow_schema,
    checked_schema,
    lay_out,
    record_batches,
    spark_schema,
    warn_of_lost_instants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from logdex.rocketmq import CommitLog

logger = logging.getLogger("logdex.spark")

FORMAT = "rocketmq"
_OPTIONS = ("path", "paths", "topic", "keys", "begin", "end", "columns", "pushdown", "access", "compat")


class MessagesSource(DataSource):
    """The data source behind `spark.read.format("rocketmq").load(store)`.

    Options: `topic` and `keys` (one text, or a JSON array of texts), `begin` and `end` (store time, inclusive, in
    milliseconds or ISO 8601 with a zone), `columns` (comma-separated), `pushdown` (`auto`, `true`, `false`), `access`, `compat`.
    """

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare all message columns, or those that the option `columns` names."""
        return spark_schema(MESSAGE_COLUMNS, opt.names(self.options, "columns"))

    def reader(self, schema: StructType) -> MessagesReader:
        """Plan a read; a schema given by the user chooses columns as the option does."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        opt.pushdown(self.options)
        directory = files.commit_log_directory(opt.path(self.options, FORMAT))
        message_filter = MessageFilter(
            topics=opt.texts(self.options, "topic"),
            keys=opt.texts(self.options, "keys"),
            begin_ms=opt.instant(self.options, "begin", end=False),
            end_ms=opt.instant(self.options, "end", end=True),
        )
        return MessagesReader(
            str(directory),
            checked_schema(MESSAGE_COLUMNS, schema),
            message_filter,
            access=opt.access(self.options),
            compat=opt.compat(self.options),
        )


@dataclass(frozen=True)
class LogRange(InputPartition):
    """The part of the log that one task reads: commit-log offsets [begin, end), None for the end of the log."""

    begin: int
    end: int | None


class MessagesReader(DataSourceReader):
    """Reads messages as Arrow batches of exactly the declared schema."""

    def __init__(
        self,
        directory: str,
        columns: list[str],
        message_filter: MessageFilter,
        *,
        access: opt.Access,
        compat: opt.Compat,
    ) -> None:
        self.directory = directory
        self.columns = columns
        self.filter = message_filter
        self.access = access
        self.compat = compat

    def partitions(self) -> list[InputPartition]:
        """Make one partition of each file of the log."""
        log = files.commit_log(self.directory, access=self.access, compat=self.compat)
        return [LogRange(begin, end) for begin, end in files.log_ranges(log)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one part of the log, in a worker."""
        if not isinstance(partition, LogRange):
            return
        log = files.commit_log(self.directory, access=self.access, compat=self.compat)
        schema = arrow_schema(MESSAGE_COLUMNS, self.columns)
        needed = list(dict.fromkeys([*self.columns, *self.filter.columns, "phy_offset"]))
        stream = log.scan(begin_phy_offset=partition.begin, end_phy_offset=partition.end, columns=needed)
        lost, last_message = 0, partition.begin
        for batch in record_batches(stream):
            if batch.num_rows:
                last_message = batch.column("phy_offset")[-1].as_py()
            rows, out_of_range = lay_out(self.filter.apply(batch), schema)
            lost += out_of_range
            if rows.num_rows:
                yield rows
        warn_of_lost_instants(lost, f"{self.directory}, offsets {partition.begin}..{partition.end}")
        if partition.end is not None and _is_broken_off(log, last_message, partition.end):
            logger.warning(
                "%s: what follows the message at offset %d is damaged; a sequential scan would end there, Spark goes on at %d",
                self.directory,
                last_message,
                partition.end,
            )


def _is_broken_off(log: CommitLog, last_message: int, next_file: int) -> bool:
    """Tell whether a file of the log ends before its time: its walk does not lead to the next file, which has messages."""
    walked = record_batches(log.scan(begin_phy_offset=last_message, columns=["phy_offset"], batch_size=2))
    batch = next(iter(walked), None)
    if batch is not None and batch.num_rows and batch.column("phy_offset")[-1].as_py() >= next_file:
        return False
    following = record_batches(log.scan(begin_phy_offset=next_file, columns=["phy_offset"], batch_size=1))
    return any(batch.num_rows for batch in following)
