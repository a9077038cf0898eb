"""The search for a record key in a log directory: the partition that a producer chooses, the indexes, and the scans."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from logdex._core import default_partition, key_text
from logdex.errors import printable
from logdex.kafka.find import KeySearch, UnreadRange


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """The search in one partition.

    Attributes:
        partition: Its number.
        log_start_offset: Its first offset; what was before is deleted.
        log_end_offset: The offset after its last record.
        sealed: Candidates of the sealed index.
        indexed: Candidates of the key index.
        scanned: Offsets that neither covers; they are scanned.
        offsets: Offsets of the records that carry the key, newest first.
        missing_segments: Segments that are missing inside of the log.
        unscanned: Offsets that were not searched: their segment is missing, or their batches are damaged.
    """

    partition: int
    log_start_offset: int
    log_end_offset: int
    sealed: int
    indexed: int
    scanned: int
    offsets: tuple[int, ...]
    missing_segments: int
    unscanned: tuple[UnreadRange, ...] = ()

    def __str__(self) -> str:
        """Return one line of text."""
        notes = [f"offsets {self.log_start_offset:,} to {self.log_end_offset:,}"]
        notes += [
            f"{number:,} {what}"
            for number, what in (
                (self.sealed, "candidates of the sealed index"),
                (self.indexed, "candidates of the key index"),
                (self.scanned, "offsets scanned without an index"),
                (self.missing_segments, "segments missing"),
            )
            if number
        ]
        notes += [f"{each.offsets} not searched: missing or damaged" for each in self.unscanned]
        found = f"found at {', '.join(f'{offset:,}' for offset in self.offsets[:10])}" if self.offsets else "not found"
        more = f" and {len(self.offsets) - 10:,} more" if len(self.offsets) > 10 else ""  # noqa: PLR2004 -- as above
        return f"partition {self.partition}: {found}{more}; {', '.join(notes)}"


@dataclass(frozen=True, slots=True, repr=False)
class KeyExplanation:
    """The search for a key, and the places where it was found.

    Attributes:
        topic: The topic.
        key: The key, as text.
        partitions: The partitions of the topic, as far as the directory shows: one more than its highest number.
        default_partition: Where Java producers put the key by default if there are so many partitions; None for a header.
        steps: The search in each partition of the directory.
    """

    topic: str
    key: str
    partitions: int
    default_partition: int | None
    steps: tuple[PartitionStep, ...]

    @property
    def found(self) -> bool:
        """True if a record carries the key."""
        return any(step.offsets for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        return {"found": self.found, **asdict(self)}

    def text(self) -> str:
        """Return the text for people: the verdict first."""
        count = sum(len(step.offsets) for step in self.steps)
        held = {step.partition for step in self.steps}
        verdict = f"{count:,} records of {self.topic} carry" if count else f"no record of {self.topic} carries"
        lines = [printable(f"{verdict} {self.key}")]
        if self.default_partition is not None:
            where = "" if self.default_partition in held else ", which is not in this directory"
            chosen = f"Java producers put it in partition {self.default_partition} by default{where}"
            lines.append(f"  of {self.partitions} partitions, {chosen}")
        if absent := sorted({*range(self.partitions)} - held):
            lines.append(f"  not in this directory: partition {', '.join(map(str, absent))}")
        return "\n".join([*lines, *(f"  {step}" for step in self.steps)])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        """Return topic, key and the number of matches, not the steps."""
        count = sum(len(step.offsets) for step in self.steps)
        return f"KeyExplanation(topic={self.topic!r}, key={self.key!r}: {count} found in {len(self.steps)} partitions)"


def explain(search: KeySearch, topic: str) -> KeyExplanation:
    """Run a search, and return what was done in each partition."""
    result, work = search.run(None, stacklevel=3)
    steps = []
    for plan, found in search.with_work(work):
        log = plan.log
        offsets = tuple(record.offset for record in result if record.partition == log.partition)
        unscanned = tuple(UnreadRange(log.partition, *bounds) for bounds in found.unread)
        counts = len(plan.sealed), len(plan.indexed), found.scanned
        bounds = found.begin_offset, found.end_offset
        steps.append(PartitionStep(log.partition, *bounds, *counts, offsets, found.missing, unscanned))
    partitions = max(step.partition for step in steps) + 1
    default = default_partition(search.value, partitions) if search.header is None else None
    return KeyExplanation(topic, key_text(search.value), partitions, default, tuple(steps))
