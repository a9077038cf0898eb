"""The key index against the log: every key has its entry, every entry its message.

Both come in the order of the log, so they are compared side by side, each read once, whatever the number of messages with a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from arro3.core import RecordBatchReader

from logdex import _core
from logdex.hash_index import recovery
from logdex.hash_index.arrow_input import INDEXED_COLUMNS, take_rows
from logdex.hash_index.geometry import entry_offset
from logdex.report import Finding, Report, merge
from logdex.rocketmq.ranges import Range, subtract, union

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex._core import IndexFile
    from logdex.hash_index import IndexService
    from logdex.rocketmq.commit_log import CommitLog

Entry: TypeAlias = tuple[int, int, int]
"""Offset in the log, hash of the key, position in the file."""

_OFFSETS_A_STEP = 8_192


class _Cursor:
    """Goes through the entries of one file as the log goes by."""

    def __init__(self, file: IndexFile, first: int) -> None:
        """Begin at the first entry; those before the log begins are passed over."""
        self.file = file
        self.followed = 0
        self.late: list[Entry] = []
        self._first = first
        self._last = file.header.end_phy_offset
        self._entries = self._read()
        self._next: Entry | None = next(self._entries, None)

    def _read(self) -> Iterator[Entry]:
        for batch in RecordBatchReader.from_stream(self.file.entries()):
            columns = (batch.column(name).to_pylist() for name in ("phy_offset", "key_hash", "position"))
            yield from zip(*columns, strict=True)

    def take(self, begin: int, end: int) -> list[Entry]:
        """Take the entries that lead to a range of the log; keep those that are out of order for later."""
        taken: list[Entry] = []
        while self._next is not None and (self._next[0] < end or self._next[0] > self._last):
            entry = self._next
            if entry[0] >= self._first:
                self.followed += 1
                (taken if begin <= entry[0] < end else self.late).append(entry)
            self._next = next(self._entries, None)
        return taken

    def rest(self) -> list[Entry]:
        """Take what is left, with what was out of order."""
        left = [] if self._next is None else [self._next, *self._entries]
        self._next = None
        self.followed += sum(entry[0] >= self._first for entry in left)
        return [*self.late, *(entry for entry in left if entry[0] >= self._first)]


class IndexCheck:
    """Compares entries with messages; what the broker had yet to index is none of its faults."""

    def __init__(self, log: CommitLog, index: IndexService) -> None:
        """Take the files as they are now."""
        self._log = log
        self._index = index
        files: list[IndexFile] = [file for file in index.files if len(file)]
        self._tags = recovery.holds_tags(files, log.core)
        first = log.min_offset
        self._cursors = [_Cursor(file, first) for file in files]
        # The messages at a file's ends may have keys in the files beside it.
        headers = [file.header for file in files]
        self._covered = union((header.begin_phy_offset, header.end_phy_offset + 1) for header in headers)
        self._end = max((header.end_phy_offset for header in headers), default=None)
        self._reached = first
        self._holes: set[Range] = set()
        self._missing: dict[tuple[int, int], tuple[str, str]] = {}
        self._findings: list[Finding] = []
        self._not_indexed = 0

    def check_messages(self, batch: RecordBatch) -> None:
        """Compare the keys of a batch of messages with the entries that lead to it."""
        end = batch.column("phy_offset")[batch.num_rows - 1].as_py() + 1
        wanted = _keys(batch, tags=self._tags)
        odd = [
            (cursor.file, entry)
            for cursor in self._cursors
            for entry in cursor.take(self._reached, end)
            if wanted.pop(entry[:2], None) is None
        ]
        # A key that a message has twice has two entries; a tag may be indexed.
        possible = _keys(batch, tags=True) if odd else {}
        for file, entry in odd:
            if entry[:2] not in possible:
                self._lead_astray(file, entry)
        self._reached = end
        self._missing |= wanted

    def _lead_astray(self, file: IndexFile, entry: Entry) -> None:
        offset, key_hash, position = entry
        at = entry_offset(file.hash_slots, position)
        expected = f"a message with a key of hash {key_hash} at offset {offset}"
        found = "no good message" if self._log.message(offset) is None else "a message without such a key"
        self._findings.append(Finding(str(file.path), at, "index-entry", expected, found))

    def finish(self) -> Report:
        """Say what was found, after looking at the entries that were out of order."""
        for cursor in self._cursors:
            self._follow(cursor)
        for (offset, _), (topic, key) in sorted(self._missing.items()):
            self._miss(offset, topic, key)
        for begin, end in sorted(self._holes):
            expected = f"index files for the log from {begin} to {end}"
            self._findings.append(Finding(str(self._index.directory), 0, "index-hole", expected, "none"))
        checked = {"entries_followed": sum(cursor.followed for cursor in self._cursors)}
        if self._not_indexed:
            checked["keys_not_indexed_yet"] = self._not_indexed
        return merge([self._index.verify(), Report(self._findings, checked)])

    def _follow(self, cursor: _Cursor) -> None:
        """Look up the messages of entries that did not come when their message did."""
        entries = cursor.rest()
        for first in range(0, len(entries), _OFFSETS_A_STEP):
            step = entries[first : first + _OFFSETS_A_STEP]
            messages = self._log.messages(sorted({entry[0] for entry in step}), columns=INDEXED_COLUMNS)
            whole = [row for row, topic in enumerate(messages.column("topic").to_pylist()) if topic is not None]
            possible = _keys(take_rows(messages, whole), tags=True)
            for entry in step:
                self._missing.pop(entry[:2], None)
                if entry[:2] not in possible:
                    self._lead_astray(cursor.file, entry)

    def _miss(self, offset: int, topic: str, key: str) -> None:
        """Say of a key that has no entry whether it was lost or never came."""
        if self._end is not None and offset >= self._end:
            self._not_indexed += 1
            return
        gaps = subtract((self._log.min_offset, self._log.max_offset), self._covered)
        hole = next((gap for gap in gaps if gap[0] <= offset < gap[1]), None)
        if hole is not None:
            self._holes.add(hole)
            return
        files = (cursor.file for cursor in self._cursors)
        path = next((file.path for file in files if _covers(file, offset)), self._index.directory)
        expected = f"an entry that leads to the message at {offset}"
        self._findings.append(
            Finding(str(path), 0, "index-missing", expected, f"no entry for key {key!r} of {topic!r}")
        )


def _keys(messages: RecordBatch, *, tags: bool) -> dict[tuple[int, int], tuple[str, str]]:
    """Give offset and hash of the entries that messages get, with topic and key."""
    entries = _core.index_entries(messages, end_phy_offset=0, tags=tags)
    topics, keys, offsets = (entries.column(name) for name in ("topic", "key", "phy_offset"))
    hashes = _core.key_hashes(keys, topics=topics)
    pairs = zip(offsets.to_pylist(), hashes.to_pylist(), strict=True)
    return dict(zip(pairs, zip(topics.to_pylist(), keys.to_pylist(), strict=True), strict=True))


def _covers(file: IndexFile, offset: int) -> bool:
    return file.header.begin_phy_offset <= offset <= file.header.end_phy_offset
