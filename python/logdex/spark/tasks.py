"""How much one task reads, and which pieces make a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTITION_BYTES = 128 << 20
"""How many bytes of log a task reads where nothing else is said, as for Spark's files."""


class Sized(Protocol):
    """Something to read."""

    @property
    def size(self) -> int:
        """Bytes of log, about."""


_Piece = TypeVar("_Piece", bound=Sized)


def task_bytes(total: int, most: int, min_tasks: int | None) -> int:
    """Give the most bytes of a task so that there are enough tasks.

    Args:
        total: Bytes that are read in all.
        most: The most bytes of a task in any case.
        min_tasks: The least number of tasks; None: as few as `most` allows.
    """
    return most if not min_tasks or min_tasks < 0 else max(1, min(most, -(-total // min_tasks)))


def pack(pieces: Iterable[_Piece], most: int) -> list[tuple[_Piece, ...]]:
    """Put pieces together into tasks of no more than so many bytes, in their order; one that is larger has its own."""
    tasks: list[tuple[_Piece, ...]] = []
    held: list[_Piece] = []
    size = 0
    for each in pieces:
        if held and size + each.size > most:
            tasks.append(tuple(held))
            held, size = [], 0
        held.append(each)
        size += each.size
    if held:
        tasks.append(tuple(held))
    return tasks
