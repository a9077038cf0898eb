"""What it means to have an index directory open: its files, its options, its writer, its end."""

from __future__ import annotations

import errno
import io
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._files import Closing
from logdex._types import check_int64
from logdex.hash_index import recovery
from logdex.hash_index.directory import refuse_running_broker
from logdex.hash_index.file_name import resolve_zone
from logdex.hash_index.file_set import FileOptions, FileSet
from logdex.hash_index.index_writer import IndexWriter
from logdex.hash_index.query import CLOCK_SLACK_MS, check_clock_slack

if TYPE_CHECKING:
    from datetime import tzinfo
    from os import PathLike
    from typing import Literal

    from typing_extensions import Self

    from logdex._core import IndexFile
    from logdex._types import Access, Compat


_Index = TypeVar("_Index", bound="OpenedIndex")

_ACCESS = ("auto", "mmap", "pread")
_COMPAT = ("4.9.3", "5.3.3", "5.5.0")


class OpenedIndex(Closing):
    """An index directory that is open. `IndexService` puts into it and asks it."""

    def __init__(self, directory: Path, mode: Literal["r", "a"], options: dict[str, Any]) -> None:
        """Set up the state; `open` is the way in."""
        self._directory = directory
        self._mode = mode
        self._options = options
        self._compat = options["compat"]
        self._tags: bool = options["tags"]
        self._clock_slack_ms = options["clock_slack_ms"]
        self._lock = threading.RLock()
        self._closed = False
        self._writer: IndexWriter | None = None
        self._checkpoint = _checkpoint_path(directory, options["checkpoint"])
        names = ("hash_slots", "max_entries", "last_exit_ok", "access", "compat")
        self._files = FileSet(directory, FileOptions(**{name: options[name] for name in names}))

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
    ) -> Self:
        """Open an index directory.

        Args:
            directory: The directory, `index` under a store. Mode "a" makes it with the first put where it is not there.
            mode: "r" reads and changes nothing; "a" reads and puts.
            hash_slots: Slots of each file (maxHashSlotNum); None: found from the fullest file, 5,000,000 for a new directory.
            max_entries: Entries of each file plus one (maxIndexNum); None: as above, 20,000,000.
            checkpoint: The checkpoint file that tells which files are on disk; None: the store's own where the parent
                directory holds `commitlog`, else none.
            zone: Time zone of file names, by name or as tzinfo: the broker's; None: the machine's.
            last_exit_ok: False after a crash. The files are then mended from what they hold ("r": in memory), and "a"
                indexes again from the log what was lost, where there is a log beside the directory. With `compat` the
                broker's rule: files that end after the checkpoint are deleted ("a") or left out ("r").
            clock_slack_ms: How far the clock may step within one file before a search by time may miss a message.
            access: "mmap", "pread", or "auto": map, and read plainly where mapping fails.
            compat: A broker's release, to answer as it does, faults included; None answers right.
            tags: What is indexed again from the log is indexed with tags, too, where no indexed message has any, so that
                nothing tells whether the index holds them.

        Raises:
            FileNotFoundError: Mode "r" and the directory is not there.
            BlockingIOError: Mode "a" and another writer holds the directory or its newest file.
            LockedError: Mode "a" and a running broker holds the store.
            GeometryError: Slots and entries were not given and cannot be told from the files.
            ValueError: The files have other slots and entries than those given; with `compat` only in mode "a".
        """
        path = Path(directory)
        if mode not in ("r", "a"):
            raise ValueError(f'mode must be "r" or "a", not {mode!r}')
        if mode == "a":
            # The process may go to another directory while files are made.
            path = path.absolute()
            checkpoint = None if checkpoint is None else Path(checkpoint).absolute()
        if access not in _ACCESS:
            raise ValueError(f"access must be one of {', '.join(_ACCESS)}, not {access!r}")
        if compat is not None and compat not in _COMPAT:
            raise ValueError(f"compat must be None or one of {', '.join(_COMPAT)}, not {compat!r}")
        if (hash_slots is None) != (max_entries is None):
            raise ValueError("give both hash_slots and max_entries, or neither")
        check_int64(hash_slots=hash_slots, max_entries=max_entries)
        check_clock_slack(clock_slack_ms)
        if mode == "r" and not path.is_dir():
            code = errno.ENOTDIR if path.exists() else errno.ENOENT
            raise OSError(code, "no index directory", str(path))
        options = {
            "hash_slots": hash_slots,
            "max_entries": max_entries,
            "checkpoint": None if checkpoint is None else Path(checkpoint),
            "zone": zone,
            "last_exit_ok": last_exit_ok,
            "clock_slack_ms": clock_slack_ms,
            "access": access,
            "compat": compat,
            "tags": tags,
        }
        service = cls(path, mode, options)
        try:
            service._load()
        except BaseException:
            service._release()
            raise
        return service

    @property
    def directory(self) -> Path:
        """The index directory."""
        return self._directory

    @property
    def mode(self) -> Literal["r", "a"]:
        """How it was opened."""
        return self._mode

    @property
    def files(self) -> list[IndexFile]:
        """The open index files, the oldest first, as a broker loads them; listed again where the directory changed."""
        self._check_open()
        return self._files.refresh()

    def whole_files(self) -> list[IndexFile]:
        """Give those of `files` that are as long as they should be; the others lost entries."""
        self._check_open()
        self._files.refresh()
        return self._files.whole_files()

    def _load(self) -> None:
        last_exit_ok = self._options["last_exit_ok"]
        checkpoint = self._checkpoint
        if self._mode == "a":
            self._writer = IndexWriter(self._files, checkpoint, resolve_zone(self._options["zone"]))
            self._files.refuse_other_geometry()
        else:
            self._files.refuse_to_read_other_geometry()
        if not last_exit_ok and self._compat:
            recovery.drop_beyond_checkpoint(self._files, checkpoint, delete=self._mode == "a")
        if self._writer is None:
            self._files.refresh()
            return
        if not last_exit_ok and not self._compat:
            self._writer.recover(tags=self._tags)
        self._writer.load()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the index service is closed")

    def _writable(self) -> IndexWriter:
        self._check_open()
        if self._writer is None:
            raise io.UnsupportedOperation('the index service was opened for reading; open it with mode="a"')
        refuse_running_broker(self._directory)
        return self._writer

    def close(self) -> None:
        """Flush what was put and let the files go; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            try:
                if self._writer is not None:
                    # An empty file stays as a broker leaves it.
                    self._writer.flush(even_if_empty=False)
            finally:
                self._release()

    def _release(self) -> None:
        self._closed = True
        self._files.close()
        if self._writer is not None:
            self._writer.release()

    def __repr__(self) -> str:
        """Name the directory and the mode."""
        return f"{type(self).__name__}({str(self._directory)!r}, mode={self._mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reader, by path and options."""
        hash_slots, max_entries = self._files.geometry or (None, None)
        options = {**self._options, "hash_slots": hash_slots, "max_entries": max_entries}
        if self._mode == "a":
            # What an unclean open had to mend is mended on disk by now.
            options["last_exit_ok"] = True
        return _reopen, (type(self), self._directory, options)


def _reopen(kind: type[_Index], directory: Path, options: dict[str, Any]) -> _Index:
    return kind.open(directory, **options)


def _checkpoint_path(directory: Path, checkpoint: Path | None) -> Path | None:
    """Give the checkpoint file to go by: the one that was named, else the store's own where the directory lies in a store."""
    if checkpoint is not None:
        return checkpoint
    root = directory.absolute().parent
    return root / "checkpoint" if (root / "commitlog").is_dir() else None
