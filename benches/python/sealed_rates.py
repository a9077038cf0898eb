"""Rates of a sealed index: sealing, size, one search on a cold disk, 1, 1,000 and a million keys at once.

    python benches/python/sealed_rates.py --entries 20000000 --directory /tmp/sealed-rates [--spark]

It makes a store of one full index file, whose entries lead past the end of a short log, so that a search for a missing key
reads the index alone. Reads are the read calls of this process (`/proc/self/io`). Next to each figure is that of the index file
itself. Times in memory are processor time, so that both sides are compared on one processor. With `--spark` a session of two
cores seals the store as well.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from logdex._core import SealedStore, sealed_directory
from logdex.rocketmq import IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 500_000
SPAN_MS = 20_000_000


def make_store(root: Path, entries: int) -> None:
    """Write a log of one message and index files of some entries, in which every message has two."""
    with StoreWriter.open(root, file_size=1 << 20, services=False) as writer:
        writer.put_message("orders", b"body", keys="first")
    shutil.rmtree(root / "index")
    state = random.Random(1)
    with IndexService.open(root / "index", mode="a") as index:
        begin = int(time.time() * 1000)
        for first in range(0, entries, ROWS):
            numbers = range(first, min(first + ROWS, entries))
            keys = [f"{'order' if n % 2 else 'AC1400010000'}-{n // 2:08d}-{state.getrandbits(32):08x}" for n in numbers]
            offsets = [(n // 2) * 2_048 for n in numbers]
            times = [begin + n * SPAN_MS // entries for n in numbers]
            batch = {"topic": ["orders"] * len(keys), "key": keys, "phy_offset": offsets, "store_timestamp": times}
            index.put_batch(batch, threads=2)
            with (root / "sample").open("a", encoding="ascii") as sample:
                sample.write("".join(f"{key}\n" for key in keys[::20]))


def forget(root: Path) -> None:
    """Remove the files below a directory from the page cache."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def reads() -> int:
    """Return the number of read calls of this process."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["syscr"])


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def processor_time(call: Callable[[], object]) -> float:
    """Return the seconds of a call on the processors, of all threads."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def measure_spark(root: Path, entries: int, rounds: int) -> None:
    """Seal on Spark; the first time starts Python and compiles."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    from logdex import spark as ls  # noqa: PLC0415 -- optional

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    seconds = [timed(lambda: ls.seal(session, root)) for _ in range(1 + rounds)]
    session.stop()
    first, *others = (entries / each / 1e6 for each in seconds)
    text = ", ".join(f"{rate:.1f}" for rate in others)
    print(f"seal on Spark: {statistics.median(others):.1f} M entries/s ({text}), the first time {first:.1f}")


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=19_999_999)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp()) if arguments.directory is None else arguments.directory
    entries: int = arguments.entries
    if not (root / "index").is_dir():
        make_store(root, entries)
    with MessageStore.open(root, sealed="never") as store:
        seconds = [timed(store.seal) for _ in range(arguments.rounds)]
        report = store.seal()
    print(f"seal: {entries / min(seconds) / 1e6:.1f} M entries/s, {statistics.median(seconds):.2f} s (median)")
    print(f"size: {report.checked['key_bytes'] / entries:.2f} bytes an entry, of 21 in the index file")
    if arguments.spark:
        measure_spark(root, entries, arguments.rounds)
    for sealed in ("auto", "never"):
        found = []
        for number in range(arguments.rounds):
            forget(root)
            before = reads()
            begun = time.perf_counter()
            with MessageStore.open(root, sealed=sealed) as store:
                opened, opening = reads(), time.perf_counter() - begun
                store.find("orders", f"absent-{number}", scan=False)
                found.append((opened - before, reads() - opened, opening, time.perf_counter() - begun - opening))
        columns = [statistics.median(column) for column in zip(*found, strict=True)]
        opening_text = f"open {columns[0]:.0f} reads, {columns[2] * 1e3:.1f} ms"
        print(f"cold, sealed={sealed}: {opening_text}; find {columns[1]:.0f} reads, {columns[3] * 1e3:.2f} ms")
    found_keys = (root / "sample").read_text(encoding="ascii").split()[: arguments.keys]
    random.Random(2).shuffle(found_keys)
    keys = pa.array(found_keys)
    opened_sealed = SealedStore.open(sealed_directory(root))
    files = opened_sealed.unchanged_files(root / "index")
    with IndexService.open(root / "index") as index:
        for asked in (1, 1_000, len(keys)):
            some = keys[:asked]
            calls = (
                partial(opened_sealed.select, files, some, topics="orders"),
                partial(index.query_batch, "orders", some),
            )
            rounds = arguments.rounds * max(1, 1_000 // asked)
            found_times = zip(*([processor_time(call) for call in calls] for _ in range(rounds)), strict=True)
            sealed_s, plain_s = map(statistics.median, found_times)
            text = (
                f"{sealed_s * 1e6:,.0f} us sealed, {plain_s * 1e6:,.0f} us by select_batch, {plain_s / sealed_s:.2f}x"
            )
            print(f"{asked:,} keys in memory, on one processor: {text}")
        forget(root)
    with IndexService.open(root / "index") as index:
        cold_plain = timed(lambda: index.query_batch("orders", keys))
    forget(root)
    cold = timed(lambda: SealedStore.open(sealed_directory(root)).select(files, keys, topics="orders"))
    print(f"{arguments.keys:,} keys, cold: {cold:.3f} s sealed, {cold_plain:.3f} s by select_batch")


if __name__ == "__main__":
    main()
