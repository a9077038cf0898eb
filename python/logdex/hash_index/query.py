"""Questions to an index: time ranges, limits and the slack for clock steps."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex import _core
from logdex._types import MAX_INT64, MIN_INT64, check_int64

if TYPE_CHECKING:
    from logdex._types import Time

CLOCK_SLACK_MS = 3_600_000
"""How far the broker's clock may step within one index file before a search by time could miss a message, in ms."""

MIN_TIME, MAX_TIME = MIN_INT64, MAX_INT64


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Store times in ms, both ends included."""

    begin: int
    end: int

    @classmethod
    def of(cls, begin: Time | None, end: Time | None) -> TimeRange:
        """Convert the bounds of a caller; None: no bound.

        Raises:
            TypeError: A bound is no integer, or a datetime without time zone.
        """
        return cls(
            MIN_TIME if begin is None else _core.time_ms(begin, name="begin"),
            MAX_TIME if end is None else _core.time_ms(end, end=True, name="end"),
        )

    def holds(self, timestamp: int) -> bool:
        """Return whether a time is in the range."""
        return self.begin <= timestamp <= self.end


def check_max_num(max_num: int | None) -> None:
    """Raise `ValueError` if the most results that a caller wants are negative."""
    check_int64(max_num=max_num)
    if max_num is not None and max_num < 0:
        raise ValueError(f"max_num must not be negative: {max_num}")


def check_clock_slack(clock_slack_ms: int) -> None:
    """Raise `ValueError` for a negative slack for clock steps: files that hold matches would be skipped."""
    if operator.index(clock_slack_ms) < 0:
        raise ValueError(f"clock_slack_ms must not be negative: {clock_slack_ms}")
    check_int64(clock_slack_ms=clock_slack_ms)
