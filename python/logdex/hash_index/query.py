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
"""The largest step of the broker's clock within one index file with which a search by time misses no message, in ms."""

MIN_TIME, MAX_TIME = MIN_INT64, MAX_INT64


class Milliseconds(int):
    """Milliseconds since the epoch with a known unit: they come from a date, or `time_bound` checked them."""

    __slots__ = ()


def time_bound(value: Time, name: str, *, end: bool = False) -> Milliseconds:
    """Return the milliseconds of a bound of a time range.

    An integer from 10,000,000 up to 1990 is refused: it is more likely a number of seconds or the digits of a date. 0 and other
    small integers are times before all messages.

    Raises:
        TypeError: The bound is not an integer, or is a datetime without a time zone.
        ValueError: An integer that may be seconds or a date, or a text that is not ISO 8601 with a zone.
    """
    return Milliseconds(_core.bound_ms(value, end=end, name=name))


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Store times in ms, both ends included."""

    begin: int
    end: int

    @classmethod
    def of(cls, begin: Time | None, end: Time | None) -> TimeRange:
        """Convert the caller's bounds, see `time_bound`; None: no bound."""
        return cls(
            MIN_TIME if begin is None else time_bound(begin, "begin"),
            MAX_TIME if end is None else time_bound(end, "end", end=True),
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
