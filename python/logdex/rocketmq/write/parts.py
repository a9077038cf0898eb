"""The parts of a store that is open for writing, and their steps: open, dispatch, deliver, flush, close.

The order makes the store survive a crash: `abort` exists before anything changes; the log is on the disk before queues and index,
and these before the checkpoint records them; `abort` is deleted last.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from logdex._core import (
    CommitLog,
    CommitLogWriter,
    ConsumeQueueWriter,
    Queues,
    StoreLock,
    ThreadLock,
    broker_lock_holder,
    check_own_parts,
    delay_levels_ms,
    delete_log_file,
    indexed_messages,
    last_message,
    make_directory,
    replace_file,
    sync_directory,
    sync_file,
)
from logdex._files import refuse_broker_directory
from logdex.arrow import INDEXED_COLUMNS
from logdex.errors import CorruptFileError, LockedError
from logdex.rocketmq.index_service import INDEXES_TAGS, IndexService
from logdex.rocketmq.layout import ABORT, StoreLayout
from logdex.rocketmq.write.options import DEFAULT_FILE_SIZE
from logdex.rocketmq.write.recovery import READING, RecoveryPlan, RecoveryReport, holds_log, plan_recovery
from logdex.rocketmq.write.retention import Deleted, DiskWatch
from logdex.rocketmq.write.schedule import DelayOffsets, ScheduleService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from arro3.core import RecordBatch

    from logdex.rocketmq.write.options import StoreOptions


_COLUMNS = tuple(dict.fromkeys([*ConsumeQueueWriter.columns, *INDEXED_COLUMNS]))
_WORTH_THREADS_BYTES = 16 << 20


@dataclass(slots=True)
class Dispatcher:
    """Replays the messages of a log, in their order, into the queues and the index. Not for several threads at a time.

    Source: DefaultMessageStore.ReputMessageService, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex.
    """

    _log: CommitLog
    _queues: ConsumeQueueWriter
    _index: IndexService
    _tags: bool
    offset: int
    """Messages before this offset of the log are dispatched."""
    store_timestamp: int = 0
    """Store time of the last message that was dispatched, in ms; 0 before the first."""

    def dispatch(self, end: int, *, index_from: int = 0) -> int:
        """Dispatch the messages before `end` that are not dispatched; return their number.

        The queues come before the index, so that a message that is found by its key is also in its queue. Messages before
        `index_from` are not indexed.

        Raises:
            CorruptFileError: The log ends before `end`: another process has changed it.
            OSError: An I/O error. What was dispatched stays; the next call dispatches the rest.
        """
        count = 0
        for begin, part_end in ((0, min(index_from, end)), (index_from, end)):
            for batch in self._messages(max(begin, self.offset), part_end):
                self._queues.append_batch(batch)
                if begin == index_from:
                    self._index.index_once(batch, tags=self._tags)
                count += batch.num_rows
                self.offset, self.store_timestamp = last_message(batch) or (self.offset, self.store_timestamp)
        self.offset = max(self.offset, end)
        return count

    def index(self, begin: int, end: int) -> int:
        """Index the messages in a range of the log, without the queues; return the number of messages with a key."""
        count = 0
        for batch in self._messages(begin, end):
            if self._index.index_once(batch, tags=self._tags):
                count += indexed_messages(batch, tags=self._tags)
        return count

    def _messages(self, begin: int, end: int) -> Iterator[RecordBatch]:
        if begin >= end:
            return
        reader = self._log.scan(
            begin_phy_offset=begin,
            end_phy_offset=end,
            columns=_COLUMNS,
            body="stored",
            threads=1 if end - begin < _WORTH_THREADS_BYTES else 2,
            check_crc=False,
        )
        yield from (batch for batch in reader if batch.num_rows)
        for finding in reader.report.findings:
            raise CorruptFileError(finding.path, finding.offset, finding.expected, finding.found)
        if reader.end_offset is not None and reader.end_offset < end:
            path, offset = self._log.place(reader.end_offset)
            raise CorruptFileError(path, offset, f"messages up to offset {end}", "the end of the log")


_LEAST_PAGES = 2
"""flushConsumeQueueLeastPages."""
_FILES_A_ROUND = 10
"""DELETE_FILES_BATCH_MAX."""


class StoreParts:
    """The files of a store that are written: lock, log, queues, index, checkpoint, delay offsets.

    Any thread may put into `log`. The other steps are serialised.
    """

    log: CommitLogWriter
    recovered: RecoveryReport
    """The faults that opening found, and the repairs."""

    def __init__(self, root: Path, options: StoreOptions, *, dry_run: bool = False) -> None:
        """Open a store. A dry run returns the same findings and counts, changes nothing, and leaves nothing open."""
        self._given = StoreLayout(root, root / "commitlog")
        # The process may change its directory while files are created. Errors before that name the path as it was given.
        self._layout = StoreLayout(root.absolute(), root.absolute() / "commitlog")
        if options.multi_dispatch is None:
            options = replace(options, multi_dispatch=self._given.has_light_queues)
        self.options = options
        self._dry_run = dry_run
        self._levels = delay_levels_ms(options.delay_levels)
        self._step = ThreadLock(keeps_failure=True)
        self.check = self._step.check
        """Raise the first failed write or fsync of a step, after which nothing is written. The log checks its own."""
        # What `abandon` calls, the last one first. Each may be called again, so that no interrupt leaves one out.
        self._releases: list[Callable[[], object]] = []
        self.released = False
        # No object here may refer to this one: if an exception drops it, its locks must go at once.
        try:
            self._begin()
        except BaseException:
            self.abandon()
            raise
        if dry_run:
            self.abandon()

    # Begin

    def _begin(self) -> None:
        check_own_parts(self._given.root)
        plan = self._begin_dry() if self._dry_run else self._begin_writing()
        counts = self._truncate(plan)
        self._open_parts(plan)
        counts |= self._catch_up(plan)
        queues = self._queues.report.findings
        # Messages cannot get other queue offsets, and such a topic is not a valid directory name.
        left = [*plan.left, *(finding for finding in queues if finding.kind in ("queue-offset", "queue-name"))]
        self.recovered = RecoveryReport([*plan.findings, *queues], counts, left=left, begin=plan.begin)

    def _begin_dry(self) -> RecoveryPlan:
        lock = self._given.root / "lock"
        if (pid := broker_lock_holder(lock)) is not None:
            raise LockedError(str(lock), pid)
        plan = self._plan()
        self.log = self._open_log(plan)
        self._releases.append(self.log.close)
        return plan

    def _begin_writing(self) -> RecoveryPlan:
        layout = self._layout
        lock = self._given.root / "lock"
        if not lock.exists():
            # Taking the lock creates its file. Check first, so that a rejected directory stays untouched.
            self._open_log(self._plan()).close()
        make_directory(layout.root)
        self._releases.append(StoreLock.take(lock).release)
        # Again, under the lock: another process may have created a store meanwhile.
        plan = self._plan()
        self.log = self._open_log(plan)
        self._releases.append(self.log.close)
        self.log.keep_checkpoint(layout.checkpoint)
        replace_file(layout.abort, f"{ABORT} {os.getpid()}\n".encode())
        layout.commit_log.mkdir(exist_ok=True)
        sync_directory(layout.root)
        return plan

    def _plan(self) -> RecoveryPlan:
        """Find out what must be done; every refusal happens here."""
        options = self.options
        self._offsets = DelayOffsets(self._layout.config)
        begin = options.begin_phy_offset
        for folder in self._given.folders:
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "expected a directory, as this part of a store is", str(folder))
        queue_end = ConsumeQueueWriter.check_files(self._given.root, **options.queue_files)
        if not holds_log(self._given.root):
            refuse_broker_directory(self._given.root)
            return RecoveryPlan(begin=begin, end=begin, dispatch=begin, index_from=begin)
        return plan_recovery(self._given, options, queue_end)

    def _open_log(self, plan: RecoveryPlan) -> CommitLogWriter:
        """Open the log for writing; nothing changes before the first put."""
        return CommitLogWriter.open(
            self._layout.commit_log,
            end_phy_offset=plan.end,
            file_size=plan.file_size or self.options.file_size or DEFAULT_FILE_SIZE,
            store_host=self.options.store_host,
            levels=len(self._levels),
            flush=self.options.flush,
            compat=self.options.compat,
            max_message_size=self.options.max_message_size,
            multi_dispatch=bool(self.options.multi_dispatch),
            append=self.options.append,
            warm=self.options.warm,
            lock_memory=self.options.lock_memory,
        )

    def _truncate(self, plan: RecoveryPlan) -> dict[str, int]:
        """Truncate the log and the index at the end of the log; return counts of what was removed."""
        counts = plan.truncate(self._layout.commit_log, dry_run=self._dry_run)
        if self._dry_run:
            return counts
        if plan.file_size:
            # No broker starts with a shorter file.
            with CommitLog.open(self._layout.commit_log) as log:
                sync_file(log.files[-1], plan.file_size)
        # The newest first: a crash in between leaves no hole in the index.
        for path in reversed(plan.index_beyond):
            path.unlink(missing_ok=True)
        return counts

    def _open_parts(self, plan: RecoveryPlan) -> None:
        layout, options = self._layout, self.options
        self._queues = ConsumeQueueWriter.open(
            layout.root,
            end_phy_offset=plan.end,
            begin_phy_offset=None if plan.last_exit_ok else plan.dispatch,
            delay_levels=options.delay_levels,
            dry_run=self._dry_run,
            multi_dispatch=bool(options.multi_dispatch),
            **options.queue_files,
        )
        self._reader = CommitLog.open(layout.commit_log)
        self._releases.append(self._reader.close)
        tags = options.compat == INDEXES_TAGS if plan.tags is None else plan.tags
        self._index = IndexService.open_to_recover(
            layout.index,
            geometry=(options.hash_slots, options.max_entries),
            checkpoint=layout.checkpoint,
            zone=options.zone,
            last_exit_ok=plan.index_from is not None,
            tags=tags,
            log_end=plan.end,
            dry_run=self._dry_run,
            without=frozenset(path.name for path in plan.index_beyond) if self._dry_run else frozenset(),
        )
        self._releases.append(self._index.release)
        begin = plan.dispatch
        if plan.file_size:
            # A damaged queue is written again from its damage on.
            begin = min(begin, max(self._queues.dispatch_offset, self._reader.min_offset))
        self._dispatcher = Dispatcher(self._reader, self._queues, self._index, tags, begin)
        queues = Queues(layout.root, self._reader, **READING)
        self._releases.append(queues.close)
        self._schedule = ScheduleService(queues, self._offsets, self._levels, self.log, options.flush == "sync")
        self._disk = DiskWatch([layout.commit_log, layout.queues], options.retention, options.zone)
        self._cleaned_to = 0

    def _catch_up(self, plan: RecoveryPlan) -> dict[str, int]:
        """Dispatch what queues and index lack, and give the log the next offset of each queue."""
        index_from = plan.end if plan.index_from is None else plan.index_from
        indexed = self._dispatcher.index(index_from, min(self._dispatcher.offset, plan.end))
        dispatched = self._dispatcher.dispatch(plan.end, index_from=index_from)
        # Readers that open the store now see all messages that were acknowledged before.
        self._queues.flush(sync=False)
        self.log.set_queue_offsets(self._queues.queue_offsets())
        done, of_index = self._queues.report.checked, self._index.changes
        of_index["index_files_deleted"] += len(plan.index_beyond)
        return {
            "units_cut": done.get("units_cut", 0),
            "queue_files_deleted": done.get("queue_files_deleted", 0),
            "messages_dispatched": dispatched,
            "units_added": done.get("units", 0),
            "messages_indexed": indexed,
            **of_index,
        }

    # Steps

    @property
    def failure(self) -> tuple[OSError, datetime] | None:
        """The first failed write or fsync, of any part, and when it was; None: none."""
        return self._step.failure or self.log.failure

    def dispatch(self) -> int:
        """Dispatch what was put to queues and index; return the number of messages."""
        with self._step.hold():
            self.log.check()
            return self._dispatcher.dispatch(self.log.committed_offset)

    def deliver_due(self, now: int | None = None) -> int:
        """Deliver the parked messages that are due, by default now; return their number."""
        with self._step.hold():
            self._dispatcher.dispatch(self.log.committed_offset)
            self.check_disk()
            # The queues of parked messages are read from files.
            self._queues.flush(sync=False)
            return self._schedule.deliver_due(time.time_ns() // 1_000_000 if now is None else now)

    def flush(self) -> None:
        """Flush log, queues and index to the disk, and write the checkpoint."""
        with self._step.hold():
            self._flush()
            files = self._index.files
            if files and len(files[-1]):
                self._index.flush()
            self._offsets.save()

    @property
    def dispatched_offset(self) -> int:
        """Offset in the log before which messages are dispatched."""
        return self._dispatcher.offset

    def show_queues(self) -> list[tuple[str, int, int]]:
        """Write the units of the queues to their files, so that readers see them.

        Return the queues that grew since the last call: topic, queue id, and queue offset of the next message.
        """
        with self._step.hold():
            self._queues.flush(sync=False)
            return self._queues.take_grown()

    def flush_queues(self) -> None:
        """Flush the queues with many new units to the disk; `write_checkpoint` flushes the others."""
        with self._step.hold():
            self._queues.flush(least_pages=_LEAST_PAGES)

    def write_checkpoint(self) -> None:
        """Dispatch, flush log and queues to the disk, and write the checkpoint."""
        with self._step.hold():
            self._flush()

    def _flush(self) -> None:
        self.log.begin_checkpoint()
        self.log.commit()
        self._dispatcher.dispatch(self.log.committed_offset)
        self.log.flush()
        self._queues.flush()
        self.log.write_checkpoint(self._dispatcher.store_timestamp)

    def save_delay_offsets(self) -> None:
        """Save up to where the delay levels were delivered."""
        with self._step.hold():
            self._offsets.save()

    def set_delay_offsets(self, offsets: Mapping[int, int]) -> None:
        """Set up to where the delay levels were delivered."""
        with self._step.hold():
            self._offsets.offsets.update(offsets)

    # Retention

    def check_disk(self) -> None:
        """Raise OSError if the disk was too full for puts when it was measured last."""
        self._disk.check()

    def clean(self) -> None:
        """Measure the disk, and delete what is expired, as a broker does at intervals."""
        self.delete_expired(None, at_any_hour=False, most=_FILES_A_ROUND)

    def delete_expired(
        self, reserved_hours: float | None, *, at_any_hour: bool = True, most: int | None = None
    ) -> Deleted:
        """Delete expired log files, then the files of queues and index whose messages are gone.

        The order survives a crash at any point: the queues of the messages are on the disk before their log file goes, the oldest
        file goes first, and its name is gone from the disk before that of the next one. What a crash leaves of queues and index
        goes with the next call.
        """
        self._disk.measure()
        written = self.log.committed_offset
        # The newest file stays, and the one that is written. A file that is prepared may be newer.
        files = [Path(path) for path in self._reader.files[:-1]]
        files = [path for path in files if int(path.name) + self.log.file_size < written]
        log_files = []
        expired = self._disk.expired(files, reserved_hours, by_age=at_any_hour or self._disk.is_time())[:most]
        if expired:
            self.write_checkpoint()
        for path in expired:
            # One file at a time, so that dispatching does not wait for all of them.
            with self._step.hold():
                self.log.check()
                if delete_log_file(path):
                    log_files.append(path)
        with self._step.hold():
            begin = self._reader.min_offset
            if begin <= self._cleaned_to:
                return Deleted(log_files, [], [], begin)
            queue_files = self._queues.delete_expired(begin)
            index_files = self._index.delete_expired_files(begin)
            self._cleaned_to = begin
        return Deleted(log_files, queue_files, index_files, begin)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the log."""
        return self._reader.min_offset

    # End

    def close(self) -> None:
        """Close as a broker that is shut down; after an error the store is left as after a crash."""
        try:
            with self._step.hold():
                # First, so that no put comes after the last dispatch.
                self.log.close()
                self._flush()
                self._index.close()
                self._offsets.save()
                self._layout.abort.unlink(missing_ok=True)
                sync_directory(self._layout.root)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and leave the store as after a crash, unless it is closed; the next start recovers it.

        It takes no lock and may be called again: the end of a writer that was dropped may run in any thread, at any line.
        """
        for release in reversed(self._releases):
            with suppress(OSError):
                release()
        self.released = True
