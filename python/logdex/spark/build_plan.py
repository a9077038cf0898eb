"""Which task of a parallel build makes which index files, from what the first pass over the log counted.

A sequential build puts the log's entries one after another into files of N-1 entries. So file k holds the entries k(N-1) up to
(k+1)(N-1), and its header starts with the end of file k-1 (IndexService#getAndCreateLastIndexFile). Two more rules decide about
a last file without entries: a message is given a file before it is known whether it has keys (IndexService#buildIndex), so
one more message after a full file makes a new file, and any message makes the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class LogFileCount:
    """What the first pass tells of one commit-log file.

    Attributes:
        rows: Where it left the file's index entries.
        messages: Messages in the file.
        entries: Index entries that they make.
        message_after: Whether a message follows the one with the last entry, in this file.
        continues: Whether a sequential reader goes on into the next file.
    """

    rows: str
    messages: int
    entries: int
    message_after: bool
    continues: bool


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The entries `start` up to `stop` (exclusive) of those that the first pass left in one place."""

    rows: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What one task does.

    Attributes:
        parts: The entries that it reads.
        seeded: Whether the first of them is the entry before its own, with which its first file's header starts.
        empty_file: Whether a last file without entries follows.
    """

    parts: tuple[RowsPart, ...]
    seeded: bool
    empty_file: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a build, in the order of their files, and the sums."""

    tasks: tuple[TaskPlan, ...]
    messages: int
    entries: int


def plan_build(counts: Sequence[LogFileCount], *, file_entries: int, max_tasks: int) -> Plan:
    """Divide the index files of a log among tasks, each a run of whole files.

    Args:
        counts: The log files in order. Those behind the first that does not continue are not part of the log.
        file_entries: Entries that one index file holds.
        max_tasks: At most this many tasks.
    """
    log = _walked(counts)
    messages = sum(count.messages for count in log)
    entries = sum(count.entries for count in log)
    full, rest = divmod(entries, file_entries)
    empty_file = rest == 0 and _message_after_last_entry(log)
    filled = full + (rest > 0)
    tasks = min(max_tasks, filled) or (1 if empty_file else 0)
    plans = []
    for task in range(tasks):
        first = filled * task // tasks * file_entries
        last = min(filled * (task + 1) // tasks * file_entries, entries)
        seeded = first > 0
        plans.append(TaskPlan(tuple(_parts(log, first - seeded, last)), seeded, empty_file and task == tasks - 1))
    return Plan(tuple(plans), messages, entries)


def _walked(counts: Sequence[LogFileCount]) -> list[LogFileCount]:
    walked = []
    for count in counts:
        walked.append(count)
        if not count.continues:
            break
    return walked


def _message_after_last_entry(log: Sequence[LogFileCount]) -> bool:
    for count in reversed(log):
        if count.entries:
            return count.message_after
        if count.messages:
            return True
    return False


def _parts(log: Sequence[LogFileCount], first: int, last: int) -> Iterator[RowsPart]:
    """Find the entries `first` up to `last` (exclusive) of the whole log."""
    passed = 0
    for count in log:
        start, stop = max(first - passed, 0), min(last - passed, count.entries)
        if start < stop:
            yield RowsPart(count.rows, start, stop)
        passed += count.entries
