"""What a read of a log needs: which segments, which offsets of each, which transactions to leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.errors import CorruptFileError
from logdex.kafka.aborted import aborted_by_segment
from logdex.kafka.file_name import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from logdex import _core
    from logdex.kafka.segment import LogSegment
    from logdex.kafka.segments import Segments
    from logdex.kafka.transactions import AbortedTransaction

    Part: TypeAlias = tuple[_core.LogSegment, int | None, int | None, list[AbortedTransaction] | None]


def plan_read(segments: Segments, first: int, last: int, begin: int | None, *, committed: bool) -> Iterator[Part]:
    """Plan a read of the offsets in [first, last), as the parts that `read_records` takes.

    Args:
        segments: The log.
        first: First offset.
        last: The offset that is not wanted any more.
        begin: A time in ms. Where given, a segment without records at or after it is left out, and the others are read from
            the first such record on.
        committed: Name the aborted transactions of each part.
    """
    listed = aborted_by_segment(segments, first) if committed and first < last else {}
    for number in range(segments.floor(first), len(segments.segments)):
        segment, following = segments.segments[number], segments.end_of(number)
        if segment.base_offset >= last or first >= last:
            return
        # A record belongs to the segment whose base offset is the last one at or below its own.
        high = min(last, MAX_OFFSET if following is None else following)
        low = _first_at(segment, begin, max(first, segment.base_offset))
        if low is not None and low < high:
            aborted = [each for each in listed.get(number, ()) if each.last_offset >= low and each.first_offset < high]
            yield segment.core, low, None if high == MAX_OFFSET else high, aborted


def _first_at(segment: LogSegment, begin: int | None, low: int) -> int | None:
    """Give the first offset of a segment, at or above `low`, with a timestamp at or after `begin`; None where it has none."""
    if begin is None:
        return low
    try:
        # A marker counts: it is read where control records are asked for, and else costs no more than to pass over it.
        found = segment.core.offset_for_timestamp(begin, low, control=True)
    except CorruptFileError:
        # Whoever reads decides what damage means; here it only keeps the search from saving anything.
        return low
    return None if found is None else found[1]
