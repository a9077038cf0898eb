"""Measure how fast Spark reads stores, looks keys up and builds an index, on two cores, beside a Spark join.

    python benches/python/spark_rates.py [--rows 5000000] [--keys 2000000] [--rounds 3] [--only lookup] [--json] [--short]
    python benches/python/spark_rates.py --only store [--rows 10000000] [--dir DIR]
    python benches/python/spark_rates.py --only topic [--rows 300000] [--dir DIR]
    python benches/python/spark_rates.py --only kafka-sink [--rows 5000000]

Rows and keys are Parquet files, which every measurement reads again. The index has the default geometry (420 MB a file). All
files are in a temporary directory, in the page cache. Each round runs every measurement once, one after another. Spark's sink
`noop` makes all rows of a query and discards them. A ratio is taken within a round. The first two rounds do not count.

The join is tuned: only the columns it needs, as many shuffle partitions as cores, adaptive execution on, 4 GB of heap. Both kinds
of hash join are measured, and the faster one is the peer (a merge join is slower).
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
import zlib
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broker_store  # type: ignore[import-not-found] # beside this program
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from logdex import spark as ls
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pyspark.sql import Column

    Step: TypeAlias = Callable[[], Any]

T0 = 1_700_000_000_000
TOPIC = "TopicTest"
CORES = 2
LOG_FILES = 8
BODY_BYTES = 100
WARM_ROUNDS = 2
JOINS = ("shuffle_hash", "broadcast")
# The settings that docs/spark.md recommends; measurements whose name ends in "-untuned" run without them.
TUNED = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}
UNTUNED = ("lookup", "udf", "build-in-order")
TOPICS = 50
ZLIB_FLAG = 1
"""Flag of a message whose body is compressed with zlib."""
PUT_MESSAGES = 10_000
SHORT = {"rows": 200_000, "keys": 100_000, "rounds": 1}
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # the join is chosen by a hint
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def key(column: str | Column) -> Column:
    """Return keys like those of clients: 24 upper-case hexadecimal digits."""
    return sf.concat(sf.lit("7F000001"), sf.lpad(sf.hex(sf.abs(sf.xxhash64(column))), 16, "0"))


def write_rows(spark: SparkSession, rows: int, path: str) -> None:
    """Write index rows in the order of their offsets, one file a core, one row a millisecond."""
    spark.range(0, rows, 1, CORES).select(
        sf.lit(TOPIC).alias("topic"),
        key("id").alias("key"),
        (sf.col("id") * 200).alias("phy_offset"),
        (sf.col("id") + T0).alias("store_timestamp"),
    ).write.parquet(path)


def write_keys(spark: SparkSession, keys: int, rows: int, path: str) -> None:
    """Write keys of rows, in no order."""
    spark.range(0, keys, 1, CORES).select(
        sf.lit(TOPIC).alias("topic"), key((sf.col("id") * 7919) % rows).alias("key")
    ).write.parquet(path)


class Bench:
    """The inputs, and the measurements by their names."""

    def __init__(self, spark: SparkSession, directory: Path, rows: int, keys: int) -> None:
        """Write the inputs."""
        self.spark = spark
        self.row_count, self.key_count = rows, keys
        self.rows, self.shuffled, self.keys, self.index, self.built, self.store = (
            str(directory / name) for name in ("rows", "shuffled", "keys", "index", "built", "store")
        )
        write_rows(spark, rows, self.rows)
        self.read(self.rows).orderBy(sf.xxhash64("key")).write.parquet(self.shuffled)
        write_keys(spark, keys, rows, self.keys)
        messages = rows // 2
        file_bytes = -(-messages // LOG_FILES) * broker_store.message_bytes(BODY_BYTES) + broker_store.BLANK_BYTES
        log = Path(self.store) / "commitlog"
        broker_store.write_log(log, messages, body_bytes=BODY_BYTES, file_bytes=file_bytes)
        self.write(self.one_task(), self.index)
        self.check()

    def check(self) -> None:
        """Check that each kind of query finds every key."""
        lookup = ls.lookup(self.read(self.keys), self.index).agg(sf.count("phy_offset"))
        udf = self.with_udf().agg(sf.sum(sf.size("offsets")))
        joined = self.join("shuffle_hash").agg(sf.count("phy_offset"))
        found = [int(df.collect()[0][0]) for df in (lookup, udf, joined)]
        if not found[0] == found[1] >= found[2] == self.key_count:
            raise RuntimeError(f"{self.key_count} keys found {found}")

    def read(self, path: str) -> DataFrame:
        """Read a table."""
        return self.spark.read.parquet(path)

    def one_task(self) -> DataFrame:
        """Return the rows as one task that reads the files one after another, in their order."""
        parts = sorted(str(path) for path in Path(self.rows).glob("part-*"))
        return reduce(DataFrame.union, map(self.read, parts)).coalesce(1)

    def write(self, df: DataFrame, index: str | None = None) -> None:
        """Write index files."""
        df.write.format("rocketmq_index").mode("overwrite").save(index or self.built)

    def with_udf(self) -> DataFrame:
        """Look the keys up with the function of columns."""
        return self.read(self.keys).withColumn("offsets", ls.query_offset(self.index)("topic", "key"))

    def join(self, kind: str) -> DataFrame:
        """Look the keys up with a join that hashes the smaller side."""
        table = self.read(self.rows).select("topic", "key", "phy_offset")
        return table.join(self.read(self.keys).hint(kind), ["topic", "key"])

    def drain_join(self, kind: str) -> None:
        """Join, and discard the rows."""
        drain(self.join(kind))

    def measurements(self) -> dict[str, tuple[str, int, Step]]:
        """Return the description of each measurement, its rows, and the function to run."""
        rows, keys = self.row_count, self.key_count
        asked = f"{keys:,} keys in an index of {rows:,}"
        tuned: dict[str, tuple[str, int, Step]] = {
            "read-keys": ("keys read alone", keys, lambda: drain(self.read(self.keys))),
            "lookup": (f"ls.lookup, {asked}", keys, lambda: drain(ls.lookup(self.read(self.keys), self.index))),
            "udf": (f"ls.query_offset, {asked}", keys, lambda: drain(self.with_udf())),
            **{
                f"join-{kind.replace('_', '-')}": (f"Spark join, hint {kind}", keys, partial(self.drain_join, kind))
                for kind in JOINS
            },
            "read-rows": ("rows read alone", rows, lambda: drain(self.read(self.rows))),
            "build-in-order": ("df.write, in order, a task a core", rows, lambda: self.write(self.read(self.rows))),
            "build-one-task": ("df.write, in order, one task", rows, lambda: self.write(self.one_task())),
            "build-arranged": (
                "ls.arrange(df).write, rows in no order",
                rows,
                lambda: self.write(ls.arrange(self.read(self.shuffled), CORES)),
            ),
            "build-from-log": (
                "ls.build_index from a commit log",
                rows // 2 * 2,
                lambda: ls.build_index(self.spark, self.store, self.built, mode="overwrite"),
            ),
        }
        untuned = {f"{name}-untuned": (f"{tuned[name][0]}, untuned", *tuned[name][1:]) for name in UNTUNED}
        return {**tuned, **untuned}


class StoreBench:
    """Spark reads all of a store of small messages with index and queues, and one message of it."""

    def __init__(self, spark: SparkSession, store: Path, messages: int) -> None:
        """Make the store if it is missing."""
        self.spark = spark
        self.messages = messages
        self.store = store
        if not (store / "commitlog").exists():
            broker_store.write_log(store / "commitlog", messages)
            with MessageStore.open(store) as made:
                made.build_index(store / "index")
                made.build_queues(store)
        with MessageStore.open(store) as made:
            self.size = made.commit_log.max_offset
        number = messages // 3
        self.topic, self.key = broker_store.topic(number), broker_store.key(number)
        rows = [[tuple(row) for row in read().collect()] for read in (self.by_options, self.by_filter)]
        if rows[0] != rows[1] or len(rows[0]) != 1:
            raise RuntimeError(f"the index leads to {rows[0]}, a scan to {rows[1]}")

    def read(self, columns: str, **options: str) -> DataFrame:
        """Read some columns of the messages that options choose, in one task for each core."""
        given = {"columns": columns, "minPartitions": str(CORES), "maxPartitionBytes": str(1 << 30), **options}
        return self.spark.read.format("rocketmq").options(**given).load(str(self.store))

    def by_options(self) -> DataFrame:
        """Read one message by topic and key, given as options."""
        return self.read("topic,keys,phy_offset,body", topic=self.topic, keys=self.key)

    def by_filter(self) -> DataFrame:
        """Read the same message with a filter of the query."""
        wanted = (sf.col("topic") == self.topic) & (sf.col("keys") == self.key)
        return self.read("topic,keys,phy_offset,body").where(wanted)

    def measure(self, rounds: int, as_json: bool) -> None:  # noqa: FBT001
        """Measure in turns, and print."""
        steps: dict[str, tuple[str, Step]] = {
            "store-scan": ("scan of topic, keys, phy_offset", lambda: drain(self.read("topic,keys,phy_offset"))),
            "store-scan-body": ("the same with body", lambda: drain(self.read("topic,keys,phy_offset,body"))),
            "store-find": ("topic and keys as options", lambda: self.by_options().collect()),
            "store-find-scan": ("topic and keys as a filter of the query", lambda: self.by_filter().collect()),
        }
        seconds = in_turns({name: step for name, (_, step) in steps.items()}, rounds)
        for name, (asked, _) in steps.items():
            words = f"{asked}, {self.messages:,} messages, {self.size / 1e6:.0f} MB"
            if "scan" in name.split("-")[1]:
                tell(as_json, name, words, "M rows/s", [self.messages / taken / 1e6 for taken in seconds[name]])
                tell(
                    as_json, f"{name}-bytes", words, "MB/s of log", [self.size / taken / 1e6 for taken in seconds[name]]
                )
            else:
                tell(as_json, name, words, "s", seconds[name])


class TopicBench:
    """Spark reads the messages of one topic of many, with compressed bodies of 1 KB, from a store with queues."""

    def __init__(self, spark: SparkSession, store: Path, messages: int) -> None:
        """Make the store if it is missing."""
        self.spark = spark
        self.messages = messages
        self.store = store
        if not (store / "commitlog").exists():
            self.write_store()
        found = self.read(topic=topic(7)).count(), self.read(topic=topic(7), pushdown="false").count()
        if found != (messages // TOPICS,) * 2:
            raise RuntimeError(f"{messages // TOPICS} messages of the topic, queues and log lead to {found}")

    def write_store(self) -> None:
        """Put messages that go round the topics, with bodies that zlib compresses to about a half."""
        letters = random.Random(1)
        bodies = [zlib.compress(letters.randbytes(512).hex().encode()) for _ in range(1_000)]
        with StoreWriter.open(self.store, flush="none", hash_slots=5_000, max_entries=20_000) as writer:
            for first in range(0, self.messages, PUT_MESSAGES):
                numbers = range(first, min(first + PUT_MESSAGES, self.messages))
                writer.put_messages(
                    {
                        "topic": [topic(number) for number in numbers],
                        "body": [bodies[number % len(bodies)] for number in numbers],
                        "sys_flag": [ZLIB_FLAG] * len(numbers),
                        "keys": [f"k{number}" for number in numbers],
                        "store_timestamp": [T0 + number for number in numbers],
                    },
                    body="stored",
                )

    def read(self, columns: str = "topic,phy_offset,body", **options: str) -> DataFrame:
        """Read columns of the messages that options choose, in one task for each core."""
        given = {"columns": columns, "minPartitions": str(CORES), **options}
        return self.spark.read.format("rocketmq").options(**given).load(str(self.store))

    def measure(self, rounds: int, as_json: bool) -> None:  # noqa: FBT001
        """Measure in turns, and print."""
        asked = f"topic, phy_offset, body of one topic of {TOPICS}, {self.messages:,} messages"
        steps: dict[str, tuple[str, Step]] = {
            "topic": (asked, lambda: drain(self.read(topic=topic(7)))),
            "topic-scan": (f"the same with pushdown off, {asked}", lambda: drain(self.scan(topic=topic(7)))),
            "topic-all": ("the same columns of all topics", lambda: drain(self.scan())),
            "topic-offsets": ("phy_offset of all topics", lambda: drain(self.scan("phy_offset"))),
        }
        for name, values in in_turns({name: step for name, (_, step) in steps.items()}, rounds).items():
            tell(as_json, name, steps[name][0], "s", values)

    def scan(self, columns: str = "topic,phy_offset,body", **options: str) -> DataFrame:
        """Read from the log alone."""
        return self.read(columns, pushdown="false", **options)


class SinkBench:
    """Spark writes records with keys of 24 bytes and values of 100 bytes into new Kafka log directories."""

    def __init__(self, spark: SparkSession, scratch: Path, rows: int) -> None:
        """Write the rows as Parquet, one file a core."""
        self.spark, self.rows, self.scratch = spark, rows, scratch
        value = sf.concat(key("id"), key(sf.col("id") + rows), key(sf.col("id") + 2 * rows), sf.lpad("id", 28, "0"))
        columns = (key("id").cast("binary").alias("key"), value.cast("binary").alias("value"))
        spark.range(0, rows, 1, CORES).select(*columns).write.parquet(str(scratch / "rows"))

    def read(self) -> DataFrame:
        """Read the rows."""
        return self.spark.read.parquet(str(self.scratch / "rows"))

    def write(self, codec: str) -> None:
        """Write all rows into a new directory, which is removed by the next call."""
        target = self.scratch / "logs"
        shutil.rmtree(target, ignore_errors=True)
        options: dict[str, Any] = {"topic": TOPIC, "partitions": 8, "kafka.compression.type": codec}
        self.read().write.format("kafka_log").mode("append").options(**options).save(str(target))

    def measure(self, rounds: int, as_json: bool) -> None:  # noqa: FBT001
        """Measure in turns, check the last directory, and print."""
        codecs = ("lz4", "zstd", "none")
        steps: dict[str, Step] = {f"kafka-sink-{codec}": partial(self.write, codec) for codec in codecs}
        seconds = in_turns({"kafka-sink-read": lambda: drain(self.read()), **steps}, rounds)
        with LogDir.open(self.scratch / "logs") as logs:
            ends = [logs.log(each.topic, each.partition).log_end_offset for each in logs.partitions()]
        if sum(ends) != self.rows:
            raise RuntimeError(f"{self.rows} records written, {sum(ends)} found")
        for name, taken in seconds.items():
            how = (
                "read alone" if name.endswith("read") else f"df.write, commit included, codec {name.rpartition('-')[2]}"
            )
            tell(
                as_json,
                name,
                f"{self.rows:,} records, {how}",
                "M records/s",
                [self.rows / each / 1e6 for each in taken],
            )


def topic(number: int) -> str:
    """Return the topic of a message."""
    return f"topic-{number % TOPICS}"


def in_turns(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Run all steps in each round, after one round that does not count, and return their seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for counted in [False] + [True] * rounds:
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            if counted:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def drain(df: DataFrame) -> None:
    """Make all rows and discard them."""
    df.write.format("noop").mode("overwrite").save()


def session(settings: dict[str, str]) -> SparkSession:
    """Start Spark with these settings in addition to those above."""
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    ls.register(spark)
    return spark


def alone(spark: SparkSession, scratch: Path, given: argparse.Namespace) -> StoreBench | TopicBench | SinkBench:
    """Return the measurement that runs alone."""
    if given.only == "kafka-sink":
        return SinkBench(spark, scratch, given.rows)
    directory = given.dir or scratch
    return (
        StoreBench(spark, directory, given.rows // 2)
        if given.only == "store"
        else TopicBench(spark, directory, given.rows)
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="beginnings of names, separated by commas; or `store`, `topic` or `kafka-sink`")
    parser.add_argument(
        "--dir", type=Path, help="with `--only store` or `topic`: make the store here, or use the one that is there"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to check that it runs")
    given = parser.parse_args()
    if given.short:
        parser.set_defaults(**SHORT)
        given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    spark = session(dict(setting.split("=", 1) for setting in given.conf))
    with tempfile.TemporaryDirectory(prefix="logdex-bench-") as scratch:
        if given.only in ("store", "topic", "kafka-sink"):
            alone(spark, Path(scratch), given).measure(given.rounds, given.json)
            spark.stop()
            return
        bench = Bench(spark, Path(scratch), given.rows, given.keys)
        chosen = tuple(given.only.split(",")) if given.only else ("",)
        todo = {name: m for name, m in bench.measurements().items() if name.startswith(chosen)}
        seconds: dict[str, list[float]] = {name: [] for name in todo}
        for counted in [False] * (0 if given.short else WARM_ROUNDS) + [True] * given.rounds:
            for name, (_, _, step) in todo.items():
                for setting, value in TUNED.items():
                    spark.conf.unset(setting) if name.endswith("-untuned") else spark.conf.set(setting, value)
                begin = time.perf_counter()
                step()
                if counted:
                    seconds[name].append(time.perf_counter() - begin)
        for name, (words, rows, _) in todo.items():
            tell(given.json, name, words, "M rows/s", [rows / taken / 1e6 for taken in seconds[name]])
        joins = [name for name in seconds if name.startswith("join-")]
        for name in ("lookup", "udf"):
            if joins and name in seconds:
                best = min(joins, key=lambda join: statistics.median(seconds[join]))
                ratios = [join / ours for join, ours in zip(seconds[best], seconds[name], strict=True)]
                tell(given.json, f"{name}-to-join", f"{todo[name][0].split(',')[0]} against {best}", "x", ratios)
    spark.stop()


def tell(as_json: bool, name: str, words: str, unit: str, values: list[float]) -> None:  # noqa: FBT001
    """Print one figure: best, median and worst round."""
    ordered = sorted(values, reverse=True)
    figure = {"best": ordered[0], "median": statistics.median(ordered), "worst": ordered[-1]}
    if as_json:
        rounds = {"rounds": values}
        print(json.dumps({"figure": f"spark-{name}", "what": words, "unit": unit, **figure, **rounds}), flush=True)
        return
    numbers = " ".join(f"{value:6.2f}" for value in figure.values())
    print(f"{words:66} {numbers}  {unit} (best, median, worst of {len(values)})", flush=True)


if __name__ == "__main__":
    main()
