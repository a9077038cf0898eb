"""Puts that go on in the next file where one becomes full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.errors import IndexFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._core import IndexFile


def put_rolling(rows: int, current: Callable[[], IndexFile], put: Callable[[IndexFile, int], int]) -> None:
    """Put rows in their order, rolling as often as needed.

    Args:
        rows: How many there are.
        current: Gives the file for the next put, a new one where the one before is full.
        put: Puts rows into a file from a number on, and gives how many it took.

    Raises:
        IndexFullError: A new file takes none.
    """
    row = 0
    while row < rows:
        file = current()
        taken = put(file, row)
        if not taken and not len(file):
            # NOTE: upstream would create files without end here.
            raise IndexFullError(f"{file.path} has no room for a single entry: max_entries is {file.max_entries}")
        if not taken and not file.is_full:
            raise RuntimeError(f"{file.path} took no entry although it is not full")
        row += taken
