"""Finding messages by key: candidates of the index and of the log that it does not cover, checked against the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from arro3.core import Array, ChunkedArray, DataType, Field, RecordBatch, RecordBatchReader

from logdex.hash_index.query import check_max_num
from logdex.rocketmq.find_result import FindResult
from logdex.rocketmq.log_entries import LogEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from arro3.core import Schema

    from logdex.hash_index import IndexService
    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.ranges import Range

    Scan: TypeAlias = Literal["auto", True, False]
    _Facts: TypeAlias = tuple[str | None, str | None, str | None, int | None]

_SCAN_BUDGET_BYTES = 1 << 30
_KEYS_A_STEP = 1_024


class KeySearch:
    """Searches one store. It remembers what it read of the log where no index file covers it."""

    def __init__(self, log: CommitLog, index: Callable[[], IndexService | None]) -> None:
        """Prepare to search.

        Args:
            log: The store's log.
            index: Gives the store's index, or None while it has none.
        """
        self._log = log
        self._index = index
        self._unindexed = LogEntries(log)

    def find(self, topic: str, key: str, *, times: TimeRange, max_num: int | None, scan: Scan) -> FindResult:
        """Find the messages of one key; see `MessageStore.find`."""
        check_max_num(max_num)
        scanned, unscanned = self._read_unindexed(scan)
        offsets, capped = self._candidates(topic, key, times, scan)
        found: list[Message] = []
        rejected = 0
        for offset in offsets:
            message = self._log.message(offset)
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
            truncated=capped or (max_num is not None and len(found) > max_num),
            rejected=rejected,
            complete=not unscanned,
            scanned_bytes=scanned,
            unscanned=unscanned,
        )

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        times: TimeRange,
        max_num: int | None,
        scan: Scan,
        batch_size: int,
    ) -> RecordBatchReader:
        """Find the messages of many keys; see `MessageStore.find_batch`."""
        check_max_num(max_num)
        key_list = _to_list(keys)
        topic_list = _to_list([topics] * len(key_list) if isinstance(topics, str) else topics)
        if len(topic_list) != len(key_list):
            raise ValueError(f"{len(topic_list)} topics for {len(key_list)} keys")
        self._read_unindexed(scan)
        columns = self._log.messages([]).schema
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

    def _candidates(self, topic: str, key: str, times: TimeRange, scan: Scan) -> tuple[list[int], bool]:
        """Give the offsets where the key may be, the newest first, each once, and whether a broker's cap cut some off."""
        offsets: set[int] = set()
        capped = False
        index = self._index()
        if index is not None:
            result = index.query_offset(topic, key, begin=times.begin, end=times.end)
            offsets.update(result.phy_offsets)
            capped = result.truncated
        if scan:
            offsets.update(self._unindexed.offsets(topic, key))
        return sorted(offsets, reverse=True), capped

    def _read_unindexed(self, scan: Scan) -> tuple[int, list[Range]]:
        """Read what no index file covers; give the bytes read and what stays unread."""
        if scan not in ("auto", True, False):
            raise ValueError(f'scan must be "auto", True or False, not {scan!r}')
        # The index first: what is indexed while the log is measured is then at worst read once more.
        covered = self._covered()
        whole = (self._log.min_offset, self._log.max_offset)
        missing = self._unindexed.missing(whole, covered)
        if not scan or not missing:
            return 0, missing
        scanned = self._unindexed.read(missing, _SCAN_BUDGET_BYTES if scan == "auto" else None)
        return scanned, self._unindexed.missing(whole, covered)

    def _covered(self) -> list[Range]:
        """Give the ranges of the log whose messages are indexed.

        The messages at a file's beginning and end may have keys in the files beside it, so they are not covered.
        """
        index = self._index()
        if index is None:
            return []
        headers = [file.header for file in index.whole_files() if len(file)]
        return [(header.begin_phy_offset + 1, header.end_phy_offset) for header in headers]

    def _verified(
        self, topics: list[str | None], keys: list[str | None], times: TimeRange, scan: Scan
    ) -> Iterator[list[int]]:
        """Give the offsets of each key's messages, the newest first, each once."""
        index = self._index()
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
                if topic is not None and key is not None and _is_hit(topic, key, times, facts[offset])
            ]

    def _facts(self, offsets: list[int]) -> dict[int, _Facts]:
        """Give topic, unique key, keys and store time of the messages at some offsets."""
        rows = self._log.messages(offsets, columns=("topic", "uniq_key", "keys", "store_timestamp"))
        texts = (rows.column(name).to_pylist() for name in ("topic", "uniq_key", "keys"))
        stored = rows.column("store_timestamp").cast(DataType.int64()).to_pylist()
        return dict(zip(offsets, zip(*texts, stored, strict=True), strict=True))

    def _rows(self, hits: list[tuple[int, int]], schema: Schema) -> RecordBatch:
        messages = self._log.messages([offset for _, offset in hits])
        rows = Array([row for row, _ in hits], type=DataType.int64())
        return RecordBatch.from_arrays([rows, *messages.columns], schema=schema)


def _is_hit(topic: str, key: str, times: TimeRange, facts: _Facts) -> bool:
    stored_topic, uniq_key, keys, stored = facts
    in_range = stored is not None and times.begin <= stored <= times.end
    return in_range and _carries(topic, key, stored_topic, uniq_key, keys)


def _carries(topic: str, key: str, stored_topic: str | None, uniq_key: str | None, keys: str | None) -> bool:
    """Say whether a message is one that a question means (the client's filter: MQAdminImpl#queryMessage)."""
    return stored_topic == topic and bool(key) and (uniq_key == key or key in (keys or "").split(" "))


def _to_list(values: Any) -> list[str | None]:  # noqa: ANN401 -- Arrow or a sequence
    if hasattr(values, "__arrow_c_array__"):
        values = Array.from_arrow(values).to_pylist()
    elif hasattr(values, "__arrow_c_stream__"):
        values = ChunkedArray.from_arrow(values).to_pylist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]
