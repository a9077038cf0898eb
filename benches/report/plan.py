"""How large and how often: the sizes of a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from .rounds import Measured

MAX_NUM = 32
"""The most candidates a lookup asks for, as the broker's query does."""
LARGE_BATCH = 65_536
BATCH = 16_384


@dataclass(frozen=True)
class Plan:
    """The sizes, and where files may lie meanwhile."""

    scratch: Path
    rounds: int = 5
    held: int = 19_999_999
    """Entries of a full index file of the default geometry."""
    asked: int = 1_000_000
    peer_keys: int = 2_000_000
    spark_rows: int = 5_000_000
    spark_keys: int = 2_000_000
    log_files: int = 2
    log_file_bytes: int = 1 << 30
    """Of a commit log: as the broker has them."""
    segment_bytes: int = 512 << 20
    """Of a Kafka segment; those that slow readers read have a sixteenth of it."""
    offset_entries: int = 1_310_720
    """Entries of a full offset index of the default size."""
    offsets_asked: int = 2_097_152
    segments: Path | None = None
    """Where Kafka segments are kept for the next time; None: they are thrown away."""
    store_messages: int = 20_000_000
    put_messages: int = 250_000
    """Into a new store."""
    short: bool = False

    @classmethod
    def trial(cls, scratch: Path) -> Plan:
        """Return sizes that only show whether all still works."""
        return cls(
            scratch,
            rounds=1,
            held=40_000,
            asked=2_000,
            peer_keys=4_000,
            spark_rows=20_000,
            spark_keys=5_000,
            log_files=3,
            log_file_bytes=1 << 20,
            segment_bytes=4 << 20,
            offset_entries=10_000,
            offsets_asked=2_000,
            put_messages=4_000,
            short=True,
        )

    def file(self, held: int | None = None) -> dict[str, int]:
        """Describe an index file that `held` entries fill to the programs that open it."""
        count = self.held if held is None else held
        return {"held": count, "hash_slots": hash_slots(count), "max_entries": count + 1}


class Geometry(TypedDict):
    """What opens and creates an index file."""

    hash_slots: int
    max_entries: int


def geometry(held: int) -> Geometry:
    """Return slots and entries of a file that `held` entries fill, in the default ratio."""
    return {"hash_slots": hash_slots(held), "max_entries": held + 1}


def hash_slots(held: int) -> int:
    """Return the slots of a file that `held` entries fill: the broker has four entries to a slot."""
    return -(-held // 4)


@dataclass
class Part:
    """What a part of the report found out: kept as JSON, so that parts can be measured one by one."""

    name: str
    operations: int
    """How many operations a step is, unless it has a number of its own."""
    measured: Measured
    facts: dict[str, Any] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """When, and from which state of the sources."""
