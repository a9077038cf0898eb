"""Real brokers load log directories that logdex and Spark wrote, serve every record and append, and logdex continues them."""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
import shutil
import time
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafka_broker import RELEASES, Broker
from kafka_classes import Classes
from logdex import KafkaError
from logdex.kafka import LogDir, LogDirWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from logdex._types import Isolation

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-write"
BROKER = {
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "transaction_state_log_num_partitions": 1,
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": 0,
    "log_retention_check_interval_ms": 1000,
    "log_initial_task_delay_ms": 500,
}
LEVELS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
NOW = 1_700_000_050_000
"""The clock of the golden operations."""
WAIT_SECONDS = 60


def ask(client: Classes, op: str, broker: Broker, **question: Any) -> dict[str, Any]:
    """Ask a broker as soon as it answers."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return client.ask(op, bootstrap=broker.address, **question)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def served(client: Classes, broker: Broker, topics: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the records that a consumer gets, by the level of isolation."""
    asked = {level: ask(client, "consume", broker, topics=list(topics), isolation=level) for level in LEVELS}
    return {level: sorted(map(_served_row, answer["records"])) for level, answer in asked.items()}


def wait_for_ends(client: Classes, broker: Broker, log_dir: Path, topics: Iterable[str]) -> None:
    """Wait until a broker leads all partitions, and its high watermarks are the ends of the logs in a directory."""
    with LogDir.open(log_dir) as logs:
        ends = {(log.topic, log.partition): log.log_end_offset for log in starmap(logs.log, _places(logs, topics))}
    end = time.monotonic() + WAIT_SECONDS
    while True:
        rows = ask(client, "offsets", broker, topics=list(topics))["offsets"]
        if {(row["topic"], row["partition"]): row["end"] for row in rows} == ends:
            return
        assert time.monotonic() < end, (rows, ends)
        time.sleep(0.3)


def _places(logs: LogDir, topics: Iterable[str]) -> list[tuple[str, int]]:
    return [(place.topic, place.partition) for place in logs.partitions(topics)]


def _served_row(row: dict[str, Any]) -> tuple[Any, ...]:
    data = (_bytes(row["key"]), _bytes(row["value"]), [(key, _bytes(value)) for key, value in row["headers"]])
    return row["topic"], row["partition"], row["offset"], row["timestamp"], *map(repr, data)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def read(log_dir: Path, topics: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the records that logdex reads, by the level of isolation."""
    names = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    found: dict[str, list[tuple[Any, ...]]] = {}
    with LogDir.open(log_dir) as logs:
        for level in LEVELS:
            table = pa.table(logs.records(list(topics), columns=names, isolation=level))
            times = pa.compute.cast(table.column("timestamp"), pa.int64())
            rows = table.set_column(3, "timestamp", times).to_pylist()
            found[level] = sorted(map(_read_row, rows))
    return found


def _read_row(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    key, value = repr(row["key"]), repr(row["value"])
    return row["topic"], row["partition"], row["offset"], row["timestamp"], key, value, repr(headers)


def _replay(writer: LogDirWriter, partition: int, case: str) -> None:
    """Append what producers and coordinators sent in a golden case; some of it a broker refuses."""
    for line in lzma.decompress((GOLDEN / case / "ops.jsonl.xz").read_bytes()).splitlines():
        op = json.loads(line)
        if op["op"] == "append":
            batch = base64.b64decode(op["records"])
            with contextlib.suppress(KafkaError):
                writer.append_batches("orders", partition, batch, leader_epoch=0, origin=op["origin"])


def _append(writer: LogDirWriter, partition: int, first: int, codec: str) -> None:
    rows = range(first, first + 500)
    records = {
        "key": [None if row % 11 == 0 else b"key %d" % (row % 37) for row in rows],
        "value": [None if row % 13 == 0 else b"value %d " % row * (row % 9) for row in rows],
        "headers": [[("trace", b"%d" % row), ("none", None)] if row % 5 == 0 else None for row in rows],
        "timestamp": [NOW + 10 * row for row in rows],
    }
    writer.append("orders", partition, records, codec=codec, batch_bytes=1500)


def make(log_dir: Path) -> None:
    config = {"segment.bytes": 8_000, "index.interval.bytes": 500}
    with LogDirWriter.open(log_dir, config=config, clock=lambda: NOW) as writer:
        writer.create_topic("orders", 6)
        for partition, codec in enumerate(("none", "lz4", "zstd")):
            _append(writer, partition, 0, codec)
        for partition, case in enumerate(("idempotent", "transactions-lz4", "transactions"), 3):
            _replay(writer, partition, case)
        assert len(writer.log("orders", 4).segments) > 1


def _append_as_client(client: Classes, broker: Broker) -> None:
    for number, config in enumerate(({"compression.type": "gzip"}, {"transactional.id": "shop"})):
        place = {"topic": "orders", "partitions": 5, "first": 60 * number, "count": 60, "seed": number}
        ask(client, "produce", broker, **place, config={"acks": "all", **config})


def _put_under(broker: Broker, client: Classes, made: Path, partitions: int) -> None:
    """Put the partitions of a topic into the directory of a running broker, and create the topic."""
    # A directory that comes before the broker runs is one of an unknown topic.
    ask(client, "create_topics", broker, topics={"first": {"partitions": 1, "settings": {}}})
    for directory in made.glob("orders-*"):
        shutil.copytree(directory, broker.log_dir / directory.name)
        # The broker writes it with the id of its own topic.
        (broker.log_dir / directory.name / "partition.metadata").unlink()
    topic = {"partitions": partitions, "settings": {"retention.ms": "-1"}}
    ask(client, "create_topics", broker, topics={"orders": topic})
    wait_for_ends(client, broker, made, ["orders"])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_and_continues_a_written_directory(
    release: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    made = tmp_path / "made"
    make(made)
    written = read(made, ["orders"])
    with Classes(tmp_path) as client:
        with Broker(tmp_path, release, **BROKER) as broker:
            _put_under(broker, client, made, 6)
            assert served(client, broker, ["orders"]) == written
            _append_as_client(client, broker)
            after = served(client, broker, ["orders"])
            assert len(after["read_committed"]) > len(written["read_committed"])
        assert read(broker.log_dir, ["orders"]) == after
        with LogDirWriter.open(broker.log_dir, config={"segment.bytes": 8_000}) as writer:
            for partition in range(4):
                _append(writer, partition, 500, "snappy")
        longer = read(broker.log_dir, ["orders"])
        assert len(longer["read_committed"]) == len(after["read_committed"]) + 2000
        with LogDir.open(broker.log_dir) as logs:
            assert logs.verify().ok
        with Broker(tmp_path, release, **BROKER) as broker:
            wait_for_ends(client, broker, broker.log_dir, ["orders"])
            assert served(client, broker, ["orders"]) == longer
            _append_as_client(client, broker)
    counts = {level: len(rows) for level, rows in longer.items()}
    say(
        f"{counts} records of a written directory, equal to the consumer's of a {release} broker, before and after it appended"
    )


def _save(spark: SparkSession, log_dir: Path, first: int, codec: str) -> None:
    """Append 5,000 records with Spark, by several tasks."""
    header = "struct('none', cast(null as binary))"
    frame = spark.range(first, first + 5_000, 1, 4).selectExpr(
        "if(id % 11 = 0, null, concat('key ', id % 997)) as key",
        "if(id % 13 = 0, null, repeat(concat('value ', id, ' '), cast(id % 9 as int))) as value",
        f"if(id % 5 = 0, array(struct('trace', cast(cast(id as string) as binary)), {header}), null) as headers",
        f"timestamp_millis({NOW} + 10 * id) as timestamp",
    )
    options: dict[str, Any] = {
        "topic": "orders",
        "partitions": 6,
        "kafka.compression.type": codec,
        "config.segment.bytes": 50_000,
    }
    columns = "array<struct<key:string,value:binary>>"
    frame = frame.withColumn("headers", frame.headers.cast(columns))
    frame.write.format("kafka_log").mode("append").options(**options).option("kafka.compression.type", codec).save(
        str(log_dir)
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_and_continues_what_spark_wrote(
    release: str, tmp_path: Path, spark: SparkSession, say: Callable[[str], None]
) -> None:
    made = tmp_path / "made"
    _save(spark, made, 0, "none")
    _save(spark, made, 5_000, "lz4")
    written = read(made, ["orders"])
    assert len(written["read_committed"]) == 10_000
    with Classes(tmp_path) as client:
        with Broker(tmp_path, release, **BROKER) as broker:
            _put_under(broker, client, made, 6)
            assert served(client, broker, ["orders"]) == written
            _append_as_client(client, broker)
            after = served(client, broker, ["orders"])
        # Partitions are chosen as by the broker's own producers: a key stays in its partition.
        places: dict[str, set[int]] = {}
        for _, partition, _, _, key, *_ in after["read_committed"]:
            places.setdefault(key, set()).add(partition)
        assert all(len(found) == 1 for key, found in places.items() if key.startswith("b'key "))
        _save(spark, broker.log_dir, 10_000, "zstd")
        longer = read(broker.log_dir, ["orders"])
        assert len(longer["read_committed"]) == len(after["read_committed"]) + 5_000
        with Broker(tmp_path, release, **BROKER) as broker:
            wait_for_ends(client, broker, broker.log_dir, ["orders"])
            assert served(client, broker, ["orders"]) == longer
    say(
        f"{len(longer['read_committed'])} records that Spark wrote in three jobs, equal to the consumer's of a {release} broker,"
        " before and after it appended"
    )
