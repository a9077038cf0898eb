"""The answer of `find`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from logdex.kafka.record import Record


@dataclass(frozen=True, slots=True, repr=False)
class FindResult(Sequence["Record"]):
    """Records that carry a key, the newest first, each once; a sequence.

    Attributes:
        records: The records.
        truncated: More of them exist than were asked for.
        rejected: Candidates of the index that turned out to have another key, or to be gone from the log.
        scanned_offsets: How many offsets were read record by record because no index covers them.
    """

    records: tuple[Record, ...]
    truncated: bool
    rejected: int
    scanned_offsets: int

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...

    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        """Give one record, or some of them."""
        return self.records[index]

    def __len__(self) -> int:
        """Count the records."""
        return len(self.records)

    def __repr__(self) -> str:
        """Count what was found, not the records themselves."""
        notes = [f"{len(self)} records"]
        if self.truncated:
            notes.append("truncated")
        if self.rejected:
            notes.append(f"{self.rejected} candidates of other keys")
        if self.scanned_offsets:
            notes.append(f"{self.scanned_offsets} offsets read without an index")
        return f"FindResult({', '.join(notes)})"
