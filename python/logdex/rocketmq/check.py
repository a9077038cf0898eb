"""Checks a store: its log, its queues and its index, each by itself and against the others, both ways."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

from logdex import _core
from logdex._core import IndexCrossCheck, QueueCrossCheck, split_cut_off
from logdex.hash_index.files import entry_offset
from logdex.report import Finding, Report, merge
from logdex.rocketmq.find import TAG_PREFIX
from logdex.rocketmq.layout import configured_topics
from logdex.rocketmq.read import Range, read_ahead

if TYPE_CHECKING:
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import CommitLog, IndexFile, Queues
    from logdex._types import Progress
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout

_Missing: TypeAlias = tuple[int, str, str]

_ENTRIES_A_STEP = 65_536
_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "phy_offset",
    "store_timestamp",
    "uniq_key",
    "tags",
    "keys",
    "sys_flag",
    "store_size",
)
_ROWS = 8_192


class StoreCheck:
    """One check of a store; linear in the log, the queues and the index."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: Queues, index: IndexService | None) -> None:
        self._layout = layout
        self._log = log
        unclean = layout.abort.exists()
        self._queues = QueueCrossCheck(
            layout.root,
            log,
            unclean=unclean,
            # logdex writes the files of one queue after the other.
            dispatched_by_queue=unclean and layout.written_by_logdex,
            topics=configured_topics(layout.config),
        )
        self._in_rocksdb = layout.queues.is_dir() and not queues.is_readable()
        self._index = None if index is None else IndexCheck(log, index)
        self._findings: list[Finding] = []
        self._messages = 0
        self._back_in_time = 0

    def run(self, progress: Progress | None) -> Report:
        """Check everything; never raises for what it finds."""
        files = self._log.check_files()
        begin, end = self._log.min_offset, self._log.max_offset
        reader = self._log.scan(columns=_COLUMNS, batch_size=_ROWS, stop="salvage")
        with closing(read_ahead(reader, progress, (begin, end))) as batches:
            for batch in batches:
                self._check_messages(batch)
        checked = {"log_bytes": end - begin, "messages": self._messages}
        if self._back_in_time:
            # A clock step, or truncated messages that a crash brought back: nothing distinguishes them.
            checked["messages_back_in_time"] = self._back_in_time
        log = Report([*reader.report.findings, *self._findings], checked)
        without = "consume queues (kept in a RocksDB)" if self._in_rocksdb else "consume queues"
        absent = [] if self._queues.queues else [without]
        queues = merge([self._queues.finish(), Report(absent=absent)])
        no_index = Report([], {"entries": 0, "entries_followed": 0}, ["key index"])
        index = no_index if self._index is None else self._index.finish()
        return merge([files, log, self._checkpoint(), queues, index])

    def _check_messages(self, batch: RecordBatch) -> None:
        """Compare a batch of messages with the queues and the index; each truncated message is a finding."""
        batches, cut_off, back_in_time = split_cut_off(batch)
        self._back_in_time += back_in_time
        for offset, suspect in cut_off:
            found = f"a message at {offset} that was truncated before ({suspect})"
            self._findings.append(
                Finding(*self._log.place(offset), "log-ghost", "nothing after the end of the log", found)
            )
        for valid in batches:
            self._messages += valid.num_rows
            self._queues.check(valid)
            if self._index is not None:
                self._index.check_messages(valid)

    def _checkpoint(self) -> Report:
        """Report if the next start has no checkpoint."""
        checkpoint = self._layout.checkpoint
        if not self._layout.abort.exists() or checkpoint.exists():
            return Report([], {})
        found = "none; after an unclean stop a broker then deletes all index files and reads the whole log"
        return Report([Finding(str(checkpoint), 0, "checkpoint", "the checkpoint file", found)], {})


class IndexCheck:
    """Compares index entries and messages, both ways. Messages that the broker had not indexed yet are not a fault."""

    def __init__(self, log: CommitLog, index: IndexService) -> None:
        self._log = log
        self._index = index
        self._files: list[IndexFile] = [file for file in index.files if len(file)]
        self._tags = bool(_core.index_holds_tags(log, self._files))
        self._check = IndexCrossCheck(self._files, tags=self._tags, log_begin=log.min_offset)
        # The messages at a file's ends may have keys in the files next to it.
        headers = [file.header for file in self._files]
        self._covered = [(header.begin_phy_offset, header.end_phy_offset + 1) for header in headers]
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
            found = "no valid message" if self._log.message(offset) is None else "a message without such a key"
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
        gaps = _core.subtract_ranges((self._log.min_offset, self._log.max_offset), self._covered)
        headers = [(file.path, file.header) for file in self._files]
        spans = [(path, header.begin_phy_offset, header.end_phy_offset) for path, header in headers]
        holes: dict[Range, list[_Missing]] = {}
        files: dict[Path, list[_Missing]] = {}
        for missing in self._check.missing_before(self._end):
            offset = missing[0]
            hole = next((gap for gap in gaps if gap[0] <= offset < gap[1]), None)
            if hole is not None:
                holes.setdefault(hole, []).append(missing)
                continue
            path = next((path for path, begin, end in spans if begin <= offset <= end), self._index.directory)
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
