"""Finding records by key: candidates of the index and records that it does not cover, each checked."""

from __future__ import annotations

import errno
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType

from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.hash_index.query import TimeRange, check_max_num
from logdex.kafka.find_result import FindResult
from logdex.kafka.key_index import Key, check_files, indexed_end, opened, partitions_of
from logdex.kafka.key_settings import KeySettings
from logdex.kafka.record import COLUMNS, Record, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from logdex._types import Time
    from logdex.kafka.log import Log
    from logdex.kafka.log_dir import LogDir

_SCAN_ROWS = 8_192
_NEAR = 1_000
"""Offsets this close are read in one go: passing over the records between them costs less than to begin anew."""
_FIRST_READ, _MOST_READ = 16, 16_384
"""Records that are read together, at first and at most: few may be enough."""


def find(
    log_dir: str | PathLike[str] | LogDir,
    topic: str,
    key: str | bytes,
    *,
    index: str | PathLike[str] | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    header: str | None = None,
    max_num: int | None = None,
) -> FindResult:
    """Find the records of a topic that carry a key, the newest first.

    Candidates of the index are checked against the records themselves. What no index covers, because there is none or because
    it was written since, is read record by record.

    Args:
        log_dir: The log directory, or its path.
        topic: The topic.
        key: The key; text stands for its UTF-8 bytes.
        index: The directory that `build_key_index` wrote; None: every record is read.
        begin: First timestamp, ms or an aware datetime; None: no bound.
        end: Last timestamp, included.
        header: Look for a header of this name with that value, not for the record's key. Where the index was built without it,
            every record is read.
        max_num: The most records to give; None: all.

    Raises:
        ValueError: `max_num` is negative.
        CorruptFileError: A batch that has to be read is damaged, or a file of the index is not whole.
        FileNotFoundError: The topic does not lie here, or the index is not there.
    """
    check_max_num(max_num)
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}")
    wanted = Key(key.encode() if isinstance(key, str) else key, header)
    times = TimeRange.of(begin, end)
    lists: list[list[Record]] = []
    rejected = scanned = 0
    with opened(log_dir) as logs:
        if index is not None and not Path(index).is_dir():
            raise FileNotFoundError(errno.ENOENT, "no key index", str(index))
        for partition in partitions_of(logs, topic):
            search = _Search(logs.log(topic, partition.partition), wanted, times)
            covered, candidates = (0, []) if index is None else search.ask(Path(index) / str(partition))
            hits, passed = search.scan(covered)
            scanned += passed
            lists.append(search.newest_first(sorted({*candidates, *hits}), None if max_num is None else max_num + 1))
            rejected += search.rejected
    found = _merge(lists)
    more = max_num is not None and len(found) > max_num
    return FindResult(tuple(found[:max_num]), more, rejected, scanned)


class _Search:
    """The search for one key in one partition."""

    def __init__(self, log: Log, key: Key, times: TimeRange) -> None:
        self._log = log
        self._key = key
        self._times = times
        self.rejected = 0

    def ask(self, directory: Path) -> tuple[int, list[int]]:
        """Ask an index; give the offset that it reaches, and its candidates in the order of their offsets."""
        settings = KeySettings.read(directory)
        if settings is None or self._key.header not in (None, settings.header):
            return 0, []
        check_files(directory, settings)
        with IndexDirectory.open(directory, hash_slots=settings.hash_slots, max_entries=settings.max_entries) as index:
            # No bounds: an entry's time is no more than a hint, the record's own is compared.
            offsets = index.query_offset(self._log.topic, self._key.text).phy_offsets
            return indexed_end(index), sorted(set(offsets))

    def scan(self, begin: int) -> tuple[list[int], int]:
        """Read what lies at and behind an offset; give the offsets that carry the key, and how many offsets that went over."""
        column = "key" if self._key.header is None else "headers"
        hits: list[int] = []
        first = last = None
        for batch in self._log.records(begin, columns=["offset", column], batch_size=_SCAN_ROWS):
            if not batch.num_rows:
                continue
            offsets = batch.column("offset")
            first = offsets[0].as_py() if first is None else first
            last = offsets[-1].as_py()
            hits += [offsets[row].as_py() for row in self._rows(list(batch.column(column).to_pylist()))]
        return hits, 0 if first is None or last is None else last - first + 1

    def _rows(self, values: list[Any]) -> list[int]:
        """Give the numbers of the rows that carry the key, of their keys or headers."""
        if self._key.header is not None:
            pair = {"key": self._key.header, "value": self._key.value}
            return [row for row, headers in enumerate(values) if pair in (headers or [])]
        # Nearly always there is none, which a list tells faster than a loop.
        if self._key.value not in values:
            return []
        return [row for row, key in enumerate(values) if key == self._key.value]

    def newest_first(self, offsets: Sequence[int], most: int | None) -> list[Record]:
        """Read the records at these rising offsets from the last one on, and give those that carry the key, `most` of them."""
        found: list[Record] = []
        end, size = len(offsets), _FIRST_READ
        while end > 0 and (most is None or len(found) < most):
            some = offsets[max(0, end - size) : end]
            found += reversed(list(self._matches(some)))
            end, size = end - size, min(2 * size, _MOST_READ)
        return found[:most]

    def _matches(self, offsets: Sequence[int]) -> Iterator[Record]:
        """Give the records at these rising offsets that carry the key within the times."""
        try:
            records = self._records_at(offsets, _ranges(offsets))
        except CorruptFileError:
            # It may lie between those that are wanted.
            records = self._records_at(offsets, ((offset, offset + 1) for offset in offsets))
        carrying = [record for record in records if self._key.is_of(record)]
        self.rejected += len(offsets) - len(carrying)
        return (record for record in carrying if self._times.holds(record.timestamp))

    def _records_at(self, offsets: Sequence[int], ranges: Iterable[tuple[int, int]]) -> list[Record]:
        found: list[Record] = []
        for batch in self._log.records_in(ranges, columns=COLUMNS):
            rows = [row for row, offset in enumerate(batch.column("offset").to_pylist()) if _holds(offsets, offset)]
            found += records_of(batch.take(Array(rows, type=DataType.int64())))
        return found


def _holds(offsets: Sequence[int], offset: int) -> bool:
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset


def _ranges(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Give ranges of offsets that hold all of these rising ones."""
    first = last = None
    for offset in offsets:
        if first is None or last is None:
            first = offset
        elif offset - last > _NEAR:
            yield first, last + 1
            first = offset
        last = offset
    if first is not None and last is not None:
        yield first, last + 1


def _merge(lists: list[list[Record]]) -> list[Record]:
    """Merge the answers of partitions: within one by offset, between them by timestamp."""
    rest = [list(reversed(records)) for records in lists if records]
    merged = []
    while rest:
        newest = max(rest, key=lambda records: records[-1].timestamp)
        merged.append(newest.pop())
        rest = [records for records in rest if records]
    return merged
