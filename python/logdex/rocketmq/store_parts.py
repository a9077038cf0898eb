"""The parts of a store that is open for writing, and the steps of its life: begin, dispatch, deliver, flush, end.

The order makes it outlast a crash: `abort` is there before anything changes; the log is on the disk before queues and index,
these before the checkpoint vouches for them; `abort` goes last.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from logdex._core import CommitLog, CommitLogWriter, ConsumeQueueWriter, StoreLock, cut_log, delay_levels_ms
from logdex._files import sync_directory
from logdex.report import Report
from logdex.rocketmq.delay_offsets import DelayOffsets
from logdex.rocketmq.dispatch import Dispatcher
from logdex.rocketmq.index_service import INDEXES_TAGS, IndexService
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.queues import QueueSet
from logdex.rocketmq.schedule import ScheduleService
from logdex.rocketmq.store_options import DEFAULT_FILE_SIZE
from logdex.rocketmq.store_recovery import READING, RecoveryPlan, complete_last_file, plan_recovery, sync_files
from logdex.rocketmq.store_root import ABORT, holds_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arro3.core import RecordBatch

    from logdex.rocketmq.store_options import StoreOptions


class StoreParts:
    """Everything of a store that is written: lock, log, queues, index, checkpoint, delay offsets.

    Puts may come from many threads. The other steps are serialised.

    Attributes:
        log: The log; puts go here.
        recovered: What opening found and did.
    """

    log: CommitLogWriter
    recovered: Report

    def __init__(self, root: Path, options: StoreOptions) -> None:
        """Open the store; see `StoreWriter.open`."""
        self._given = StoreLayout(root, str(root / "commitlog"))
        # The process may go to another directory while files are made. What is refused before is named as it was given.
        self._layout = StoreLayout(root.absolute(), str(root.absolute() / "commitlog"))
        self._options = options
        self._levels = delay_levels_ms(options.delay_levels)
        self._step = threading.Lock()
        self._stack = ExitStack()
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise

    # Begin

    def _begin(self) -> None:
        layout = self._layout
        lock = self._given.root / "lock"
        if not lock.exists():
            # Taking the lock makes its file, which what is refused shall not get.
            self._open_log(self._plan()).close()
        layout.root.mkdir(parents=True, exist_ok=True)
        self._stack.callback(StoreLock.take(lock).release)
        # Only now: somebody else may have made a store of it meanwhile.
        plan = self._plan()
        self.log = self._open_log(plan)
        self._stack.callback(self.log.close)
        self.log.keep_checkpoint(layout.checkpoint)
        layout.abort.write_bytes(f"{ABORT} {os.getpid()}\n".encode())
        Path(layout.commit_log).mkdir(exist_ok=True)
        sync_directory(layout.root)
        counts = self._cut(plan)
        self._open_parts(plan)
        counts |= self._catch_up(plan)
        self.recovered = Report([*plan.findings, *self._queues.report.findings], counts)

    def _plan(self) -> RecoveryPlan:
        """Find out what is to be done; what is refused is refused here."""
        options = self._options
        self._offsets = DelayOffsets(self._layout.config)
        begin = options.begin_phy_offset
        for folder in self._given.folders:
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "no directory, as this part of a store is", str(folder))
        ConsumeQueueWriter.check_files(self._given.root, **options.queue_files)
        if not holds_log(self._given.root):
            return RecoveryPlan(begin=begin, end=begin, dispatch=begin, index_from=begin)
        return plan_recovery(
            self._given,
            geometry=(options.hash_slots, options.max_entries),
            sizes=options.queue_files,
            file_size=options.file_size,
            last_exit_ok=options.last_exit_ok,
            truncate=options.truncate,
        )

    def _open_log(self, plan: RecoveryPlan) -> CommitLogWriter:
        """Open the log for writing, which changes nothing until something is put."""
        return CommitLogWriter.open(
            self._layout.commit_log,
            end_phy_offset=plan.end,
            file_size=plan.file_size or self._options.file_size or DEFAULT_FILE_SIZE,
            store_host=self._options.store_host,
            levels=len(self._levels),
            flush=self._options.flush,
        )

    def _cut(self, plan: RecoveryPlan) -> dict[str, int]:
        """Cut off what lies behind the log's end, in the log and in the index, and count what was done."""
        counts = {"log_bytes": plan.end - plan.begin, "messages_cut_off": plan.messages_lost}
        if plan.file_size:
            cut = cut_log(self._layout.commit_log, plan.end).checked
            counts |= {"bytes_cut": cut["bytes_cut"], "log_files_deleted": cut["files_deleted"]}
            complete_last_file(self._layout, plan.file_size)
        # The newest first: a crash in between leaves an index without a hole.
        for path in reversed(plan.index_beyond):
            path.unlink(missing_ok=True)
        if not plan.last_exit_ok:
            # Who was killed may have left them in memory only, and from now on they count as written.
            sync_files(self._layout, plan.begin)
        return counts | {"index_files_deleted": len(plan.index_beyond)}

    def _open_parts(self, plan: RecoveryPlan) -> None:
        layout, options = self._layout, self._options
        self._queues = ConsumeQueueWriter.open(
            layout.root,
            end_phy_offset=plan.end,
            **options.queue_files,
            delay_levels=options.delay_levels,
        )
        self._reader = self._stack.enter_context(CommitLog.open(layout.commit_log))
        tags = options.compat == INDEXES_TAGS if plan.tags is None else plan.tags
        self._index = IndexService.open(
            layout.index,
            mode="a",
            hash_slots=options.hash_slots,
            max_entries=options.max_entries,
            checkpoint=layout.checkpoint,
            zone=options.zone,
            last_exit_ok=plan.index_from is not None,
            tags=tags,
        )
        self._stack.callback(self._index.close)
        self._dispatcher = Dispatcher(self._reader, self._queues, self._index, tags=tags)
        queues = QueueSet(layout, self._reader, READING)
        self._stack.callback(queues.close)
        self._schedule = ScheduleService(self._reader, queues, self._offsets, self._levels, self._deliver)

    def _catch_up(self, plan: RecoveryPlan) -> dict[str, int]:
        """Dispatch what queues and index lack, and learn from the queues which offsets come next."""
        begin = plan.dispatch
        if plan.file_size:
            # A queue that was found damaged is written again from its damage on.
            begin = min(begin, max(self._queues.dispatch_offset, self._reader.min_offset))
        self._dispatcher.offset = begin
        index_from = plan.end if plan.index_from is None else plan.index_from
        indexed = self._dispatcher.index(index_from, min(begin, plan.end))
        dispatched = self._dispatcher.dispatch(plan.end, index_from=index_from)
        table = self._queues.queue_offsets()
        columns = (table.column(name).to_pylist() for name in ("topic", "queue_id", "queue_offset"))
        for topic, queue_id, queue_offset in zip(*columns, strict=True):
            self.log.set_queue_offset(topic, queue_id, queue_offset)
        done = self._queues.report.checked
        return {
            "units_cut": done.get("units_cut", 0),
            "queue_files_deleted": done.get("queue_files_deleted", 0),
            "messages_dispatched": dispatched,
            "units_added": done.get("units", 0),
            "messages_indexed": indexed,
        }

    # Steps

    def dispatch(self) -> int:
        """Tell queues and index of what was put; give the number of messages."""
        with self._step:
            return self._dispatcher.dispatch(self.log.wrote_offset)

    def deliver_due(self, now: int | None = None) -> int:
        """Deliver the parked messages whose time has come, by now where no time is given; give their number."""
        with self._step:
            self._dispatcher.dispatch(self.log.wrote_offset)
            # The queues of parked messages are read from their files.
            self._queues.flush(sync=False)
            return self._schedule.deliver_due(time.time_ns() // 1_000_000 if now is None else now)

    def _deliver(self, messages: RecordBatch) -> None:
        self.log.put_messages(messages, body="stored", park=False)

    def flush(self) -> None:
        """Bring all that was put to the disk: log, queues, index, and the checkpoint that says so."""
        with self._step:
            self._flush()
            files = self._index.files
            if files and len(files[-1]):
                self._index.flush()
            self._offsets.save()

    def flush_queues(self) -> None:
        """Bring the units of queues to the disk."""
        with self._step:
            self._queues.flush()

    def write_checkpoint(self) -> None:
        """Dispatch, bring log and queues to the disk, and say so in the checkpoint."""
        with self._step:
            self._flush()

    def _flush(self) -> None:
        self.log.begin_checkpoint()
        self._dispatcher.dispatch(self.log.wrote_offset)
        self.log.flush()
        self._queues.flush()
        self.log.write_checkpoint(self._dispatcher.store_timestamp)

    def save_delay_offsets(self) -> None:
        """Write down how far the delay levels were delivered."""
        with self._step:
            self._offsets.save()

    def set_delay_offsets(self, offsets: Mapping[int, int]) -> None:
        """Say how far the delay levels were delivered."""
        with self._step:
            self._offsets.offsets.update(offsets)

    # Bounds

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the log."""
        return self._reader.min_offset

    # End

    def close(self) -> None:
        """End as a broker that is shut down; after an error the store is left as after a crash."""
        with self._step, self._stack:
            # First, so that nothing comes after what is dispatched.
            self.log.close()
            self._flush()
            self._index.close()
            self._offsets.save()
            self._layout.abort.unlink(missing_ok=True)
            sync_directory(self._layout.root)

    def abandon(self) -> None:
        """Let everything go and leave the store as after a crash, for the next one to recover."""
        with self._step, self._stack, suppress(OSError):
            self.log.close()
