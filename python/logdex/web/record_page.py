"""A page of the records of a partition, by offset."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from logdex.errors import printable
from logdex.web.view import Listing, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex.kafka import Log
    from logdex.report import Finding

_COLUMNS = ("offset", "timestamp", "key", "producerId", "isTransactional", "isControl")
_FIRST_WINDOW, _MOST_WINDOW = 256, 262_144
_SHOWN_KEY = 120


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions of a page, all of which must hold; None: no condition."""

    keys: Sequence[str] | None
    begin: int | None
    end: int | None
    is_committed: bool


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records next to an offset.

    Attributes:
        rows: The records by name of column, in the requested order.
        next_position: Where the next page begins; None: nothing is left in this direction.
        done: Offsets from where the order begins to where this page ends.
        total: Offsets of the partition.
        findings: The damage that this page skipped.
    """

    HEADS: ClassVar = ("topic", "partition", *_COLUMNS)

    topic: str
    partition: int
    rows: list[dict[str, Any]]
    next_position: int | None
    done: int
    total: int
    findings: tuple[Finding, ...]

    def listing(self) -> Listing:
        """Return the rows for JSON and CSV."""
        return Listing(
            self.HEADS, [(self.topic, self.partition, *(row[name] for name in _COLUMNS)) for row in self.rows]
        )


def read_page(
    log: Log, position: int | None, wanted: RecordFilter, *, limit: int, newest_first: bool, seconds: float
) -> RecordPage:
    """Read the records next to an offset; the page ends when its time is over."""
    until = time.monotonic() + seconds
    log = log.pinned()
    low, high = log.log_start_offset, log.log_end_offset
    begin, end = (high, low) if newest_first else (low, high)
    at = begin if position is None else max(low, min(position, high))
    rows: list[dict[str, Any]] = []
    findings: list[Finding] = []
    window = _FIRST_WINDOW
    while at != end and len(rows) < limit and (window == _FIRST_WINDOW or time.monotonic() < until):
        span = (max(low, at - window), at) if newest_first else (at, min(high, at + window))
        need = limit - len(rows)
        found, damage = _read(log, span, wanted, need + 1, newest_first=newest_first)
        findings += damage
        rows += found[:need]
        at = span[0] if newest_first else span[1]
        if len(found) > need:
            at = rows[-1]["offset"] + (0 if newest_first else 1)
        window = min(window * 2, _MOST_WINDOW)
    next_position = None if at == end else at
    return RecordPage(log.topic, log.partition, rows, next_position, abs(at - begin), high - low, tuple(findings))


def _read(
    log: Log, span: tuple[int, int], wanted: RecordFilter, most: int, *, newest_first: bool
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return at most `most` records of a span of offsets, and the damage in it."""
    reader = log.records(
        *span,
        wanted.begin,
        wanted.end,
        _COLUMNS,
        keys=wanted.keys,
        isolation="read_committed" if wanted.is_committed else "read_uncommitted",
        control=wanted.keys is None and not wanted.is_committed,
        on_error="skip",
    )
    batches = list(reader)
    rows: list[dict[str, Any]] = []
    for batch in reversed(batches) if newest_first else batches:
        length = min(most - len(rows), batch.num_rows)
        part = rows_of(batch.slice(batch.num_rows - length if newest_first else 0, length))
        rows += reversed(part) if newest_first else part
    for row in rows:
        row["key"] = None if row["key"] is None else key_text(row["key"])
    return rows, list(reader.damage)


def key_text(key: bytes) -> str:
    """Return a key as text, or as hex if it is not UTF-8."""
    try:
        text = printable(key.decode())
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    return text if len(text) <= _SHOWN_KEY else text[:_SHOWN_KEY] + "..."
