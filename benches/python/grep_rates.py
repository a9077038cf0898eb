"""Measure how fast bodies are searched, next to a read that decompresses them, and to `logdex cat --body | grep`.

    python benches/python/grep_rates.py [MESSAGES] [--rounds 5] [--dir DIR] [--spark] [--json] [--short]

The report measures 10 million messages, with Spark: `make bench-report REPORT='--only search'`. That needs 24 GiB of memory, in
which a store of 12 GB fits, and 16 GB of disk.

Two stores are made and removed, one after the other: bodies of 1 KB of words, as they are and compressed with zlib; one message
in 10,000 has the searched text. Everything runs on the same two processors. After a round that does not count, each round
measures every figure once, every second round in reverse, so that the figures of a round can be compared. A figure is the median
of the rounds in MB of bodies a second, its ratio to the read of the same store that decompresses every body and returns
`phy_offset` (and `body_error`, without which nothing is decompressed), and its ratio to `logdex cat --body | grep`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex import Pattern
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

BODY_BYTES = 1_000
STEP = 10_000
EVERY = 10_000
COMPRESSED = 1
SHORT_MESSAGES = 20_000
NEEDLE = "order-00817-failed"
REGEX = r"order-[0-9]{5}-(failed|refused)"
READ = "read that decompresses every body"
PIPE = "logdex cat --body | grep -c -F"
PROCESSORS = 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("messages", nargs="?", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the stores are made (default: the system's place)")
    parser.add_argument("--spark", action="store_true", help="through Spark, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    messages, rounds = (SHORT_MESSAGES, 1) if given.short else (given.messages, given.rounds)
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    for codec in ("none", "zlib"):
        with tempfile.TemporaryDirectory(prefix="logdex-grep-", dir=given.dir) as scratch:
            root = Path(scratch) / "store"
            make(root, messages, compressed=codec == "zlib")
            seconds = measure(root, messages, rounds, spark=given.spark)
        for name, each in seconds.items():
            rates = [round(messages * BODY_BYTES / one / 1e6, 1) for one in each]
            row = {
                "what": f"{codec}: {name}",
                "unit": "MB/s",
                "rounds": rates,
                "ratio": ratio(seconds[READ], each),
                "times_pipe": ratio(seconds[PIPE], each),
            }
            if given.json:
                print(json.dumps(row))
            else:
                rate = statistics.median(rates)
                print(f"{row['what']:60} {rate:10.1f} MB/s {row['ratio']:8.3f} {row['times_pipe']:8.2f}")


def ratio(base: list[float], seconds: list[float]) -> float:
    """Return how many times as fast a figure is as another one, round by round."""
    return round(statistics.median(its / one for its, one in zip(base, seconds, strict=True)), 3)


def make(root: Path, messages: int, *, compressed: bool) -> None:
    """Write a store."""
    numbers = random.Random(1)
    words = [f"{numbers.getrandbits(40):x}" for _ in range(200)]

    def body(number: int) -> bytes:
        text = " ".join(numbers.choices(words, k=BODY_BYTES // 10)).encode()[: BODY_BYTES - len(NEEDLE)]
        text = text.ljust(BODY_BYTES - len(NEEDLE)) + (NEEDLE if number % EVERY == 0 else " " * len(NEEDLE)).encode()
        return zlib.compress(text) if compressed else text

    usual = [body(number) for number in range(1, 500)]
    with StoreWriter.open(root, services=False) as writer:
        for first in range(0, messages, STEP):
            rows = range(first, min(first + STEP, messages))
            writer.put_messages(
                {
                    "topic": ["orders"] * len(rows),
                    "body": [body(0) if row % EVERY == 0 else usual[row % len(usual)] for row in rows],
                    "sys_flag": pa.array([COMPRESSED if compressed else 0] * len(rows), pa.int32()),
                },
                body="stored",
            )


def measure(root: Path, messages: int, rounds: int, *, spark: bool) -> dict[str, list[float]]:
    """Return the seconds of each figure, one for each round."""
    expected = -(-messages // EVERY)
    program = [sys.executable, "-m", "logdex"]
    with MessageStore.open(root) as store:

        def rows(**options: Any) -> int:
            return sum(batch.num_rows for batch in store.messages(scan=True, **options))

        literal = Pattern(NEEDLE, literal=True)
        figures: dict[str, tuple[Callable[[], int], int]] = {
            READ: (lambda: rows(columns=["phy_offset", "body_error"]), messages),
            "messages(matches=literal)": (lambda: rows(matches=literal), expected),
            "messages(matches=literal, ignore_case)": (
                lambda: rows(matches=Pattern(NEEDLE, literal=True, ignore_case=True)),
                expected,
            ),
            "messages(matches=regular expression)": (lambda: rows(matches=REGEX), expected),
            "logdex grep -c -F": (lambda: counted([*program, "grep", "-c", "-F", NEEDLE, str(root)]), expected),
            "logdex grep -c, regular expression": (
                lambda: counted([*program, "grep", "-c", REGEX, str(root)]),
                expected,
            ),
            PIPE: (
                lambda: counted([*program, "cat", "--body", str(root)], ["grep", "-c", "-F", NEEDLE]),
                expected,
            ),
        }
        if spark:
            figures |= of_spark(root, messages, expected)
        seconds: dict[str, list[float]] = {name: [] for name in figures}
        for number in range(0 if rounds == 1 else -1, rounds):
            for name, (call, count) in list(figures.items())[:: -1 if number % 2 else 1]:
                begin = time.perf_counter()
                found = call()
                if number >= 0:
                    seconds[name].append(time.perf_counter() - begin)
                if found != count:
                    raise SystemExit(f"{name}: expected {count} messages, found {found}")
    return seconds


def counted(command: list[str], reader: list[str] | None = None) -> int:
    """Run a command, or a pipe of two, and return the number that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        if reader is None:
            return int(first.communicate()[0])
        return int(subprocess.run(reader, stdin=first.stdout, stdout=subprocess.PIPE, check=True).stdout)


def of_spark(root: Path, messages: int, expected: int) -> dict[str, tuple[Callable[[], int], int]]:
    """Return the figures of a session with two cores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    from logdex import spark as ls  # noqa: PLC0415 -- optional

    session = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
    ls.register(session)

    def rows(**options: str) -> int:
        read = session.read.format("rocketmq").options(columns="phy_offset,body_error", **options)
        return int(read.load(str(root)).toArrow().num_rows)

    return {
        "Spark: read that decompresses every body": (rows, messages),
        "Spark: option matches, literal": (lambda: rows(matches=NEEDLE, matchesLiteral="true"), expected),
        "Spark: option matches, regular expression": (lambda: rows(matches=REGEX), expected),
    }


if __name__ == "__main__":
    main()
