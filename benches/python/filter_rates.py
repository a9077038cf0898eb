"""Measure how fast the messages of one topic are read, from the log and through its queues.

    python benches/python/filter_rates.py [MESSAGES] [--topics 50] [--rounds 5] [--json] [--short]

The store is made in a temporary folder: topics of equal size in turns, bodies of 1 KB compressed with zlib, index
and queues. Each figure is the least time of all rounds, and its ratio to `scan(columns=["phy_offset"])` of the same log.

The limits are what the machine needs if all its threads share the work evenly: to walk the log and inflate the bodies of the
topic, or to read the messages of the topic and inflate their bodies.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.rocketmq import CommitLog, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUES = 4
BODY_BYTES = 1_000
STEP = 10_000
COMPRESSED = 1
SHORT_MESSAGES = 5_000
TOPIC = "topic-7"
SCAN = "scan of phy_offset"
READ = "pread of the messages of T"
STORED = "bodies of T as stored, 1 thread"
DECODED = "bodies of T, 1 thread"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("messages", nargs="?", type=int, default=300_000)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="make the store here, or use the one that is there")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    messages, rounds = (SHORT_MESSAGES, 1) if given.short else (given.messages, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-filter-") as scratch:
        root = given.dir or Path(scratch)
        if not (root / "commitlog").exists():
            make(root, messages, given.topics)
        figures = measure(root, messages // given.topics, rounds)
    base = figures[SCAN]
    for name, seconds in figures.items():
        row = {"what": name, "ms": round(seconds * 1e3, 2), "ratio": round(seconds / base, 3)}
        print(json.dumps(row) if given.json else f"{name:45} {row['ms']:10.2f} ms {row['ratio']:8.3f}")


def make(root: Path, messages: int, topics: int) -> None:
    """Write the store."""
    numbers = random.Random(1)
    words = [f"{numbers.getrandbits(40):x}" for _ in range(200)]
    bodies = [zlib.compress(" ".join(numbers.choices(words, k=BODY_BYTES // 10)).encode()) for _ in range(500)]
    with StoreWriter.open(root) as writer:
        for first in range(0, messages, STEP):
            rows = range(first, min(first + STEP, messages))
            writer.put_messages(
                {
                    "topic": [f"topic-{row % topics}" for row in rows],
                    "queue_id": pa.array([row // topics % QUEUES for row in rows], pa.int32()),
                    "body": [bodies[row % len(bodies)] for row in rows],
                    "sys_flag": pa.array([COMPRESSED] * len(rows), pa.int32()),
                    "keys": [f"key-{row}" for row in rows],
                },
                body="stored",
            )


def measure(root: Path, expected: int, rounds: int) -> dict[str, float]:
    """Return the least seconds of each reading."""
    threads = min(4, len(os.sched_getaffinity(0)))
    path = root / "commitlog" / f"{0:020}"
    with CommitLog.open(root / "commitlog") as log, MessageStore.open(root) as store, path.open("rb", 0) as file:
        places = places_of(store)
        readings: dict[str, tuple[Callable[[], Any], int | None]] = {
            SCAN: (lambda: log.scan(columns=["phy_offset"]), None),
            "messages(topic=T, scan=True)": (lambda: store.messages(topic=TOPIC, scan=True), expected),
            "messages(topic=T, scan=False)": (lambda: store.messages(topic=TOPIC, scan=False), expected),
            READ: (lambda: read(file.fileno(), places), None),
            STORED: (
                lambda: store.messages(topic=TOPIC, columns=["body"], body="stored", scan=False, threads=1),
                expected,
            ),
            DECODED: (lambda: store.messages(topic=TOPIC, columns=["body"], scan=False, threads=1), expected),
        }
        figures: dict[str, float] = {}
        for _ in range(rounds):
            for name, (call, count) in readings.items():
                begin = time.perf_counter()
                rows = sum(batch.num_rows for batch in call())
                figures[name] = min(figures.get(name, float("inf")), time.perf_counter() - begin)
                if count not in (None, rows):
                    raise SystemExit(f"{name}: expected {count} messages, found {rows}")
    inflate = figures[DECODED] - figures[STORED]
    figures[f"limit of scan=True, {threads} threads"] = (figures[SCAN] + inflate) / threads
    figures[f"limit of scan=False, {threads} threads"] = (figures[READ] + inflate) / threads
    return figures


def places_of(store: MessageStore) -> list[tuple[int, int]]:
    """Return offset and size of each message of the topic, which are in the first file."""
    table = pa.table(store.messages(topic=TOPIC, columns=["phy_offset", "store_size"]))
    return list(zip(table["phy_offset"].to_pylist(), table["store_size"].to_pylist(), strict=True))


def read(file: int, places: list[tuple[int, int]]) -> tuple[()]:
    """Read the messages, and nothing else."""
    for offset, size in places:
        os.pread(file, size, offset)
    return ()


if __name__ == "__main__":
    main()
