"""What a user of a cluster without a shared disk calls: it reads its settings from standard input, and prints the answers."""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from logdex import spark as ls

if TYPE_CHECKING:
    from collections.abc import Iterator


def directories(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the directory of each task."""
    for _ in batches:
        yield pa.RecordBatch.from_arrays([pa.array([os.getcwd()])], names=["directory"])  # noqa: PTH109 -- as text


def main() -> None:
    """Call everything over URLs."""
    given = json.load(sys.stdin)
    storage = given["options"]
    options = {f"storage.{name}": value for name, value in storage.items()}
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": given["events"],
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master(given["cluster"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    ls.register(spark)
    store, logs, out = given["store"], given["logs"], given["out"]
    keys = spark.createDataFrame(given["keys"], "topic string, key string").repartition(2)

    def read(name: str, url: str, **others: str) -> Any:
        return spark.read.format(name).options(**options, **others).load(url)

    messages = read("rocketmq", store, maxPartitionBytes="65536").toArrow().to_pylist()
    found = ls.find(keys, store, storage_options=storage).collect()
    build = {"hash_slots": 128, "max_entries": 300, "zone": "UTC", "storage_options": storage}
    answers = {
        "directories": sorted(
            {row.directory for row in spark.range(0, 16, 1, 8).mapInArrow(directories, "directory string").collect()}
        ),
        "messages": sorted([row["phy_offset"], zlib.crc32(row["body"] or b"")] for row in messages),
        "topic": read("rocketmq", store, topic=given["topic"]).count(),
        "entries": read("rocketmq_index", f"{store}/index").count(),
        "found": sorted([row.query_key, row.phy_offset] for row in found),
        "candidates": ls.lookup(keys, f"{store}/index", storage_options=storage).count(),
        "records": sorted([row.topic, row.partition, row.offset] for row in read("kafka_log", logs).collect()),
        "built": ls.build_index(spark, store, f"{out}/index", **build).checked,
        "keys": ls.build_key_index(spark, logs, f"{out}/keys", storage_options=storage).checked,
    }
    answers["sealed"] = ls.seal(spark, store, f"{out}/sealed", storage_options=storage).checked
    answers["built_entries"] = read("rocketmq_index", f"{out}/index").count()
    answers["built_candidates"] = ls.lookup(keys, f"{out}/index", storage_options=storage).count()
    spark.stop()
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
