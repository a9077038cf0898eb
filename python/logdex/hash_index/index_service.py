"""The key index of a store: a directory of index files, rolled when one is full, asked from the newest to the oldest.

Source of the rules: IndexService of RocketMQ 4.9.3; docs/formats/rocketmq-index.md tells them.
"""

from __future__ import annotations

import errno
import io
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logdex import _core
from logdex._core import StoreCheckpoint
from logdex.closing import Closing
from logdex.hash_index import query, recovery
from logdex.hash_index.arrow_input import INDEXED_COLUMNS, entry_batches
from logdex.hash_index.check import verify_directory
from logdex.hash_index.directory import refuse_running_broker
from logdex.hash_index.file_name import resolve_zone
from logdex.hash_index.file_set import FileOptions, FileSet
from logdex.hash_index.index_writer import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo
    from os import PathLike
    from typing import Literal, Protocol, TypeAlias

    from arro3.core import Array

    from logdex._core import IndexFile, IndexHeader
    from logdex.hash_index.query import QueryOffsetResult
    from logdex.report import Report

    class Log(Protocol):
        """A commit log: `logdex.rocketmq.CommitLog`."""

        @property
        def core(self) -> _core.CommitLog:
            """The native log."""

    _Time: TypeAlias = int | datetime | None
    _Access: TypeAlias = Literal["auto", "mmap", "pread"]
    _Compat: TypeAlias = Literal["4.9.3", "5.3.3", "5.5.0"] | None

CLOCK_SLACK_MS = 3_600_000
"""How far the broker's clock may step within one index file before a search by time could miss a message, in ms."""

INDEXES_TAGS: Final = "5.5.0"
"""The release that indexes tags as well (IndexService#buildIndex)."""

_ACCESS = ("auto", "mmap", "pread")
_COMPAT = ("4.9.3", "5.3.3", "5.5.0")


class IndexService(Closing):
    """Puts keys into the newest file of an index directory and finds candidates in all of them.

    Open it with `IndexService.open`. One service in mode "a" writes to a directory at a time; any number reads. Puts on one
    service are serialised; queries run beside them. It pickles as a reader, by path and options.

    Example:
        >>> import tempfile
        >>> from logdex.rocketmq import IndexService
        >>> folder = tempfile.mkdtemp()
        >>> with IndexService.open(folder, mode="a", hash_slots=10, max_entries=100) as index:
        ...     entry = {"topic": ["T"], "key": ["k"], "phy_offset": [7], "store_timestamp": [1700000000000]}
        ...     print(index.put_batch(entry), index.query_offset("T", "k").phy_offsets)
        1 [7]
    """

    def __init__(self, directory: Path, mode: Literal["r", "a"], options: dict[str, Any]) -> None:
        """Set up the state; `open` is the way in."""
        self._directory = directory
        self._mode = mode
        self._options = options
        self._compat = options["compat"]
        self._clock_slack_ms = options["clock_slack_ms"]
        self._lock = threading.RLock()
        self._closed = False
        self._writer: IndexWriter | None = None
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
        access: _Access = "auto",
        compat: _Compat = None,
    ) -> IndexService:
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

        Raises:
            FileNotFoundError: Mode "r" and the directory is not there.
            BlockingIOError: Mode "a" and another writer holds the directory or its newest file.
            LockedError: Mode "a" and a running broker holds the store.
            GeometryError: Slots and entries were not given and cannot be told from the files.
        """
        path = Path(directory)
        if mode not in ("r", "a"):
            raise ValueError(f'mode must be "r" or "a", not {mode!r}')
        if access not in _ACCESS:
            raise ValueError(f"access must be one of {', '.join(_ACCESS)}, not {access!r}")
        if compat is not None and compat not in _COMPAT:
            raise ValueError(f"compat must be None or one of {', '.join(_COMPAT)}, not {compat!r}")
        if (hash_slots is None) != (max_entries is None):
            raise ValueError("give both hash_slots and max_entries, or neither")
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

    # Puts

    def put_batch(self, batch: Any, *, threads: int = 1) -> int:  # noqa: ANN401 -- anything with the PyCapsule interface
        """Put index entries in their order; a full file is followed by a new one, in the middle of a batch too.

        Args:
            batch: An Arrow batch, table or stream, or a mapping of columns: topic and key (text), phy_offset (bytes),
                store_timestamp (ms).
            threads: How many threads share the work; the files are the same. Pays from tens of thousands of entries on.

        Returns:
            The number of entries put: all of them.

        Raises:
            ValueError: A column is missing or a value is null; then nothing was written.
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written, for instance because the disk is full; what was put stays.
        """
        parts = entry_batches(batch)
        with self._lock:
            writer = self._writable()
            return sum(writer.put(**part, threads=threads) for part in parts)

    def build_index(self, messages: Any) -> int:  # noqa: ANN401 -- anything with the PyCapsule interface
        """Index messages as a broker's dispatcher does: the unique key and each of the space-separated keys.

        Messages before the newest file's last offset were indexed before and are passed over; so are rolled back ones. With
        `compat="5.5.0"` a message's tags are indexed too. Source: IndexService#buildIndex.

        Args:
            messages: Arrow data with the message columns, in log order, or `Message` objects.

        Returns:
            The number of index entries put.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written.
        """
        with self._lock:
            return self._writable().build(messages, tags=self._compat == INDEXES_TAGS)

    def recover(self, commit_log: Log, *, message_index_safe: bool = False) -> int:
        """Index again what a start after a crash dispatches again; for a service opened with `last_exit_ok=False`.

        By default all that the log holds beyond the index, and the entries of the last messages that were not put
        whole. With `compat` what that broker dispatches: the log from the beginning of the file that the checkpoint leads to;
        its duplicate filter drops what the newest file covers, and what older, deleted files held stays lost.

        Source: CommitLog#recoverAbnormally, #isMappedFileMatchedRecover.

        Args:
            commit_log: The log that the index leads into.
            message_index_safe: The broker's setting messageIndexSafe: the index's time of the checkpoint counts, too.

        Returns:
            The number of index entries put.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be read or written.
        """
        with self._lock:
            writer = self._writable()
            log = commit_log.core
            if self._compat is None:
                return writer.index_again(log)
            path = _checkpoint_path(self._directory, self._options["checkpoint"])
            # COMPAT(rocketmq StoreCheckpoint): a missing file reads as zeros, and the whole log is dispatched.
            checkpoint = StoreCheckpoint.open(path) if path is not None and path.exists() else None
            _, end, dispatch = log.recovery(checkpoint, last_exit_ok=False, message_index_safe=message_index_safe)
            if dispatch >= end:
                return 0
            messages = log.scan(begin_phy_offset=dispatch, end_phy_offset=end, columns=INDEXED_COLUMNS)
            return writer.build(messages, tags=self._compat == INDEXES_TAGS)

    # Questions

    def query_offset(
        self, topic: str, key: str, max_num: int | None = None, begin: _Time = None, end: _Time = None
    ) -> QueryOffsetResult:
        """Find the candidates of one key, newest first.

        Args:
            topic: The topic.
            key: The unique key, or one of the space-separated keys.
            max_num: The most candidates to give; None: all. With `compat` at most 64.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Raises:
            ValueError: `max_num` is negative.
        """
        query.check_max_num(max_num)
        times = query.TimeRange.of(begin, end)
        files = self.files
        max_num = self._cap(max_num)
        found = query.select(
            self._matching(files, times), _core.index_key(topic, key), times, None if max_num is None else max_num + 1
        )
        newest = self._newest_header(files)
        return query.QueryOffsetResult(
            phy_offsets=found[:max_num],
            truncated=max_num is not None and len(found) > max_num,
            index_last_update_timestamp=newest.end_timestamp if newest else 0,
            index_last_update_phyoffset=newest.end_phy_offset if newest else 0,
        )

    def query_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        max_num: int | None = None,
        begin: _Time = None,
        end: _Time = None,
    ) -> Array:
        """Find the candidates of many keys in one call.

        Args:
            topics: One topic for all, or one a key: a sequence or Arrow.
            keys: The keys: a sequence or Arrow.
            max_num: The most candidates a key; None: all. With `compat` at most 64.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Returns:
            Arrow list<int64>, one list a key in the order given; null where topic or key is null.
        """
        query.check_max_num(max_num)
        times = query.TimeRange.of(begin, end)
        max_num = self._cap(max_num)
        files = self._matching(self.files, times)
        return _core.select_files(files, keys, topics=topics, max_num=max_num, begin=times.begin, end=times.end)

    def _cap(self, max_num: int | None) -> int | None:
        # COMPAT(rocketmq IndexService#queryOffset, B16): no answer holds more than 64.
        most = query.MAX_MSGS_NUM_BATCH
        return max_num if self._compat is None else min(most, most if max_num is None else max_num)

    def _matching(self, files: Sequence[IndexFile], times: query.TimeRange) -> list[IndexFile]:
        if self._compat:
            return query.matching_files_compat(files, times)
        return query.matching_files(files, times, self._clock_slack_ms)

    def _newest_header(self, files: Sequence[IndexFile]) -> IndexHeader | None:
        if not files:
            return None
        return (files[-1] if self._compat else query.newest_first(files)[0]).header

    def verify(self) -> Report:
        """Check every file of the directory, linear in their size; never raises for what it finds."""
        self._check_open()
        return verify_directory(self._directory, self._files)

    # Life

    def delete_expired_files(self, min_phy_offset: int) -> list[Path]:
        """Delete the oldest files whose messages are all gone from the log; the newest file always stays.

        Source: IndexService#deleteExpiredFile.

        Args:
            min_phy_offset: The log's first offset, in bytes.

        Returns:
            The paths of the deleted files.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be deleted; those before it are gone.
        """
        with self._lock:
            return self._writable().delete_expired(min_phy_offset)

    def flush(self) -> None:
        """Bring the newest file to disk. The checkpoint moves only where that file is full, as with a broker."""
        with self._lock:
            self._writable().flush()

    def _load(self) -> None:
        last_exit_ok = self._options["last_exit_ok"]
        checkpoint = _checkpoint_path(self._directory, self._options["checkpoint"])
        if self._mode == "a":
            self._writer = IndexWriter(self._files, checkpoint, resolve_zone(self._options["zone"]))
        if not last_exit_ok and self._compat:
            recovery.drop_beyond_checkpoint(self._files, checkpoint, delete=self._mode == "a")
        if self._writer is None:
            self._files.refresh()
            return
        if not last_exit_ok and not self._compat:
            self._writer.recover()
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
        return f"IndexService({str(self._directory)!r}, mode={self._mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reader, by path and options."""
        hash_slots, max_entries = self._files.geometry or (None, None)
        options = {**self._options, "hash_slots": hash_slots, "max_entries": max_entries}
        if self._mode == "a":
            # What an unclean open had to mend is mended on disk by now.
            options["last_exit_ok"] = True
        return _reopen, (self._directory, options)


def _reopen(directory: Path, options: dict[str, Any]) -> IndexService:
    return IndexService.open(directory, **options)


def _checkpoint_path(directory: Path, checkpoint: Path | None) -> Path | None:
    if checkpoint is not None:
        return checkpoint
    root = directory.absolute().parent
    return root / "checkpoint" if (root / "commitlog").is_dir() else None
