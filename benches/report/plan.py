"""Sizes and numbers of rounds of a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from .rounds import Measured

MAX_NUM = 32
"""Limit of candidates in a lookup, as in the broker's query."""
LARGE_BATCH = 65_536
BATCH = 16_384


@dataclass(frozen=True)
class Plan:
    """The sizes, and the directory for temporary files."""

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
    """Size of a commit log's files, as in a broker."""
    segment_bytes: int = 512 << 20
    """Size of a Kafka segment; segments for slow readers have a sixteenth of it."""
    offset_entries: int = 1_310_720
    """Entries of a full offset index of the default size."""
    offsets_asked: int = 2_097_152
    segments: Path | None = None
    """Directory that keeps Kafka segments for the next run; None: they are removed."""
    store_messages: int = 20_000_000
    search_messages: int = 10_000_000
    put_messages: int = 250_000
    """Messages that are put into a new store."""
    short: bool = False

    @classmethod
    def trial(cls, scratch: Path) -> Plan:
        """Return small sizes that only check that everything runs."""
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
        """Return the description of an index file that `held` entries fill, for the programs that open it."""
        count = self.held if held is None else held
        return {"held": count, "hash_slots": hash_slots(count), "max_entries": count + 1}


class Geometry(TypedDict):
    """Options that open and create an index file."""

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
    """Result of a part of the report, stored as JSON so that parts can be measured one by one."""

    name: str
    operations: int
    """Operations of a step, unless it has its own number."""
    measured: Measured
    facts: dict[str, Any] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """Time, and state of the sources."""
