"""The least and the greatest value of a Java `long`, as which brokers store times and offsets."""

from __future__ import annotations

import operator

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1


def check_int64(**arguments: int | None) -> None:
    """Refuse arguments that are no integers or have no room in 64 bits.

    Raises:
        TypeError: One is no integer.
        ValueError: One has no room; the message names it.
    """
    for name, value in arguments.items():
        if value is not None and not MIN_INT64 <= operator.index(value) <= MAX_INT64:
            raise ValueError(f"{name} is an integer of 64 bits at most, this one is not")
