"""How full index files are, and how evenly their keys are spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._core import IndexFile
    from logdex._types import Progress

_TIME_BUCKETS = 24
_REGIONS = 64
_SHOWN_LENGTHS = 24


def measure(files: Sequence[IndexFile], progress: Progress | None = None) -> tuple[dict[str, Any], list[int]]:
    """Count the entries of index files; linear, and 4 bytes of memory for each slot and entry of a file.

    Returns JSON values, and the entries in each of equal parts of the slots. A hash in two files counts twice.
    """
    chains, regions, times, distinct = _core.chain_statistics(
        files, time_buckets=_TIME_BUCKETS, regions=_REGIONS, progress=progress
    )
    likely = max((length for length in range(_SHOWN_LENGTHS) if _expected(files, length) >= 0.5), default=0)  # noqa: PLR2004
    statistics = {
        "files": len(files),
        "entries": sum(map(len, files)),
        "slots": sum(file.hash_slots for file in files),
        "used_slots": sum(slots for length, slots in chains.items() if length),
        "longest_chain": max(chains, default=0),
        "distinct_hashes": distinct,
        "chains": [
            {"length": length, "slots": chains.get(length, 0), "expected": round(_expected(files, length), 3)}
            for length in sorted({*range(likely + 1), *chains})
        ],
        "times": [{"begin_timestamp": begin, "entries": entries} for begin, entries in times],
    }
    return statistics, regions


def _expected(files: Sequence[IndexFile], length: int) -> float:
    """Return how many slots would have a chain of this length if the hashes were random (Poisson)."""
    total = 0.0
    for file in files:
        mean = len(file) / file.hash_slots
        if mean:
            total += file.hash_slots * math.exp(length * math.log(mean) - mean - math.lgamma(length + 1))
        elif not length:
            total += file.hash_slots
    return total
