"""Measure what a put costs that begins a new log file: is it worth to prepare files ahead, as a broker does?

    python benches/python/roll_rates.py [--files 5] [--body 65536] [--directory DIR]

It needs as much space as the files have, 1 GiB each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import quantiles

from logdex.rocketmq import StoreWriter

_FILE_SIZE = 1 << 30


def main() -> None:
    """Put messages into so many files, and print the times of the puts that begin a file and of all others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--body", type=int, default=65_536, help="bytes of a message")
    parser.add_argument("--directory", help="where the store is made (default: the system's for temporary files)")
    arguments = parser.parse_args()
    body = b"x" * arguments.body
    for flush in ("none", "sync"):
        rolls: list[float] = []
        others: list[float] = []
        with (
            tempfile.TemporaryDirectory(dir=arguments.directory) as root,
            StoreWriter.open(root, services=False, flush=flush) as writer,
        ):
            begun = 0
            while begun < arguments.files:
                begin = time.perf_counter_ns()
                placed = writer.put_message("T", body)
                spent = (time.perf_counter_ns() - begin) / 1e6
                is_first = placed.phy_offset % _FILE_SIZE == 0
                begun += is_first
                (rolls if is_first else others).append(spent)
        cuts = quantiles(others, n=1000)
        print(f"flush {flush}: {len(others):,} puts of {arguments.body:,} bytes, in ms:")
        print(
            f"  no new file: median {cuts[499]:.3f}, p99 {cuts[989]:.3f}, p99.9 {cuts[998]:.3f}, most {max(others):.1f}"
        )
        print(f"  a new file: {', '.join(f'{each:.2f}' for each in rolls)}")


if __name__ == "__main__":
    main()
