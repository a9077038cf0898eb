"""Kafka segments for the measurements, written by the real classes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .plan import Plan
    from .server import Server

CODECS = ("none", "lz4", "zstd")
VALUE_BYTES = (100, 1_024)
KINDS = tuple(product(CODECS, VALUE_BYTES))
NAME = f"{0:020d}.log"


@dataclass(frozen=True)
class Written:
    """A segment: batches of 16 KiB, each record a key of 24 bytes, a header of 16 and a value that looks like JSON."""

    path: Path
    codec: str
    value_bytes: int
    records: int
    batches: int
    size: int
    raw: int
    """Bytes of its batches before compression."""

    @property
    def name(self) -> str:
        return f"{self.codec}_{self.value_bytes}"


def write(plan: Plan, real: Server, size: int, kinds: Iterable[tuple[str, int]] = KINDS) -> list[Written]:
    """Write segments of a size, each into a partition's directory, or use the stored ones."""
    return [_write(plan, real, size, codec, value_bytes) for codec, value_bytes in kinds]


def _write(plan: Plan, real: Server, size: int, codec: str, value_bytes: int) -> Written:
    path = (plan.segments or plan.scratch) / f"{codec}.{value_bytes}.{size}-0" / NAME
    note = path.with_name("written.json")
    if note.exists():
        return Written(path=path, **json.loads(note.read_text()))
    path.parent.mkdir(parents=True)
    question = {"path": path, "bytes": size, "codec": codec, "value_bytes": value_bytes}
    written = Written(path, codec, value_bytes, **real.ask("rounds_write_segment", **question))
    note.write_text(json.dumps({name: value for name, value in asdict(written).items() if name != "path"}))
    return written
