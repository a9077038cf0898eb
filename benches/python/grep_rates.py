"""Measure how fast bodies are searched, next to a read that decompresses them, and to `logdex cat --body | grep`.

    python benches/python/grep_rates.py [MESSAGES] [--rounds 5] [--spark] [--json] [--short]

Two stores are made in a temporary folder: bodies of 1 KB of words, as they are and compressed with zlib; one message in 10,000
has the searched text. In each round every figure is measured once, so that figures of a round can be compared. A figure is the
median of the rounds, in MB of bodies a second, and its ratio to the read of the same store that decompresses every body and
returns two other columns (`phy_offset` and `body_error`).
"""

from __future__ import annotations

import argparse
import json
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("messages", nargs="?", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="through Spark, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    messages, rounds = (SHORT_MESSAGES, 1) if given.short else (given.messages, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-grep-") as scratch:
        for codec in ("none", "zlib"):
            root = Path(scratch) / codec
            make(root, messages, compressed=codec == "zlib")
            seconds = measure(root, messages, rounds, spark=given.spark)
            for name, each in seconds.items():
                ratios = [base / one for base, one in zip(seconds[READ], each, strict=True)]
                rate = messages * BODY_BYTES / statistics.median(each) / 1e6
                row = {"what": f"{codec}: {name}", "mb_s": round(rate), "ratio": round(statistics.median(ratios), 3)}
                print(json.dumps(row) if given.json else f"{row['what']:60} {row['mb_s']:8} MB/s {row['ratio']:8.3f}")


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
            "logdex cat --body | grep -c -F": (
                lambda: counted([*program, "cat", "--body", str(root)], ["grep", "-c", "-F", NEEDLE]),
                expected,
            ),
        }
        if spark:
            figures |= of_spark(root, messages, expected)
        seconds: dict[str, list[float]] = {name: [] for name in figures}
        for _ in range(rounds):
            for name, (call, count) in figures.items():
                begin = time.perf_counter()
                found = call()
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
