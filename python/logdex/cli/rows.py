"""Rows of Arrow batches as Python values, to be printed: the only reader of single rows in the command line."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from arro3.core import DataType, RecordBatchReader

from logdex.cli.output import body_text, json_bytes, printable, time_text
from logdex.rocketmq import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arro3.core import RecordBatch

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))
_SHOWN_BODY = 2_000
# Typed as it is, its checks would narrow an unknown type to nothing.
_TYPES: Any = DataType


def limited_batches(stream: Any, limit: int | None) -> Iterator[RecordBatch]:  # noqa: ANN401 -- PyCapsule
    """Iterate over the batches of a stream, with at most `limit` rows in all."""
    left = limit
    if left == 0:
        return
    # Our own readers are iterated directly: an error keeps its class, which the Arrow interface loses.
    for batch in stream if hasattr(stream, "__next__") else RecordBatchReader.from_stream(stream):
        part = batch if left is None else batch.slice(0, min(left, batch.num_rows))
        if part.num_rows:
            yield part
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                return


def limited_rows(stream: Any, limit: int | None) -> Iterator[dict[str, Any]]:  # noqa: ANN401 -- PyCapsule
    """Iterate over at most `limit` rows of a stream as dicts: times in ms, maps as dicts."""
    return plain_rows(limited_batches(stream, limit))


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


def message_text(row: dict[str, Any]) -> str:
    """Return a message as text for people: one line, and below it the body if it was read."""
    head = [
        time_text(row["store_timestamp"]) or "-",
        f"{printable(row['topic'])}/{row['queue_id']}@{row['queue_offset']}",
        f"phy {row['phy_offset']}",
    ]
    head += [f"{name}={printable(row[name])}" for name in ("tags", "keys", "uniq_key") if row[name] is not None]
    lines = ["  ".join(head)]
    if row.get("body_error"):
        lines.append(f"    ({printable(row['body_error'])})")
    elif row.get("body") is not None:
        lines += _body_lines(row["body"])
    return "\n".join(lines)


def message_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a message as JSON values: times in ms, a body that is not UTF-8 as base64 under another name."""
    shown = {name: value for name, value in row.items() if name not in ("body", "body_error")}
    if "body" in row:
        shown |= {**json_bytes("body", row["body"]), "body_error": row.get("body_error")}
    return shown


def _body_lines(body: bytes) -> list[str]:
    text = body_text(body)
    if text is None:
        shown = body[: _SHOWN_BODY // 2].hex(" ")
        rest = len(body) - _SHOWN_BODY // 2
        lines = [f"({len(body):,} bytes, no text) {shown}"]
    else:
        rest = len(text) - _SHOWN_BODY
        lines = [printable(line) for line in text[:_SHOWN_BODY].splitlines()]
    if rest > 0:
        lines.append(f"({rest:,} more; --json gives all)")
    return [f"    {line}" for line in lines]
