"""Facts of a log directory and of segments that are cheap to read."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from logdex._core import broker_lock_holder
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from logdex._core import LogSegment

TIMES = ("begin_timestamp", "end_timestamp", "log_bytes")
"""The facts of `times_and_size`."""


def times_and_size(segments: Sequence[LogSegment]) -> dict[str, Any]:
    """Return the time of the first record that has one, the largest of all, and the bytes. Reads few batches."""
    begin = end = None
    with contextlib.suppress(CorruptFileError):
        for segment in segments:
            largest, _ = segment.max_timestamp()
            end = largest if largest >= 0 and (end is None or largest > end) else end
            first = segment.offset_for_timestamp(0, control=True) if begin is None and largest >= 0 else None
            begin = first[0] if first is not None else begin
    return dict(zip(TIMES, (begin, end, sum(segment.size for segment in segments)), strict=True))


def broker_state(log_dir: Path) -> str:
    """Return in words whether a broker runs on a log directory, or how it ended."""
    with contextlib.suppress(OSError):
        holder = broker_lock_holder(log_dir / ".lock")
        if holder is not None:
            return f"running, process {holder}"
    if (log_dir / checkpoint.CLEAN_SHUTDOWN).exists():
        return "stopped cleanly"
    return "stopped without warning, or running elsewhere (.kafka_cleanshutdown is missing)"
