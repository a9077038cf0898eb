"""The key index against the log: every key has its entry, every entry its message.

Which entries lead to a batch of messages the core compares; here it is said what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from logdex import _core
from logdex._core import IndexFollower
from logdex.arrow import INDEXED_COLUMNS, take_rows
from logdex.hash_index import recovery
from logdex.hash_index.geometry import entry_offset
from logdex.report import Finding, Report, merge
from logdex.rocketmq.key_search import TAG_PREFIX
from logdex.rocketmq.ranges import Range, subtract, union

if TYPE_CHECKING:
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import IndexFile
    from logdex.hash_index import IndexService
    from logdex.rocketmq.commit_log import CommitLog

Entry: TypeAlias = tuple[int, int, int]
"""Offset in the log, hash of the key, position in the file."""

_Missing: TypeAlias = tuple[int, str, str]

_OFFSETS_A_STEP = 8_192


class IndexCheck:
    """Compares entries with messages; what the broker had yet to index is none of its faults."""

    def __init__(self, log: CommitLog, index: IndexService) -> None:
        """Take the files as they are now."""
        self._log = log
        self._index = index
        self._files: list[IndexFile] = [file for file in index.files if len(file)]
        self._tags = bool(recovery.holds_tags(self._files, log.core))
        self._follower = IndexFollower(self._files, tags=self._tags, log_begin=log.min_offset)
        # The messages at a file's ends may have keys in the files beside it.
        headers = [file.header for file in self._files]
        self._covered = union((header.begin_phy_offset, header.end_phy_offset + 1) for header in headers)
        self._end = max((header.end_phy_offset for header in headers), default=None)
        self._findings: list[Finding] = []

    def check_messages(self, batch: RecordBatch) -> None:
        """Compare the keys of a batch of messages with the entries that lead to it."""
        for number, *entry in self._follower.follow(batch):
            self._lead_astray(self._files[number], *entry)

    def _lead_astray(self, file: IndexFile, offset: int, key_hash: int, position: int) -> None:
        at = entry_offset(file.hash_slots, position)
        expected = f"a message with a key of hash {key_hash} at offset {offset}"
        found = "no good message" if self._log.message(offset) is None else "a message without such a key"
        self._findings.append(Finding(str(file.path), at, "index-entry", expected, found))

    def finish(self) -> Report:
        """Say what was found, after looking at the entries that were out of order."""
        for number, file in enumerate(self._files):
            while entries := self._follower.rest(number, _OFFSETS_A_STEP):
                self._follow(file, entries)
        self._report_missing()
        checked = {"entries_followed": self._follower.followed}
        # What the broker had yet to index.
        if self._end is not None and (not_indexed := self._follower.missing_from(self._end)):
            checked["keys_not_indexed_yet"] = not_indexed
        return merge([self._index.verify(), Report(self._findings, checked)])

    def _follow(self, file: IndexFile, entries: list[Entry]) -> None:
        """Look up the messages of entries that did not come when their message did."""
        messages = self._log.messages(sorted({entry[0] for entry in entries}), columns=INDEXED_COLUMNS)
        whole = [row for row, topic in enumerate(messages.column("topic").to_pylist()) if topic is not None]
        keys = _core.index_entries(take_rows(messages, whole), end_phy_offset=0, tags=True)
        hashes = _core.key_hashes(keys.column("key"), topics=keys.column("topic"))
        possible = {*zip(keys.column("phy_offset").to_pylist(), hashes.to_pylist(), strict=True)}
        for entry in entries:
            if entry[:2] not in possible:
                self._lead_astray(file, *entry)

    def _report_missing(self) -> None:
        """Say of the keys that have no entry whether they, or whole files, were lost.

        Not where tags alone are missing: the index was then written with tags for a time, and without them for a time.
        """
        gaps = subtract((self._log.min_offset, self._log.max_offset), self._covered)
        holes: dict[Range, list[_Missing]] = {}
        files: dict[Path, list[_Missing]] = {}
        for missing in self._follower.missing_before(self._end):
            offset = missing[0]
            hole = next((gap for gap in gaps if gap[0] <= offset < gap[1]), None)
            if hole is not None:
                holes.setdefault(hole, []).append(missing)
                continue
            path = next((file.path for file in self._files if _covers(file, offset)), self._index.directory)
            files.setdefault(path, []).append(missing)
        for path, lost in files.items():
            for offset, topic, key in () if self._are_tags(lost) else lost:
                expected = f"an entry that leads to the message at {offset}"
                found = f"no entry for key {key!r} of {topic!r}"
                self._findings.append(Finding(str(path), 0, "index-missing", expected, found))
        for (begin, end), lost in sorted(holes.items()):
            if self._are_tags(lost):
                continue
            expected = f"index files for the log from {begin} to {end}"
            self._findings.append(Finding(str(self._index.directory), 0, "index-hole", expected, "none"))

    def _are_tags(self, missing: list[_Missing]) -> bool:
        return self._tags and all(key.startswith(TAG_PREFIX) for _, _, key in missing)


def _covers(file: IndexFile, offset: int) -> bool:
    return file.header.begin_phy_offset <= offset <= file.header.end_phy_offset
