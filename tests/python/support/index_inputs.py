"""Inputs for tests of the index service: batches of messages and of index entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, RecordBatch

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_700_000_000_000
"""The time that the vectors made by the real classes count from, in ms."""

_TYPES = {
    "topic": DataType.utf8(),
    "phy_offset": DataType.int64(),
    "store_timestamp": DataType.int64(),
    "uniq_key": DataType.utf8(),
    "keys": DataType.utf8(),
    "tags": DataType.utf8(),
    "sys_flag": DataType.int32(),
}
_UTC_MS = DataType.timestamp("ms", tz="UTC")


def messages(*rows: dict[str, Any]) -> RecordBatch:
    """Make a batch of messages; a column that a row does not name is null, sys_flag 0, the topic TP."""
    full = [{"topic": "TP", "sys_flag": 0, **row} for row in rows]
    columns: dict[str, Any] = {name: Array([row.get(name) for row in full], type=kind) for name, kind in _TYPES.items()}
    columns["store_timestamp"] = columns["store_timestamp"].cast(_UTC_MS)
    return RecordBatch.from_pydict(columns)


def entries(keys: list[str], *, topic: str = "T", first_offset: int = 1000, begin: int = T0) -> dict[str, list[Any]]:
    """Make entries one second and ten bytes apart."""
    return {
        "topic": [topic] * len(keys),
        "key": keys,
        "phy_offset": [first_offset + 10 * i for i in range(len(keys))],
        "store_timestamp": [begin + 1000 * i for i in range(len(keys))],
    }


def contents(directory: Path) -> list[str]:
    """Return the bytes of a directory's files in the order of their names, as hexadecimal text."""
    return [path.read_bytes().hex() for path in sorted(directory.iterdir())]


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and change time of all that lies under a directory."""
    return {
        str(path.relative_to(directory)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [directory, *directory.rglob("*")]
    }
