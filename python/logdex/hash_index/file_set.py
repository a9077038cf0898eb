"""The index files of a directory, opened in the broker's load order and kept in step with what lies there."""

from __future__ import annotations

import errno
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex._core import IndexFile
from logdex.errors import CorruptFileError
from logdex.hash_index.directory import directory_stamp, list_directory
from logdex.hash_index.geometry import (
    NothingIndexedError,
    file_size,
    find_geometry,
    refuse_other_geometry,
    refuse_to_read,
)
from logdex.report import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._types import Access, Compat
    from logdex.hash_index.directory import Entry

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How the files of a directory are opened; the names are those of `IndexService.open`."""

    hash_slots: int | None
    max_entries: int | None
    last_exit_ok: bool
    access: Access
    compat: Compat | None

    @property
    def geometry(self) -> tuple[int, int] | None:
        """Slots and entries where the caller gave them."""
        if self.hash_slots is None or self.max_entries is None:
            return None
        return self.hash_slots, self.max_entries


class FileSet:
    """Opens, orders and forgets the files of an index directory as they come and go."""

    def __init__(self, directory: Path, options: FileOptions) -> None:
        """Prepare an empty set; `refresh` fills it."""
        self.directory = directory
        self.geometry = options.geometry
        self.access = options.access
        self.compat = options.compat
        self.findings: list[Finding] = []
        self.entries: list[Entry] = []
        self._options = options
        self._handles: dict[Entry, IndexFile] = {}
        self._writer: IndexFile | None = None
        self._left_out: frozenset[Entry] = frozenset()
        self._mended = False
        self._listed = False
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.RLock()

    def refresh(self) -> list[IndexFile]:
        """List the directory again and give the open files in load order, the oldest name first.

        A directory that is not there holds nothing. A file that vanished since the listing is skipped; so is one that came
        since the first listing and holds no entry yet, while nothing tells its slots and entries.

        Raises:
            OSError: The directory or a file cannot be read.
            GeometryError: Slots and entries were not given and cannot be told from the files.
        """
        with self._lock:
            stamp = directory_stamp(self.directory)
            if self._listed and stamp is not None and stamp == self._stamp:
                return list(self._handles.values())
            try:
                entries = list_directory(self.directory)
            except FileNotFoundError:
                entries = []
            if not self._listed or entries != self.entries or self.geometry is None:
                self._reopen(entries)
                self.entries = entries
                self._listed = True
            # A short file may still be on its way here; its growth does not show on the directory.
            self._stamp = stamp if all(map(self.is_whole, entries)) else None
            return list(self._handles.values())

    def _reopen(self, entries: list[Entry]) -> None:
        if self.geometry is None and not self._find_geometry(entries):
            return
        before, self.findings = self.findings, []
        handles: dict[Entry, IndexFile] = {}
        for entry in entries:
            if entry in self._left_out:
                continue
            try:
                file = self._handles.get(entry)
                file = self._open(entry) if file is None else file
            except OSError as error:
                if not self.compat or not entry.is_numeric:
                    raise
                # COMPAT(rocketmq IndexService#load, B22): what cannot be opened ends the load.
                _log.warning("%s: %s; the index files after it are left out", entry.name, error)
                break
            if file is not None:
                handles[entry] = file
        for finding in self.findings:
            if finding not in before:
                where, what = (finding.path, finding.offset), (finding.kind, finding.expected, finding.found)
                _log.warning("%s at byte %d: %s, expected %s, found %s", *where, *what)
        self._handles = handles

    def _find_geometry(self, entries: list[Entry]) -> bool:
        """Find the geometry; False where only files without an entry have come since the first listing."""
        try:
            self.geometry = find_geometry(self.directory, entries, self.access)
        except NothingIndexedError:
            if not self._listed:
                raise
            return False
        return True

    def _open(self, entry: Entry) -> IndexFile | None:
        """Open one entry; None for what holds no answers, which becomes a finding, and for what has vanished."""
        path = self.directory / entry.name
        finding = self._unusable(path, entry)
        if finding is not None:
            self.findings.append(finding)
            if self.compat and entry.is_numeric and not entry.is_file:
                raise IsADirectoryError(errno.EISDIR, "not a file", str(path))
            return None
        expected = file_size(self.geometry or (0, 0))
        if entry.size != expected:
            at = min(entry.size, expected)
            self.findings.append(Finding(str(path), at, "file-size", f"{expected} bytes", f"{entry.size} bytes"))
        if self._writer is not None and self._writer.path.name == entry.name:
            return self._writer
        mended = self._mended and self.is_whole(entry)
        try:
            return self.open_reader(path, last_exit_ok=self._options.last_exit_ok or mended)
        except FileNotFoundError:
            return None
        except CorruptFileError as error:
            self.findings.append(Finding(error.path, error.offset, "file-size", error.expected, error.found))
            return None

    def _unusable(self, path: Path, entry: Entry) -> Finding | None:
        if not entry.is_numeric:
            return Finding(str(path), 0, "file-name", "a decimal number", entry.name)
        if not entry.is_file:
            return Finding(str(path), 0, "not-a-file", "an index file", "something else than a regular file")
        if self.geometry is None:
            # Nothing but empty files so far.
            return Finding(str(path), 0, "file-size", "an index file", "0 bytes")
        return None

    def open_reader(self, path: Path, *, last_exit_ok: bool = True) -> IndexFile:
        """Open one file for reading, in the directory's geometry."""
        hash_slots, max_entries = self.geometry or (None, None)
        return IndexFile.open(
            path,
            hash_slots=hash_slots,
            max_entries=max_entries,
            access=self.access,
            compat=self.compat,
            # The broker's own rule deletes whole files; those that stay are read as they are.
            last_exit_ok=last_exit_ok or self.compat is not None,
        )

    def open_writer(self, path: Path, *, last_exit_ok: bool = True) -> IndexFile:
        """Open one file for writing, in the directory's geometry; takes its lock.

        Raises:
            BlockingIOError: Another writer holds the file.
            CorruptFileError: The file cannot take puts.
        """
        hash_slots, max_entries = self.geometry or (None, None)
        return IndexFile.open(
            path,
            mode="r+",
            hash_slots=hash_slots,
            max_entries=max_entries,
            access=self.access,
            compat=self.compat,
            last_exit_ok=last_exit_ok,
        )

    def is_whole(self, entry: Entry) -> bool:
        """Say whether an entry is an index file that reaches as far as its geometry, so that it holds all and takes puts."""
        long_enough = self.geometry is not None and entry.size >= file_size(self.geometry)
        return entry.is_numeric and entry.is_file and long_enough

    def list_entries(self) -> list[Entry]:
        """List the directory without opening a file, and find the geometry where it was not given."""
        entries = list_directory(self.directory) if self.directory.is_dir() else []
        if self.geometry is None:
            self.geometry = find_geometry(self.directory, entries, self.access)
        return entries

    def refuse_other_geometry(self) -> None:
        """Refuse slots and entries that the caller gave where the files have others, before a put.

        Raises:
            ValueError: They have.
        """
        if self._options.geometry is not None and self.directory.is_dir():
            entries = list_directory(self.directory)
            refuse_other_geometry(self.directory, entries, self._options.geometry, self.access)

    def refuse_to_read_other_geometry(self) -> None:
        """Refuse slots and entries that the caller gave where the fullest file has others, before a question.

        Raises:
            ValueError: It has.
        """
        # COMPAT(rocketmq IndexFile, B23): a broker takes its own settings for those of the files.
        if self._options.geometry is not None and self.compat is None:
            refuse_to_read(self.directory, list_directory(self.directory), self._options.geometry, self.access)

    def items(self) -> list[tuple[Entry, IndexFile]]:
        """Give the open files with their names, in load order."""
        with self._lock:
            return [*self._handles.items()]

    def last(self) -> tuple[Entry, IndexFile] | None:
        """Give the file that a broker would go on with: the last one of the load."""
        with self._lock:
            self.refresh()
            return next(reversed(self._handles.items()), None)

    def whole_files(self) -> list[IndexFile]:
        """Give the open files that reach as far as their geometry, in load order."""
        return [file for entry, file in self.items() if self.is_whole(entry)]

    def set_writer(self, file: IndexFile | None) -> None:
        """Answer from the writer's own handle for the file it writes; the one before becomes a reader again."""
        with self._lock:
            writers = {file, self._writer}
            self._writer = file
            names = {handle.path.name for handle in writers if handle is not None}
            self._handles = {entry: handle for entry, handle in self._handles.items() if entry.name not in names}
            self._listed = False

    def leave_out(self, entries: frozenset[Entry]) -> None:
        """Answer without some of the files."""
        with self._lock:
            self._left_out = entries
            self._listed = False

    def set_mended(self) -> None:
        """Take whole files as they are from now on: an unclean open has mended them on disk."""
        with self._lock:
            self._mended = True
            self._handles.clear()
            self._listed = False

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for file in self._handles.values():
                file.close()
            self._handles.clear()
            self._listed = False
