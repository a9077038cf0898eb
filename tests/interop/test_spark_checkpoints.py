"""A checkpoint of a streaming query moves between Spark's own Kafka source and `kafka_log`, and back: every row once.

A real broker runs all the time and takes records between the runs. `kafka_log` reads the files that it is writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 4_000
"""Records of each topic before each run."""
TOPICS = ("orders", "payments")
RUNS = 4
PARTITIONS = 3
BATCH = 3_000
"""Rows of a batch: each run has several."""
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    home = tmp_path_factory.mktemp("broker")
    with Broker(home, num_partitions=PARTITIONS, log_segment_bytes=60_000, log_index_interval_bytes=500) as running:
        yield running


def _produce(spark: SparkSession, broker: Broker, run: int) -> None:
    for topic, codec in zip(TOPICS, ("none", "zstd"), strict=True):
        (
            spark.range(run * ROWS, (run + 1) * ROWS, numPartitions=2)
            .selectExpr("cast(id % 97 as string) AS key", "concat('value ', id) AS value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", broker.address)
            .option("kafka.compression.type", codec)
            .option("kafka.linger.ms", "5")
            .option("topic", topic)
            .save()
        )


def _with_kafka(reader: Any, broker: Broker) -> DataFrame:
    frame: DataFrame = (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", ",".join(TOPICS))
        .option("startingOffsets", "earliest")
        .load()
    )
    return frame


def _with_kafka_log(reader: Any, broker: Broker) -> DataFrame:
    frame: DataFrame = (
        reader.format("kafka_log")
        .option("subscribe", ",".join(TOPICS))
        .option("startingOffsets", "earliest")
        .load(str(broker.log_dir))
    )
    return frame


@pytest.mark.timeout(300)
def test_a_checkpoint_moves_to_the_files_and_back(
    spark: SparkSession, broker: Broker, tmp_path: Path, say: Callable[[str], None]
) -> None:
    sources = (_with_kafka, _with_kafka_log)
    # Two queries over the same records: each begins with another source, and changes it at every run.
    for run in range(RUNS):
        _produce(spark, broker, run)
        for first in (0, 1):
            query = (
                sources[(first + run) % 2](spark.readStream.option("maxOffsetsPerTrigger", str(BATCH)), broker)
                .select(*COLUMNS)
                .writeStream.format("parquet")
                .option("path", str(tmp_path / f"rows-{first}"))
                .option("checkpointLocation", str(tmp_path / f"checkpoint-{first}"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)
            assert query.exception() is None
    expected = _with_kafka(spark.read, broker).select(*COLUMNS)
    rows = expected.count()
    assert rows == len(TOPICS) * RUNS * ROWS
    assert sum(1 for _ in broker.log_dir.glob("*-*/*.log")) > len(TOPICS) * PARTITIONS
    for first in (0, 1):
        read = spark.read.parquet(str(tmp_path / f"rows-{first}"))
        assert read.count() == rows
        assert read.exceptAll(expected).count() == 0
    assert _with_kafka_log(spark.read, broker).select(*COLUMNS).exceptAll(expected).count() == 0
    say(f"checkpoints moved between Spark's Kafka source and kafka_log {RUNS - 1} times: {rows} rows, each once")
