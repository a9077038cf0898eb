"""Types of arguments that several packages take, and the limits of a Java `long`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import os

Access: TypeAlias = Literal["auto", "mmap", "pread"]
Body: TypeAlias = Literal["decoded", "stored"]
Check: TypeAlias = Literal["verify", "trust"]
Compat: TypeAlias = Literal["4.9.3", "5.3.3", "5.5.0"]
"""A release of RocketMQ."""
Flush: TypeAlias = Literal["async", "sync", "none"]
Append: TypeAlias = Literal["write", "mapped", "pool"]
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnError: TypeAlias = Literal["raise", "skip", "stop"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
Scan: TypeAlias = Literal["auto", True, False]
Sealed: TypeAlias = "str | os.PathLike[str]"
"""The sealed index that a store uses: "auto" is that in its root, if there is one, "never" none; or the directory of one."""
Stop: TypeAlias = Literal["broker", "salvage", "valid"]
Time: TypeAlias = int | datetime | str
"""Milliseconds since the epoch, an aware datetime, or ISO 8601 with a zone."""

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
MAX_INT32 = (1 << 31) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc_datetime(time_ms: int) -> datetime | None:
    """Return a time in ms since the epoch as a datetime in UTC; None if it is not in the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def check_int64(**arguments: int | None) -> None:
    """Check that each argument is None or fits in a signed 64-bit integer.

    Raises:
        TypeError: An argument is not an integer.
        ValueError: An argument does not fit; the message names it.
    """
    for name, value in arguments.items():
        if value is not None and not MIN_INT64 <= operator.index(value) <= MAX_INT64:
            raise ValueError(f"{name} must fit in a signed 64-bit integer")


def check_text(**arguments: object) -> None:
    """Raise `TypeError` if an argument is no `str`; the message names it."""
    for name, value in arguments.items():
        if not isinstance(value, str):
            hint = f"; decode it: {name}.decode()" if isinstance(value, bytes) else ""
            raise TypeError(f"{name}={value!r}: expected str, found {type(value).__name__}{hint}")


def check_queue_id(queue_id: int | None) -> None:
    """Raise `ValueError` if a queue id is neither None nor a non-negative Java `int`."""
    if queue_id is not None and not 0 <= operator.index(queue_id) <= MAX_INT32:
        raise ValueError(f"queue_id={queue_id}: expected 0 to {MAX_INT32}")
