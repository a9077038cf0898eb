"""Rows of Arrow batches as Python values, to be printed: the only reader of single rows in the command line."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from arro3.core import DataType

from logdex._core import json_lines, time_text
from logdex.cli.output import body_text, say
from logdex.rocketmq import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from arro3.core import RecordBatch

    from logdex._core import BatchStream, SegmentReader

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))
_SHOWN_BODY = 2_000
# Typed as it is, its checks would narrow an unknown type to nothing.
_TYPES: Any = DataType


def limited_batches(stream: BatchStream | SegmentReader, limit: int | None) -> Iterator[RecordBatch]:
    """Iterate over the batches of a stream that have rows, with at most `limit` rows in all."""
    left = sys.maxsize if limit is None else limit
    while left and (batch := next(stream, None)) is not None:
        part = batch.slice(0, min(left, batch.num_rows))
        left -= part.num_rows
        if part.num_rows:
            yield part


def plain_rows(batches: Iterable[RecordBatch]) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of batches as dicts: times in ms, maps as dicts."""
    for batch in batches:
        names = batch.column_names
        columns = [plain_values(batch.column(name)) for name in names]
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))


def plain_values(column: Any) -> list[Any]:  # noqa: ANN401 -- an Arrow column
    """Return the values of a column: times in ms, maps as dicts."""
    plain = column.cast(DataType.int64()) if _TYPES.is_timestamp(column.type) else column
    values: list[Any] = plain.to_pylist()
    return [None if value is None else dict(value) for value in values] if _TYPES.is_map(column.type) else values


def say_rows(batches: Iterable[RecordBatch], say_row: Callable[[dict[str, Any]], None], *, as_json: bool) -> int:
    """Print rows as JSON lines, with times in ms, or each by a function; return their number."""
    rows = 0
    for batch in batches:
        if as_json:
            json_lines(batch, sys.stdout.write)
        else:
            for row in plain_rows([batch]):
                say_row(row)
        rows += batch.num_rows
    return rows


def say_message(row: dict[str, Any]) -> None:
    """Print a message as a line, with the body below it if it was read."""
    head = [
        time_text(row["store_timestamp"]) or "-",
        f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}",
        f"phy {row['phy_offset']}",
    ]
    head += [f"{name}={row[name]}" for name in ("tags", "keys", "uniq_key") if row[name] is not None]
    say("  ".join(head))
    if row.get("body_error"):
        say(f"    ({row['body_error']})")
    elif row.get("body") is not None:
        for line in _body_lines(row["body"]):
            say(f"    {line}")


def _body_lines(body: bytes) -> list[str]:
    text = body_text(body)
    if text is None:
        shown = body[: _SHOWN_BODY // 2].hex(" ")
        rest = len(body) - _SHOWN_BODY // 2
        lines = [f"({len(body):,} bytes, no text) {shown}"]
    else:
        rest = len(text) - _SHOWN_BODY
        lines = text[:_SHOWN_BODY].splitlines()
    if rest > 0:
        lines.append(f"({rest:,} more; --json gives all)")
    return lines
