"""Transactions of a log: which were aborted, which are still open, and so how far a read-committed consumer gets.

The `.txnindex` of a segment lists the transactions whose abort marker lies in it. Where that file cannot be believed, the
markers themselves are read. Source: TransactionIndex#collectAbortedTxns, ProducerStateManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from logdex import _core
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.kafka.segment import LogSegment

_SCAN = ("baseOffset", "producerId", "isTransactional", "isControl", "controlTypes", "count")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        producer_id: Whose it was.
        first_offset: Offset of its first record in this partition.
        last_offset: Offset of its abort marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Transactions:
    """The transactions that are open at some point of a log, carried on by reading the headers of batches.

    Attributes:
        open: First offset of the open transaction of each producer.
        aborted: Those that ended with an abort marker on the way.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @classmethod
    def of_snapshot(cls, path: Path) -> Transactions:
        """Begin with what a producer snapshot says.

        Raises:
            CorruptFileError: The snapshot is damaged.
        """
        rows = _core.read_producer_snapshot(path)
        producers = rows.column("producerId").to_pylist()
        firsts = rows.column("currentTxnFirstOffset").to_pylist()
        return cls({producer: first for producer, first in zip(producers, firsts, strict=True) if first is not None})

    def read(self, segment: LogSegment) -> None:
        """Carry the state on over a segment, up to the first damage in it."""
        for batch in segment.batches(columns=_SCAN, check_crc=False, on_error="stop"):
            columns = (batch.column(name).to_pylist() for name in _SCAN)
            for base_offset, producer, transactional, control, types, count in zip(*columns, strict=True):
                # What compaction emptied holds nothing that a transaction could take back.
                if transactional and count:
                    self._see(base_offset, producer, types if control else None)

    def _see(self, base_offset: int, producer: int, markers: list[str] | None) -> None:
        if markers is None:
            self.open.setdefault(producer, base_offset)
            return
        for marker in markers:
            first = self.open.pop(producer, None)
            if marker == "ABORT" and first is not None:
                self.aborted.append(AbortedTransaction(producer, first, base_offset))


def read_transaction_index(path: Path, base_offset: int) -> list[AbortedTransaction] | None:
    """Read a `.txnindex`; None where it cannot be believed: a torn entry, or one that ends before its segment begins.

    Args:
        path: The file; where it is not there, nothing was aborted.
        base_offset: The segment's.
    """
    if not path.exists():
        return []
    try:
        rows, torn = _core.read_transaction_index(path)
    except CorruptFileError:
        return None
    names = ("producerId", "firstOffset", "lastOffset")
    found = [AbortedTransaction(*row) for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True)]
    if torn or any(entry.last_offset < base_offset or entry.first_offset > entry.last_offset for entry in found):
        return None
    return found
