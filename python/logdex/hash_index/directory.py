"""An index directory: its names, its lock, and its files, opened in the broker's load order."""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex import _core
from logdex._core import IndexFile, ThreadLock
from logdex._files import RemotePath
from logdex.errors import CorruptFileError
from logdex.hash_index.committed import COMMITTED, read_committed
from logdex.hash_index.geometry import NothingIndexedError, check_geometry, file_size, find_geometry
from logdex.hash_index.rolling import is_index_file_name, names_index_file, sort_key
from logdex.report import Finding, Report, merge

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Literal

    from logdex._types import Access, Compat

_log = logging.getLogger(__name__)

COMMIT_PATTERN = "_temporary/*/commit"
"""The file of a Spark job from the begin of its commit to the end: only a part of the index files may have their names."""

_SETTLED_SECONDS = 2
"""After this time, a change of a directory gives it another time stamp on every file system that keeps seconds or better."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in an index directory. A file that is replaced or changes its size becomes another entry.

    `size` is in bytes. `is_file` is True for a regular file, also through links. `object` is where a file is that a job
    committed in an object store, below the directory.
    """

    name: str
    inode: int
    size: int
    is_file: bool
    object: str = ""

    def path(self, directory: Path) -> Path:
        """Return the path of the file."""
        return directory / (self.object or self.name)

    @property
    def is_numeric(self) -> bool:
        """Whether a broker takes the name for an index file's."""
        return is_index_file_name(self.name)


def list_directory(directory: Path) -> list[Entry]:
    """List a directory in the broker's load order (IndexService#load). Names that vanish meanwhile are left out.

    Names that begin with `_` or `.` are marks of batch jobs (Hadoop's convention, such as Spark's `_SUCCESS`): left out too.
    If a job committed files in an object store, these are the only ones, also in a copy of it.

    Raises:
        CorruptFileError: A job that writes index files was killed in the middle of its commit.
    """
    if isinstance(directory, RemotePath):
        listed = _core.list_remote(directory)
        if any(path.name == COMMITTED for path, _ in listed):
            return _committed_entries(directory)
        entries = [Entry(path.name, 0, size, not is_directory) for path, (is_directory, size, _) in listed]
        return sorted((e for e in entries if not e.name.startswith(("_", "."))), key=lambda entry: sort_key(entry.name))
    entries = []
    # Not pathlib: this runs at every question, and building paths takes longer than asking the system.
    with os.scandir(directory) as names:
        for name in names:
            if name.name == COMMITTED:
                return _committed_entries(directory)
            if name.name.startswith(("_", ".")):
                for commit in directory.glob(COMMIT_PATTERN) if name.name == "_temporary" else ():
                    found = (
                        "one that is under way, or was interrupted: a read by Spark's format rocketmq_index finishes it"
                    )
                    raise CorruptFileError(str(commit), 0, "no commit of a Spark job", found)
                continue
            try:
                status = _status(name)
            except FileNotFoundError:
                continue
            entries.append(Entry(name.name, status.st_ino, status.st_size, stat.S_ISREG(status.st_mode)))
    return sorted(entries, key=lambda entry: sort_key(entry.name))


def _committed_entries(directory: Path) -> list[Entry]:
    """Return the files that a job committed."""
    files = read_committed(directory)
    # All of them will be opened.
    _core.expect_lists(sorted({(directory / file.object).parent for file in files.values()}))
    entries = [Entry(name, 0, file.size, is_file=True, object=file.object) for name, file in files.items()]
    return sorted(entries, key=lambda entry: sort_key(entry.name))


def _status(name: os.DirEntry[str]) -> os.stat_result:
    try:
        return name.stat()
    except FileNotFoundError:
        # Deleted meanwhile; or a broken link, which is no file.
        if not name.is_symlink():
            raise
        return name.stat(follow_symlinks=False)


def directory_stamp(directory: Path) -> tuple[int, int] | None:
    """Return a stamp of a directory: an equal stamp means an equal list of names.

    None if there is no directory, or if it changed so recently that a further change may leave the same time.
    """
    try:
        status = directory.stat()
    except OSError:
        return None
    settled = time.time() - status.st_mtime > _SETTLED_SECONDS
    return (status.st_ino, status.st_mtime_ns) if settled else None


def refuse_copy(directory: Path) -> None:
    """Raise `FileExistsError` if a directory is a copy of an index in an object store: no broker would load its files."""
    if (directory / COMMITTED).exists():
        text = f"a copy of an index in an object store: first give its files the names in {COMMITTED}"
        raise FileExistsError(errno.EEXIST, text, str(directory))


def refuse_other_directory(directory: Path, *, for_puts: bool) -> None:
    """Raise `FileNotFoundError` if a directory is a store, or for reading holds names but no index file.

    The directory `index` of a store is an index directory, whatever it holds.
    """
    if for_puts:
        refuse_copy(directory)
    held = list_directory(directory) if directory.is_dir() else []
    is_store = any(entry.name == "commitlog" and not entry.is_file for entry in held)
    is_index = any(names_index_file(entry.name) and entry.is_file for entry in held)
    if is_store or not (for_puts or is_index or not held or _is_of_store(directory)):
        hint = f"; this is a store, its index is {directory / 'index'}" if is_store else ""
        text = f"expected an index directory (files named by 17 digits), found no index file{hint}"
        raise FileNotFoundError(errno.ENOENT, text, str(directory))


def _is_of_store(directory: Path) -> bool:
    return directory.name == "index" and (directory.absolute().parent / "commitlog").is_dir()


class FileSet:
    """Opens the files of an index directory, orders them, and closes them as they come and go."""

    def __init__(
        self,
        directory: Path,
        geometry: tuple[int, int] | None,
        *,
        access: Access,
        last_exit_ok: bool = True,
        compat: Compat | None = None,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare an empty set; `refresh` fills it. The arguments are those of `IndexFile.open`, and names to leave out."""
        self.directory = directory
        self.geometry = geometry
        self.access = access
        self.compat = compat
        self.findings: list[Finding] = []
        self._without = without
        self._entries: list[Entry] = []
        self._given_geometry = geometry
        self._last_exit_ok = last_exit_ok
        self._handles: dict[Entry, IndexFile] = {}
        self._writer: IndexFile | None = None
        self._left_out: frozenset[Entry] = frozenset()
        self._repaired = False
        self._listed = False
        self._stamp: tuple[int, int] | None = None
        self._lock = ThreadLock()

    def refresh(self) -> list[IndexFile]:
        """List the directory again and return the open files in load order, the oldest name first.

        A directory that does not exist holds nothing. A file that vanished since the listing is skipped. So is a file without
        entries that came after the first listing, while slots and entries are unknown.
        """
        with self._lock.hold():
            stamp = directory_stamp(self.directory)
            if self._listed and stamp is not None and stamp == self._stamp:
                return list(self._handles.values())
            try:
                entries = self._list()
            except FileNotFoundError:
                entries = []
            if not self._listed or entries != self._entries or self.geometry is None:
                self._reopen(entries)
                self._entries = entries
                self._listed = True
            # A short file may still grow, which does not change the directory.
            self._stamp = stamp if all(map(self.is_whole, entries)) else None
            return list(self._handles.values())

    def _list(self) -> list[Entry]:
        return [entry for entry in list_directory(self.directory) if entry.name not in self._without]

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
                # COMPAT(rocketmq IndexService#load, B22): a file that cannot be opened ends the load.
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
        """Find the geometry; False if only files without an entry have come since the first listing."""
        try:
            self.geometry = find_geometry(self.directory, entries, self.access)
        except NothingIndexedError:
            if not self._listed:
                raise
            return False
        return True

    def _open(self, entry: Entry) -> IndexFile | None:
        """Open one entry; None if it holds no answers, which becomes a finding, or if it has vanished."""
        path = entry.path(self.directory)
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
        # The broker's own rule deletes whole files and reads the others as they are.
        repaired = self.compat is not None or (self._repaired and self.is_whole(entry))
        try:
            return self.open_file(path, last_exit_ok=self._last_exit_ok or repaired)
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
            return Finding(str(path), 0, "file-size", "an index file", f"{entry.size} bytes")
        return None

    def open_file(self, path: Path, mode: Literal["r", "r+"] = "r", *, last_exit_ok: bool = True) -> IndexFile:
        """Open one file in the directory's geometry; for writing takes its lock and checks that it can take puts."""
        hash_slots, max_entries = self.geometry or (None, None)
        return IndexFile.open(
            path,
            mode=mode,
            hash_slots=hash_slots,
            max_entries=max_entries,
            access=self.access,
            compat=self.compat,
            last_exit_ok=last_exit_ok,
        )

    def is_whole(self, entry: Entry) -> bool:
        """Return whether an entry is an index file of full length, so that it holds all entries and takes puts."""
        long_enough = self.geometry is not None and entry.size >= file_size(self.geometry)
        return entry.is_numeric and entry.is_file and long_enough

    def repair(self, *, dry_run: bool = False) -> int:
        """Link the slots of every file again from its entries, after a crash, and cut it at the first impossible entry.

        Files of another size and files that cannot be repaired are not changed; lookups use their entries. Returns the
        number of files that changed, or that would change with `dry_run`.
        """
        entries = self._list() if self.directory.is_dir() else []
        repaired = 0
        if self.geometry is None:
            self.geometry = find_geometry(self.directory, entries, self.access)
        for entry in filter(self.is_whole, entries):
            try:
                mode: Literal["r", "r+"] = "r" if dry_run else "r+"
                with self.open_file(entry.path(self.directory), mode, last_exit_ok=False) as file:
                    repaired += file.is_repaired
                    if not dry_run:
                        file.flush()
            except CorruptFileError as error:
                _log.warning("%s is left as it is: %s", entry.name, error)
        with self._lock.hold():
            # In a dry run, files are repaired in memory each time they are opened.
            self._repaired = not dry_run
            self._handles.clear()
            self._listed = False
        return repaired

    def check_geometry(self, *, for_puts: bool) -> None:
        """Check that the files have the slots and entries that the caller gave, all of them or the fullest."""
        # COMPAT(rocketmq IndexFile, B23): a broker reads files with the geometry of its own settings.
        if self._given_geometry is None or not self.directory.is_dir() or (self.compat and not for_puts):
            return
        entries = self._list()
        check_geometry(self.directory, entries, self._given_geometry, self.access, for_puts=for_puts)

    def items(self) -> list[tuple[Entry, IndexFile]]:
        """Return the open files with their names, in load order."""
        with self._lock.hold():
            return [*self._handles.items()]

    def last(self) -> tuple[Entry, IndexFile] | None:
        """Return the file that a broker would continue with: the last one of the load."""
        with self._lock.hold():
            self.refresh()
            return next(reversed(self._handles.items()), None)

    def whole_files(self) -> list[IndexFile]:
        """Return the open files of full length, in load order."""
        return [file for entry, file in self.items() if self.is_whole(entry)]

    def set_writer(self, file: IndexFile | None) -> None:
        """Answer from the writer's own handle for the file it writes; the one before becomes a reader again."""
        with self._lock.hold():
            writers = {file, self._writer}
            self._writer = file
            names = {handle.path.name for handle in writers if handle is not None}
            self._handles = {entry: handle for entry, handle in self._handles.items() if entry.name not in names}
            self._listed = False

    def leave_out(self, entries: frozenset[Entry]) -> None:
        """Answer without some of the files."""
        self._left_out = entries
        self._listed = False

    def verify(self) -> Report:
        """Check everything in the directory, also what a load would leave out; linear in the size of the files."""
        self.refresh()
        reports = []
        for entry in list_directory(self.directory) if self.directory.is_dir() else []:
            path = entry.path(self.directory)
            finding = self._unusable(path, entry)
            reports.append(self._verify_file(path) if finding is None else Report([finding]))
        return merge(reports)

    def _verify_file(self, path: Path) -> Report:
        hash_slots, max_entries = self.geometry or (None, None)
        try:
            with IndexFile.open(path, hash_slots=hash_slots, max_entries=max_entries, access=self.access) as file:
                return file.verify()
        except FileNotFoundError:
            return Report()
        except CorruptFileError as error:
            return Report([Finding(str(path), error.offset, "file-size", error.expected, error.found)])
        except OSError as error:
            expected = f"{file_size(self.geometry or (0, 0))} bytes"
            return Report([Finding(str(path), 0, "unreadable", expected, str(error.strerror))])

    def close(self) -> None:
        """Close all files. Takes no lock: the end of a writer that was dropped may run in any thread."""
        for file in [*self._handles.values(), self._writer]:
            if file is not None:
                file.close()
        self._handles = {}
        self._listed = False
