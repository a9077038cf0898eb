"""The least and the greatest value of a Java `long`, as which brokers store times and offsets."""

from __future__ import annotations

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1


def check_int64(**arguments: int | None) -> None:
    """Refuse arguments that have no room in 64 bits.

    Raises:
        ValueError: The message names the first one.
    """
    for name, value in arguments.items():
        if value is not None and not MIN_INT64 <= value <= MAX_INT64:
            raise ValueError(f"{name} is an integer of 64 bits at most, this one has more")
