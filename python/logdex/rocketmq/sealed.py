"""A sealed index: one lookup in sorted rows in place of one in each index file. docs/formats/sealed.md describes its files.

It stands for the index files that are as they were when the store was sealed. Files that changed or came later are asked as
before. A sealed index that is missing or damaged changes no answer: the index files are asked.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import SealedStore, Sealing, SealSource, ThreadLock
from logdex._files import RemotePath, refuse_broker_directory
from logdex.errors import CorruptFileError
from logdex.hash_index.directory import list_directory
from logdex.hash_index.sealed import open_sealed
from logdex.report import Report, merge
from logdex.rocketmq.find import FilesIndex, covered_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from arro3.core import Array

    from logdex._core import CommitLog, IndexFile, SealedFiles
    from logdex._types import Progress
    from logdex.hash_index.query import TimeRange
    from logdex.hash_index.sealed import Sealed
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.read import Range

_log = logging.getLogger("logdex")


def open_store(sealed: Sealed, root: Path) -> SealedStore | None:
    """Open the sealed index of a store; see `open_sealed`.

    The directories of a remote store that a search needs are listed at the same time.
    """
    beside = [root / "commitlog", root / "index"] if isinstance(root, RemotePath) else []
    return open_sealed(sealed, root, partial(SealedStore.open, beside=beside))


class SealedIndex:
    """The index of a store, of which some files are sealed, and the others are asked one by one."""

    def __init__(
        self,
        sealed: SealedStore,
        directory: Path,
        all_files: Callable[[], IndexService],
        others: Callable[[frozenset[str], tuple[int, int]], IndexService],
    ) -> None:
        """Use a sealed index for the index files of a directory. `others` opens the directory without some of its files."""
        self._sealed = sealed
        self._directory = directory
        self._all_files = all_files
        self._open_others = others
        self._others: IndexService | None = None
        self._files: SealedFiles | None = None
        self._damage: Exception | None = None
        self._lock = ThreadLock()

    @property
    def place(self) -> Path:
        """The directory of the sealed index."""
        return self._sealed.directory

    def refresh(self) -> SealedFiles | None:
        """Look which index files are as they were, and open the others. None if all have to be asked one by one."""
        with self._lock.hold():
            if self._damage is not None or self._sealed.geometry is None:
                return None
            files = self._sealed.standing(self._directory)
            if not files.names:
                self._close_others()
                self._files = None
                return None
            names = frozenset(files.names)
            listed = {entry.name for entry in list_directory(self._directory)}
            if self._others is not None and (self._files != files or not listed - names):
                self._close_others()
            if self._others is None and listed - names:
                self._others = self._open_others(names, self._sealed.geometry)
            self._files = files
            return files

    def _close_others(self) -> None:
        if self._others is not None:
            self._others.close()
            self._others = None

    def _give_up(self, error: Exception) -> None:
        """Ask each index file from now on."""
        _log.warning("the sealed index is not used any more, each index file is asked: %s", error)
        with self._lock.hold():
            self._damage, self._files = error, None
            self._close_others()

    @property
    def files(self) -> Sequence[IndexFile]:
        """The open index files that are asked one by one."""
        return self._others.files if self._others is not None else []

    def all_files(self) -> Sequence[IndexFile]:
        """Return all open index files, sealed or not."""
        return self._all_files().files

    def covered(self) -> list[Range]:
        """Return the ranges of the log whose messages are indexed; see `covered_ranges`."""
        files = self._files
        sealed = [] if files is None else [*((begin + 1, end) for begin, end in files.spans), *files.joints]
        return [*sealed, *covered_ranges(self._others)]

    def last(self) -> int:
        """Return the offset of the message of the last index entry; -1 without one."""
        ends = [end for _, end in self._files.spans] if self._files is not None else []
        headers = [file.header for file in self.files if len(file)]
        return max([*ends, *(header.end_phy_offset for header in headers)], default=-1)

    is_far = False
    """A search makes one request."""

    @property
    def knows_tags(self) -> bool:
        """Whether it says without its files whether tags are indexed."""
        return self._files is not None and self._files.entries > 0

    def holds_tags(self, log: CommitLog) -> bool:
        """Return whether tags are indexed, or there is no entry at all."""
        if self.knows_tags:
            return bool(self._sealed.tags)
        return FilesIndex(self._all_files()).holds_tags(log)

    def candidates(self, topics: Any, keys: Any, times: TimeRange) -> list[Array]:  # noqa: ANN401 -- any columns
        """Return lists of offsets where keys may be: of the sealed index, and of the other index files."""
        files = self._files
        if files is not None:
            try:
                found = [self._sealed.select(files, keys, topics=topics, begin=times.begin, end=times.end)]
            except (CorruptFileError, OSError) as error:
                self._give_up(error)
            else:
                others = self._others
                return found if others is None else [*found, *FilesIndex(others).candidates(topics, keys, times)]
        return FilesIndex(self._all_files()).candidates(topics, keys, times)

    def ask(self, topic: str, key: str, times: TimeRange) -> tuple[Path, SealedFiles, list[int]] | None:
        """Return the sealed index, its files and its candidates of a key; None if each index file is asked."""
        files = self._files
        if files is None:
            return None
        found = self._sealed.select(files, [key], topics=topic, begin=times.begin, end=times.end)
        offsets: list[int] = found[0].as_py()
        return self.place, files, offsets

    def is_capped(self, topic: str, key: str, times: TimeRange) -> bool:
        """Return False: a broker's answers are not asked of a sealed index."""
        del self, topic, key, times
        return False

    def tell_end(self, log: CommitLog, abort: Path) -> None:
        """Set the end of the log from the catalog, as long as its last file has not changed since the store was sealed.

        Without an `ETag` this is not done while `abort` exists: a crashed broker may have truncated its log.
        """
        if self._sealed.has_etags or not abort.exists():
            self._sealed.tell_end(log)

    def words(self) -> str:
        """Return what is sealed, for people."""
        if self._damage is not None:
            return f"not used, damaged: {self._damage}"
        files = self.refresh()
        entries = files.entries if files is not None else 0
        others = f", {len(self.files)} other files" if self.files else ""
        return f"{len(files.names) if files is not None else 0} index files with {entries:,} entries in {self.place}{others}"

    def verify(self, log: CommitLog, index: Sequence[IndexFile]) -> Report:
        """Compare the sealed rows with the index files that they stand for, and with the times of the log."""
        files = self.refresh()
        if files is None:
            return Report(absent=["sealed index (no index file is as it was, or it is damaged)"])
        return self._sealed.verify(files, log, index)

    def close(self) -> None:
        """Close the open index files."""
        with self._lock.hold():
            self._close_others()


def sealing_target(root: Path, out: Path | None) -> Path:
    """Return the directory of a new sealed index of a store."""
    directory = _core.sealed_directory(root if out is None else out)
    # A copy of log files without a store does not belong to a broker.
    refuse_broker_directory(directory, own=[root] if directory.parent == root else [])
    return directory


def seal(
    layout: StoreLayout, log: CommitLog, index: IndexService | None, out: Path | None, progress: Progress | None
) -> Report:
    """Seal a store; see `MessageStore.seal`."""
    directory = sealing_target(layout.root, out)
    files = index.files if index is not None else []
    sealing = Sealing.of_store(layout.root, directory, log, files)
    total, done = sum(map(len, files)), 0
    for file in files:
        sealing.add(SealSource.index_file(log, file))
        done += len(file)
        if progress is not None:
            progress(done, total)
    absent = Report(absent=[] if files else ["key index"])
    return merge([sealing.finish(), absent])
