"""The transactions of a log: which were aborted, which are open, and so how far a read-committed consumer gets.

The `.txnindex` of a segment lists the transactions whose abort markers are in that segment. If the file cannot be trusted, the
markers themselves are read. Source: TransactionIndex#collectAbortedTxns, ProducerStateManager.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from logdex._core import ProducerState, aborted_transactions
from logdex.errors import CorruptFileError
from logdex.kafka.checkpoint import CLEAN_SHUTDOWN
from logdex.kafka.files import TXN_INDEX
from logdex.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.kafka.segments import Segments


class AbortedTransaction(NamedTuple):
    """An aborted transaction: from its first record in this partition to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_between(segments: Segments, begin: int, end: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [begin, end), in the order of their markers.

    A marker may be many segments after its transaction's records, so all later segments are asked.
    """
    numbers = range(segments.index_of(begin), len(segments.segments))
    listed = (entry for number in numbers for entry in _aborted_in(segments, number))
    return [entry for entry in listed if entry.last_offset >= begin and entry.first_offset < end]


def aborted_by_segment(segments: Segments, begin: int) -> dict[int, list[AbortedTransaction]]:
    """Return, for each segment by its number, the aborted transactions that may have records in it.

    Each segment from that of `begin` on is asked once. A transaction is named with every segment from its first record to its
    marker.
    """
    found: dict[int, list[AbortedTransaction]] = {}
    bases = [segment.base_offset for segment in segments.segments]
    for number in range(segments.index_of(begin), len(bases)):
        for entry in _aborted_in(segments, number):
            for held in range(max(0, bisect_right(bases, entry.first_offset) - 1), number + 1):
                found.setdefault(held, []).append(entry)
    return found


def _aborted_in(segments: Segments, number: int) -> list[AbortedTransaction]:
    segment = segments.segments[number]
    aborted = None
    if _is_trusted(segments, number):
        path = segments.file(number, TXN_INDEX)
        aborted = [] if path is None else aborted_transactions(path, segment.base_offset)
    if aborted is None:
        aborted = segment.aborted_transactions(_producers_at(segments, number))
    return [*map(AbortedTransaction._make, aborted)]


def unlisted(segments: Segments) -> Iterator[Finding]:
    """Name a transaction that a missing or shortened index does not list, once for each trusted index."""
    producers = ProducerState()
    for number, segment in enumerate(segments.segments):
        aborted = [*map(AbortedTransaction._make, segment.aborted_transactions(producers))]
        if not aborted or not _is_trusted(segments, number):
            continue
        listed = {(entry.producer_id, entry.last_offset) for entry in _aborted_in(segments, number)}
        missing = next((each for each in aborted if (each.producer_id, each.last_offset) not in listed), None)
        if missing is None:
            continue
        path = segment.path.with_suffix(TXN_INDEX)
        what = f"the transaction of producer {missing.producer_id} that was aborted at offset {missing.last_offset}"
        if path.exists():
            yield Finding(str(path), path.stat().st_size, "index-entry", what, "no entry")
        else:
            yield Finding(str(path), 0, "file-missing", f"an index with {what}", "none")


def _is_trusted(segments: Segments, number: int) -> bool:
    """Return whether a segment's index of aborted transactions counts; the last segment's only after a clean stop."""
    if not segments.is_last(number):
        return True
    # After a power loss the index may lack entries.
    return (segments.segments[-1].path.parent.parent / CLEAN_SHUTDOWN).exists()


def last_stable_offset(segments: Segments) -> int:
    """Return the offset below which every transaction has ended: that of the first open transaction, or the log's end."""
    end = segments.log_end()
    if not segments.segments:
        return end
    producers = _producers_at(segments, len(segments.segments) - 1)
    segments.segments[-1].aborted_transactions(producers)
    first = producers.first_open_offset
    return end if first is None else min(first, end)


def _producers_at(segments: Segments, number: int) -> ProducerState:
    """Return the open transactions at the start of a segment: the last valid snapshot before it, carried on from there."""
    first, producers = 0, ProducerState()
    for before in range(number, -1, -1):
        path = segments.listing.snapshots.get(segments.segments[before].base_offset)
        try:
            if path is not None:
                first, producers = before, ProducerState.of_snapshot(path)
                break
        except (CorruptFileError, FileNotFoundError):
            continue
    for segment in segments.segments[first:number]:
        segment.aborted_transactions(producers)
    return producers
