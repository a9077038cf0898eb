"""How fast a key with many messages is found: the whole answer, as `Message` objects and to Arrow.

    python benches/python/find_rates.py [MESSAGES] [--rounds 5] [--dir DIR] [--short]

Makes its own store in a temporary folder with `StoreWriter`: MESSAGES messages of one key, with bodies of 100 bytes, a unique
key and tags, each followed by one message of another key. Everything is in the page cache. `find_batch` to Arrow is measured as
well, because releases before `FindResult.to_arrow` have it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT_MESSAGES = 4_000
BATCH = 20_000
TOPIC, KEY = "orders", "customer-7"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("messages", nargs="?", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="make the store here, or take the one that is there")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    messages, rounds = (SHORT_MESSAGES, 1) if given.short else (given.messages, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-find-") as scratch:
        root = given.dir or Path(scratch) / "store"
        if not (root / "commitlog").exists():
            make(root, messages)
        measure(root, messages, rounds)


def make(root: Path, messages: int) -> None:
    """Write the store."""
    with StoreWriter.open(root, hash_slots=messages // 4, max_entries=8 * messages, services=False) as writer:
        for first in range(0, messages, BATCH):
            numbers = range(2 * first, 2 * min(first + BATCH, messages))
            properties = [
                {
                    "UNIQ_KEY": f"7F0000010B0C{number:020X}",
                    "TAGS": "new",
                    "KEYS": KEY if number % 2 else f"other-{number}",
                }
                for number in numbers
            ]
            writer.put_messages(
                {
                    "topic": [TOPIC] * len(numbers),
                    "body": [f"{number:0100}".encode() for number in numbers],
                    "properties": properties,
                }
            )
        writer.dispatch()


def measure(root: Path, messages: int, rounds: int) -> None:
    """Find the key in rounds."""
    ways: dict[str, Callable[[MessageStore], int]] = {
        "find, every Message": lambda store: len(list(store.find(TOPIC, KEY))),
        "find_batch to Arrow": lambda store: pa.table(store.find_batch(TOPIC, [KEY])).num_rows,
    }
    with MessageStore.open(root) as store:
        if hasattr(store.find(TOPIC, "none"), "to_arrow"):
            ways["find to Arrow"] = lambda store: pa.table(store.find(TOPIC, KEY)).num_rows
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                begin = time.perf_counter()
                found = way(store)
                times[name].append(time.perf_counter() - begin)
                assert found == messages, (name, found)
    for name, seconds in times.items():
        each = [second / messages * 1e6 for second in seconds]
        print(f"{name:24} {statistics.median(each):8.2f} us a message   ({min(each):.2f} to {max(each):.2f})")


if __name__ == "__main__":
    main()
