"""Which transactions of a log were aborted, and which are open: from the files beside the segments, or from the log itself."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from logdex.errors import CorruptFileError
from logdex.kafka.checkpoint import CLEAN_SHUTDOWN
from logdex.kafka.file_name import TXN_INDEX
from logdex.kafka.transactions import AbortedTransaction, Transactions, read_transaction_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.kafka.segments import Segments


def aborted_between(segments: Segments, begin: int, end: int) -> list[AbortedTransaction]:
    """Give the aborted transactions with records in [begin, end), by their markers' offsets.

    The marker of a transaction may lie many segments after its records, so all that follow are asked.
    """
    found: list[AbortedTransaction] = []
    for number in range(segments.floor(begin), len(segments.segments)):
        found += [
            entry for entry in _aborted_in(segments, number) if entry.last_offset >= begin and entry.first_offset < end
        ]
    return found


def aborted_by_segment(segments: Segments, begin: int) -> dict[int, list[AbortedTransaction]]:
    """Give the aborted transactions whose markers lie in the segment of an offset or behind it, for each segment by its number.

    A transaction stands with every segment between its first record and its marker. All segments are asked once, which is
    what a read of many needs.
    """
    found: dict[int, list[AbortedTransaction]] = {}
    bases = [segment.base_offset for segment in segments.segments]
    for number in range(segments.floor(begin), len(bases)):
        for entry in _aborted_in(segments, number):
            for held in range(max(0, bisect_right(bases, entry.first_offset) - 1), number + 1):
                found.setdefault(held, []).append(entry)
    return found


def _aborted_in(segments: Segments, number: int) -> list[AbortedTransaction]:
    listed: list[AbortedTransaction] | None = None
    if _is_believed(segments, number):
        path = segments.file(number, TXN_INDEX)
        listed = [] if path is None else read_transaction_index(path, segments.segments[number].base_offset)
    if listed is not None:
        return listed
    state = _state_at(segments, number)
    state.aborted.clear()
    state.read(segments.segments[number])
    return state.aborted


def unlisted(segments: Segments) -> Iterator[tuple[int, AbortedTransaction]]:
    """Give the transactions whose records a read-committed read would not leave out, each with the number of the segment.

    Their abort markers lie in the segment, and the file of aborted transactions that is believed there does not name them.
    """
    state = Transactions()
    for number, segment in enumerate(segments.segments):
        state.aborted.clear()
        state.read(segment)
        if not state.aborted or not _is_believed(segments, number):
            continue
        listed = {(entry.producer_id, entry.last_offset) for entry in _aborted_in(segments, number)}
        yield from ((number, entry) for entry in state.aborted if (entry.producer_id, entry.last_offset) not in listed)


def _is_believed(segments: Segments, number: int) -> bool:
    """Say whether the file of aborted transactions of a segment counts; that of the last one only after a clean stop."""
    return number + 1 < len(segments.segments) or _was_stopped_cleanly(segments)


def _was_stopped_cleanly(segments: Segments) -> bool:
    """Say whether the broker vouches for the files of the last segment; after a power loss they may lack entries."""
    return (segments.segments[-1].path.parent.parent / CLEAN_SHUTDOWN).exists()


def last_stable_offset(segments: Segments) -> int:
    """Give the offset below which every transaction has ended: the first one of an open transaction, or the end of the log."""
    if not segments.segments:
        return segments.log_end()
    state = _state_at(segments, len(segments.segments) - 1)
    state.read(segments.segments[-1])
    return min([*state.open.values(), segments.log_end()])


def _state_at(segments: Segments, number: int) -> Transactions:
    """Give the transactions that are open where a segment begins: of the last good snapshot before it, carried on from there."""
    for first in range(number, -1, -1):
        path = segments.listing.snapshots.get(segments.segments[first].base_offset)
        if path is None:
            continue
        try:
            state = Transactions.of_snapshot(path)
        except (CorruptFileError, FileNotFoundError):
            continue
        break
    else:
        first, state = 0, Transactions()
    for segment in segments.segments[first:number]:
        state.read(segment)
    return state
