"""Puts records of logdex and of the golden data into one comparable form."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, TypeAlias

import pyarrow as pa

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

_Bytes: TypeAlias = tuple[int, str] | None
Row: TypeAlias = tuple[int, int, int, _Bytes, _Bytes, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp in ms, type of timestamp, key, value, headers; keys and values as length and SHA-256."""


def _digest(content: bytes | None) -> _Bytes:
    return None if content is None else (len(content), hashlib.sha256(content).hexdigest())


def _expected(row: dict[str, Any], name: str) -> _Bytes:
    if name in row:
        return _digest(None if row[name] is None else base64.b64decode(row[name]))
    return row[f"{name}Length"], row[f"{name}Sha256"]


def golden_row(row: dict[str, Any]) -> Row:
    """Return one line of records.jsonl."""
    headers = tuple((name, None if value is None else base64.b64decode(value)) for name, value in row["headers"])
    kind = TIMESTAMP_TYPES[row["timestampType"]]
    return row["offset"], row["timestamp"], kind, _expected(row, "key"), _expected(row, "value"), headers


def golden_key(row: dict[str, Any]) -> bytes:
    """Return the key of one line of records.jsonl that has it whole."""
    return base64.b64decode(row["key"])


def rows(stream: Any) -> list[Row]:
    """Return the rows of a stream of record columns; it is left open, with what it found on the way."""
    found: list[Row] = []
    for batch in map(pa.record_batch, stream):
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value", "headers")]
        for time, offset, kind, key, value, headers in zip(times, *columns, strict=True):
            pairs = tuple((header["key"], header["value"]) for header in headers or ())
            found.append((offset, time, kind, _digest(key), _digest(value), pairs))
    return found
