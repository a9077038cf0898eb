"""A read of messages: its options, and the rows that a worker reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex import _core
from logdex._types import MAX_INT64
from logdex.rocketmq.read import valid_messages
from logdex.spark import workers
from logdex.spark.log_source import TaskSize
from logdex.spark.messages.plan import LogPiece, MessagePlan, OffsetsPiece
from logdex.spark.schema import MESSAGE_COLUMNS, spark_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex._types import Access, Compat
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.spark.log_source import Task
    from logdex.spark.messages.filter import MessageFilter
    from logdex.spark.messages.plan import Piece, QueuePiece

logger = logging.getLogger("logdex.spark")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        layout: Paths of the store's parts.
        columns: Names of columns, in the order declared.
        wanted: The messages to read.
        size: How the read is cut into tasks.
        pushdown: Whether ids, index and queues choose what is read, and not only ranges of the log.
        access: How files are read.
        compat: A broker's release; each piece then ends at the first frame that the broker would refuse.
    """

    layout: StoreLayout
    columns: tuple[str, ...]
    wanted: MessageFilter
    size: TaskSize
    pushdown: bool
    access: Access = "auto"
    compat: Compat | None = None

    @property
    def directory(self) -> str:
        """The directory of the log."""
        return self.layout.commit_log

    def open(self) -> CommitLog:
        """Open the log, or return the one that this process has open."""
        return workers.commit_log(self.directory, access=self.access, compat=self.compat)

    def tasks(self) -> list[Task]:
        """Split what is wanted into tasks."""
        # A broker's walk ends at damage, so a file must not be split behind it.
        size = self.size if self.compat is None else TaskSize(MAX_INT64, self.size.min_tasks)
        return MessagePlan(self.layout, self.open(), self.wanted).tasks(size, pushdown=self.pushdown)

    def rows(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        """Read pieces as Arrow batches for Spark, in a worker."""
        if pieces:
            log = self.open()
            batches = (self.wanted.apply(pa.record_batch(b)) for each in pieces for b in self._batches(log, each))
            yield from spark_batches(batches, MESSAGE_COLUMNS, self.columns, self.directory)

    @property
    def _read_columns(self) -> list[str]:
        """The columns to read; a batch without columns would lose its number of rows."""
        return list(dict.fromkeys([*self.columns, *self.wanted.columns, "phy_offset"]))

    def _batches(self, log: CommitLog, piece: Piece) -> Iterator[Any]:
        if isinstance(piece, LogPiece):
            yield from self._scanned(log, piece.begin, piece.end, self.wanted)
        elif isinstance(piece, OffsetsPiece):
            selection = self.wanted.selection()
            yield from log.message_batches(piece.offsets, columns=self._read_columns, selection=selection)
        else:
            yield from self._queued(log, piece)

    def _scanned(self, log: CommitLog, begin: int, end: int, wanted: MessageFilter) -> Iterator[Any]:
        """Read a range of the log, also behind damage unless a broker's release is asked for."""
        columns, selection = self._read_columns, wanted.selection()
        if self.compat is None:
            yield from valid_messages(log, columns, begin, end, salvage=True, selection=selection)
            return
        reader = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=columns, selection=selection)
        yield from reader
        at = reader.end_offset
        # Damage, not the end of the log: a walk still finds a message from `end` on.
        if (
            at is not None
            and at < end
            and any(batch.num_rows for batch in log.scan(begin_phy_offset=end, columns=["phy_offset"], batch_size=1))
        ):
            message = "%s: offset %d is damaged; a sequential scan would end there, Spark goes on at %d"
            logger.warning(message, self.directory, at, end)

    def _queued(self, log: CommitLog, piece: QueuePiece) -> Iterator[Any]:
        """Read the messages of a part of a queue; if the queue is damaged, the rest is read from the log."""
        with _core.ConsumeQueue.open(piece.path) as queue:
            reader = _core.QueueReader(
                log,
                [(piece.topic, piece.queue_id, queue, piece.first, piece.last)],
                begin_phy_offset=piece.begin,
                end_phy_offset=piece.end,
                columns=self._read_columns,
                selection=self.wanted.selection(),
            )
            yield from reader
        if reader.fault is not None:
            at = reader.position
            logger.warning("%s; the log is read instead, from offset %d to %d", reader.fault, at, piece.end)
            mine = self.wanted.with_values("topic", [piece.topic]).with_values("queue_id", [piece.queue_id])
            yield from self._scanned(log, at, piece.end, mine)
