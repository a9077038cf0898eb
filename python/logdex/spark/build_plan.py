"""Which task of a parallel build makes which index files, from the numbers of a first pass over the log.

A sequential build puts the log's entries one after another into files of N-1 entries. So file k holds the entries k(N-1) up to
(k+1)(N-1), and its header starts with the end of file k-1 (IndexService#getAndCreateLastIndexFile). Two more rules decide about
a last file without entries: a message is given a file before it is known whether it has keys (IndexService#buildIndex), so
one more message after a full file makes a new file, and any message makes the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex.spark.rolling import Seed

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Mark:
    """A message from which a scan may start.

    Attributes:
        phy_offset: Where the message begins.
        entries: Entries of all messages before it, counted from the start of its log file.
        last: The last of these; None when there is none.
    """

    phy_offset: int
    entries: int
    last: Seed | None


@dataclass(frozen=True, slots=True)
class LogFileCount:
    """What the first pass tells of one commit-log file.

    Attributes:
        begin: Offset of the file's first byte.
        messages: Messages in it.
        entries: Index entries that they make.
        last: The last entry; None when there is none.
        message_after: Whether a message follows the one with the last entry, in this file.
        continues: Whether a sequential reader goes on into the next file.
        marks: Places to start from, in order; the first is the file's begin.
    """

    begin: int
    messages: int
    entries: int
    last: Seed | None
    message_after: bool
    continues: bool
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What one task does.

    Attributes:
        scan_from: The message to start from.
        skip: Entries to pass over.
        entries: Entries to put then.
        seed: End of the entries before `scan_from`.
        empty_file: Whether a last file without entries follows.
    """

    scan_from: int
    skip: int
    entries: int
    seed: Seed
    empty_file: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a build, in the order of their files, and the sums."""

    tasks: tuple[TaskPlan, ...]
    messages: int
    entries: int
    files: int


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
        scan_from, skip, seed = _start(log, first)
        plans.append(TaskPlan(scan_from, skip, last - first, seed, empty_file and task == tasks - 1))
    return Plan(tuple(plans), messages, entries, filled + empty_file)


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


def _start(log: Sequence[LogFileCount], first: int) -> tuple[int, int, Seed]:
    """Find where to scan from for an entry, how many entries to skip there, and the entry before that place."""
    before = Seed()
    passed = 0
    for count in log:
        if first < passed + count.entries:
            mark = max((m for m in count.marks if passed + m.entries <= first), key=lambda m: m.entries)
            return mark.phy_offset, first - passed - mark.entries, mark.last or before
        passed += count.entries
        before = count.last or before
    return (log[0].begin if log else 0), 0, before
