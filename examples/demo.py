"""The main job, from a broker's store to a found message. `make demo` runs it; it changes nothing outside a temporary directory.

The store in `store/` was written by a real RocketMQ 4.9.3 broker, and the answers beside it were given by that broker's own
client while the broker ran (store/README.md).
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from logdex import spark as ls
from logdex.rocketmq import IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
# The geometry that this broker was configured with; a default one has 5,000,000 slots and 20,000,000 entries a file.
HASH_SLOTS, MAX_ENTRIES = 64, 256
TOPIC, KEY = "order_events", "Aa"
BEGIN_MS, END_MS = 1_795_260_606_400, 1_795_260_607_100


def main() -> None:
    """Run all steps."""
    # pyspark prints this warning at every use of Arrow; no pandas is used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    with tempfile.TemporaryDirectory(prefix="logdex-demo-") as scratch:
        store = unpack(Path(scratch))
        with timed("Spark session, 2 cores"):
            spark = start_spark(scratch)
        try:
            ls.register(spark)
            read_store(spark, store)
            build_index(spark, store)
            find_from_spark(spark, store)
            find_from_python(store)
            where_the_broker_fails(store)
        finally:
            spark.stop()


def unpack(scratch: Path) -> Path:
    """Unpack the store and move its index aside: the demo builds its own."""
    with tarfile.open(HERE / "store" / "store.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # not in the first releases of Python 3.10 and 3.11
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(scratch)  # noqa: S202 - our own archive
    store = scratch / "store"
    (store / "index").rename(store / "index-of-the-broker")
    logs = sorted((store / "commitlog").iterdir())
    say(
        "A store of a RocketMQ 4.9.3 broker",
        f"{len(logs)} commit-log files, {sum(f.stat().st_size for f in logs):,} bytes",
    )
    return store


def start_spark(scratch: str) -> SparkSession:
    """Start a small local session whose workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .appName("logdex demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )


def read_store(spark: SparkSession, store: Path) -> None:
    """Read every message as a DataFrame."""
    say("1. Read the store with Spark", 'spark.read.format("rocketmq").load(store)')
    with timed("messages counted by topic"):
        messages = (
            spark.read.format("rocketmq").option("columns", "topic,keys,uniq_key,store_timestamp").load(str(store))
        )
        rows = (
            messages.groupBy("topic")
            .agg(sf.count("*").alias("messages"))
            .orderBy(sf.desc("messages"), "topic")
            .collect()
        )
    for row in rows[:5]:
        print(f"     {row.messages:>5}  {row.topic[:40]}")
    print(f"     {sum(row.messages for row in rows):>5}  in all {len(rows)} topics")


def build_index(spark: SparkSession, store: Path) -> None:
    """Build the key index in parallel and compare it with the broker's own."""
    say("2. Build the key index with Spark", "ls.build_index(spark, store, index_dir)")
    with timed("index built"):
        report = ls.build_index(
            spark, store, store / "index", hash_slots=HASH_SLOTS, max_entries=MAX_ENTRIES, zone="Asia/Shanghai"
        )
    counts = report.checked
    print(f"     {counts['messages']} messages gave {counts['entries']} entries in {counts['index_files']} files")
    with timed("index loaded and verified"), IndexService.open(store / "index") as index:
        files = index.files
        report = index.verify()
    theirs = sorted((store / "index-of-the-broker").iterdir())
    equal = sum(ours.path.read_bytes() == their.read_bytes() for ours, their in zip(files, theirs, strict=True))
    print(f"     {report}")
    print(f"     {equal} of {len(theirs)} files equal the broker's own byte for byte")


def find_from_spark(spark: SparkSession, store: Path) -> None:
    """Look keys up on the cluster: candidates, and messages."""
    say("3. Find by key and time from Spark", f"topic {TOPIC}, key {KEY}, store time {BEGIN_MS} to {END_MS}")
    keys = spark.createDataFrame([(TOPIC, KEY)], "topic string, key string")
    with timed("ls.lookup(keys, index_dir): candidates of the index"):
        candidates = ls.lookup(keys, store / "index").count()
    bounds = keys.withColumns({"begin": sf.lit(BEGIN_MS), "end": sf.lit(END_MS)})
    with timed("ls.find(keys, store): messages, checked against the log"):
        found = ls.find(bounds, store).select("phy_offset", "keys", "store_timestamp", "tags").collect()
    print(f"     {candidates} candidates at any time, {len(found)} messages in the time range")
    for row in found:
        print(
            f"     offset {row.phy_offset}  stored {row.store_timestamp:%H:%M:%S.%f}  keys {row['keys']!r}  tags {row.tags}"
        )


def find_from_python(store: Path) -> None:
    """Find the same messages without Spark."""
    say("4. The same from plain Python", "MessageStore.open(store).find(topic, key, begin=..., end=...)")
    opened = MessageStore.open(store)
    with timed("found"):
        found = opened.find(TOPIC, KEY, begin=BEGIN_MS, end=END_MS)
    for message in found:
        body = (message.body or b"")[:40]
        print(
            f"     offset {message.phy_offset}  keys {message.keys!r}  body {len(message.body or b'')} bytes, {body!r}"
        )


def where_the_broker_fails(store: Path) -> None:
    """Compare the recorded answers of the broker's client with logdex's."""
    say("5. Where the broker fails", "its client's recorded answers, and logdex on the same files")
    opened = MessageStore.open(store)
    with (HERE / "store" / "client_queries.jsonl").open(encoding="utf-8") as recorded:
        for question in map(json.loads, recorded):
            topic, key, most = question["topic"], question["key"], question["maxNum"]
            theirs = [message["physicalOffset"] for message in question["messages"]]
            ours = [message.phy_offset for message in opened.find(topic, key, max_num=most)]
            if sorted(theirs) == sorted(ours):
                continue
            print(f"     topic {topic}, key {key}, at most {most}:")
            print(f"       broker  {question['exception'] or f'{len(theirs)} answers'}: {theirs}")
            print(f"       logdex  {len(ours)} answers: {ours}")
    print(
        "     AaTopic#BB and BBTopic#BB share a hash: the broker takes the newest entry with it, which is the other key's"
    )
    print("     message, and its client throws that away. A key that one message names three times comes three times.")
    print("     logdex checks every candidate against the message itself and gives each message once.")


def say(title: str, text: str) -> None:
    """Print the title of a step."""
    print(f"\n{title}\n     {text}", flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long a step took."""
    begin = time.perf_counter()
    yield
    print(f"     {time.perf_counter() - begin:6.2f} s  {what}", flush=True)


if __name__ == "__main__":
    main()
