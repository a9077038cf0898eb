"""The writing side of an index directory: the newest file, the roll to the next, flush, and the directory's lock."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from logdex._core import DirectoryLock, IndexFile, PreparedFile
from logdex.errors import CorruptFileError, IndexFullError
from logdex.hash_index.files import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES, create_next, file_size, list_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo
    from pathlib import Path

    from logdex._core import IndexFiles

_log = logging.getLogger(__name__)

_WORTH_PREPARING = 1 << 20
"""Bytes from which a file is prepared ahead; a smaller one is made faster than a thread."""


class IndexWriter:
    """Puts into an index directory. `IndexDirectory` serialises its calls."""

    def __init__(
        self, files: IndexFiles, zone: tzinfo | None, on_full: Callable[[int], None], *, prepare: bool = True
    ) -> None:
        """Take the directory's lock if the directory exists; `load` opens its newest file.

        `on_full` is called with the end time of a full file once it is on the disk. With `prepare` a thread prepares the next
        file while the current one is filled.

        Raises:
            LockedError: Another writer holds the directory.
        """
        self._files = files
        self._directory = files.directory
        self._zone = zone
        self._on_full = on_full
        self._prepare = prepare
        self._file: IndexFile | None = None
        self._written: WeakSet[IndexFile] = WeakSet()
        self._next: PreparedFile | None = None
        self._directory_lock: DirectoryLock | None = None
        self.entries = self.files_added = 0
        """Counts of the entries put and of the files created for them."""
        self.lock_directory()

    def load(self) -> None:
        """Open the newest file for puts, which takes its lock and repairs its tail.

        Raises:
            LockedError: Another writer holds the file.
        """
        if self._file is None:
            self._file = self._open_newest()
            if self._file is not None:
                self._written.add(self._file)

    @property
    def takes_no_more(self) -> bool:
        """True if the next put needs a new file."""
        return self._file is None or self._file.is_full

    def put(self, topic: Any, key: Any, phy_offset: Any, store_timestamp: Any, *, threads: int = 1) -> int:  # noqa: ANN401 -- columns
        """Put columns of entries, rolling as often as needed. Return their number.

        Raises:
            IndexFullError: A new file takes none.
        """
        row = 0
        while row < len(key):
            file = self.current()
            taken = file.put_batch(key, phy_offset, store_timestamp, topics=topic, start=row, threads=threads)
            self._prepare_next(file)
            if not taken and not len(file):
                # NOTE: upstream would create files without end here.
                raise IndexFullError(f"{file.path} cannot hold a single entry: max_entries is {file.max_entries}")
            if not taken and not file.is_full:
                raise RuntimeError(f"{file.path} took no entry although it is not full")
            row += taken
            self.entries += taken
        return row

    def _prepare_next(self, file: IndexFile) -> None:
        """Start a thread that prepares the next file once the current one is half full."""
        slots, entries = file.hash_slots, file.max_entries
        due = self._prepare and self._next is None and 2 * len(file) >= entries
        if due and file_size((slots, entries)) >= _WORTH_PREPARING:
            access = self._files.access
            self._next = PreparedFile.start(self._directory, hash_slots=slots, max_entries=entries, access=access)

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None

    def begin_put(self) -> int:
        """Create the file for the next put if it is missing; return the offset of the last message in it."""
        return self.current().header.end_phy_offset

    def current(self) -> IndexFile:
        """Return the file for the next put, a new one if the newest cannot take it (#getAndCreateLastIndexFile)."""
        self.load()
        if self._file is not None and self._file.is_full and self._files.refresh()[-1:] != [self._file]:
            # A roll that was interrupted has created the next file.
            self._file = self._open_newest()
        if self._file is None or self._file.is_full:
            self._file = self._roll()
            self.files_added += 1
        self._written.add(self._file)
        return self._file

    def _open_newest(self) -> IndexFile | None:
        """Open the newest file, even a full one: opening repairs a torn tail. None: there is none, or it cannot take puts."""
        self.lock_directory()
        newest = _newest(self._files)
        if newest is None or newest.mode == "r+":
            return newest
        try:
            file = self._files.open_file(newest.path, "r+")
        except CorruptFileError as error:
            # It stays as it is, for inspection. The index continues in a new file.
            _log.warning("%s takes no more puts: %s", newest.path, error)
            return None
        self._files.set_writer(file)
        return file

    def _roll(self) -> IndexFile:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.lock_directory()
        files = self._files.refresh()
        # A broken newest file, such as one that a crash left empty, seeds nothing; the one before it does.
        headers = (file.header for file in reversed(self._files.whole()))
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
            # It was used, or is of no use: the next try shows what is wrong, for example with the disk.
            self._drop_next()
        self._files.set_writer(file)
        return file

    def _flush_full(self, file: IndexFile) -> None:
        """Write a full file to the disk and then report it (#flush), so that the report is true after a crash."""
        if file.mode == "r+":
            file.flush()
        else:
            try:
                with self._files.open_file(file.path, "r+") as writer:
                    writer.flush()
            except CorruptFileError as error:
                # For example its count is above its capacity.
                _log.warning("%s is left as it is: %s", file.path, error)
                return
        self._on_full(file.header.end_timestamp)

    def flush(self, *, even_if_empty: bool = True) -> None:
        """Write the newest file to the disk, and report it if it is full.

        A flush writes a count into the header of an empty file, unless `even_if_empty` is False.
        """
        if self._file is None or not (even_if_empty or len(self._file)):
            return
        self._file.flush()
        if self._file.is_full:
            self._on_full(self._file.header.end_timestamp)

    def lock_directory(self) -> None:
        """Take the directory's lock, unless it is held or the directory does not exist."""
        if self._directory_lock is None and self._directory.is_dir():
            self._directory_lock = DirectoryLock(self._directory)

    def release(self) -> None:
        """Release file and directory without a flush."""
        self._drop_next()
        # The traceback of an exception that a caller keeps may hold a file that was written before, and so its lock.
        for file in [*self._written]:
            file.close()
        if self._directory_lock is not None:
            self._directory_lock.release()


def _newest(files: IndexFiles) -> IndexFile | None:
    """Return the file that a broker would continue with, the last one of the load; None if it cannot take puts."""
    whole = files.whole()
    return whole[-1] if whole and whole[-1] == files.refresh()[-1] else None


class PlannedIndexWriter(IndexWriter):
    """Counter of the entries and files of puts, as `IndexWriter` counts them, without any changes."""

    def __init__(self, files: IndexFiles) -> None:
        """Take the directory's lock if the directory exists."""
        super().__init__(files, None, lambda _end_timestamp: None, prepare=False)
        self._left: int | None = None
        self._end = 0

    def load(self) -> None:
        """Read how many entries the newest file can still hold."""
        if self._left is not None:
            return
        newest = _newest(self._files)
        self._left = 0 if newest is None else self._capacity - len(newest)
        last = [newest] if newest is not None and self._left else reversed(self._files.whole())
        headers = [file.header for file in last]
        self._end = next((each.end_phy_offset for each in headers if each.end_timestamp or each.end_phy_offset), 0)

    @property
    def _capacity(self) -> int:
        _, max_entries = self._files.geometry or (DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES)
        return max_entries - 1

    @property
    def takes_no_more(self) -> bool:
        """True if the next put needs a new file."""
        self.load()
        return not self._left

    def begin_put(self) -> int:
        """Count the file for the next put if it is missing; return the offset of the last message in it."""
        if self.takes_no_more:
            self._left = self._capacity
            self.files_added += 1
        return self._end

    def put(self, topic: Any, key: Any, phy_offset: Any, store_timestamp: Any, *, threads: int = 1) -> int:  # noqa: ANN401 -- as above
        """Count columns of entries; return their number."""
        del topic, store_timestamp, threads
        rows = len(key)
        while rows:
            self.begin_put()
            taken = min(rows, self._left or 0)
            if not taken:
                raise IndexFullError(f"{self._directory}: a file cannot hold a single entry")
            self._left = (self._left or 0) - taken
            self.entries += taken
            rows -= taken
        if len(key):
            self._end = phy_offset[len(key) - 1].as_py()
        return len(key)

    def flush(self, *, even_if_empty: bool = True) -> None:
        """Do nothing, because nothing was written."""
