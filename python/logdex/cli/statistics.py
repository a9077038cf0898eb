"""What `logdex stats` counts."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arro3.core import DataType, RecordBatchReader

from logdex.hash_index.geometry import ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logdex.hash_index import IndexFile

_TIME_BINS = 24
_REGIONS = 64
_SHOWN_LENGTHS = 24


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Counts over the files of an index.

    Attributes:
        files: Index files.
        entries: Entries in all of them.
        slots: Slots of all of them.
        chains: Number of slots by the length of their chain; 0: empty slots.
        loads: Entries and slots of each file: the mean length of its chains differs where a file is not full.
        distinct_hashes: Key hashes, the same hash in two files counted twice.
        regions: Entries in each of equal parts of the slots.
        times: Begin of each time span in ms, and the entries in it.
    """

    files: int
    entries: int
    slots: int
    chains: dict[int, int]
    loads: list[tuple[int, int]]
    distinct_hashes: int
    regions: list[int]
    times: list[tuple[int, int]]

    @property
    def used_slots(self) -> int:
        """Slots with an entry."""
        return self.slots - self.chains.get(0, 0)

    @property
    def longest(self) -> int:
        """Entries of the longest chain."""
        return max(self.chains, default=0)

    @property
    def most_slots(self) -> float:
        """The largest number that a picture of the chains must show."""
        return max(max(slots, expected) for _, slots, expected in self.chain_rows())

    def expected(self, length: int) -> float:
        """Give the slots that would have a chain of a length if the hashes were random (Poisson)."""
        total = 0.0
        for entries, slots in self.loads:
            mean = entries / slots
            log = (
                length * math.log(mean) - mean - math.lgamma(length + 1) if mean else (0.0 if not length else -math.inf)
            )
            total += slots * math.exp(log)
        return total

    def chain_rows(self) -> list[tuple[int, int, float]]:
        """Give length, slots and expected slots, as far as either is worth a row."""
        last = max((length for length in range(_SHOWN_LENGTHS) if self.expected(length) >= 0.5), default=0)  # noqa: PLR2004
        lengths = sorted({*range(last + 1), *(length for length, slots in self.chains.items() if slots)})
        return [(length, self.chains.get(length, 0), self.expected(length)) for length in lengths]

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, for JSON."""
        return {
            "files": self.files,
            "entries": self.entries,
            "slots": self.slots,
            "used_slots": self.used_slots,
            "longest_chain": self.longest,
            "distinct_hashes": self.distinct_hashes,
            "chains": [
                {"length": length, "slots": slots, "expected": round(expected, 3)}
                for length, slots, expected in self.chain_rows()
            ],
            "times": [{"begin_timestamp": time, "entries": count} for time, count in self.times],
        }


def measure(files: Sequence[IndexFile], progress: Callable[[int, int], None]) -> IndexStatistics:
    """Count the entries of index files; linear, and 4 bytes of memory a slot."""
    total = sum(map(len, files)) * ENTRY_SIZE
    begin, end = _time_span(files)
    width = max(1, -(-(end - begin + 1) // _TIME_BINS))
    chains: Counter[int] = Counter()
    regions = [0] * _REGIONS
    bins: Counter[int] = Counter()
    distinct = done = 0
    for file in files:
        lengths = array("I", bytes(4 * file.hash_slots))
        hashes: set[int] = set()
        for batch in RecordBatchReader.from_stream(file.entries()):
            slots = batch.column("hash_slot").to_pylist()
            for slot in slots:
                lengths[slot] += 1
            hashes.update(batch.column("key_hash").to_pylist())
            stored = batch.column("store_timestamp").cast(DataType.int64()).to_pylist()
            bins.update((min(max(time, begin), end) - begin) // width for time in stored)
            done += batch.num_rows * ENTRY_SIZE
            progress(done, total)
        chains.update(lengths)
        distinct += len(hashes)
        for region in range(_REGIONS):
            first, last = (len(lengths) * (region + step) // _REGIONS for step in (0, 1))
            regions[region] += sum(lengths[first:last])
    return IndexStatistics(
        files=len(files),
        entries=sum(map(len, files)),
        slots=sum(file.hash_slots for file in files),
        chains=dict(chains),
        loads=[(len(file), file.hash_slots) for file in files],
        distinct_hashes=distinct,
        regions=regions,
        times=[(begin + number * width, bins[number]) for number in range(max(bins, default=-1) + 1)],
    )


def _time_span(files: Sequence[IndexFile]) -> tuple[int, int]:
    """Give the first and last time of the headers."""
    headers = [file.header for file in files if len(file)]
    times = [time for header in headers for time in (header.begin_timestamp, header.end_timestamp)]
    return min(times, default=0), max(times, default=0)
