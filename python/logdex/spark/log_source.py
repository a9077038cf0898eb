"""The common part of the formats of logs: tasks of about as many bytes each, readers of a batch, and readers of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from logdex.errors import LogdexError
from logdex.report import Finding
from logdex.spark import options as opt
from logdex.spark.damage import DamageReports

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ModuleNotFoundError:  # before pyspark 4.2, which has no such class

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces the class that this Spark lacks."""


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from logdex.report import Damage
    from logdex.spark.damage import Address


LOG_OPTIONS = (
    "begin",
    "end",
    "columns",
    "decode",
    "pushdown",
    "minPartitions",
    "maxPartitionBytes",
    "failOnDataLoss",
    "access",
    "compat",
    *opt.MATCHES_OPTIONS,
)
"""Options of both formats."""

_PARTITION_BYTES = 128 << 20
"""Bytes of log that a task reads by default, as for Spark's own files."""


@dataclass(frozen=True)
class Task(InputPartition):
    """The part of the log that one task reads."""

    pieces: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The most bytes for a task, about; and the smallest number of tasks if the log can be cut into as many. None: no minimum."""

    max_bytes: int
    min_tasks: int | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> TaskSize:
        """Return the values of `maxPartitionBytes` and `minPartitions`."""
        max_bytes = opt.positive(options, "maxPartitionBytes") or _PARTITION_BYTES
        return cls(max_bytes, opt.positive(options, "minPartitions"))

    def task_bytes(self, total: int) -> int:
        """Return the limit of bytes for one task of a read of this many bytes in total."""
        return self.max_bytes if self.min_tasks is None else max(1, min(self.max_bytes, -(-total // self.min_tasks)))


def pack(pieces: Iterable[Any], most: int) -> list[tuple[Any, ...]]:
    """Group pieces with a `size`, in their order, into tasks of at most `most` bytes; a larger piece is a task of its own."""
    tasks: list[list[Any]] = []
    size = 0
    for piece in pieces:
        if not tasks or size + piece.size > most:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return [tuple(task) for task in tasks]


class LogSource(DataSource):
    """A data source that reports the damage of its reads."""

    driver: ClassVar[Address | None] = None
    """The address at which the user's program listens; `register` sets it."""

    @property
    def reports(self) -> DamageReports:
        """The settings of damage reports of a read."""
        return DamageReports(opt.flag(self.options, "failOnDataLoss", default=True), self.driver)


@dataclass(frozen=True)
class SeveralReads:
    """Reads of several directories, one after the other; each task belongs to one of them."""

    reads: Sequence[Any]

    @classmethod
    def of(cls, reads: Sequence[Any]) -> Any:
        """Return the reads as one."""
        return reads[0] if len(reads) == 1 else cls(reads)

    def tasks(self, damage: Damage) -> list[Task]:
        """Return the tasks of each read, with its number."""
        return [Task((number, task.pieces)) for number, read in enumerate(self.reads) for task in read.tasks(damage)]

    def rows(self, pieces: tuple[Any, ...], damage: Damage) -> Iterator[Any]:
        """Read the rows of one task, in a worker."""
        if pieces:
            number, own = pieces
            yield from self.reads[number].rows(own, damage)


class LogReader(DataSourceReader):
    """Reads a log as Arrow batches of exactly the declared schema."""

    def __init__(self, options: Any, reports: DamageReports) -> None:
        """Take a read: `options.tasks(damage)` cuts it on the driver, `options.rows(pieces, damage)` reads a task in a worker."""
        self.options = options
        self.reports = reports

    def partitions(self) -> list[InputPartition]:
        """Cut what is wanted into tasks of about as many bytes each."""
        with self.reports.collect() as damage:
            # Without any, Spark would call `read` once all the same.
            return [*self.options.tasks(damage)] or [Task(())]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read the rows of one task, in a worker."""
        if isinstance(partition, Task):
            with self.reports.collect() as damage:
                yield from self.options.rows(partition.pieces, damage)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one batch of a stream after the other."""

    options: Any
    reports: DamageReports

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of one task, in a worker."""
        yield from LogReader(self.options, self.reports).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the log belongs to a broker."""

    def report_loss(self, what: str) -> None:
        """Report data that was gone before the stream read it: as an error, or as a warning with failOnDataLoss=false.

        Raises:
            LogdexError: The option `failOnDataLoss` is not false.
        """
        if self.reports.fail_on_data_loss:
            directory = self.options.directory
            raise LogdexError(f"{directory}: {what}; the option failOnDataLoss=false continues with what is left")
        with self.reports.collect() as damage:
            damage.add(Finding(self.options.directory, 0, "file-gap", "all that the stream has not read", what))
