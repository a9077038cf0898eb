"""Measure what a put costs that begins a new log file, in each mode of `append`: to a file, a prepared map, or a pool.

    python benches/python/roll_rates.py [--seconds 12] [--body 1024] [--file-bytes 2097152] [--directory DIR]

Puts come in bursts of 20, with pauses of 5 ms, as from producers: a thread that prepares files has time for it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING

from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from logdex._types import Append, Flush

_APPENDS: tuple[Append, ...] = ("write", "mapped", "pool")
_FLUSHES: tuple[Flush, ...] = ("none", "sync")
_BURST = 20
_PAUSE_S = 0.005


def main() -> None:
    """Put messages for some seconds in each mode, and print the times of the puts that begin a file and of all others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--file-bytes", type=int, default=2 << 20, help="bytes of a log file")
    parser.add_argument("--directory", help="where the store is made (default: the system's for temporary files)")
    arguments = parser.parse_args()
    print("| flush | append | puts | median | p99.9 | longest | first file | rolls | median | longest |")
    print("|" + " --- |" * 10)
    for flush in _FLUSHES:
        for append in _APPENDS:
            _measure(arguments, flush, append)


def _measure(arguments: argparse.Namespace, flush: Flush, append: Append) -> None:
    body = b"x" * arguments.body
    rolls: list[float] = []
    others: list[float] = []
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as root,
        StoreWriter.open(
            root,
            services=False,
            flush=flush,
            append=append,
            warm=append == "mapped",
            file_size=arguments.file_bytes,
            hash_slots=100,
            max_entries=400,
        ) as writer,
    ):
        until = time.perf_counter() + arguments.seconds
        while time.perf_counter() < until:
            for _ in range(_BURST):
                begin = time.perf_counter_ns()
                placed = writer.put_message("T", body)
                spent = (time.perf_counter_ns() - begin) / 1e3
                (others if placed.phy_offset % arguments.file_bytes else rolls).append(spent)
            time.sleep(_PAUSE_S)
    others.sort()
    # No thread can prepare the first file.
    first, *rolls = rolls
    times = [median(others), others[int(len(others) * 0.999)], others[-1], first]
    of_rolls = [median(rolls), max(rolls)] if rolls else []
    cells = [f"{each:,.0f}" for each in times] + [str(len(rolls))] + [f"{each:,.0f}" for each in of_rolls]
    print("|", " | ".join([flush, append, f"{len(others):,}", *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
