"""The messages that a search by key found."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from arro3.core import Table

from logdex import _core
from logdex._core import KeyView, time_text
from logdex.arrow import BatchStream, to_pandas, to_polars
from logdex.report import SHOWN_ROWS, html_table
from logdex.rocketmq.message import Message
from logdex.rocketmq.read import check_scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    from arro3.core import RecordBatch

    from logdex._types import Scan

__all__ = ["ANY_TOPIC", "BODY_BUDGET_BYTES", "TAG_PREFIX", "FindResult", "KeyView", "LogRange"]

ANY_TOPIC = "*"
"""Stands for every topic: no topic of a broker has this name."""
TAG_PREFIX = "T#"
"""Prefix of the key by which a 5.5.0 broker indexes the tags of a message (IndexService#buildIndex)."""

_SCAN_BUDGET_BYTES = 1 << 30
_MESSAGES_A_STEP = 1_024
BODY_BUDGET_BYTES = 64 << 20
"""Bytes of bodies that a result keeps in memory."""
_SETTERS = tuple(getattr(Message, field.name).__set__ for field in fields(Message))


def scan_bytes(scan: Scan) -> int | None:
    """Return the most bytes of the log that a search reads because no index file covers them; None: all."""
    check_scan(scan)
    return _SCAN_BUDGET_BYTES if scan == "auto" else None if scan else 0


class LogRange(NamedTuple):
    """A range of the commit log: the offset of its first byte, and the offset after its last byte."""

    begin_phy_offset: int
    end_phy_offset: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FindResult(Sequence[Message]):
    """Messages that carry a key, the newest first, each once: a sequence of `Message`, and an Arrow stream.

    The messages are held as Arrow batches, with up to 64 MiB of bodies. `Message` objects are made, and the other bodies read
    from the log, when they are used: a batch at a time by iteration and as an Arrow stream, and all by `to_arrow`.

    Attributes:
        truncated: More of them exist than requested.
        rejected: Candidates that turned out to carry another key: the index stores hashes.
        complete: Every part of the log was covered by the index or read.
        scanned_bytes: Bytes of the log that this call read because no index file covers them.
        unscanned: Ranges of the log that neither the index covers nor any call has read, that no file holds, or that are damaged
            and may hold a match.
        unreadable: Those parts of them that cannot be read: the file is missing, or the bytes are not a valid message.
    """

    _found: _core.FoundMessages
    truncated: bool
    rejected: int
    complete: bool
    scanned_bytes: int
    unscanned: list[LogRange]
    unreadable: list[LogRange]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages."""
        return tuple(self)

    def to_arrow(self) -> Table:
        """Return the messages as a table of the message columns, with all bodies."""
        return Table.from_batches([*self._batches(0, len(self))], schema=self._found.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_arrow` as a `pandas.DataFrame`; see `BatchStream.to_pandas`."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return `to_arrow` as a `polars.DataFrame`."""
        return to_polars(self.to_arrow())

    def __arrow_c_schema__(self) -> object:
        return self._found.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return BatchStream(self._found.schema, self._batches(0, len(self))).__arrow_c_stream__(requested_schema)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            rows = range(len(self))[index]
            return tuple(self._rows(rows.start, rows.stop)) if rows.step == 1 else self.messages[index]
        row = range(len(self))[index]
        return next(self._rows(row, row + 1))

    def __iter__(self) -> Iterator[Message]:
        return self._rows(0, len(self))

    def _repr_html_(self) -> str:
        """Return a table of the first messages."""
        heads = ("time", "topic", "queue", "queue_offset", "phy_offset", "tags", "keys", "body")
        rows = [
            (time_text(m.store_timestamp), m.topic, m.queue_id, m.queue_offset, m.phy_offset, m.tags, m.keys, m.body)
            for m in self[:SHOWN_ROWS]
        ]
        return html_table(repr(self), heads, rows, len(self) - len(rows))

    def heads(self) -> Table:
        """Return the messages as they are in memory: bodies that were not read are null."""
        return self._found.table()

    def _rows(self, begin: int, end: int) -> Iterator[Message]:
        whole = min(end, self._whole)
        while begin < whole:
            messages = _messages(self._found.lists(begin, min(begin + _MESSAGES_A_STEP, whole)))
            yield from messages
            begin += len(messages)
        for batch in self._read_again(begin, end):
            for row in range(0, batch.num_rows, _MESSAGES_A_STEP):
                yield from _messages(_core.message_lists(batch, row, min(row + _MESSAGES_A_STEP, batch.num_rows)))

    def _batches(self, begin: int, end: int) -> Iterator[RecordBatch]:
        """Iterate over the batches of some rows, and read the bodies that are not in memory."""
        yield from self._found.table().slice(begin, max(0, min(end, self._whole) - begin)).to_batches()
        yield from self._read_again(max(begin, self._whole), end)

    def _read_again(self, begin: int, end: int) -> Iterator[RecordBatch]:
        """Read some rows whose bodies are not in memory."""
        if begin < end:
            yield from self._found.read_again(begin, end)

    @property
    def _whole(self) -> int:
        """The number of rows whose bodies are in memory. They come first."""
        return len(self._found) - self._found.without_body

    def __len__(self) -> int:
        return len(self._found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FindResult):
            return NotImplemented
        mine, others = ([r.messages, *(getattr(r, each.name) for each in fields(r)[1:])] for r in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        notes = [f"{len(self)} messages"]
        if self.truncated:
            notes.append("truncated")
        if self.rejected:
            notes.append(f"{self.rejected} candidates of other keys")
        if not self.complete:
            notes.append(f"{sum(end - begin for begin, end in self.unscanned)} bytes of the log not searched")
        return f"FindResult({', '.join(notes)})"


def result_of(found: _core.FoundMessages) -> FindResult:
    """Return the result of a search."""
    unscanned, unreadable = (list(map(LogRange._make, each)) for each in (found.unscanned, found.unreadable))
    complete = not unscanned
    return FindResult(found, found.truncated, found.rejected, complete, found.scanned_bytes, unscanned, unreadable)


def _messages(columns: list[list[Any]]) -> list[Message]:
    """Make messages of their columns. Their slots are set directly: `__init__` of a frozen class takes twice as long."""
    messages = [Message.__new__(Message) for _ in columns[0]]
    for set_slot, values in zip(_SETTERS, columns, strict=True):
        deque(map(set_slot, messages, values), maxlen=0)
    return messages
