"""Index entries of log ranges that no index file covers, found by reading the log and kept in memory."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from arro3.core import RecordBatchReader

from logdex import _core
from logdex.arrow import INDEXED_COLUMNS
from logdex.rocketmq.ranges import Range, subtract, union
from logdex.rocketmq.sound import sound_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from logdex._types import Progress
    from logdex.report import Finding
    from logdex.rocketmq.commit_log import CommitLog

    _Tell: TypeAlias = Callable[[int], None] | None

_COLUMNS = (*INDEXED_COLUMNS, "store_size")


class LogEntries:
    """What a broker would have indexed of the log ranges read so far: for each entry its key's hash and its offset.

    Twelve bytes an entry, sorted in memory.

    Attributes:
        topics: Topics of the messages read so far.
    """

    def __init__(self, log: CommitLog, *, tags: Callable[[], bool], salvage: bool) -> None:
        """Start with nothing read.

        Args:
            log: The log.
            tags: Says whether tags are indexed, too; asked when a message with tags is read.
            salvage: Go on behind damage; otherwise a range ends where a broker's walk would.
        """
        self._log = log
        self._tags = tags
        self._salvage = salvage
        self.topics: set[str] = set()
        self._lock = threading.Lock()
        self._seen: list[Range] = []
        self._refused: list[Range] = []
        self._table = _core.EntryTable()

    def missing(self, whole: Range, covered: list[Range]) -> list[Range]:
        """Give the parts of a range that are neither covered otherwise nor read yet, rising."""
        return subtract(whole, [*covered, *self._seen])

    def read(self, ranges: list[Range], budget_bytes: int | None, progress: Progress | None = None) -> int:
        """Read ranges of the log, the newest first, as far as the budget goes, and keep their entries.

        Args:
            ranges: Rising ranges of log offsets; what another thread read meanwhile is not read again.
            budget_bytes: The most to read; None: all. A message that begins within it is read whole.
            progress: Called now and then with the bytes that are done, and those there are.

        Returns:
            The bytes of the log that were read.
        """
        with self._lock:
            # What the walk refused once is not tried at every call.
            done = [*self._seen, *self._refused]
            total = 0
            parts = [part for whole in ranges for part in subtract(whole, done)]
            asked = sum(end - begin for begin, end in parts)
            asked = asked if budget_bytes is None else min(asked, budget_bytes)
            for begin, end in reversed(parts):
                left = end - begin if budget_bytes is None else budget_bytes - total
                if left <= 0:
                    break
                before = total - begin
                tell = (lambda at, before=before: progress(before + at, asked)) if progress else None
                total += self._read_range(begin, end, min(end, begin + left), tell)
            return total

    def _read_range(self, begin: int, end: int, stop: int, tell: _Tell) -> int:
        damage: list[Finding] = []
        starts = array("q")
        reached = self._read_sound(begin, stop, tell)
        if reached < stop:
            reached = self._walk(
                begin, stop, self._table, starts, salvage=self._salvage, on_damage=damage.append, tell=tell
            )
        if self._salvage:
            done = min(end, max(reached, stop))
            broken = [_around(finding, starts, done) for finding in damage]
        else:
            done = min(end, reached if reached >= stop or not self._goes_on(reached) else stop)
            broken = [(done, end)] if done < stop else []
        self._refused = union([*self._refused, *broken])
        seen = subtract((begin, done), broken)
        self._seen = union([*self._seen, *seen])
        return done - begin

    def _read_sound(self, begin: int, stop: int, tell: _Tell) -> int:
        """Read a range of one file that begins at a message, as far as everything in it is good; nothing of any other.

        Behind damage a file is walked from its beginning, which may be far away.

        Returns:
            Where it ended; before `stop` nothing was kept.
        """
        one_file = not any(begin < int(path.name) < stop for path in self._log.files)
        if not self._salvage or not one_file or self._log.message(begin) is None:
            return begin
        sound = _core.EntryTable()
        reached = self._walk(begin, stop, sound, None, salvage=False, on_damage=lambda _: None, tell=tell)
        if reached >= stop:
            self._table.take(sound)
        return reached

    def _walk(
        self,
        begin: int,
        stop: int,
        table: _core.EntryTable,
        starts: array[int] | None,
        *,
        salvage: bool,
        on_damage: Callable[[Finding], None],
        tell: _Tell,
    ) -> int:
        """Put the entries of a range into a table and where its messages begin; give where the last one ends.

        `tell` is called now and then with the offset that was reached.
        """
        reached = begin
        for messages in sound_messages(self._log, _COLUMNS, begin, stop, salvage=salvage, on_damage=on_damage):
            offsets = messages.column("phy_offset")
            if starts is not None:
                starts.extend(offsets.to_pylist())
            self.topics.update(messages.column("topic").to_pylist())
            tagged = messages.column("tags").null_count < messages.num_rows
            # To know it, the log may have to be read for a message with tags, as far as the index leads to one.
            entries = _core.index_entries(messages, end_phy_offset=0, tags=tagged and self._tags())
            table.add(entries.column("key"), entries.column("phy_offset"), topics=entries.column("topic"))
            last = messages.num_rows - 1
            reached = offsets[last].as_py() + messages.column("store_size")[last].as_py()
            if tell is not None:
                tell(reached)
        return reached

    def _goes_on(self, offset: int) -> bool:
        """Say whether a message follows: then a walk ended at fill, and not at what a broker would refuse."""
        following = self._log.scan(begin_phy_offset=offset, columns=("phy_offset",), batch_size=1)
        first = next(iter(RecordBatchReader.from_stream(following)), None)
        return first is not None and first.num_rows > 0

    def offsets(self, topics: Sequence[str | None], keys: Sequence[str | None]) -> list[list[int] | None]:
        """Give, for each key, the offsets of the messages whose entries have its hash, rising; None without key or topic."""
        return list(self._table.select_batch(keys, topics=topics).to_pylist())


def _around(finding: Finding, starts: array[int], end: int) -> Range:
    """Give the range of the log in which nothing could be read: from a finding to the next message."""
    begin = int(Path(finding.path).name) + finding.offset
    place = bisect_right(starts, begin)
    return begin, starts[place] if place < len(starts) else end
