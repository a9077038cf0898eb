"""Finding messages by key: candidates of the index and of the log that it does not cover, checked against the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arro3.core import Array, ChunkedArray, DataType, Field, RecordBatch

from logdex._types import check_int64
from logdex.arrow import BatchStream
from logdex.hash_index import recovery
from logdex.hash_index.query import check_max_num
from logdex.rocketmq.find_result import FindResult
from logdex.rocketmq.log_entries import LogEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from arro3.core import Schema

    from logdex._types import Progress, Scan
    from logdex.hash_index import IndexService
    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.ranges import Range

    _Facts: TypeAlias = tuple[str | None, str | None, str | None, str | None, int | None]

TAG_PREFIX = "T#"
"""Before the tags in a key by which a 5.5.0 broker indexes them (IndexService#buildIndex)."""

_TEXTS = ("topic", "uniq_key", "keys", "tags")
_SCAN_BUDGET_BYTES = 1 << 30
_KEYS_A_STEP = 1_024


def check_scan(scan: Scan) -> None:
    """Refuse what says nothing of how much is read.

    Raises:
        ValueError: It is neither "auto" nor True nor False.
    """
    if scan not in ("auto", True, False):
        raise ValueError(f'scan must be "auto", True or False, not {scan!r}')


class KeySearch:
    """Searches one store. It remembers what it read of the log where no index file covers it."""

    def __init__(
        self,
        log: CommitLog,
        index: Callable[[], IndexService | None],
        topics: Callable[[], Iterable[str]],
        *,
        salvage: bool,
    ) -> None:
        """Prepare to search.

        Args:
            log: The store's log.
            index: Gives the store's index, or None while it has none.
            topics: Gives the topics to try for a key without one.
            salvage: Read behind damage in the log.
        """
        self._log = log
        self._index = index
        self._topics = topics
        self._has_tags: bool | None = None
        self._unindexed = LogEntries(log, tags=self.has_tags, salvage=salvage)

    def has_tags(self) -> bool:
        """Say whether messages are found by their tags: the index holds them (5.5.0), or all is read from the log."""
        if self._has_tags is None:
            index = self._index()
            files = index.files if index is not None else []
            self._has_tags = not any(map(len, files)) or bool(recovery.holds_tags(files, self._log.core))
        return self._has_tags

    def find(
        self,
        topic: str | None,
        key: str,
        *,
        times: TimeRange,
        max_num: int | None,
        scan: Scan,
        progress: Progress | None = None,
    ) -> FindResult:
        """Find the messages of one key; see `MessageStore.find`."""
        check_max_num(max_num)
        scanned, unscanned = self._read_unindexed(scan, progress)
        offsets, capped = self._candidates(topic, key, times)
        found: list[Message] = []
        rejected = 0
        for offset in offsets:
            message = self._log.message(offset)
            if message is None or not times.holds(message.store_timestamp):
                continue
            if not self._carries(topic, key, (message.topic, message.uniq_key, message.keys, message.tags)):
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
    ) -> BatchStream:
        """Find the messages of many keys; see `MessageStore.find_batch`."""
        check_max_num(max_num)
        check_int64(batch_size=batch_size)
        if batch_size < 1:
            raise ValueError(f"batch_size is 1 or more, not {batch_size}")
        key_list = _to_list(keys, "keys")
        topic_list = _to_list([topics] * len(key_list) if isinstance(topics, str) else topics, "topics")
        if len(topic_list) != len(key_list):
            raise ValueError(f"{len(topic_list)} topics for {len(key_list)} keys")
        self._read_unindexed(scan)
        columns = self._log.messages([]).schema
        schema = columns.insert(0, Field("query_row", DataType.int64(), nullable=True))

        def batches() -> Iterator[RecordBatch]:
            hits: list[tuple[int, int]] = []
            for first in range(0, len(key_list), _KEYS_A_STEP):
                step = slice(first, first + _KEYS_A_STEP)
                verified = self._verified(topic_list[step], key_list[step], times)
                hits += [(first + row, offset) for row, found in enumerate(verified) for offset in found[:max_num]]
                while len(hits) >= batch_size:
                    yield from self._rows(hits[:batch_size], schema)
                    del hits[:batch_size]
            yield from self._rows(hits, schema)

        return BatchStream(schema, batches())

    def _candidates(self, topic: str | None, key: str, times: TimeRange) -> tuple[list[int], bool]:
        """Give the offsets where the key may be, the newest first, each once, and whether a broker's cap cut some off."""
        offsets: set[int] = set()
        capped = False
        index = self._index()
        if topic is None:
            # A key's hash is of its topic, too.
            topics = sorted({*self._topics(), *self._unindexed.topics})
            if index is not None and topics:
                of_topics = index.query_batch(topics, [key] * len(topics), begin=times.begin, end=times.end)
                offsets.update(*of_topics.to_pylist())
        else:
            topics = [topic]
            if index is not None:
                result = index.query_offset(topic, key, begin=times.begin, end=times.end)
                offsets.update(result.phy_offsets)
                capped = result.truncated
        for also in self._unindexed.offsets(topics, [key] * len(topics)):
            offsets.update(also or ())
        return sorted(offsets, reverse=True), capped

    def _read_unindexed(self, scan: Scan, progress: Progress | None = None) -> tuple[int, list[Range]]:
        """Read what no index file covers; give the bytes read and what stays unread."""
        check_scan(scan)
        # The index first: what is indexed while the log is measured is then at worst read once more.
        covered = covered_ranges(self._index())
        whole = (self._log.min_offset, self._log.max_offset)
        missing = self._unindexed.missing(whole, covered)
        if not scan or not missing:
            return 0, missing
        scanned = self._unindexed.read(missing, _SCAN_BUDGET_BYTES if scan == "auto" else None, progress)
        return scanned, self._unindexed.missing(whole, covered)

    def _verified(self, topics: list[str | None], keys: list[str | None], times: TimeRange) -> Iterator[list[int]]:
        """Give the offsets of each key's messages, the newest first, each once."""
        index = self._index()
        asked = [pair if None not in pair else (None, None) for pair in zip(topics, keys, strict=True)]
        candidates = [set[int]() for _ in asked]
        if index is not None:
            found = index.query_batch(*map(list, zip(*asked, strict=True)), begin=times.begin, end=times.end)
            candidates = [set(offsets or ()) for offsets in found.to_pylist()]
        read = self._unindexed.offsets(*map(list, zip(*asked, strict=True)))
        for offsets, also in zip(candidates, read, strict=True):
            offsets.update(also or ())
        facts = self._facts(sorted(set().union(*candidates)))
        for offsets, (topic, key) in zip(candidates, asked, strict=True):
            yield [
                offset
                for offset in sorted(offsets, reverse=True)
                if topic is not None and key is not None and self._is_hit(topic, key, times, facts[offset])
            ]

    def _facts(self, offsets: list[int]) -> dict[int, _Facts]:
        """Give topic, unique key, keys, tags and store time of the messages at some offsets."""
        rows = self._log.messages(offsets, columns=(*_TEXTS, "store_timestamp"))
        texts = (rows.column(name).to_pylist() for name in _TEXTS)
        stored = rows.column("store_timestamp").cast(DataType.int64()).to_pylist()
        return dict(zip(offsets, zip(*texts, stored, strict=True), strict=True))

    def _is_hit(self, topic: str, key: str, times: TimeRange, facts: _Facts) -> bool:
        *texts, stored = facts
        return stored is not None and times.holds(stored) and self._carries(topic, key, texts)

    def _carries(self, topic: str | None, key: str, texts: Sequence[str | None]) -> bool:
        """Say whether a message is one that a question means (the client's filter: MQAdminImpl#queryMessage)."""
        stored_topic, uniq_key, keys, tags = texts
        if not key or topic not in (None, stored_topic):
            return False
        if key == uniq_key or key in (keys or "").split(" "):
            return True
        # What is not indexed must not be found in a part of the log only.
        return key.startswith(TAG_PREFIX) and key[len(TAG_PREFIX) :] == tags and self.has_tags()

    def _rows(self, hits: list[tuple[int, int]], schema: Schema) -> Iterator[RecordBatch]:
        at = 0
        for messages in self._log.message_batches([offset for _, offset in hits]):
            rows = Array([row for row, _ in hits[at : at + messages.num_rows]], type=DataType.int64())
            yield RecordBatch.from_arrays([rows, *messages.columns], schema=schema)
            at += messages.num_rows


def covered_ranges(index: IndexService | None) -> list[Range]:
    """Give the ranges of the log whose messages are indexed.

    The messages at a file's beginning and end may have keys in the files beside it, so they are not covered.
    """
    if index is None:
        return []
    headers = [file.header for file in index.whole_files() if len(file)]
    return [(header.begin_phy_offset + 1, header.end_phy_offset) for header in headers]


def _to_list(values: Any, what: str) -> list[str | None]:  # noqa: ANN401 -- Arrow or a sequence
    """Give a column of texts as a list.

    Raises:
        TypeError: One string, or a value that is neither text nor bytes.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{what}: expected a column, got one string; put it into a list")
    if hasattr(values, "__arrow_c_array__"):
        values = Array.from_arrow(values).to_pylist()
    elif hasattr(values, "__arrow_c_stream__"):
        values = ChunkedArray.from_arrow(values).to_pylist()
    texts = [value.decode() if isinstance(value, bytes) else value for value in values]
    for row, text in enumerate(texts):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{what}: row {row} is str, UTF-8 bytes or None, not {type(text).__name__}")
    return texts
