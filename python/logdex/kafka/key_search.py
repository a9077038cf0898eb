"""Finding records by key: candidates of the index and records that it does not cover, checked one by one."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.hash_index import IndexService
from logdex.hash_index.query import TimeRange, check_max_num
from logdex.kafka.find_result import FindResult
from logdex.kafka.key_index import Key, indexed_end, opened, partitions_of
from logdex.kafka.key_settings import KeySettings
from logdex.kafka.record import COLUMNS, Record, records_of

if TYPE_CHECKING:
    from os import PathLike

    from logdex._core import _Time
    from logdex.kafka.log import Log
    from logdex.kafka.log_dir import LogDir

_SCAN_ROWS = 8_192


def find(
    log_dir: str | PathLike[str] | LogDir,
    topic: str,
    key: str | bytes,
    *,
    index: str | PathLike[str] | None = None,
    begin: _Time | None = None,
    end: _Time | None = None,
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
        CorruptFileError: A batch that has to be read is damaged.
        FileNotFoundError: The topic does not lie here, or the index is not there.
    """
    check_max_num(max_num)
    wanted = Key(key.encode() if isinstance(key, str) else key, header)
    times = TimeRange.of(begin, end)
    lists: list[list[Record]] = []
    rejected = scanned = 0
    with opened(log_dir) as logs:
        if index is not None and not Path(index).is_dir():
            raise FileNotFoundError(errno.ENOENT, "no key index", str(index))
        for partition in partitions_of(logs, topic):
            search = _Search(logs.log(topic, partition.partition), wanted, times)
            covered = 0 if index is None else search.ask(Path(index) / str(partition))
            scanned += search.scan(covered)
            rejected += search.rejected
            lists.append(search.newest_first())
    found = _merge(lists)
    more = max_num is not None and len(found) > max_num
    return FindResult(tuple(found[:max_num]), more, rejected, scanned)


class _Search:
    """The search for one key in one partition."""

    def __init__(self, log: Log, key: Key, times: TimeRange) -> None:
        self._log = log
        self._key = key
        self._times = times
        self._found: dict[int, Record] = {}
        self.rejected = 0

    def ask(self, directory: Path) -> int:
        """Check the candidates of an index; give the offset that the index reaches."""
        settings = KeySettings.read(directory)
        if settings is None or self._key.header not in (None, settings.header):
            return 0
        with IndexService.open(directory, hash_slots=settings.hash_slots, max_entries=settings.max_entries) as index:
            covered = indexed_end(index)
            # No bounds: an entry's time is no more than a hint, the record's own is compared.
            offsets = sorted(set(index.query_offset(self._log.topic, self._key.text).phy_offsets))
        for offset in offsets:
            hits = 0
            for batch in self._log.records(offset, offset + 1, columns=COLUMNS):
                for record in records_of(batch):
                    hits += self._key.is_of(record)
                    self._keep(record)
            self.rejected += not hits
        return covered

    def scan(self, begin: int) -> int:
        """Read what lies at and behind an offset; give the number of offsets between the first and the last record read."""
        column = "key" if self._key.header is None else "headers"
        first = last = None
        for batch in self._log.records(begin, columns=["offset", column], batch_size=_SCAN_ROWS):
            if not batch.num_rows:
                continue
            offsets = batch.column("offset")
            first = offsets[0].as_py() if first is None else first
            last = offsets[-1].as_py()
            for row in self._rows(list(batch.column(column).to_pylist())):
                self._read(offsets[row].as_py())
        return 0 if first is None or last is None else last - first + 1

    def _rows(self, values: list[Any]) -> list[int]:
        """Give the numbers of the rows that carry the key, of their keys or headers."""
        if self._key.header is not None:
            pair = {"key": self._key.header, "value": self._key.value}
            return [row for row, headers in enumerate(values) if pair in (headers or [])]
        # Nearly always there is none, which a list tells faster than a loop.
        if self._key.value not in values:
            return []
        return [row for row, key in enumerate(values) if key == self._key.value]

    def _read(self, offset: int) -> None:
        for batch in self._log.records(offset, offset + 1, columns=COLUMNS):
            for record in records_of(batch):
                self._keep(record)

    def _keep(self, record: Record) -> None:
        if self._key.is_of(record) and self._times.begin <= record.timestamp <= self._times.end:
            self._found[record.offset] = record

    def newest_first(self) -> list[Record]:
        """Give what was found."""
        return [self._found[offset] for offset in sorted(self._found, reverse=True)]


def _merge(lists: list[list[Record]]) -> list[Record]:
    """Merge the answers of partitions: within one by offset, between them by timestamp."""
    rest = [list(reversed(records)) for records in lists if records]
    merged = []
    while rest:
        newest = max(rest, key=lambda records: records[-1].timestamp)
        merged.append(newest.pop())
        rest = [records for records in rest if records]
    return merged
