"""Record batches of magic 2, for tests that need logs of a shape that no golden case has."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

T = 1_700_000_000_000
"""The time that tests count from."""
TRANSACTIONAL, CONTROL = 0x10, 0x20

_HEAD = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_CASTAGNOLI = 0x82F63B78


class Row(NamedTuple):
    """A record: its offset, its timestamp after T, key, value and headers."""

    offset: int
    time: int = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest >= 1 << 7:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _field(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def batch(rows: Iterable[Row], *, attributes: int = 0, producer: int = -1) -> bytes:
    """Encode a batch of these records, not compressed."""
    rows = list(rows)
    base, first = rows[0].offset, rows[0].time
    records = b""
    for row in rows:
        body = b"\0" + _varint(row.time - first) + _varint(row.offset - base) + _field(row.key) + _field(row.value)
        body += _varint(len(row.headers)) + b"".join(_field(name) + _field(value) for name, value in row.headers)
        records += _varint(len(body)) + body
    newest = T + max(row.time for row in rows)
    numbers = (
        attributes,
        rows[-1].offset - base,
        T + first,
        newest,
        producer,
        0 if producer >= 0 else -1,
        -1,
        len(rows),
    )
    covered = _COVERED.pack(*numbers) + records
    return _HEAD.pack(base, 9 + len(covered), 0, 2, _crc32c(covered)) + covered


def abort_marker(offset: int, producer: int) -> bytes:
    """Encode the marker that ends a transaction."""
    marker = Row(offset, 0, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0))
    return batch([marker], attributes=TRANSACTIONAL | CONTROL, producer=producer)


def write_segment(partition: Path, base_offset: int, *batches: bytes) -> Path:
    """Write a `.log` file without indexes."""
    partition.mkdir(parents=True, exist_ok=True)
    path = partition / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path
