"""Reading the pieces of a task, in a worker: rows of exactly the declared columns, filtered."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex import _core
from logdex.rocketmq.read import valid_messages
from logdex.spark import workers
from logdex.spark.message_filter import MessageFilter
from logdex.spark.message_work import LogPiece, OffsetsPiece, is_true
from logdex.spark.schema import MESSAGE_COLUMNS, arrow_schema, lay_out, record_batches, warn_of_lost_instants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex._types import Access, Compat
    from logdex.rocketmq import CommitLog
    from logdex.spark.message_work import Piece, QueuePiece

logger = logging.getLogger("logdex.spark")

_UNITS_A_STEP = 8_192
FACTS = ("topic", "queue_id", "queue_offset", "phy_offset")
_STEP_BYTES = 64 << 20
_OFFSETS_A_STEP = 256


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
        """Open the log, or give the one that this process has open.

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
        # Where no message begins the other columns of a look-up are null.
        needed = list(dict.fromkeys([*self.columns, *wanted.columns, "topic", "phy_offset"]))
        lost = 0
        for piece in pieces:
            for batch in self._batches(log, piece, needed, wanted):
                rows, out_of_range = lay_out(batch, schema)
                lost += out_of_range
                if rows.num_rows:
                    yield rows
        warn_of_lost_instants(lost, self.directory)

    def _batches(self, log: CommitLog, piece: Piece, needed: list[str], wanted: MessageFilter) -> Iterator[Any]:
        if isinstance(piece, LogPiece):
            found = self._scanned(log, piece.begin, piece.end, needed)
        elif isinstance(piece, OffsetsPiece):
            found = _at(log, piece.offsets, needed)
        else:
            found = self._queued(log, piece, needed)
        for batch in found:
            yield wanted.apply(batch)

    def _scanned(self, log: CommitLog, begin: int, end: int, needed: list[str]) -> Iterator[Any]:
        """Read a range of the log, also behind damage unless a broker's release is asked for."""
        last_message = begin
        for batch in map(pa.record_batch, valid_messages(log, needed, begin, end, salvage=self.compat is None)):
            last_message = batch.column("phy_offset")[-1].as_py()
            yield batch
        if self.compat is not None and _is_broken_off(log, last_message, end):
            logger.warning(
                "%s: what follows the message at offset %d is damaged; a sequential scan would end there, Spark goes on at %d",
                self.directory,
                last_message,
                end,
            )

    def _queued(self, log: CommitLog, piece: QueuePiece, needed: list[str]) -> Iterator[Any]:
        """Read what the units of a queue lead to; once a unit turns out to be untrue, the rest of the log's range instead."""
        needed = list(dict.fromkeys([*needed, *FACTS]))
        at = piece.begin
        for batch in _led_to(log, piece, needed):
            if batch is None:
                break
            yield batch
            at = batch.column("phy_offset")[-1].as_py() + 1
        else:
            return
        logger.warning("%s: damaged; the log is read instead, from offset %d to %d", piece.path, at, piece.end)
        mine = MessageFilter().with_values("topic", [piece.topic]).with_values("queue_id", [piece.queue_id])
        for batch in self._scanned(log, at, piece.end, needed):
            yield mine.apply(batch)


def _led_to(log: CommitLog, piece: QueuePiece, needed: list[str]) -> Iterator[Any]:
    """Give the messages that the units of a piece lead to; None, at the end, where a unit is missing or untrue."""
    last = piece.begin - 1
    for units in _steps(log, piece):
        offsets = [offset for offset, _ in units or ()]
        if units is None or any(after <= before for before, after in pairwise([last, *offsets])):
            yield None
            return
        rest = iter(units)
        for batch in map(pa.record_batch, log.message_batches(offsets, columns=needed)):
            if not _are_true(batch, list(islice(rest, batch.num_rows)), piece):
                yield None
                return
            yield batch
        last = offsets[-1]


def _at(log: CommitLog, offsets: Sequence[int], needed: list[str]) -> Iterator[Any]:
    for first in range(0, len(offsets), _OFFSETS_A_STEP):
        step = offsets[first : first + _OFFSETS_A_STEP]
        for batch in map(pa.record_batch, log.message_batches(step, columns=needed)):
            yield batch.filter(batch.column("topic").is_valid())


def _steps(log: CommitLog, piece: QueuePiece) -> Iterator[list[tuple[int, int]] | None]:
    """Give the units of a piece as (phy_offset, queue_offset), as many at once as memory may hold messages.

    None, at the end, where units are missing, or lead elsewhere so that a message of the piece would be passed over.
    """
    with _core.ConsumeQueue.open(piece.path) as queue:
        before: tuple[int, int] | None = None
        for first in range(piece.first, piece.last, _UNITS_A_STEP):
            last = min(piece.last, first + _UNITS_A_STEP)
            units = queue.units(first, last)
            columns: list[Any] = [units.column(name).to_pylist() for name in ("phy_offset", "size", "queue_offset")]
            step: list[tuple[int, int]] = []
            size = 0
            for phy_offset, unit_size, queue_offset in zip(*columns, strict=True):
                unit = (phy_offset, queue_offset)
                if before is not None and not _follows(log, piece, before, unit):
                    yield None
                    return
                before = unit
                if not piece.begin <= phy_offset < piece.end:
                    continue
                step.append(unit)
                size += unit_size
                if size >= _STEP_BYTES:
                    yield step
                    step, size = [], 0
            if step:
                yield step
            if columns[2] != list(range(first, last)):
                yield None
                return
        if before is not None and not _may_be_last(log, piece, before):
            yield None


def _follows(log: CommitLog, piece: QueuePiece, before: tuple[int, int], unit: tuple[int, int]) -> bool:
    """Tell whether a unit leads further on than the one before, and that one not past a message of the piece."""
    begins = before[0] < piece.begin <= unit[0]
    return unit[0] > before[0] and (not begins or _may_be_last(log, piece, before))


def _may_be_last(log: CommitLog, piece: QueuePiece, unit: tuple[int, int]) -> bool:
    """Tell whether a unit that is passed over does lead to a message that is none of the piece."""
    inside = piece.begin <= unit[0] < piece.end
    return inside or unit[0] < log.min_offset or is_true(log, piece, *unit)


def _are_true(batch: Any, units: list[tuple[int, int]], piece: QueuePiece) -> bool:
    """Tell whether each unit led to its message, and each to one further on."""
    said = [(piece.topic, piece.queue_id, queue_offset, phy_offset) for phy_offset, queue_offset in units]
    return list(zip(*(batch.column(name).to_pylist() for name in FACTS), strict=True)) == said


def _is_broken_off(log: CommitLog, last_message: int, end: int) -> bool:
    """Tell whether a range of the log ends before its time: its walk does not lead to what follows, where there are messages."""
    walked = record_batches(log.scan(begin_phy_offset=last_message, columns=["phy_offset"], batch_size=2))
    batch = next(iter(walked), None)
    if batch is not None and batch.num_rows and batch.column("phy_offset")[-1].as_py() >= end:
        return False
    following = record_batches(log.scan(begin_phy_offset=end, columns=["phy_offset"], batch_size=1))
    return any(batch.num_rows for batch in following)
