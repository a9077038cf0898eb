"""Finding records by key: candidates of the index and a scan of what the index does not cover, each compared by its own key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

from arro3.core import DataType, Table

from logdex._core import find_records, key_text, record_batch, time_text
from logdex._types import utc_datetime
from logdex.arrow import to_pandas, to_polars
from logdex.hash_index.query import TimeRange, check_max_num
from logdex.kafka.files import MAX_OFFSET, TopicPartition
from logdex.kafka.sealed import EVERYTHING, Candidates, both
from logdex.report import SHOWN_ROWS, Damage, Finding, html_table, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import pandas as pd
    import polars as pl
    from arro3.core import RecordBatch

    from logdex._core import PartitionLog
    from logdex._types import Time
    from logdex.kafka.key_index import KeyIndex
    from logdex.kafka.log import Log
    from logdex.kafka.sealed import SealedKeys

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""The columns of a `Record`."""

NO_TIMESTAMP = -1
"""The timestamp of a record without one."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        timestamp: In ms since the epoch; -1 for none.
        timestamp_type: 0 set by the producer, 1 set by the broker, -1 none.
        value: None for a tombstone.
        headers: Pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def time(self) -> datetime | None:
        """The `timestamp` as a datetime in UTC; None for none, or if it is not in the years 1 to 9999."""
        return None if self.timestamp == NO_TIMESTAMP else utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        """Return all attributes; of long bytes only their beginning."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        texts = (f"{name}={short_bytes(v) if isinstance(v, bytes) else repr(v)}" for name, v in values)
        return f"Record({', '.join(texts)})"


class UnreadRange(NamedTuple):
    """Offsets of a partition that cannot be read: their segment is missing, or their batches are damaged.

    `end_offset` is the offset after the last one; 2^63 - 1 if it is unknown.
    """

    partition: int
    begin_offset: int
    end_offset: int

    @property
    def offsets(self) -> str:
        """Text for the range of offsets."""
        end = "on" if self.end_offset == MAX_OFFSET else f"to {self.end_offset - 1:,}"
        return f"offsets from {self.begin_offset:,} {end}"


@dataclass(frozen=True, slots=True, repr=False)
class FindResult(Sequence[Record]):
    """Records that carry a key, newest first, each once: a sequence of `Record`, and an Arrow stream.

    Attributes:
        truncated: More of them exist than requested.
        rejected: Candidates of the index that have another key, or are no longer in the log.
        scanned_offsets: How many offsets were scanned because no index covers them.
        findings: Missing segments and damaged batches, which may contain more records.
        unscanned: The offsets that were not searched because of the findings, by partition.
    """

    records: tuple[Record, ...]
    truncated: bool
    rejected: int
    scanned_offsets: int
    findings: tuple[Finding, ...] = ()
    unscanned: tuple[UnreadRange, ...] = ()

    @property
    def complete(self) -> bool:
        """True if all of the log that may contain matches was searched: no segment is missing and no batch is damaged."""
        return not self.findings

    @property
    def unreadable(self) -> tuple[UnreadRange, ...]:
        """Unreadable parts of `unscanned`: all of it, because a search reads everything that no index covers."""
        return self.unscanned

    def to_arrow(self) -> Table:
        """Return the records as a table of the record columns."""
        return Table.from_batches([record_batch(self.records)])

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_arrow` as a `pandas.DataFrame`; see `BatchStream.to_pandas`."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return `to_arrow` as a `polars.DataFrame`."""
        return to_polars(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...

    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def _repr_html_(self) -> str:
        """Return a table of the first records."""
        heads = ("time", "topic", "partition", "offset", "key", "value")
        rows = [
            (time_text(row.timestamp), row.topic, row.partition, row.offset, row.key, row.value)
            for row in self.records[:SHOWN_ROWS]
        ]
        return html_table(repr(self), heads, rows, len(self) - len(rows))

    def __repr__(self) -> str:
        """Return counts, not the records."""
        notes = [f"{len(self)} records"]
        if self.truncated:
            notes.append("truncated")
        if self.rejected:
            notes.append(f"{self.rejected} candidates of other keys")
        if self.scanned_offsets:
            notes.append(f"{self.scanned_offsets} offsets scanned without an index")
        if self.findings:
            notes.append(f"incomplete: {len(self.findings)} missing segments or damaged batches")
        return f"FindResult({', '.join(notes)})"


class PartitionPlan(NamedTuple):
    """The search for a key in one partition.

    Attributes:
        log: The partition.
        files: Its open files.
        sealed: Candidates of the sealed index: offsets of records that may carry the key.
        indexed: Candidates of the key index.
        holes: Ranges of offsets that neither index covers. They are scanned.
    """

    log: Log
    files: PartitionLog
    sealed: Sequence[int]
    indexed: Sequence[int]
    holes: Sequence[tuple[int, int]]


class PartitionFound(NamedTuple):
    """The work of a search in a partition.

    Attributes:
        begin_offset: First offset of the log.
        end_offset: The offset after its last record.
        scanned: Offsets that were scanned because no index covers them.
        rejected: Candidates that have another key, or are no longer in the log.
        missing: Segments that are missing inside of the log.
        unread: Ranges of offsets that were not searched.
    """

    begin_offset: int
    end_offset: int
    scanned: int
    rejected: int
    missing: int
    unread: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The search for one key, or for one value of a header, in partitions of one topic."""

    value: bytes
    header: str | None
    times: TimeRange
    plans: tuple[PartitionPlan, ...]

    @classmethod
    def plan(
        cls,
        logs: Sequence[Log],
        files: Sequence[PartitionLog],
        key: str | bytes,
        *,
        begin: Time | None,
        end: Time | None,
        header: str | None,
        sealed: SealedKeys | None,
        index: KeyIndex | None,
    ) -> KeySearch:
        """Return the candidates of the indexes, and the offsets that neither covers."""
        value = key_bytes(key)
        times = TimeRange.of(begin, end)
        found = (
            [Candidates([], EVERYTHING)] * len(logs)
            if sealed is None
            else sealed.candidates(logs, key_text(value), header, times)
        )
        plans = []
        for log, opened, (offsets, holes) in zip(logs, files, found, strict=True):
            if index is None:
                plans.append(PartitionPlan(log, opened, offsets, [], holes))
            else:
                unindexed, indexed = index.candidates(TopicPartition(log.topic, log.partition), value, header)
                plans.append(PartitionPlan(log, opened, offsets, indexed, both(holes, unindexed)))
        return cls(value, header, times, tuple(plans))

    def run(self, max_num: int | None, *, stacklevel: int = 2) -> tuple[FindResult, list[PartitionFound]]:
        """Compare candidates and scanned records with the key; return the newest `max_num` matches, and the work."""
        check_max_num(max_num)
        batches, rows, more, found, findings = find_records(
            [(plan.files, [*plan.sealed, *plan.indexed], list(plan.holes)) for plan in self.plans],
            self.value,
            header=self.header,
            begin=self.times.begin,
            end=self.times.end,
            columns=RECORD_COLUMNS,
            max_num=max_num,
        )
        read = [_records_of(batch) for batch in batches]
        work = [PartitionFound(*each) for each in found]
        damage = Damage.of(findings)
        damage.warn(stacklevel + 1)
        unscanned = [
            UnreadRange(plan.log.partition, *bounds) for plan, each in self.with_work(work) for bounds in each.unread
        ]
        result = FindResult(
            tuple(read[batch][row] for batch, row in rows),
            more,
            sum(each.rejected for each in work),
            sum(each.scanned for each in work),
            tuple(damage.findings),
            tuple(sorted(unscanned)),
        )
        return result, work

    def with_work(self, work: Sequence[PartitionFound]) -> Iterator[tuple[PartitionPlan, PartitionFound]]:
        """Return the plan of each partition with the work that was done in it."""
        return zip(self.plans, work, strict=True)


def key_bytes(key: str | bytes) -> bytes:
    """Return a key as bytes; a `str` stands for its UTF-8 bytes.

    Raises:
        TypeError: It is neither.
    """
    if not isinstance(key, str | bytes):
        raise TypeError(f"key: expected str or bytes, got {type(key).__name__}")
    return key.encode() if isinstance(key, str) else key


def _records_of(batch: RecordBatch) -> list[Record]:
    """Make objects of the rows of a batch with the columns of a record."""
    columns = [batch.column(name) for name in RECORD_COLUMNS]
    columns[3] = columns[3].cast(DataType.int64())
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [
        Record(topic, partition, offset, time, kind, key, value, tuple((h["key"], h["value"]) for h in headers or ()))
        for topic, partition, offset, time, kind, key, value, headers in rows
    ]
