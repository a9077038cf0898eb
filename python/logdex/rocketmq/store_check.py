"""Checks a store: its log, its queues and its index, each by itself and against the others, both ways."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from logdex.arrow import take_rows
from logdex.report import Finding, Report, merge
from logdex.rocketmq.check import IndexCheck
from logdex.rocketmq.queue_check import QueueCheck
from logdex.rocketmq.read import is_truncated, read_ahead

if TYPE_CHECKING:
    from arro3.core import RecordBatch

    from logdex._core import CommitLog
    from logdex._types import Progress
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queues import QueueSet

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

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: QueueSet, index: IndexService | None) -> None:
        """Prepare; nothing is read."""
        self._layout = layout
        self._log = log
        self._queues = QueueCheck(layout, log, queues)
        self._index = None if index is None else IndexCheck(log, index)
        self._findings: list[Finding] = []
        self._back_in_time = 0

    def run(self, progress: Progress | None) -> Report:
        """Check everything; never raises for what it finds."""
        files = self._log.check_files()
        begin, end = self._log.min_offset, self._log.max_offset
        reader = self._log.scan(columns=_COLUMNS, batch_size=_ROWS, stop="salvage")
        messages = 0
        with closing(read_ahead(reader)) as batches:
            for batch in batches:
                sound = self._without_ghosts(batch)
                messages += sound.num_rows
                if not sound.num_rows:
                    continue
                self._queues.check_messages(sound)
                if self._index is not None:
                    self._index.check_messages(sound)
                if progress is not None:
                    progress(sound.column("phy_offset")[sound.num_rows - 1].as_py() - begin, end - begin)
        checked = {"log_bytes": end - begin, "messages": messages}
        if self._back_in_time:
            # A clock step, or what a cut left and a later crash brought back: nothing tells them apart.
            checked["messages_back_in_time"] = self._back_in_time
        log = Report([*reader.report.findings, *self._findings], checked)
        reports = [files, log, self._checkpoint(), self._queues.finish()]
        if self._index is None:
            reports.append(Report([], {"entries": 0, "entries_followed": 0}, ["key index"]))
        else:
            reports.append(self._index.finish())
        return merge(reports)

    def _without_ghosts(self, batch: RecordBatch) -> RecordBatch:
        """Take out what was cut off before; each run of such messages is one finding."""
        if batch.column("suspect").null_count == batch.num_rows:
            return batch
        suspects = batch.column("suspect").to_pylist()
        self._back_in_time += sum("time-back" in (suspect or "") for suspect in suspects)
        ghosts = [row for row, suspect in enumerate(suspects) if is_truncated(suspect)]
        if ghosts:
            offsets = batch.column("phy_offset").to_pylist()
            for row in ghosts:
                path, at = self._place(offsets[row])
                found = f"a message at {offsets[row]} that was cut off before ({suspects[row]})"
                self._findings.append(Finding(path, at, "log-ghost", "nothing behind the end of the log", found))
            return take_rows(batch, sorted({*range(batch.num_rows)} - {*ghosts}))
        return batch

    def _place(self, offset: int) -> tuple[str, int]:
        """Give the file that holds an offset of the log, and the place in it."""
        for path in reversed(self._log.files):
            begin = int(path.name)
            if begin <= offset:
                return str(path), offset - begin
        return self._layout.commit_log, offset

    def _checkpoint(self) -> Report:
        """Say so where a start would have no checkpoint to go by."""
        checkpoint = self._layout.checkpoint
        if not self._layout.abort.exists() or checkpoint.exists():
            return Report([], {})
        found = "none; after an unclean stop a broker then deletes all index files and reads the whole log"
        return Report([Finding(str(checkpoint), 0, "checkpoint", "the checkpoint file", found)], {})
