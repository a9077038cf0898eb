"""The key index of a RocketMQ store: an index directory with the broker's lock, checkpoint, dispatch rules and recovery.

Source of the rules: IndexService of RocketMQ 4.9.3; see docs/formats/rocketmq-index.md.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from logdex import _core
from logdex._core import CommitLog, StoreCheckpoint, broker_lock_holder, locate
from logdex._filesystem import in_filesystem
from logdex._types import Access, Compat, check_int64
from logdex.arrow import INDEXED_COLUMNS, entry_batches, message_batches
from logdex.errors import LockedError
from logdex.hash_index.index_directory import IndexDirectory
from logdex.hash_index.query import CLOCK_SLACK_MS
from logdex.source import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import tzinfo
    from os import PathLike
    from pathlib import Path

    from arro3.core import RecordBatch
    from typing_extensions import Self

    from logdex._core import IndexFile, IndexFiles, IndexHeader
    from logdex.hash_index.index_writer import IndexWriter

_log = logging.getLogger(__name__)

INDEXES_TAGS: Final = "5.5.0"
"""The release that indexes tags as well (IndexService#buildIndex)."""

MAX_MSGS_NUM_BATCH = 64
"""The broker's limit on one answer (MessageStoreConfig#maxMsgsNumBatch)."""


def refuse_running_broker(directory: Path) -> None:
    """Raise `LockedError` if a broker holds the store of an index directory; if this process does, there is no broker."""
    lock = directory.absolute().parent / "lock"
    pid = broker_lock_holder(lock)
    if pid is not None and pid != os.getpid():
        raise LockedError(str(lock), pid)


class IndexService(IndexDirectory):
    """Puts keys into the newest file of a store's index and finds candidates in all of its files.

    Open it with `IndexService.open`. One service in mode "a" writes to a directory at a time; any number reads. Puts on one
    service are serialised; queries run at the same time. It pickles as a reader, by path and options.

    Example:
        >>> import tempfile
        >>> from logdex.rocketmq import IndexService
        >>> folder = tempfile.mkdtemp()
        >>> with IndexService.open(folder, mode="a", hash_slots=10, max_entries=100) as index:
        ...     entry = {"topic": ["T"], "key": ["k"], "phy_offset": [7], "store_timestamp": [1700000000000]}
        ...     print(index.put_batch(entry), index.query_offset("T", "k").phy_offsets)
        1 [7]
    """

    kind = Kind.INDEX.value

    def __init__(self, directory: Path, mode: Literal["r", "a"], options: dict[str, Any]) -> None:
        super().__init__(directory, mode, options)
        self._compat: Compat | None = options["compat"]
        root = directory.absolute().parent
        of_store = root / "checkpoint" if (root / "commitlog").is_dir() else None
        self._checkpoint: Path | None = options["checkpoint"] or of_store
        self._unfinished = False
        self._repaired = self._deleted = 0

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        *,
        mode: Literal["r", "a"] = "r",
        hash_slots: int | None = None,
        max_entries: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        zone: str | tzinfo | None = None,
        last_exit_ok: bool = True,
        clock_slack_ms: int = CLOCK_SLACK_MS,
        access: Access = "auto",
        compat: Compat | None = None,
        tags: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: object | None = None,
    ) -> Self:
        """Open an index directory.

        Args:
            directory: `index` under a store. Mode "a" creates it with the first put.
            mode: "r" reads and changes nothing; "a" reads and puts.
            hash_slots: Slots of each file (maxHashSlotNum); None: inferred from the fullest file, 5,000,000 for a new directory.
            max_entries: Entries of each file plus one (maxIndexNum); None: as above, 20,000,000.
            checkpoint: The file that records which files are on disk; None: that of the store around the directory.
            zone: Time zone of file names, by name or as tzinfo: the broker's; None: the machine's.
            last_exit_ok: False after a crash. The files are then repaired from their entries ("r": in memory), and "a" indexes
                again from the log what was lost, if there is a log next to the directory. With `compat` the broker's rule:
                files that end after the checkpoint are deleted ("a") or left out ("r").
            clock_slack_ms: How far the clock may step within one file before a search by time may miss a message.
            access: "mmap", "pread", or "auto": map, and read plainly where mapping fails.
            compat: A broker's release, to answer as it does, faults included; None answers correctly.
            tags: Whether tags are indexed again from the log, if no indexed message has any.
            storage_options: Options of the store of a URL; see `MessageStore.open`.
            filesystem: See `MessageStore.open`.

        Raises:
            FileNotFoundError: Mode "r" and the directory does not exist, or it holds something else than index files.
            LockedError: Mode "a" and another writer holds the directory or its newest file.
            LockedError: Mode "a" and a running broker holds the store.
            GeometryError: Slots and entries were not given and cannot be inferred from the files.
            ValueError: The files have other slots and entries than those given; with `compat` only in mode "a".
        """
        if compat is not None and compat not in get_args(Compat):
            raise ValueError(f"compat must be None or one of {', '.join(get_args(Compat))}, not {compat!r}")
        if filesystem is not None:
            directory = in_filesystem(directory, filesystem, storage_options)
            checkpoint = None if checkpoint is None else in_filesystem(checkpoint, filesystem)
        path = None if checkpoint is None else locate(checkpoint, storage_options)
        return cls._open(
            directory,
            mode,
            storage_options,
            hash_slots=hash_slots,
            max_entries=max_entries,
            # The process may change its directory while files are made.
            checkpoint=path.absolute() if path is not None and mode == "a" else path,
            zone=zone,
            last_exit_ok=last_exit_ok,
            clock_slack_ms=clock_slack_ms,
            access=access,
            compat=compat,
            tags=tags,
        )

    @classmethod
    def open_to_recover(
        cls,
        directory: Path,
        *,
        geometry: tuple[int | None, int | None],
        checkpoint: Path,
        zone: str | tzinfo | None,
        last_exit_ok: bool,
        tags: bool,
        log_end: int,
        dry_run: bool,
        without: frozenset[str],
    ) -> Self:
        """Open the index of a recovering store for puts.

        `log_end` is the end of its log. A dry run counts the same changes without making them. It ignores the files `without`,
        which the recovery deletes.
        """
        hash_slots, max_entries = geometry
        return cls._open(
            directory,
            "a",
            None,
            hash_slots=hash_slots,
            max_entries=max_entries,
            checkpoint=checkpoint,
            zone=zone,
            last_exit_ok=last_exit_ok,
            clock_slack_ms=CLOCK_SLACK_MS,
            access="auto",
            compat=None,
            tags=tags,
            log_end=log_end,
            dry_run=dry_run,
            without=without,
        )

    @property
    def changes(self) -> dict[str, int]:
        """Return the changes by opening and puts; in a dry run, the changes that would be made."""
        writer = self._writable()
        return {
            "index_files_repaired": self._repaired,
            "index_files_deleted": self._deleted,
            "index_files_added": writer.files_added,
            "index_entries_added": writer.entries,
        }

    def _load(self) -> None:
        if self._mode == "a":
            refuse_running_broker(self._directory)
        super()._load()

    def _recover_after_crash(self) -> None:
        if self._options["last_exit_ok"]:
            return
        if self._compat:
            self._drop_beyond_checkpoint()
        elif self._writer is not None:
            self._recover_files(self._writer)

    def _writable(self) -> IndexWriter:
        writer = super()._writable()
        refuse_running_broker(self._directory)
        return writer

    def _on_full(self) -> Callable[[int], None]:
        return partial(_record_full, self._checkpoint)

    # Puts

    def build_index(self, messages: Any, *, tags: bool | None = None) -> int:  # noqa: ANN401 -- anything with the PyCapsule interface
        """Index messages as a broker's dispatcher does: the unique key and each of the space-separated keys.

        Messages before the newest file's last offset are indexed already and skipped; so are rolled-back ones. Source:
        IndexService#buildIndex.

        Args:
            messages: Arrow data with the message columns, in log order, or `Message` objects.
            tags: Index tags, too; None: only with `compat="5.5.0"`.

        Returns:
            The number of index entries put.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written.
        """
        with self._lock.hold():
            return self._build_all(self._writable(), messages, tags)

    def index_once(self, messages: Any, *, tags: bool | None = None) -> int:  # noqa: ANN401 -- passed on
        """Index messages as `build_index` does, and pass over the last indexed one, too, which a broker indexes again."""
        with self._lock.hold():
            self._unfinished = True
            return self._build_all(self._writable(), messages, tags)

    def _build_all(self, writer: IndexWriter, messages: Any, tags: bool | None) -> int:  # noqa: ANN401, FBT001 -- passed on
        """Index messages. After an error the next call continues after what was put, also between the keys of a message."""
        tags = self._compat == INDEXES_TAGS if tags is None else tags
        # An exception at any line leaves the mark.
        unfinished, self._unfinished = self._unfinished, True
        count = sum(self._build(writer, batch, tags=tags, once=unfinished) for batch in message_batches(messages))
        self._unfinished = False
        return count

    def _build(self, writer: IndexWriter, messages: RecordBatch, *, tags: bool, once: bool) -> int:
        if not messages.num_rows:
            return 0
        if writer.takes_no_more:
            # Messages that cannot be indexed are refused before a file is made for them.
            _core.index_entries(messages, end_phy_offset=0, tags=tags)
        # Before any filter, as upstream: even a message that is not indexed creates or rolls the file.
        end = writer.begin_put()
        entries = _core.index_entries(messages, end_phy_offset=end, tags=tags)
        last_row = entries.column("row")[entries.num_rows - 1].as_py() if entries.num_rows else None
        # COMPAT(rocketmq IndexService#buildIndex): a broker that dispatches its last message again indexes it twice.
        if once and entries.num_rows and entries.column("phy_offset")[0].as_py() <= end:
            if self._options.get("dry_run") and writer.entries:
                # The entries of a dry run are in no file, and it put whole messages.
                entries = _core.index_entries(messages, end_phy_offset=end + 1, tags=tags)
            else:
                held = [file for file in self._files.refresh() if len(file)]
                entries = _core.unput_entries(entries, held, end_phy_offset=end)
        _put_entries(writer, entries)
        if last_row != messages.num_rows - 1:
            writer.begin_put()
        return entries.num_rows

    def delete_expired_files(self, min_phy_offset: int) -> list[Path]:
        """Delete the oldest files whose messages are all gone from the log; the newest file always stays.

        Source: IndexService#deleteExpiredFile.

        Args:
            min_phy_offset: The log's first offset.

        Returns:
            The paths of the deleted files.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be deleted; those before it are gone.
        """
        check_int64(min_phy_offset=min_phy_offset)
        removed: list[Path] = []
        with self._lock.hold():
            self._writable().lock_directory()
            # NOTE: the newest file stays although its messages may be gone (B33): the next one is seeded from it.
            for file in self._files.refresh()[:-1]:
                if file.header.end_phy_offset >= min_phy_offset:
                    break
                file.path.unlink(missing_ok=True)
                removed.append(file.path)
        return removed

    # Answers of a broker

    def _limit(self, max_num: int | None) -> int | None:
        # COMPAT(rocketmq IndexService#queryOffset, B16): no answer holds more than 64.
        limits = [each for each in (max_num, self._compat and MAX_MSGS_NUM_BATCH) if each is not None]
        return min(limits, default=None)

    def _newest_header(self, files: Sequence[IndexFile]) -> IndexHeader | None:
        return files[-1].header if files and self._compat else super()._newest_header(files)

    # Recovery

    def recover(self, commit_log: CommitLog, *, message_index_safe: bool = False) -> int:
        """Index again what a start after a crash dispatches again; for a service opened with `last_exit_ok=False`.

        By default that is everything that the log holds beyond the index, and the missing entries of the last indexed messages.
        With `compat` it is the log from the beginning of the file that the checkpoint leads to; with the broker's setting
        messageIndexSafe, the index's time of the checkpoint counts, too. What the newest file covers is dropped, and what older,
        deleted files held stays lost. Source: CommitLog#recoverAbnormally, #isMappedFileMatchedRecover.

        Returns:
            The number of index entries put.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be read or written.
        """
        with self._lock.hold():
            writer = self._writable()
            if self._compat is None:
                return self._index_again(writer, commit_log, self._holds_tags(commit_log))
            path = self._checkpoint
            # COMPAT(rocketmq StoreCheckpoint): a missing file reads as zeros, and the whole log is dispatched.
            checkpoint = StoreCheckpoint.open(path) if path is not None and path.exists() else None
            _, end, dispatch = commit_log.recovery(
                checkpoint, last_exit_ok=False, message_index_safe=message_index_safe
            )
            if dispatch >= end:
                return 0
            messages = commit_log.scan(begin_phy_offset=dispatch, end_phy_offset=end, columns=INDEXED_COLUMNS)
            return self._build_all(writer, messages, None)

    def _drop_beyond_checkpoint(self) -> None:
        """Drop the files that end after the checkpoint's index time.

        COMPAT(rocketmq IndexService#load, B4): their entries are lost to the index, unless the log is dispatched again.
        """
        limit = 0
        if self._checkpoint is not None and self._checkpoint.exists():
            limit = StoreCheckpoint.open(self._checkpoint).index_msg_timestamp
        beyond = [file for file in self._files.refresh() if file.header.end_timestamp > limit]
        for file in beyond if self._mode == "a" else ():
            file.path.unlink(missing_ok=True)
        self._files.leave_out(beyond)

    def _recover_files(self, writer: IndexWriter) -> None:
        """Repair all files after a crash, and index again from the log next to the directory what was lost.

        Nothing is put twice, so the files become those that the broker would have written without the crash.
        """
        dry_run = self._options.get("dry_run", False)
        self._repaired = self._files.repair(dry_run=dry_run)
        directory = self._directory.absolute().parent / "commitlog"
        if not directory.is_dir():
            return
        with CommitLog.open(directory, access=self._files.access) as log:
            # Before anything is deleted, because the remaining files may hold no message with tags.
            tags = self._holds_tags(log)
            lost = _after_first_hole(self._files, log, self._log_end(log))
            self._deleted = len(lost)
            if dry_run:
                self._files.leave_out(lost)
            # The newest first, so that a crash in between leaves a directory without a hole.
            for file in () if dry_run else reversed(lost):
                _log.warning("%s: deleted, to be indexed again from the log", file.path)
                file.path.unlink(missing_ok=True)
            self._index_again(writer, log, tags)
        writer.flush()

    def _holds_tags(self, log: CommitLog) -> bool:
        held = _core.index_holds_tags(log, self._files.refresh())
        return bool(self._options["tags"]) if held is None else held

    def _index_again(self, writer: IndexWriter, log: CommitLog, tags: bool) -> int:  # noqa: FBT001 -- passed on
        """Index what the log holds beyond the last entry. Return the number of entries put."""
        held = _by_offset(self._files.refresh())
        begin = log.min_offset
        count = 0
        if held:
            newest = max(held, key=lambda file: file.header.end_phy_offset)
            # The last message may have been indexed in part, and a lost page may hold the end of an entry that seems whole.
            for entries in _core.missing_index_entries(log, held, newest, tags=tags):
                count += _put_entries(writer, entries)
            begin = max(begin, newest.header.end_phy_offset + 1)
        end = self._log_end(log)
        if begin < end:
            scan = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=INDEXED_COLUMNS)
            count += self._build_all(writer, scan, tags)
        return count

    def _log_end(self, log: CommitLog) -> int:
        end: int | None = self._options.get("log_end")
        return log.max_offset if end is None else end


def _record_full(path: Path | None, end_timestamp: int) -> None:
    """Record in the checkpoint that a full file, which ends at a time, is on the disk."""
    if path is None or end_timestamp <= 0:
        return
    with StoreCheckpoint.open(path, mode="r+") as checkpoint:
        checkpoint.index_msg_timestamp = end_timestamp
        checkpoint.flush()


def _put_entries(writer: IndexWriter, entries: RecordBatch) -> int:
    return sum(writer.put(**part) for part in entry_batches(entries))


def _by_offset(files: Sequence[IndexFile]) -> list[IndexFile]:
    return sorted((file for file in files if len(file)), key=lambda file: file.header.begin_phy_offset)


def _after_first_hole(files: IndexFiles, log: CommitLog, end: int) -> list[IndexFile]:
    """Return the files after a hole in the index and the files without entries, if they can be rebuilt from the log.

    Entries cannot be put in between later, because a broker's search relies on the order.
    """
    opened = files.refresh()
    held = _by_offset(opened)
    newest = opened[-1:] if files.whole()[-1:] == opened[-1:] else []
    # A file is followed by another only when it is full, so an empty one lost its entries. The newest may be new.
    lost = [file for file in files.whole() if not len(file) and not (file in newest and _follows(file, held))]
    after = _after_hole(held, log, may_begin_late=not lost)
    if after and max(file.header.end_phy_offset for file in after) >= end:
        _log.warning("%s: the index has a hole that the log cannot fill", files.directory)
        after = []
    return [*lost, *after]


def _after_hole(held: list[IndexFile], log: CommitLog, *, may_begin_late: bool) -> list[IndexFile]:
    """Return the files after the first hole, in the order of their offsets."""
    begin = log.min_offset
    for place, file in enumerate(held):
        first = file.header.begin_phy_offset
        # An index may begin after the log does: what it never held is not lost.
        start = begin if place or not may_begin_late else first
        if _core.index_lacks_entries(log, held, start, first + 1):
            return held[place:]
        begin = file.header.end_phy_offset
    return []


def _follows(file: IndexFile, held: list[IndexFile]) -> bool:
    """Return whether an empty file has the seeds that its predecessor gives it."""
    seeds = [(each.header.end_phy_offset, each.header.end_timestamp) for each in (file, *held[-1:])]
    return len(set(seeds)) == 1
