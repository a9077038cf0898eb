"""Checks a store: its log, its queues and its index, each by itself and against the others, both ways."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from logdex._core import QueueCrossCheck, last_message, split_cut_off
from logdex.report import Finding, Report, merge
from logdex.rocketmq.index_check import IndexCheck
from logdex.rocketmq.read_ahead import read_ahead
from logdex.rocketmq.topics import configured_topics

if TYPE_CHECKING:
    from arro3.core import RecordBatch

    from logdex._types import Progress
    from logdex.hash_index import IndexService
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queue_set import QueueSet

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
        """Check the files of the queues and open the index."""
        self._layout = layout
        self._log = log
        unclean = layout.abort.exists()
        self._queues = QueueCrossCheck(
            layout.root,
            log.core,
            unclean=unclean,
            # logdex writes the files of one queue after the other.
            dispatched_by_queue=unclean and layout.written_by_logdex,
            topics=configured_topics(layout.config),
        )
        in_rocksdb = layout.queues.is_dir() and not queues.is_readable()
        self._without_queues = "consume queues (kept in a RocksDB)" if in_rocksdb else "consume queues"
        self._index = None if index is None else IndexCheck(log, index)
        self._findings: list[Finding] = []
        self._messages = 0
        self._back_in_time = 0

    def run(self, progress: Progress | None) -> Report:
        """Check everything; never raises for what it finds."""
        files = self._log.check_files()
        begin, end = self._log.min_offset, self._log.max_offset
        reader = self._log.scan(columns=_COLUMNS, batch_size=_ROWS, stop="salvage")
        with closing(read_ahead(reader)) as batches:
            for batch in batches:
                self._check_messages(batch)
                if progress is not None and (last := last_message(batch)) is not None:
                    progress(min(last[0], end) - begin, end - begin)
        checked = {"log_bytes": end - begin, "messages": self._messages}
        if self._back_in_time:
            # A clock step, or truncated messages that a crash brought back: nothing distinguishes them.
            checked["messages_back_in_time"] = self._back_in_time
        log = Report([*reader.report.findings, *self._findings], checked)
        absent = [] if self._queues.queues else [self._without_queues]
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
                Finding(*self._log.core.place(offset), "log-ghost", "nothing behind the end of the log", found)
            )
        for valid in batches:
            self._messages += valid.num_rows
            self._queues.follow(valid)
            if self._index is not None:
                self._index.check_messages(valid)

    def _checkpoint(self) -> Report:
        """Report if the next start has no checkpoint."""
        checkpoint = self._layout.checkpoint
        if not self._layout.abort.exists() or checkpoint.exists():
            return Report([], {})
        found = "none; after an unclean stop a broker then deletes all index files and reads the whole log"
        return Report([Finding(str(checkpoint), 0, "checkpoint", "the checkpoint file", found)], {})
