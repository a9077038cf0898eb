"""The writing side of an index directory: the newest file, the roll to the next, flush and checkpoint, locks."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import CommitLog, IndexFile, PreparedFile, StoreCheckpoint
from logdex.arrow import entry_batches, message_batches, take_rows
from logdex.errors import CorruptFileError
from logdex.hash_index import recovery
from logdex.hash_index.directory import DirectoryLock, list_directory, refuse_running_broker
from logdex.hash_index.file_name import create_next
from logdex.hash_index.geometry import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES, file_size
from logdex.hash_index.roll import put_rolling

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex.hash_index.file_set import FileSet

_log = logging.getLogger(__name__)

_WORTH_PREPARING = 1 << 20
"""Bytes from which on a file is prepared; a smaller one is made faster than a thread."""


class IndexWriter:
    """Puts into an index directory. Not for several threads at a time: `IndexService` serialises its calls."""

    def __init__(self, files: FileSet, checkpoint: Path | None, zone: tzinfo | None) -> None:
        """Take the directory's lock where the directory is there; `load` opens its newest file.

        Raises:
            LockedError: A running broker holds the store.
            BlockingIOError: Another writer holds the directory.
        """
        self._files = files
        self._directory = files.directory
        self._checkpoint = checkpoint
        self._zone = zone
        self._file: IndexFile | None = None
        self._next: PreparedFile | None = None
        self._directory_lock: DirectoryLock | None = None
        self._interrupted = False
        refuse_running_broker(self._directory)
        self._lock_directory()

    def load(self) -> None:
        """Open the newest file for puts, which takes its lock and mends its tail.

        Raises:
            BlockingIOError: Another writer holds the file.
        """
        if self._file is None:
            self._file = self._open_newest()

    def recover(self, *, tags: bool) -> None:
        """Mend all files after a crash, and index again from the log beside the directory what was lost.

        Args:
            tags: Index tags, too, where the files do not tell.
        """
        recovery.mend_files(self._files)
        directory = self._directory.absolute().parent / "commitlog"
        if not directory.is_dir():
            return
        with CommitLog.open(directory, access=self._files.access) as log:
            # Before anything is deleted: what is left may not tell.
            held = recovery.indexes_tags(self._files, log)
            recovery.drop_after_hole(self._files, log)
            self._index_again(log, tags=tags if held is None else held)
        self.flush()

    def index_again(self, log: CommitLog, *, tags: bool) -> int:
        """Index what a log holds beyond the index; give the number of entries put.

        Args:
            log: The log.
            tags: Index tags, too, where the files do not tell.
        """
        held = recovery.indexes_tags(self._files, log)
        return self._index_again(log, tags=tags if held is None else held)

    def _index_again(self, log: CommitLog, *, tags: bool) -> int:
        return recovery.index_again(self._files, log, self._put_entries, partial(self.build, tags=tags), tags=tags)

    def put(self, topic: Any, key: Any, phy_offset: Any, store_timestamp: Any, *, threads: int = 1) -> int:  # noqa: ANN401 -- columns
        """Put columns of entries, rolling as often as needed; give their number."""

        def put(file: IndexFile, start: int) -> int:
            taken = file.put_batch(key, phy_offset, store_timestamp, topics=topic, start=start, threads=threads)
            self._prepare_next(file)
            return taken

        put_rolling(len(key), self._current, put)
        return len(key)

    def _prepare_next(self, file: IndexFile) -> None:
        """Let a thread prepare the next file from when the current one is half full."""
        if self._next is None and 2 * len(file) >= file.max_entries:
            geometry = (file.hash_slots, file.max_entries)
            if file_size(geometry) >= _WORTH_PREPARING:
                hash_slots, max_entries = geometry
                self._next = PreparedFile.start(
                    self._directory, hash_slots=hash_slots, max_entries=max_entries, access=self._files.access
                )

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None

    def build(self, messages: Any, *, tags: bool) -> int:  # noqa: ANN401 -- anything with the PyCapsule interface
        """Index messages by the broker's rules; give the number of entries put.

        After an error the next call goes on behind what was put, also between the keys of a message.
        """
        try:
            count = sum(self._build(batch, tags=tags) for batch in message_batches(messages))
        except BaseException:
            self._interrupted = True
            raise
        self._interrupted = False
        return count

    def _build(self, messages: RecordBatch, *, tags: bool) -> int:
        if not messages.num_rows:
            return 0
        if self._file is None or self._file.is_full:
            # What cannot be indexed is refused before a file is made for it.
            _core.index_entries(messages, end_phy_offset=0, tags=tags)
        # Before any filter, as upstream: even a message that is not indexed makes or rolls the file.
        end = self._current().header.end_phy_offset
        entries = _core.index_entries(messages, end_phy_offset=end, tags=tags)
        rows = entries.column("row")
        last_has_key = bool(entries.num_rows) and rows[entries.num_rows - 1].as_py() == messages.num_rows - 1
        if self._interrupted:
            entries = self._without_put(entries, end)
        self._put_entries(entries)
        if not last_has_key:
            self._current()
        return entries.num_rows

    def _without_put(self, entries: RecordBatch, end: int) -> RecordBatch:
        """Leave out what was put of the newest message before an error; of those before it all was put."""
        offsets = entries.column("phy_offset").to_pylist()
        again = next((row for row, offset in enumerate(offsets) if offset > end), len(offsets))
        held = [file for file in self._files.refresh() if len(file)]
        missing = recovery.missing_row_numbers(entries.slice(0, again), held)
        return take_rows(entries, [*missing, *range(again, len(offsets))])

    def _put_entries(self, entries: RecordBatch) -> None:
        for part in entry_batches(entries):
            self.put(**part)

    def _current(self) -> IndexFile:
        """Give the file for the next put, a new one where the newest cannot take it (#getAndCreateLastIndexFile)."""
        self.load()
        if self._file is None or self._file.is_full:
            self._file = self._roll()
        return self._file

    def _open_newest(self) -> IndexFile | None:
        """Open the newest file; None where there is none or it cannot take puts."""
        self._lock_directory()
        newest = self._files.last()
        if newest is None or newest[1].is_full or not self._files.is_whole(newest[0]):
            return None
        try:
            file = self._files.open_writer(newest[1].path)
        except CorruptFileError as error:
            # Left as it is, for whoever looks into it; the index goes on in a new file.
            _log.warning("%s takes no more puts: %s", newest[1].path, error)
            return None
        self._files.set_writer(file)
        return file

    def _roll(self) -> IndexFile:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock_directory()
        files = self._files.refresh()
        # A broken newest file, say one that a crash left empty, seeds nothing; the one before it does.
        headers = (file.header for file in reversed(self._files.whole_files()))
        seed = next((header for header in headers if header.end_timestamp or header.end_phy_offset), None)
        if files and files[-1].is_full:
            self._flush_full(files[-1])
        hash_slots, max_entries = self._files.geometry or (DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES)

        def create(path: Path) -> IndexFile:
            return IndexFile.create(
                path,
                hash_slots=hash_slots,
                max_entries=max_entries,
                begin_timestamp=seed.end_timestamp if seed else 0,
                begin_phy_offset=seed.end_phy_offset if seed else 0,
                access=self._files.access,
                compat=self._files.compat,
                prepared=self._next,
            )

        names = [entry.name for entry in list_directory(self._directory)]
        try:
            file = create_next(names, self._directory, time.time_ns() // 1_000_000, self._zone, create)
        finally:
            # Used, or of no use: the next try tells what is wrong, say with the disk.
            self._drop_next()
        self._files.geometry = (hash_slots, max_entries)
        self._files.set_writer(file)
        return file

    def _flush_full(self, file: IndexFile) -> None:
        """Bring a full file to disk, then say so in the checkpoint (#flush); in this order, so that it never lies."""
        if file.mode == "r+":
            file.flush()
        else:
            try:
                with self._files.open_writer(file.path) as writer:
                    writer.flush()
            except CorruptFileError as error:
                # Its count is above its capacity, say: nothing that the checkpoint should vouch for.
                _log.warning("%s is left as it is: %s", file.path, error)
                return
        self._record(file.header.end_timestamp)

    def _record(self, end_timestamp: int) -> None:
        if self._checkpoint is None or end_timestamp <= 0:
            return
        with StoreCheckpoint.open(self._checkpoint, mode="r+") as checkpoint:
            checkpoint.index_msg_timestamp = end_timestamp
            checkpoint.flush()

    def flush(self, *, even_if_empty: bool = True) -> None:
        """Bring the newest file to disk, and name it in the checkpoint where it is full.

        Args:
            even_if_empty: A flush writes a count into the header of an empty file; False leaves that file alone.
        """
        if self._file is None or not (even_if_empty or len(self._file)):
            return
        self._file.flush()
        if self._file.is_full:
            self._record(self._file.header.end_timestamp)

    def delete_expired(self, min_phy_offset: int) -> list[Path]:
        """Delete the oldest files that end before an offset of the log, and give their paths."""
        self._lock_directory()
        removed: list[Path] = []
        # NOTE: the newest file stays although its messages may be gone (B33): the next one is seeded from it.
        for file in self._files.refresh()[:-1]:
            if file.header.end_phy_offset >= min_phy_offset:
                break
            file.path.unlink(missing_ok=True)
            removed.append(file.path)
        return removed

    def _lock_directory(self) -> None:
        if self._directory_lock is None and self._directory.is_dir():
            self._directory_lock = DirectoryLock(self._directory)

    def release(self) -> None:
        """Let file and directory go without a flush."""
        self._drop_next()
        if self._file is not None:
            self._file.close()
        if self._directory_lock is not None:
            self._directory_lock.release()
