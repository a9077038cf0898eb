"""Sets of half-open ranges of log offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Range: TypeAlias = tuple[int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that touch or overlap; empty ones vanish. The result rises."""
    joined: list[Range] = []
    for begin, end in sorted(r for r in ranges if r[0] < r[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def subtract(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Give the parts of `whole` that are in none of the ranges, rising."""
    rest: list[Range] = []
    at, last = whole
    for begin, end in union(ranges):
        if at < min(begin, last):
            rest.append((at, min(begin, last)))
        at = max(at, end)
    if at < last:
        rest.append((at, last))
    return rest
