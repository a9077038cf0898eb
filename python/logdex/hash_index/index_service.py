"""The key index of a store: a directory of index files, rolled when one is full, asked from the newest to the oldest.

Source of the rules: IndexService of RocketMQ 4.9.3; docs/formats/rocketmq-index.md tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from logdex import _core
from logdex._core import StoreCheckpoint
from logdex._types import check_int64
from logdex.arrow import INDEXED_COLUMNS, entry_batches
from logdex.hash_index import query
from logdex.hash_index.check import verify_directory
from logdex.hash_index.opened_index import OpenedIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Protocol

    from arro3.core import Array

    from logdex._core import IndexFile, IndexHeader
    from logdex._types import Time
    from logdex.hash_index.query import QueryOffsetResult
    from logdex.report import Report

    class Log(Protocol):
        """A commit log: `logdex.rocketmq.CommitLog`."""

        @property
        def core(self) -> _core.CommitLog:
            """The native log."""


MAX_THREADS: Final = 64
"""More threads than any put can use."""

INDEXES_TAGS: Final = "5.5.0"
"""The release that indexes tags as well (IndexService#buildIndex)."""


class IndexService(OpenedIndex):
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
            ValueError: A column is missing, a value is null or an integer of more than 64 bits, or no such number of threads.
            TypeError: A column of another type. With either nothing was written.
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written, for instance because the disk is full; what was put stays.
        """
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads is 1 to {MAX_THREADS}, not {threads}")
        parts = entry_batches(batch)
        with self._lock:
            writer = self._writable()
            return sum(writer.put(**part, threads=threads) for part in parts)

    def build_index(self, messages: Any, *, tags: bool | None = None) -> int:  # noqa: ANN401 -- anything with the PyCapsule interface
        """Index messages as a broker's dispatcher does: the unique key and each of the space-separated keys.

        Messages before the newest file's last offset were indexed before and are passed over; so are rolled back ones. With
        `compat="5.5.0"` a message's tags are indexed too. Source: IndexService#buildIndex.

        Args:
            messages: Arrow data with the message columns, in log order, or `Message` objects.
            tags: Index tags, too; None: as `compat` says.

        Returns:
            The number of index entries put.

        Raises:
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written.
        """
        with self._lock:
            return self._writable().build(messages, tags=self._compat == INDEXES_TAGS if tags is None else tags)

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
                return writer.index_again(log, tags=self._tags)
            path = self._checkpoint
            # COMPAT(rocketmq StoreCheckpoint): a missing file reads as zeros, and the whole log is dispatched.
            checkpoint = StoreCheckpoint.open(path) if path is not None and path.exists() else None
            _, end, dispatch = log.recovery(checkpoint, last_exit_ok=False, message_index_safe=message_index_safe)
            if dispatch >= end:
                return 0
            messages = log.scan(begin_phy_offset=dispatch, end_phy_offset=end, columns=INDEXED_COLUMNS)
            return writer.build(messages, tags=self._compat == INDEXES_TAGS)

    # Questions

    def query_offset(
        self, topic: str, key: str, max_num: int | None = None, begin: Time | None = None, end: Time | None = None
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
        begin: Time | None = None,
        end: Time | None = None,
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
        check_int64(min_phy_offset=min_phy_offset)
        with self._lock:
            return self._writable().delete_expired(min_phy_offset)

    def flush(self) -> None:
        """Bring the newest file to disk. The checkpoint moves only where that file is full, as with a broker."""
        with self._lock:
            self._writable().flush()
