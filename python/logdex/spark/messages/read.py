"""Reading the pieces of a task in a worker: rows of exactly the declared columns."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex import _core
from logdex._types import MAX_INT64
from logdex.rocketmq.read import valid_messages
from logdex.spark import workers
from logdex.spark.messages.plan import LogPiece, MessagePlan, OffsetsPiece
from logdex.spark.schema import MESSAGE_COLUMNS, arrow_schema, lay_out, warn_of_lost_instants
from logdex.spark.workers import PARTITION_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex._types import Access, Compat
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.spark.messages.filter import MessageFilter
    from logdex.spark.messages.plan import Piece, QueuePiece, Work

logger = logging.getLogger("logdex.spark")


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a worker needs to know besides its pieces.

    Attributes:
        directory: The directory of the log.
        columns: Names of columns, in the order declared.
        access: How files are read.
        compat: A broker's release; each piece then ends at the first frame that the broker would refuse.
    """

    directory: str
    columns: tuple[str, ...]
    access: Access = "auto"
    compat: Compat | None = None

    def open(self) -> CommitLog:
        """Open the log, or return the one that this process has open.

        Raises:
            FileNotFoundError: It is not there; the message names the machine.
        """
        return workers.commit_log(self.directory, access=self.access, compat=self.compat)

    def rows(self, pieces: Sequence[Piece], wanted: MessageFilter) -> Iterator[Any]:
        """Read pieces as Arrow batches for Spark."""
        if not pieces:
            return
        log = self.open()
        schema = arrow_schema(MESSAGE_COLUMNS, self.columns)
        lost = 0
        for piece in pieces:
            for batch in map(pa.record_batch, self._batches(log, piece, wanted)):
                rows, out_of_range = lay_out(wanted.apply(batch), schema)
                lost += out_of_range
                if rows.num_rows:
                    yield rows
        warn_of_lost_instants(lost, self.directory)

    def _read(self, wanted: MessageFilter) -> list[str]:
        """Return the columns to read; a batch without columns would lose its number of rows."""
        return list(dict.fromkeys([*self.columns, *wanted.columns, "phy_offset"]))

    def _batches(self, log: CommitLog, piece: Piece, wanted: MessageFilter) -> Iterator[Any]:
        if isinstance(piece, LogPiece):
            yield from self._scanned(log, piece.begin, piece.end, wanted)
        elif isinstance(piece, OffsetsPiece):
            yield from log.message_batches(piece.offsets, columns=self._read(wanted), selection=wanted.selection())
        else:
            yield from self._queued(log, piece, wanted)

    def _scanned(self, log: CommitLog, begin: int, end: int, wanted: MessageFilter) -> Iterator[Any]:
        """Read a range of the log, also behind damage unless a broker's release is asked for."""
        selection = wanted.selection()
        if self.compat is None:
            yield from valid_messages(log, self._read(wanted), begin, end, salvage=True, selection=selection)
            return
        reader = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=self._read(wanted), selection=selection)
        yield from reader
        at = reader.end_offset
        if at is not None and at < end and _has_messages(log, end):
            logger.warning(
                "%s: offset %d is damaged; a sequential scan would end there, Spark goes on at %d",
                self.directory,
                at,
                end,
            )

    def _queued(self, log: CommitLog, piece: QueuePiece, wanted: MessageFilter) -> Iterator[Any]:
        """Read the messages of a part of a queue; if the queue is damaged, the rest is read from the log."""
        with _core.ConsumeQueue.open(piece.path) as queue:
            reader = _core.QueueReader(
                log,
                [(piece.topic, piece.queue_id, queue, piece.first, piece.last)],
                begin_phy_offset=piece.begin,
                end_phy_offset=piece.end,
                columns=self._read(wanted),
                selection=wanted.selection(),
            )
            yield from reader
        if reader.fault is not None:
            at = reader.position
            logger.warning("%s; the log is read instead, from offset %d to %d", reader.fault, at, piece.end)
            mine = wanted.with_values("topic", [piece.topic]).with_values("queue_id", [piece.queue_id])
            yield from self._scanned(log, at, piece.end, mine)


def _has_messages(log: CommitLog, begin: int) -> bool:
    """Return whether a walk finds a message at or behind an offset."""
    return any(batch.num_rows for batch in log.scan(begin_phy_offset=begin, columns=["phy_offset"], batch_size=1))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

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
        """Split what is wanted into tasks."""
        plan = MessagePlan(self.layout, self.reading.open(), wanted)
        # A broker's walk ends at damage, so a file must not be split behind it.
        piece_bytes = self.piece_bytes if self.reading.compat is None else MAX_INT64
        return plan.tasks(piece_bytes, self.min_tasks, pushdown=pushdown)
