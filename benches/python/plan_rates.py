"""Measure how long the driver plans a read of many files: RocketMQ log files cut at their queues, and Kafka partitions.

    python benches/python/plan_rates.py [--files 10000] [--partitions 3000] [--rounds 5] [--short] [--s3]

The log files are small, and the size of a task smaller in the same proportion: each file is cut into 8, as a file of 1 GiB is by
default. A Kafka partition has one segment, and a line in the checkpoint of the log starts. The readers are called as Spark calls
them, without Spark, on files in the page cache.

With --s3 the log files are copied into an S3 server on this machine (moto), and planned from there, too. Between the two a proxy
adds 50 ms to each request and counts them.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broker_store  # type: ignore[import-not-found] # beside this program
import kafka_rates  # type: ignore[import-not-found] # beside this program
from pyspark.sql.datasource import CaseInsensitiveDict

from logdex.rocketmq import MessageStore
from logdex.spark.kafka_source import KafkaLogSource
from logdex.spark.messages.source import MessagesSource

sys.path.append(str(Path(__file__).parents[2] / "tests" / "python" / "support"))

import object_store
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Callable

CUTS = 8
MESSAGES_A_FILE = 32
SHORT = {"files": 200, "partitions": 50, "rounds": 1}


def measured(name: str, rounds: int, call: Callable[[], Any]) -> Any:
    """Call, print the time, and return the last result."""
    found, times, cpu = None, [], []
    for _ in range(rounds):
        begin = time.perf_counter(), time.process_time()
        found = call()
        times.append(time.perf_counter() - begin[0])
        cpu.append(time.process_time() - begin[1])
    spread = f"[{min(times):.2f}..{max(times):.2f}]"
    print(
        f"{name}: {statistics.median(times):.2f} s {spread}, of the processor {statistics.median(cpu):.2f} s",
        flush=True,
    )
    return found


def planned(path: str, task_bytes: int, **others: str) -> tuple[Any, list[Any]]:
    """Return reader and tasks of a store."""
    options = {"path": path, "maxPartitionBytes": str(task_bytes), "columns": "phy_offset", **others}
    source = MessagesSource(CaseInsensitiveDict(options))
    reader = source.reader(source.schema())
    return reader, [*reader.partitions()]


def measure_objects(root: Path, task_bytes: int) -> None:
    """Measure the first plan of the same log in an object store, and its memory."""
    with object_store.serve() as server, SlowProxy(server.port, 0.05) as proxy:
        url = server.put("store", root)
        options = {f"storage.{name}": value for name, value in object_store.options(proxy.endpoint).items()}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, tasks = measured("the same over S3, 50 ms a request", 1, partial(planned, url, task_bytes, **options))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        print(f"{len(tasks):,} tasks, {len(proxy.requests):,} requests, {grown:,} MiB more memory")
        rows = measured("one task", 1, lambda: sum(batch.num_rows for batch in reader.read(tasks[len(tasks) // 2])))
        assert rows > 0


def measure_log(root: Path, files: int, rounds: int, *, s3: bool) -> None:
    """Measure the plan of a store's log, and a task of it."""
    size = MESSAGES_A_FILE * broker_store.message_bytes() + broker_store.BLANK_BYTES
    broker_store.write_log(root / "commitlog", files * MESSAGES_A_FILE, file_bytes=size)
    with MessageStore.open(root) as store:
        store.build_queues(root)
    plan = partial(planned, str(root), size // CUTS)
    reader, tasks = measured(f"{files:,} log files, cut into {CUTS} each", rounds, plan)
    assert len(tasks) > files * CUTS // 2, len(tasks)
    sizes = [len(pickle.dumps(task)) for task in tasks]
    print(f"{len(tasks):,} tasks, {statistics.mean(sizes):.0f} bytes each")
    rows = measured("one task", rounds, lambda: sum(batch.num_rows for batch in reader.read(tasks[len(tasks) // 2])))
    assert rows > 0
    if s3:
        measure_objects(root, size // CUTS)


def measure_partitions(root: Path, partitions: int, rounds: int) -> None:
    """Measure the triggers of a stream over Kafka partitions."""
    logs = [root / f"orders-{number}" / f"{0:020d}.log" for number in range(partitions)]

    def append(batch: int) -> None:
        content = kafka_rates._batches(batch * kafka_rates.RECORDS_A_BATCH, 1).tobytes()  # noqa: SLF001 -- of another program
        for log in logs:
            with log.open("ab") as file:
                file.write(content)

    for log in logs:
        log.parent.mkdir(parents=True)
    append(0)
    starts = [f"orders {number} 0" for number in range(partitions)]
    (root / "log-start-offset-checkpoint").write_text("\n".join(["0", str(partitions), *starts, ""]), encoding="ascii")
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(root)}))
    reader: Any = source.streamReader(source.schema())
    start = measured("first offset", 1, reader.initialOffset)

    def trigger(start: Any) -> tuple[Any, list[Any]]:
        end = reader.latestOffset(start)
        return end, reader.partitions(start, end)

    end, tasks = measured(f"{partitions:,} partitions, first trigger, all new", 1, lambda: trigger(start))
    assert sum(len(task.pieces) for task in tasks) == partitions
    time.sleep(3)
    trigger(end)
    measured("a trigger, nothing new", rounds, partial(trigger, end))
    for number in range(1, rounds + 1):
        append(number)
        start, (end, tasks) = end, measured("a trigger, a batch more in each", 1, partial(trigger, end))
        assert sum(len(task.pieces) for task in tasks) == partitions


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--s3", action="store_true", help="plan the log from an object store, too")
    parser.add_argument("--short", action="store_true", help="small, to see that it runs")
    arguments = parser.parse_args()
    if arguments.short:
        vars(arguments).update(SHORT)
    with tempfile.TemporaryDirectory(prefix="plan-rates-") as root:
        measure_log(Path(root) / "store", arguments.files, arguments.rounds, s3=arguments.s3)
        measure_partitions(Path(root) / "kafka", arguments.partitions, arguments.rounds)


if __name__ == "__main__":
    main()
