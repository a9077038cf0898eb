"""Parts of a Kafka partition that are removed or damaged, and the offsets that are lost."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, NamedTuple

from kafka_batches import Row, batch, write_segment
from logdex.kafka import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT = 10
"""Offsets of a segment; each of its batches has five."""
ALL = list(range(4 * SEGMENT))
MIDDLE = f"{SEGMENT:020d}.log"


def batch_at(first: int) -> bytes:
    return batch([Row(offset, offset, b"key-%d" % (offset % 7), b"value") for offset in range(first, first + 5)])


def make_partition(place: Path) -> None:
    """Write a partition of four segments with their indexes."""
    for base in ALL[::SEGMENT]:
        write_segment(place, base, batch_at(base), batch_at(base + 5))
    with Log.open(place) as log:
        assert log.rebuild_indexes(place, overwrite=True).ok


def _missing(place: Path) -> None:
    (place / MIDDLE).unlink()


def _gzipped(place: Path) -> None:
    (place / f"{MIDDLE}.gz").write_bytes(gzip.compress((place / MIDDLE).read_bytes()))
    (place / MIDDLE).unlink()


def _emptied(place: Path) -> None:
    (place / MIDDLE).write_bytes(b"")


def damage_batch(place: Path) -> None:
    content = bytearray((place / MIDDLE).read_bytes())
    content[70] ^= 1
    (place / MIDDLE).write_bytes(content)


class Loss(NamedTuple):
    """How a log is damaged, the kind of the finding, what is named, and the offsets that are lost."""

    damage: Callable[[Path], None]
    kind: str
    found: str
    lost: list[int]


LOSSES = {
    "missing": Loss(_missing, "file-gap", "none", ALL[10:20]),
    "gzipped": Loss(_gzipped, "file-gap", f"{MIDDLE}.gz", ALL[10:20]),
    "emptied": Loss(_emptied, "file-gap", "an empty file", ALL[10:20]),
    "damaged batch": Loss(damage_batch, "batch-crc", "", ALL[10:15]),
}
