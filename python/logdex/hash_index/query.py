"""Which index files a question goes to, and its answer."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex import _core
from logdex._types import MAX_INT64, MIN_INT64, check_int64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._core import IndexFile
    from logdex._types import Time

MAX_MSGS_NUM_BATCH = 64
"""The broker's cap on one answer (MessageStoreConfig#maxMsgsNumBatch)."""

CLOCK_SLACK_MS = 3_600_000
"""How far the broker's clock may step within one index file before a search by time could miss a message, in ms."""

MIN_TIME, MAX_TIME = MIN_INT64, MAX_INT64


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """The answer of an index to one question: candidates, because an index file stores hashes and not keys.

    Attributes:
        phy_offsets: Commit-log offsets in bytes, newest first. A message may come twice, and one may be of another key.
        truncated: More candidates exist than were asked for; with `compat`: the broker's cap, or the caller's, cut some off.
        index_last_update_timestamp: Store time of the newest entry, in ms; 0 without files.
        index_last_update_phyoffset: Commit-log offset of the newest entry; 0 without files.
    """

    phy_offsets: list[int]
    truncated: bool
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Store times in ms, both ends included."""

    begin: int
    end: int

    @classmethod
    def of(cls, begin: Time | None, end: Time | None) -> TimeRange:
        """Convert a caller's bounds; None is no bound.

        Raises:
            TypeError: A bound is no integer, or a datetime without time zone.
            ValueError: A bound is an integer of more than 64 bits.
        """
        return cls(
            MIN_TIME if begin is None else _core.time_ms(begin, name="begin"),
            MAX_TIME if end is None else _core.time_ms(end, end=True, name="end"),
        )

    def holds(self, timestamp: int) -> bool:
        """Say whether a time is one of them."""
        return self.begin <= timestamp <= self.end


def check_max_num(max_num: int | None) -> None:
    """Refuse a negative number of results, and one of more than 64 bits.

    Raises:
        ValueError: `max_num` is such a number.
    """
    check_int64(max_num=max_num)
    if max_num is not None and max_num < 0:
        raise ValueError(f"max_num must not be negative: {max_num}")


def check_clock_slack(clock_slack_ms: int) -> None:
    """Refuse a slack below 0, with which files would be passed over that hold what is asked for.

    Raises:
        TypeError: It is no integer.
        ValueError: It is negative, or an integer of more than 64 bits.
    """
    if operator.index(clock_slack_ms) < 0:
        raise ValueError(f"clock_slack_ms must not be negative: {clock_slack_ms}")
    check_int64(clock_slack_ms=clock_slack_ms)


def newest_first(files: Sequence[IndexFile]) -> list[IndexFile]:
    """Order files, given in load order, from the newest to the oldest.

    By commit-log offset, because names follow local time, which steps back. Files that begin at the same offset keep the
    load order: a message's keys may straddle two files.
    """
    return _core.newest_first(files)


def matching_files(files: Sequence[IndexFile], times: TimeRange, clock_slack_ms: int) -> list[IndexFile]:
    """Choose the files that may hold entries of a time range, newest first.

    Args:
        files: All files in load order.
        times: The range asked for.
        clock_slack_ms: How far the broker's clock may have stepped within one file, in ms.
    """
    return _core.newest_first(files, begin=times.begin, end=times.end, clock_slack_ms=clock_slack_ms)


def matching_files_compat(files: Sequence[IndexFile], times: TimeRange) -> list[IndexFile]:
    """Choose the files that a broker searches, in its order.

    COMPAT(rocketmq IndexService#queryOffset, B21): the load order stands for the order in time, and the search ends at the
    first file that begins before the range, although a file beyond it in that order may hold matches.
    """
    chosen = []
    for file in reversed(files):
        if file.is_time_matched(times.begin, times.end):
            chosen.append(file)
        if file.header.begin_timestamp < times.begin:
            break
    return chosen


def select(files: Sequence[IndexFile], key: str, times: TimeRange, max_num: int | None) -> list[int]:
    """Collect candidates of one index key from files in the given order, at most `max_num`.

    Several files are walked together, so that a key of many files does not wait for one after the other.
    """
    match files:
        case []:
            return []
        case [file]:
            return file.select_phy_offset(key, max_num, times.begin, times.end)
        case _:
            rows = _core.select_files(files, [key], max_num=max_num, begin=times.begin, end=times.end)
            found: list[int] = rows[0].as_py()
            return found
