"""Measure how fast messages are found in a store of millions: one key warm and cold, many keys, and the bytes of a first lookup.

    python benches/python/store_rates.py [MESSAGES] [--rounds 5] [--dir DIR] [--json] [--short]

Makes its own store in a temporary folder (`broker_store`; 20 million messages of 211 bytes take 5.5 GB), its index and its
queues by logdex. "Cold": the store is closed and its files are dropped from the page cache before; then opening it and finding
one key is timed as one, as a person waits for it. What it reads from the disk is asked of the system (/proc/self/io). Beside it
stand plain reads of 4 KiB at random places of the cold log, one after the other: what one read costs here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broker_store  # type: ignore[import-not-found] # beside this program
import pyarrow as pa

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 4096
FINDS = 1_000
PLAIN_READS = 200
BATCH_KEYS = 100_000
SHORT_MESSAGES = 40_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("messages", nargs="?", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="make the store here, or take the one that is there")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    messages, rounds = (SHORT_MESSAGES, 1) if given.short else (given.messages, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-store-") as scratch:
        root = given.dir or Path(scratch)
        made = {} if (root / "commitlog").exists() else make(root, messages)
        figures = {**measure(root, messages, rounds), **made}
    for name, (what, unit, values) in figures.items():
        tell(name, what, unit, values, as_json=given.json)


def make(root: Path, messages: int) -> dict[str, tuple[str, str, list[float]]]:
    """Write the store, and return the rates of building index and queues and of the check."""
    figures = {}
    size = messages * broker_store.write_log(root / "commitlog", messages)
    with MessageStore.open(root) as store:
        for name, what, build in (
            ("index", "build_index, 2 threads that read", lambda: store.build_index(root / "index")),
            ("queues", "build_queues, 2 threads that read", lambda: store.build_queues(root)),
            ("verify", "verify: log, queues and index", store.verify),
        ):
            took, report = seconds(build)
            if not report.ok:
                raise SystemExit(f"the generated store is damaged: {report}")
            figures[f"store-{name}"] = (what, "M messages/s", [messages / took / 1e6])
            figures[f"store-{name}-bytes"] = (f"{what}, of log", "MB/s", [size / took / 1e6])
    return figures


def measure(root: Path, messages: int, rounds: int) -> dict[str, tuple[str, str, list[float]]]:
    """Measure in rounds, each with other keys."""
    numbers = random.Random(1)
    figures: dict[str, tuple[str, str, list[float]]] = {}

    def keep(name: str, what: str, unit: str, value: float) -> None:
        figures.setdefault(f"store-{name}", (what, unit, []))[2].append(value)

    for _ in range(rounds):
        drop(root)
        keep("read", "a plain read of 4 KiB, cold", "ms", plain_read(root, numbers) * 1e3)
        drop(root)
        before = disk_bytes()
        took, store = seconds(lambda: open_and_find(root, numbers.randrange(messages)))
        keep("first", "open the store and find one key, cold", "ms", took * 1e3)
        keep("first-pages", "the same: pages of 4 KiB read from the disk", "pages", (disk_bytes() - before) / PAGE)
        before = disk_bytes()
        took, _ = seconds(lambda: find(store, numbers.randrange(messages)))  # noqa: B023 -- called at once
        keep("next", "the next key, as cold", "ms", took * 1e3)
        keep("next-pages", "the same: pages of 4 KiB read from the disk", "pages", (disk_bytes() - before) / PAGE)
        store.close()
        warm(root)
        with MessageStore.open(root) as store:
            find(store, numbers.randrange(messages))
            each = sorted(
                seconds(lambda number=number: find(store, number))[0]  # type: ignore[misc] # noqa: B023
                for number in [numbers.randrange(messages) for _ in range(FINDS)]
            )
            keep("find", f"find of one key, warm: median of {FINDS:,}", "ms", statistics.median(each) * 1e3)
            keep("find-99", "the same: 99 of 100 are faster", "ms", each[len(each) * 99 // 100] * 1e3)
            keep(
                "id", "find of a unique key without a topic, warm", "ms", without_topic(store, numbers, messages) * 1e3
            )
            count = min(BATCH_KEYS, messages // 4)
            took = batch(store, [numbers.randrange(messages) for _ in range(count)])
            keep("batch", f"find_batch of {count:,} keys, warm, to Arrow with bodies", "s", took)
            keep("batch-rate", "the same", "K keys/s", count / took / 1e3)
    return figures


def open_and_find(root: Path, number: int) -> MessageStore:
    """Open the store and find one message, as for a single question."""
    store = MessageStore.open(root)
    find(store, number)
    return store


def find(store: MessageStore, number: int) -> None:
    """Find one message and check that it is the right one."""
    (message,) = store.find(broker_store.topic(number), broker_store.key(number))
    assert message.uniq_key == broker_store.uniq_key(number)


def without_topic(store: MessageStore, numbers: random.Random, messages: int) -> float:
    """Find unique keys in any topic, and return the median of the seconds."""
    times = []
    for number in [numbers.randrange(messages) for _ in range(FINDS // 10)]:
        took, found = seconds(lambda number=number: store.find(None, broker_store.uniq_key(number)))  # type: ignore[misc]
        assert [message.keys for message in found] == [broker_store.key(number)]
        times.append(took)
    return statistics.median(times)


def batch(store: MessageStore, numbers: list[int]) -> float:
    """Find many keys at once, and return the seconds."""
    topics = pa.array([broker_store.topic(number) for number in numbers])
    keys = pa.array([broker_store.key(number) for number in numbers])
    took, table = seconds(lambda: pa.table(store.find_batch(topics, keys)))
    assert table["query_row"].to_pylist() == list(range(len(numbers)))
    assert table["keys"].to_pylist() == keys.to_pylist()
    return took


def plain_read(root: Path, numbers: random.Random) -> float:
    """Read random pages of the log, one after another, and return the seconds for one."""
    path = min((root / "commitlog").iterdir())
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        pages = [numbers.randrange(path.stat().st_size // PAGE) for _ in range(PLAIN_READS)]
        took, _ = seconds(lambda: [os.pread(file, PAGE, page * PAGE) for page in pages])
    finally:
        os.close(file)
    return took / PLAIN_READS


def files(root: Path) -> Iterator[int]:
    """Open each file of the store in turn."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                yield file
            finally:
                os.close(file)


def drop(root: Path) -> None:
    """Drop the store's files from the page cache."""
    for file in files(root):
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def warm(root: Path) -> None:
    """Read the store's files into the page cache."""
    for file in files(root):
        while os.read(file, 1 << 24):
            pass


def disk_bytes() -> int:
    """Return the bytes that this process has read from the disk so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Run once, and return the time and the result."""
    begun = time.perf_counter()
    result = call()
    return time.perf_counter() - begun, result


def tell(name: str, what: str, unit: str, values: list[float], *, as_json: bool) -> None:
    """Print one figure: median, least and most."""
    if as_json:
        print(json.dumps({"figure": name, "what": what, "unit": unit, "rounds": values}), flush=True)
        return
    middle, least, most = statistics.median(values), min(values), max(values)
    print(f"{what:60} {middle:9.3f} [{least:.3f}..{most:.3f}] {unit}", flush=True)


if __name__ == "__main__":
    main()
