"""A broker's store directory, for reading: finds messages by key, checked against the messages themselves."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arro3.core import Array, ChunkedArray, DataType, Field, RecordBatch, RecordBatchReader

from logdex.hash_index.index_service import CLOCK_SLACK_MS, IndexService
from logdex.hash_index.query import TimeRange, check_max_num
from logdex.rocketmq.commit_log import CommitLog
from logdex.rocketmq.find_result import FindResult
from logdex.rocketmq.log_entries import LogEntries

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from datetime import datetime
    from typing import TypeAlias

    from arro3.core import Schema

    from logdex.rocketmq.message import Message
    from logdex.rocketmq.ranges import Range

    _Time: TypeAlias = int | datetime | None
    _Scan: TypeAlias = Literal["auto", True, False]
    _Access: TypeAlias = Literal["auto", "mmap", "pread"]
    _Compat: TypeAlias = Literal["4.9.3", "5.3.3", "5.5.0"] | None

_SCAN_BUDGET_BYTES = 1 << 30
_KEYS_A_STEP = 1_024
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
        self._unindexed = LogEntries(self._commit_log)
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
        scan: _Scan = "auto",
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
        check_max_num(max_num)
        times = TimeRange.of(begin, end)
        scanned, unscanned = self._read_unindexed(scan)
        offsets = self._candidates(topic, key, times, scan)
        found: list[Message] = []
        rejected = 0
        for offset in offsets:
            message = self._commit_log.message(offset)
            if message is None or not times.begin <= message.store_timestamp <= times.end:
                continue
            if not _carries(topic, key, message.topic, message.uniq_key, message.keys):
                rejected += 1
                continue
            found.append(message)
            if max_num is not None and len(found) > max_num:
                break
        return FindResult(
            messages=tuple(found[:max_num]),
            truncated=max_num is not None and len(found) > max_num,
            rejected=rejected,
            complete=not unscanned,
            scanned_bytes=scanned,
            unscanned=unscanned,
        )

    def _candidates(self, topic: str, key: str, times: TimeRange, scan: _Scan) -> list[int]:
        """Give the offsets where the key may be, the newest first, each once."""
        offsets: set[int] = set()
        index = self.index
        if index is not None:
            offsets.update(index.query_offset(topic, key, begin=times.begin, end=times.end).phy_offsets)
        if scan:
            offsets.update(self._unindexed.offsets(topic, key))
        return sorted(offsets, reverse=True)

    def _read_unindexed(self, scan: _Scan) -> tuple[int, list[Range]]:
        """Read what no index file covers; give the bytes read and what stays unread."""
        if scan not in ("auto", True, False):
            raise ValueError(f'scan must be "auto", True or False, not {scan!r}')
        # The index first: what is indexed while the log is measured is then at worst read once more.
        covered = self._covered()
        whole = (self._commit_log.min_offset, self._commit_log.max_offset)
        missing = self._unindexed.missing(whole, covered)
        if not scan or not missing:
            return 0, missing
        scanned = self._unindexed.read(missing, _SCAN_BUDGET_BYTES if scan == "auto" else None)
        return scanned, self._unindexed.missing(whole, covered)

    def _covered(self) -> list[Range]:
        """Give the ranges of the log whose messages are indexed.

        The messages at a file's beginning and end may have keys in the files beside it, so they are not covered.
        """
        index = self.index
        if index is None:
            return []
        headers = [file.header for file in index.whole_files() if len(file)]
        return [(header.begin_phy_offset + 1, header.end_phy_offset) for header in headers]

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        begin: _Time = None,
        end: _Time = None,
        max_num: int | None = None,
        scan: _Scan = "auto",
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
        check_max_num(max_num)
        times = TimeRange.of(begin, end)
        key_list = _to_list(keys)
        topic_list = [topics] * len(key_list) if isinstance(topics, str) else _to_list(topics)
        if len(topic_list) != len(key_list):
            raise ValueError(f"{len(topic_list)} topics for {len(key_list)} keys")
        self._read_unindexed(scan)
        columns = self._commit_log.messages([]).schema
        schema = columns.insert(0, Field("query_row", DataType.int64(), nullable=True))

        def batches() -> Iterator[RecordBatch]:
            hits: list[tuple[int, int]] = []
            for first in range(0, len(key_list), _KEYS_A_STEP):
                step = slice(first, first + _KEYS_A_STEP)
                verified = self._verified(topic_list[step], key_list[step], times, scan)
                hits += [(first + row, offset) for row, found in enumerate(verified) for offset in found[:max_num]]
                while len(hits) >= batch_size:
                    yield self._rows(hits[:batch_size], schema)
                    del hits[:batch_size]
            if hits:
                yield self._rows(hits, schema)

        return RecordBatchReader.from_batches(schema, batches())

    def _verified(
        self, topics: list[str | None], keys: list[str | None], times: TimeRange, scan: _Scan
    ) -> Iterator[list[int]]:
        """Give the offsets of each key's messages, the newest first, each once."""
        index = self.index
        asked = [pair if None not in pair else (None, None) for pair in zip(topics, keys, strict=True)]
        candidates = [set[int]() for _ in asked]
        if index is not None:
            found = index.query_batch(*map(list, zip(*asked, strict=True)), begin=times.begin, end=times.end)
            candidates = [set(offsets or ()) for offsets in found.to_pylist()]
        if scan:
            for offsets, (topic, key) in zip(candidates, asked, strict=True):
                if topic is not None and key is not None:
                    offsets.update(self._unindexed.offsets(topic, key))
        facts = self._facts(sorted(set().union(*candidates)))
        for offsets, (topic, key) in zip(candidates, asked, strict=True):
            yield [
                offset
                for offset in sorted(offsets, reverse=True)
                if topic is not None and key is not None and _is_hit(topic, key, times, *facts[offset])
            ]

    def _facts(self, offsets: list[int]) -> dict[int, tuple[str | None, str | None, str | None, int | None]]:
        """Give topic, unique key, keys and store time of the messages at some offsets."""
        rows = self._commit_log.messages(offsets, columns=("topic", "uniq_key", "keys", "store_timestamp"))
        texts = (rows.column(name).to_pylist() for name in ("topic", "uniq_key", "keys"))
        stored = rows.column("store_timestamp").cast(DataType.int64()).to_pylist()
        return dict(zip(offsets, zip(*texts, stored, strict=True), strict=True))

    def _rows(self, hits: list[tuple[int, int]], schema: Schema) -> RecordBatch:
        messages = self._commit_log.messages([offset for _, offset in hits])
        rows = Array([row for row, _ in hits], type=DataType.int64())
        return RecordBatch.from_arrays([rows, *messages.columns], schema=schema)

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


def _is_hit(
    topic: str,
    key: str,
    times: TimeRange,
    stored_topic: str | None,
    uniq_key: str | None,
    keys: str | None,
    stored: int | None,
) -> bool:
    in_range = stored is not None and times.begin <= stored <= times.end
    return in_range and _carries(topic, key, stored_topic, uniq_key, keys)


def _carries(topic: str, key: str, stored_topic: str | None, uniq_key: str | None, keys: str | None) -> bool:
    """Say whether a message is one that a question means (the client's filter: MQAdminImpl#queryMessage)."""
    return stored_topic == topic and (uniq_key == key or key in (keys or "").split(" "))


def _to_list(values: Any) -> list[str | None]:  # noqa: ANN401 -- Arrow or a sequence
    if hasattr(values, "__arrow_c_array__"):
        values = Array.from_arrow(values).to_pylist()
    elif hasattr(values, "__arrow_c_stream__"):
        values = ChunkedArray.from_arrow(values).to_pylist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]
