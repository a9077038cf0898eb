"""Finding records by key: candidates of the indexes and a scan of what no index covers, each compared by its own key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from arro3.core import DataType, Table

from logdex._core import default_partition, find_records, key_text, record_batch, time_text
from logdex._types import utc_datetime
from logdex.arrow import to_pandas, to_polars
from logdex.errors import printable
from logdex.hash_index.query import check_max_num
from logdex.kafka.files import MAX_OFFSET
from logdex.report import SHOWN_ROWS, Damage, Finding, html_table, short_bytes

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd
    import polars as pl
    from arro3.core import RecordBatch

    from logdex._core import KeyIndex, PartitionLog, SealedLogs
    from logdex._types import Time

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


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """The search in one partition.

    Attributes:
        partition: Its number.
        log_start_offset: Its first offset; what was before is deleted.
        log_end_offset: The offset after its last record.
        sealed: Candidates of the sealed index.
        indexed: Candidates of the key index.
        scanned: Offsets that neither covers; they are scanned.
        offsets: Offsets of the records that carry the key, newest first.
        missing_segments: Segments that are missing inside of the log.
        unscanned: Offsets that were not searched: their segment is missing, or their batches are damaged.
    """

    partition: int
    log_start_offset: int
    log_end_offset: int
    sealed: int
    indexed: int
    scanned: int
    offsets: tuple[int, ...]
    missing_segments: int
    unscanned: tuple[UnreadRange, ...] = ()

    def __str__(self) -> str:
        """Return one line of text."""
        notes = [f"offsets {self.log_start_offset:,} to {self.log_end_offset:,}"]
        notes += [
            f"{number:,} {what}"
            for number, what in (
                (self.sealed, "candidates of the sealed index"),
                (self.indexed, "candidates of the key index"),
                (self.scanned, "offsets scanned without an index"),
                (self.missing_segments, "segments missing"),
            )
            if number
        ]
        notes += [f"{each.offsets} not searched: missing or damaged" for each in self.unscanned]
        found = f"found at {', '.join(f'{offset:,}' for offset in self.offsets[:10])}" if self.offsets else "not found"
        more = f" and {len(self.offsets) - 10:,} more" if len(self.offsets) > 10 else ""  # noqa: PLR2004 -- as above
        return f"partition {self.partition}: {found}{more}; {', '.join(notes)}"


@dataclass(frozen=True, slots=True, repr=False)
class KeyExplanation:
    """The search for a key, and the places where it was found.

    Attributes:
        topic: The topic.
        key: The key, as text.
        partitions: The partitions of the topic, as far as the directory shows: one more than its highest number.
        default_partition: Where Java producers put the key by default if there are so many partitions; None for a header.
        steps: The search in each partition of the directory.
    """

    topic: str
    key: str
    partitions: int
    default_partition: int | None
    steps: tuple[PartitionStep, ...]

    @property
    def found(self) -> bool:
        """True if a record carries the key."""
        return any(step.offsets for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        return {"found": self.found, **asdict(self)}

    def text(self) -> str:
        """Return the text for people: the verdict first."""
        count = sum(len(step.offsets) for step in self.steps)
        held = {step.partition for step in self.steps}
        verdict = f"{count:,} records of {self.topic} carry" if count else f"no record of {self.topic} carries"
        lines = [printable(f"{verdict} {self.key}")]
        if self.default_partition is not None:
            where = "" if self.default_partition in held else ", which is not in this directory"
            chosen = f"Java producers put it in partition {self.default_partition} by default{where}"
            lines.append(f"  of {self.partitions} partitions, {chosen}")
        if absent := sorted({*range(self.partitions)} - held):
            lines.append(f"  not in this directory: partition {', '.join(map(str, absent))}")
        return "\n".join([*lines, *(f"  {step}" for step in self.steps)])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        """Return topic, key and the number of matches, not the steps."""
        count = sum(len(step.offsets) for step in self.steps)
        return f"KeyExplanation(topic={self.topic!r}, key={self.key!r}: {count} found in {len(self.steps)} partitions)"


def search(
    logs: Sequence[PartitionLog],
    key: bytes,
    *,
    sealed: SealedLogs | None,
    index: KeyIndex | None,
    header: str | None,
    begin: Time | None,
    end: Time | None,
    max_num: int | None = None,
) -> tuple[FindResult, tuple[PartitionStep, ...]]:
    """Find the newest records of some partitions of one topic that carry a key, and return what was done in each partition.

    The warning about damage names the line that calls the caller's caller.
    """
    check_max_num(max_num)
    batches, rows, truncated, rejected, found, findings = find_records(
        logs,
        key,
        header=header,
        begin=begin,
        end=end,
        columns=RECORD_COLUMNS,
        max_num=max_num,
        sealed=sealed,
        index=index,
    )
    read = [_records_of(batch) for batch in batches]
    damage = Damage.of(findings)
    damage.warn(4)
    steps = tuple(_step(*each) for each in found)
    result = FindResult(
        tuple(read[batch][row] for batch, row in rows),
        truncated,
        rejected,
        sum(step.scanned for step in steps),
        tuple(damage.findings),
        tuple(sorted(unread for step in steps for unread in step.unscanned)),
    )
    return result, steps


def _step(  # noqa: PLR0917 -- the attributes of a step
    partition: int,
    begin: int,
    end: int,
    sealed: int,
    indexed: int,
    scanned: int,
    offsets: list[int],
    missing: int,
    unread: list[tuple[int, int]],
) -> PartitionStep:
    unscanned = tuple(UnreadRange(partition, *bounds) for bounds in unread)
    return PartitionStep(partition, begin, end, sealed, indexed, scanned, tuple(offsets), missing, unscanned)


def explanation(topic: str, key: bytes, header: str | None, steps: tuple[PartitionStep, ...]) -> KeyExplanation:
    """Return the explanation of a search from what was done in each partition."""
    partitions = max(step.partition for step in steps) + 1
    default = default_partition(key, partitions) if header is None else None
    return KeyExplanation(topic, key_text(key), partitions, default, steps)


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
