"""The transactions of a log: which were aborted, which are open, and so how far a read-committed consumer gets.

The `.txnindex` of a segment lists the transactions whose abort markers are in that segment. If the file cannot be trusted, or
lists none in a log with transactions, the markers themselves are read: the file may be lost.

Source: TransactionIndex#collectAbortedTxns, ProducerStateManager.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from logdex._core import ProducerState, aborted_transactions, any_transactional
from logdex.errors import CorruptFileError
from logdex.kafka.checkpoint import CLEAN_SHUTDOWN
from logdex.kafka.files import TXN_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.kafka.segments import Segments


class AbortedTransaction(NamedTuple):
    """An aborted transaction: from its first record in this partition to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_between(segments: Segments, begin: int, end: int, *, broker: bool) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [begin, end), in the order of their markers. `broker`: as it answers."""
    aborted = _aborted_from(segments, begin, end, broker=broker)
    return [entry for _, entry in aborted if entry.last_offset >= begin and entry.first_offset < end]


def aborted_by_segment(
    segments: Segments, begin: int, end: int, *, broker: bool
) -> dict[int, list[AbortedTransaction]]:
    """Return, for each segment by its number, the aborted transactions that may have records of [begin, end) in it.

    A transaction is named with every segment from its first record to its marker. `broker`: as it answers.
    """
    found: dict[int, list[AbortedTransaction]] = {}
    bases = [segment.base_offset for segment in segments.segments]
    for number, entry in _aborted_from(segments, begin, end, broker=broker):
        for held in range(max(0, bisect_right(bases, entry.first_offset) - 1), number + 1):
            found.setdefault(held, []).append(entry)
    return found


def _aborted_from(
    segments: Segments, begin: int, end: int, *, broker: bool
) -> Iterator[tuple[int, AbortedTransaction]]:
    """Iterate over the aborted transactions with markers from the segment of `begin` on, by the number of their segment.

    A marker may be many segments after its transaction's records, so all later segments are searched, each once. Only a
    transaction that begins at or after `end` may be left out.
    """
    # COMPAT(kafka TransactionIndex#collectAbortedTxns): to a broker, a missing file means that none was aborted.
    may_miss = not broker and _has_transactions(segments)
    producers = None
    for number in range(segments.index_of(begin), len(segments.segments)):
        segment = segments.segments[number]
        aborted = _listed(segments, number)
        if aborted is None or (may_miss and not (aborted and producers is None)):
            if producers is None or not may_miss:
                producers = _producers_at(segments, number)
            first = producers.first_open_offset
            if segment.base_offset >= end and (first is None or first >= end):
                return
            # Carried on through a segment with an index, too: there may be no snapshot after it.
            read = segment.aborted_transactions(producers)
            aborted = aborted or read
        yield from ((number, entry) for entry in map(AbortedTransaction._make, aborted))


def _has_transactions(segments: Segments) -> bool:
    """Return whether a log may hold transactions: an index or a snapshot of the producers shows one, or a snapshot is missing.

    A broker writes a snapshot where each segment ends.
    """
    if any(TXN_INDEX in files for files in segments.listing.segments.values()):
        return True
    ends = [segment.base_offset for segment in segments.segments[1:]]
    if segments.segments and not after_crash(segments):
        ends.append(segments.log_end())
    found = [segments.listing.snapshots[end] for end in ends if end in segments.listing.snapshots]
    return len(found) < len(ends) or any_transactional(found)


def _listed(segments: Segments, number: int) -> list[tuple[int, int, int]] | None:
    """Return the aborted transactions that a segment's index lists; none without the file, None if it cannot be trusted."""
    if segments.is_last(number) and after_crash(segments):
        return None
    path = segments.file(number, TXN_INDEX)
    return [] if path is None else aborted_transactions(path, segments.segments[number].base_offset)


def after_crash(segments: Segments) -> bool:
    """Return whether the last segment's index does not count: after a power loss it may lack entries."""
    return not (segments.directory.absolute().parent / CLEAN_SHUTDOWN).exists()


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
