"""Checks of a store's parts against its log: the key index."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from logdex import _core
from logdex._core import IndexCrossCheck
from logdex.hash_index.geometry import entry_offset
from logdex.report import Finding, Report, merge
from logdex.rocketmq.find import TAG_PREFIX
from logdex.rocketmq.read import Range, subtract, union

if TYPE_CHECKING:
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import CommitLog, IndexFile
    from logdex.rocketmq.index_service import IndexService

_Missing: TypeAlias = tuple[int, str, str]

_ENTRIES_A_STEP = 65_536


class IndexCheck:
    """Compares the entries of the index with the messages of the log: every key has its entry, every entry its message.

    Messages that the broker had not indexed yet are no fault.
    """

    def __init__(self, log: CommitLog, index: IndexService) -> None:
        """Take the files as they are now."""
        self._log = log
        self._index = index
        self._files: list[IndexFile] = [file for file in index.files if len(file)]
        self._tags = bool(_core.index_holds_tags(log, self._files))
        self._check = IndexCrossCheck(self._files, tags=self._tags, log_begin=log.min_offset)
        # The messages at a file's ends may have keys in the files beside it.
        headers = [file.header for file in self._files]
        self._covered = union((header.begin_phy_offset, header.end_phy_offset + 1) for header in headers)
        self._end = max((header.end_phy_offset for header in headers), default=None)
        self._findings: list[Finding] = []

    def check_messages(self, batch: RecordBatch) -> None:
        """Compare the keys of a batch of messages with the entries that lead to it."""
        self._report_wrong(self._check.check(batch))

    def _report_wrong(self, entries: list[tuple[int, int, int, int]]) -> None:
        for number, offset, key_hash, position in entries:
            file = self._files[number]
            at = entry_offset(file.hash_slots, position)
            expected = f"a message with a key of hash {key_hash} at offset {offset}"
            found = "no good message" if self._log.message(offset) is None else "a message without such a key"
            self._findings.append(Finding(str(file.path), at, "index-entry", expected, found))

    def finish(self) -> Report:
        """Check the entries that were out of order, and return all findings."""
        for number in range(len(self._files)):
            taken = _ENTRIES_A_STEP
            while taken:
                taken, wrong = self._check.check_rest(self._log, number, _ENTRIES_A_STEP)
                self._report_wrong(wrong)
        self._report_missing()
        checked = {"entries_followed": self._check.followed}
        if self._end is not None and (not_indexed := self._check.missing_from(self._end)):
            checked["keys_not_indexed_yet"] = not_indexed
        return merge([self._index.verify(), Report(self._findings, checked)])

    def _report_missing(self) -> None:
        """Report the keys without entry: single entries, or whole files, were lost.

        If only tags are missing there is no fault: the broker indexed tags for a time, and did not for a time.
        """
        gaps = subtract((self._log.min_offset, self._log.max_offset), self._covered)
        holes: dict[Range, list[_Missing]] = {}
        files: dict[Path, list[_Missing]] = {}
        for missing in self._check.missing_before(self._end):
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
