"""The key index against the log: every key has its entry, every entry its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arro3.core import RecordBatchReader

from logdex import _core
from logdex.hash_index import recovery
from logdex.report import Finding, Report, merge
from logdex.rocketmq.ranges import Range, subtract, union

if TYPE_CHECKING:
    from arro3.core import RecordBatch

    from logdex._core import IndexFile
    from logdex.hash_index import IndexService
    from logdex.rocketmq.commit_log import CommitLog

_COLUMNS = ("topic", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags", "sys_flag")
_HEADER_SIZE, _SLOT_SIZE, _ENTRY_SIZE = 40, 4, 20


class IndexCheck:
    """Compares entries with messages; what the broker had yet to index is none of its faults."""

    def __init__(self, log: CommitLog, index: IndexService, *, tags: bool | None) -> None:
        """Take the files as they are now.

        Args:
            log: The log.
            index: The index.
            tags: Tags are indexed, too; None: found out.
        """
        self._log = log
        self._index = index
        self._files: list[IndexFile] = [file for file in index.files if len(file)]
        self._tags = recovery.holds_tags(self._files, log.core) if tags is None else tags
        # The messages at a file's ends may have keys in the files beside it.
        headers = [file.header for file in self._files]
        self._covered = union((header.begin_phy_offset, header.end_phy_offset + 1) for header in headers)
        self._end = max((header.end_phy_offset for header in headers), default=None)
        self._holes: list[Range] = []
        self._hole_entries = 0
        self._findings: list[Finding] = []
        self._not_indexed = 0

    def check_messages(self, batch: RecordBatch) -> None:
        """Look up the keys of a batch of messages."""
        entries = _core.index_entries(batch, end_phy_offset=0, tags=self._tags)
        if not entries.num_rows:
            return
        missing = recovery.missing_rows(entries, self._files)
        topics, keys, offsets = (missing.column(name).to_pylist() for name in ("topic", "key", "phy_offset"))
        for topic, key, offset in zip(topics, keys, offsets, strict=True):
            if self._end is not None and offset >= self._end:
                self._not_indexed += 1
            elif subtract((offset, offset + 1), self._covered):
                self._add_to_hole(offset)
            else:
                found = f"no entry for key {key!r} of {topic!r}"
                expected = f"an entry that leads to the message at {offset}"
                path = next((f.path for f in self._files if _covers(f, offset)), self._index.directory)
                self._findings.append(Finding(str(path), 0, "index-missing", expected, found))

    def _add_to_hole(self, offset: int) -> None:
        self._hole_entries += 1
        between = [
            r for r in subtract((self._log.min_offset, self._log.max_offset), self._covered) if r[0] <= offset < r[1]
        ]
        if between and (not self._holes or self._holes[-1] != between[0]):
            self._holes.append(between[0])

    def finish(self) -> Report:
        """Say what was found, after following every entry."""
        for begin, end in union(self._holes):
            expected = f"index files for the log from {begin} to {end}"
            self._findings.append(Finding(str(self._index.directory), 0, "index-hole", expected, "none"))
        followed = sum(self._follow(file) for file in self._files)
        checked = {"entries_followed": followed}
        if self._not_indexed:
            checked["keys_not_indexed_yet"] = self._not_indexed
        return merge([self._index.verify(), Report(self._findings, checked)])

    def _follow(self, file: IndexFile) -> int:
        """Look at the message that each entry leads to; those of deleted log files are passed over."""
        first = self._log.min_offset
        followed = 0
        for batch in RecordBatchReader.from_stream(file.entries()):
            names = ("position", "key_hash", "phy_offset")
            rows = [row for row in zip(*(batch.column(n).to_pylist() for n in names), strict=True) if row[2] >= first]
            followed += len(rows)
            messages = self._log.messages(sorted({row[2] for row in rows}), columns=_COLUMNS)
            present = {
                o for o, t in zip(*(messages.column(n).to_pylist() for n in ("phy_offset", "topic")), strict=True) if t
            }
            made = self._hashes(messages, present)
            for position, key_hash, offset in rows:
                if (offset, key_hash) in made:
                    continue
                at = _HEADER_SIZE + _SLOT_SIZE * file.hash_slots + _ENTRY_SIZE * position
                what = "a message without such a key" if offset in present else "no good message"
                expected = f"a message with a key of hash {key_hash} at offset {offset}"
                self._findings.append(Finding(str(file.path), at, "index-entry", expected, what))
        return followed

    def _hashes(self, messages: RecordBatch, present: set[int]) -> set[tuple[int, int]]:
        """Give offset and key hash of all entries that messages would get, tags included."""
        names = ("topic", "key", "phy_offset")
        whole = [row for row, offset in enumerate(messages.column("phy_offset").to_pylist()) if offset in present]
        entries = _core.index_entries(recovery.take(messages, whole), end_phy_offset=0, tags=True)
        rows = zip(*(entries.column(name).to_pylist() for name in names), strict=True)
        return {(offset, _core.key_hash(_core.index_key(topic, key))) for topic, key, offset in rows}


def _covers(file: IndexFile, offset: int) -> bool:
    return file.header.begin_phy_offset <= offset <= file.header.end_phy_offset
