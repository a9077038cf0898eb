"""The answer of `MessageStore.find`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.read import Range


@dataclass(frozen=True, slots=True, repr=False)
class FindResult(Sequence["Message"]):
    """Messages that carry a key, the newest first, each once; a sequence.

    Attributes:
        messages: The messages.
        truncated: More of them exist than were asked for.
        rejected: Candidates that turned out to carry another key: the index stores hashes.
        complete: Every part of the log was covered by the index or read.
        scanned_bytes: Bytes of the log that this call read because no index file covers them.
        unscanned: Ranges of the log that neither the index covers nor any call has read, as (begin_phy_offset,
            end_phy_offset), end exclusive.
    """

    messages: tuple[Message, ...]
    truncated: bool
    rejected: int
    complete: bool
    scanned_bytes: int
    unscanned: list[Range]

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        """Give one message, or some of them."""
        return self.messages[index]

    def __len__(self) -> int:
        """Count the messages."""
        return len(self.messages)

    def __repr__(self) -> str:
        """Count what was found, not the messages themselves."""
        notes = [f"{len(self)} messages"]
        if self.truncated:
            notes.append("truncated")
        if self.rejected:
            notes.append(f"{self.rejected} candidates of other keys")
        if not self.complete:
            notes.append(f"{sum(end - begin for begin, end in self.unscanned)} bytes of the log not searched")
        return f"FindResult({', '.join(notes)})"
