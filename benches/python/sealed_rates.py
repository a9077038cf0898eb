"""Rates of a sealed index: sealing, size, one search on a cold disk, 1, 1,000, 250,000 and a million keys at once.

    python benches/python/sealed_rates.py [--entries 19999999] [--dir DIR] [--spark] [--json] [--short]

It makes a store of one full index file, whose entries lead past the end of a short log, so that a search for a missing key
reads the index alone. Reads are the read calls of this process (`/proc/self/io`). Next to each figure is that of the index file
itself, measured in turns. Times in memory are processor time, so that both sides are compared on one processor. With `--spark` a
session of two cores seals the store as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from logdex import DamageWarning
from logdex.rocketmq import IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 500_000
SPAN_MS = 20_000_000
ASKED = (1, 1_000, 250_000, 1_000_000)
SHORT_ENTRIES = 40_000
ENTRY_BYTES = 21.0
"""Bytes of an index file for an entry: 20, and a slot for every fourth."""


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


class Figure(NamedTuple):
    """Figures of the sealed index by round, and those of the index files."""

    what: str
    unit: str
    rounds: list[float]
    files: list[float] | None = None


def sealings(root: Path, entries: int, rounds: int) -> Iterator[Figure]:
    """Seal the store."""
    with MessageStore.open(root, sealed="never") as store:
        seconds = [timed(store.seal) for _ in range(rounds)]
        report = store.seal()
    yield Figure("seal, two threads", "M entries/s", [entries / each / 1e6 for each in seconds])
    yield Figure("size", "bytes an entry", [report.checked["key_bytes"] / entries], [ENTRY_BYTES])


def sealings_by_spark(root: Path, entries: int, rounds: int) -> Iterator[Figure]:
    """Seal on Spark; the first time starts Python and compiles, and does not count."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    from logdex import spark as ls  # noqa: PLC0415 -- optional

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    seconds = [timed(lambda: ls.seal(session, root)) for _ in range(1 + rounds)]
    session.stop()
    yield Figure("seal, Spark with two cores", "M entries/s", [entries / each / 1e6 for each in seconds[1:]])


def cold_searches(root: Path, rounds: int) -> Iterator[Figure]:
    """Open the store and search a key that it lacks, with nothing in memory."""
    found: dict[str, list[tuple[float, float]]] = {"auto": [], "never": []}
    for number in range(rounds):
        for sealed, figures in found.items():
            forget(root)
            before, begun = reads(), time.perf_counter()
            with MessageStore.open(root, sealed=sealed) as store:
                store.find("orders", f"absent-{number}", scan=False)
            figures.append(((time.perf_counter() - begun) * 1e3, reads() - before))
    what = "open the store and search one key, cold"
    (sealed_ms, sealed_reads), (files_ms, files_reads) = (zip(*figures, strict=True) for figures in found.values())
    yield Figure(what, "ms", list(sealed_ms), list(files_ms))
    yield Figure(f"{what}: reads", "", list(sealed_reads), list(files_reads))


def found(store: MessageStore, keys: pa.Array) -> None:
    """Find the messages of keys, whose candidates are past the end of the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        for _ in store.find_batch("orders", keys, scan=False, columns=["phy_offset"]):
            raise ValueError("a message of the log has one of these keys")


def lookups(root: Path, keys: pa.Array, rounds: int) -> Iterator[Figure]:
    """Look up keys: in memory on one processor, and cold."""
    numbers = [asked for asked in ASKED if asked <= len(keys)]
    with MessageStore.open(root) as sealed, MessageStore.open(root, sealed="never") as plain:
        for asked in numbers:
            calls = [partial(found, store, keys[:asked]) for store in (plain, sealed)]
            repeated = 1 + rounds * max(1, 1_000 // asked)
            times = zip(*([processor_time(call) * 1e6 for call in calls] for _ in range(repeated)), strict=True)
            # The first time reads the files.
            of_files, of_sealed = (list(each)[1:] for each in times)
            yield Figure(f"{asked:,} keys, in memory", "us of a processor", of_sealed, of_files)
    for asked in numbers[1:]:
        cold: dict[str, list[float]] = {"auto": [], "never": []}
        for _ in range(rounds):
            for how, figures in cold.items():
                forget(root)
                with MessageStore.open(root, sealed=how) as store:
                    figures.append(timed(partial(found, store, keys[:asked])) * 1e3)
        yield Figure(f"{asked:,} keys, cold, two threads", "ms", cold["auto"], cold["never"])


def tell(figure: Figure) -> None:
    """Print a figure for people."""
    middle = statistics.median(figure.rounds)
    text = f"{figure.what}: {middle:,.3f} {figure.unit}"
    if figure.files is not None:
        files = statistics.median(figure.files)
        text += f", index files {files:,.3f}, ratio {files / middle:.2f}"
    print(text, flush=True)


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=19_999_999)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="make the store here, or take the one that is there")
    parser.add_argument("--spark", action="store_true", help="seal on Spark, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    entries, rounds = (SHORT_ENTRIES, 1) if given.short else (given.entries, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-sealed-") as scratch:
        root = (given.dir or Path(scratch)) / "store"
        if not (root / "index").is_dir():
            make_store(root, entries)
        keys = (root / "sample").read_text(encoding="ascii").split()[: given.keys]
        random.Random(2).shuffle(keys)
        figures = chain(
            sealings(root, entries, rounds),
            sealings_by_spark(root, entries, rounds) if given.spark else (),
            cold_searches(root, rounds),
            lookups(root, pa.array(keys), rounds),
        )
        for figure in figures:
            if given.json:
                print(json.dumps(figure._asdict()), flush=True)
            else:
                tell(figure)


if __name__ == "__main__":
    main()
