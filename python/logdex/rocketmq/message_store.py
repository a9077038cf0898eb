"""A broker's store directory, for reading: finds messages by key, checked against the messages themselves."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.hash_index.index_service import CLOCK_SLACK_MS, IndexService
from logdex.hash_index.query import TimeRange
from logdex.rocketmq.commit_log import CommitLog
from logdex.rocketmq.key_search import KeySearch

if TYPE_CHECKING:
    import os
    from datetime import datetime
    from typing import Literal, TypeAlias

    from arro3.core import RecordBatchReader

    from logdex.rocketmq.find_result import FindResult
    from logdex.rocketmq.key_search import Scan
    from logdex.rocketmq.message import Message

    _Time: TypeAlias = int | datetime | None
    _Access: TypeAlias = Literal["auto", "mmap", "pread"]
    _Compat: TypeAlias = Literal["4.9.3", "5.3.3", "5.5.0"] | None

_OFFSET_DIGITS = 16
_MSG_ID_LENGTHS = (32, 56)


class MessageStore:
    """The store of a broker, a backup of it, or what a dead broker left; nothing in it is created, locked or changed.

    Open it with `MessageStore.open`. It may be used from several threads, and pickles by path and options.

    Example:
        >>> from logdex.rocketmq import MessageStore
        >>> with MessageStore.open("examples/demo/store") as store:  # doctest: +SKIP
        ...     for message in store.find("TopicTest", "order-1001"):
        ...         print(message.phy_offset, message.body)
    """

    def __init__(self, root: Path, options: dict[str, Any]) -> None:
        """Open log and index; `open` is the way in."""
        self._root = root
        self._options = options
        self._lock = threading.Lock()
        self._index: IndexService | None = None
        self._commit_log = CommitLog.open(root / "commitlog", access=options["access"], compat=options["compat"])
        self._search = KeySearch(self._commit_log, lambda: self.index)
        self._closed = False

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        *,
        hash_slots: int | None = None,
        max_entries: int | None = None,
        clock_slack_ms: int = CLOCK_SLACK_MS,
        access: _Access = "auto",
        compat: _Compat = None,
    ) -> MessageStore:
        """Open a store directory.

        Args:
            root: The store's root, which holds `commitlog` and `index`.
            hash_slots: Slots of each index file (maxHashSlotNum); None: found from the fullest file.
            max_entries: Entries of each index file plus one (maxIndexNum); None: as above.
            clock_slack_ms: How far the broker's clock may have stepped within one index file, in ms.
            access: "mmap", "pread", or "auto": map, and read plainly where mapping fails.
            compat: A broker's release, to search the index as it does, faults included; None searches right.

        Raises:
            FileNotFoundError: There is no store at `root`.
            GeometryError: Slots and entries were not given and cannot be told from the index files.
        """
        path = Path(root)
        if not (path / "commitlog").is_dir():
            raise FileNotFoundError(errno.ENOENT, "no RocketMQ store (it would hold a commitlog directory)", str(path))
        options = {
            "hash_slots": hash_slots,
            "max_entries": max_entries,
            "clock_slack_ms": clock_slack_ms,
            "access": access,
            "compat": compat,
        }
        store = cls(path, options)
        _ = store.index
        return store

    @property
    def root(self) -> Path:
        """The store's root directory."""
        return self._root

    @property
    def commit_log(self) -> CommitLog:
        """The log that holds the messages."""
        self._check_open()
        return self._commit_log

    @property
    def index(self) -> IndexService | None:
        """The key index; None while the store has no index directory."""
        self._check_open()
        with self._lock:
            directory = self._root / "index"
            if self._index is None and directory.is_dir():
                self._index = IndexService.open(directory, **self._options)
            return self._index

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin: _Time = None,
        end: _Time = None,
        max_num: int | None = None,
        scan: Scan = "auto",
    ) -> FindResult:
        """Find the messages that carry a key, the newest first, each once.

        Candidates of the index are checked against the messages. Ranges of the log that no index file covers, because
        the broker has yet to index them or index files were lost, are read by the rules that a broker indexes by.

        Args:
            topic: The topic, as stored.
            key: The unique key (the client's message id), or one of the space-separated keys.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            max_num: The most messages to give; None: all.
            scan: How much of what no index file covers is read: "auto" up to 1 GiB a call, True all, False nothing. What
                one call read, the next calls remember.

        Raises:
            ValueError: `max_num` is negative.
            TypeError: A bound is no integer, or a datetime without time zone.
        """
        self._check_open()
        return self._search.find(topic, key, times=TimeRange.of(begin, end), max_num=max_num, scan=scan)

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        begin: _Time = None,
        end: _Time = None,
        max_num: int | None = None,
        scan: Scan = "auto",
        batch_size: int = 1_024,
    ) -> RecordBatchReader:
        """Find the messages of many keys.

        Args:
            topics: One topic for all, or one a key: a sequence or Arrow.
            keys: The keys: a sequence or Arrow. A null key finds nothing.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.
            max_num: The most messages a key; None: all.
            scan: As for `find`.
            batch_size: The most rows of a batch.

        Returns:
            An Arrow stream of the message columns after query_row (int64, the place of the key), in the order of the keys,
            the newest message of each first.
        """
        self._check_open()
        times = TimeRange.of(begin, end)
        return self._search.find_batch(topics, keys, times=times, max_num=max_num, scan=scan, batch_size=batch_size)

    def message(self, key: str | int) -> Message | None:
        """Read one message; None where none is.

        Args:
            key: The offset id of the message (`msg_id`, as the broker returns it), or its commit-log offset in bytes. A
                unique key goes through `find`.

        Raises:
            ValueError: The text is no offset id: 32 hexadecimal digits, 56 with an IPv6 address.
        """
        self._check_open()
        if isinstance(key, int):
            return self._commit_log.message(key)
        if len(key) not in _MSG_ID_LENGTHS:
            raise ValueError(f"an offset id has 32 or 56 hexadecimal digits, not {len(key)}: {key!r}")
        bytes.fromhex(key)
        message = self._commit_log.message(int(key[-_OFFSET_DIGITS:], 16))
        return message if message is not None and message.msg_id == key.upper() else None

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store is closed")

    def close(self) -> None:
        """Let the files go; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._index is not None:
            self._index.close()
        self._commit_log.close()

    def __enter__(self) -> MessageStore:
        """Give the store itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the root."""
        return f"MessageStore({str(self._root)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return _reopen, (self._root, self._options)


def _reopen(root: Path, options: dict[str, Any]) -> MessageStore:
    return MessageStore.open(root, **options)
