"""Messages of a commit log that no golden store holds, made of one that it does."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import golden

if TYPE_CHECKING:
    from pathlib import Path


def frame_with_body(root: Path, body: bytes, sys_flag: int) -> bytes:
    """A message like a real one, with another body."""
    row = golden.rows("basic", "messages")[0]
    frame = (root / "commitlog" / "00000000000000000000").read_bytes()[: row["storeSize"]]
    made = bytearray(frame[:88] + body + frame[88 + row["storedBodyLength"] :])
    for at, value in ((0, len(made)), (8, zlib.crc32(body) & 0x7FFF_FFFF), (36, sys_flag), (84, len(body))):
        made[at : at + 4] = value.to_bytes(4, "big")
    return bytes(made)
