"""Streaming over Kafka logs: batches within their limit, and nothing that is gone is passed over in silence."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from pyspark.sql.datasource import CaseInsensitiveDict

import golden_kafka
from kafka_batches import TRANSACTIONAL, Row, batch, write_segment
from logdex.errors import DamageWarning, LogdexError
from logdex.spark.kafka_source import KafkaLogSource
from opened import LISTED, Opened

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from logdex.spark.kafka_source import RecordStreamReader

TOPIC = "cod-none"
ENDS = {TOPIC: {"0": 64, "1": 76}}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return golden_kafka.unpack("codecs", tmp_path / "logs")


def _reader(root: Path, **options: str) -> RecordStreamReader:
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(root), "subscribe": TOPIC, **options}))
    reader: Any = source.streamReader(source.schema())
    return reader  # type: ignore[no-any-return]


def _offsets(reader: RecordStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    parts = reader.partitions(start, end)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


def _drop(root: Path, segments: slice) -> None:
    """Delete segments of partition 0."""
    for log in sorted((root / f"{TOPIC}-0").glob("*.log"))[segments]:
        for file in log.parent.glob(f"{log.stem}.*"):
            file.unlink()


def test_a_trigger_opens_a_partition_once_and_not_if_nothing_changed(logs: Path) -> None:
    reader = _reader(logs, startingOffsets="earliest")
    start = reader.initialOffset()
    folder = logs / f"{TOPIC}-0"
    with Opened(folder) as opened:
        end = reader.latestOffset(start)
        assert reader.partitions(start, end)
    # To see that it is a partition, to open it, and for the offsets and tasks.
    assert 1 <= opened.counts[LISTED] <= 3
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))
    assert reader.latestOffset(end) == end
    with Opened(folder) as opened:
        assert reader.latestOffset(end) == end
        assert reader.partitions(end, end) == []
    assert opened.counts[LISTED] <= 1
    assert not any(name.endswith((".log", "index")) for name in opened.counts)


def test_available_now_reads_batches_within_their_limit(spark: SparkSession, tmp_path: Path, logs: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="admission control came with pyspark 4.2")
    stream = spark.readStream.format("kafka_log").options(subscribe=TOPIC, maxOffsetsPerTrigger="50")
    query = (
        stream.load(str(logs))
        .select("partition", "offset")
        .writeStream.format("memory")
        .queryName("limited")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert len(sizes) >= 3
    assert max(sizes) <= 50
    read = sorted((row.partition, row.offset) for row in spark.table("limited").collect())
    assert read == [(part, offset) for part in (0, 1) for offset in range(ENDS[TOPIC][str(part)])]


def test_available_now_ends_where_the_logs_ended(logs: Path) -> None:
    last = max((logs / f"{TOPIC}-0").glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(b"")
    reader = _reader(logs)
    reader.prepareForTriggerAvailableNow()
    last.write_bytes(content)
    assert reader.latestOffset(reader.initialOffset()) == {TOPIC: {"0": int(last.stem), "1": 76}}


def test_a_new_partition_is_limited_from_its_start(logs: Path) -> None:
    _drop(logs, slice(0, 2))
    reader = _reader(logs, maxOffsetsPerTrigger="10")
    start = {TOPIC: {"1": 76}}
    end = reader.latestOffset(start)
    assert end == {TOPIC: {"0": 34, "1": 76}}
    assert _offsets(reader, start, end) == [(0, offset) for offset in range(24, 34)]


def test_a_pattern_is_resolved_at_each_batch(logs: Path) -> None:
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(logs), "topic": f"{TOPIC[:5]}*"}))
    reader: Any = source.streamReader(source.schema())
    ends = {topic: ends for topic, ends in ENDS.items() if topic.startswith(TOPIC[:5])}
    start = reader.initialOffset()
    assert reader.latestOffset(start) == ends
    (logs / f"{TOPIC}-1").rename(logs / f"{TOPIC[:5]}ew-0")
    shutil.copytree(logs / f"{TOPIC[:5]}ew-0", logs / f"{TOPIC}-1")
    assert reader.latestOffset(start) == {**ends, f"{TOPIC[:5]}ew": {"0": ends[TOPIC]["1"]}}


def test_records_deleted_unread_are_a_loss(logs: Path) -> None:
    _drop(logs, slice(0, 2))
    start: dict[str, Any] = {TOPIC: {"0": 10, "1": 70}}
    with pytest.raises(LogdexError, match="records from offset 10 to 24 are gone"):
        _reader(logs).partitions(start, ENDS)
    with pytest.warns(DamageWarning, match="are gone"):
        found = _offsets(_reader(logs, failOnDataLoss="false"), start, ENDS)
    assert found == [*((0, offset) for offset in range(24, 64)), *((1, offset) for offset in range(70, 76))]
    # What was read before may go.
    read = {TOPIC: {"0": 24, "1": 70}}
    assert len(_offsets(_reader(logs), read, ENDS)) == 46


def test_a_log_that_was_cut_off_is_a_loss_and_not_read_twice(logs: Path) -> None:
    _drop(logs, slice(-1, None))
    with pytest.raises(LogdexError, match="ends at offset 61, and was read up to 64"):
        _reader(logs).latestOffset(ENDS)
    with pytest.raises(LogdexError, match="ends at offset 61, not at 64"):
        _reader(logs).partitions({TOPIC: {"0": 50, "1": 76}}, ENDS)
    # Where it goes on all the same, offsets never go back: what grows again below them is not read once more.
    with pytest.warns(DamageWarning):
        assert _reader(logs, failOnDataLoss="false").latestOffset(ENDS) == ENDS


def test_a_partition_that_is_gone_is_a_loss(logs: Path) -> None:
    shutil.rmtree(logs / f"{TOPIC}-0")
    with pytest.raises(LogdexError, match="cod-none-0 is gone, it was read up to offset 64"):
        _reader(logs).latestOffset(ENDS)
    with pytest.raises(LogdexError, match="cod-none-0 is gone, with the records up to offset 64"):
        _reader(logs).partitions({TOPIC: {"0": 60, "1": 76}}, ENDS)
    with pytest.warns(DamageWarning):
        assert _reader(logs, failOnDataLoss="false").latestOffset(ENDS) == ENDS


def test_the_latest_committed_offset_is_before_an_open_transaction(tmp_path: Path) -> None:
    """As for a read-committed consumer: a stream that begins there gets what is committed later."""
    logs = tmp_path / "logs"
    open_since = batch([Row(1)], attributes=TRANSACTIONAL, producer=7)
    write_segment(logs / f"{TOPIC}-0", 0, batch([Row(0)]), open_since, batch([Row(2)]))
    for isolation, start in (("read_committed", 1), ("read_uncommitted", 3)):
        reader = _reader(logs, startingOffsets="latest", isolation=isolation)
        assert reader.initialOffset() == {TOPIC: {"0": start}}
        assert reader.latestOffset(reader.initialOffset()) == {TOPIC: {"0": start}}


def test_tasks_are_no_fewer_than_asked_for(logs: Path) -> None:
    start = {TOPIC: {"0": 0, "1": 0}}
    assert len(_reader(logs).partitions(start, ENDS)) == 1
    assert len(_reader(logs, minPartitions="7").partitions(start, ENDS)) >= 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: 0 is not above 0"),
        ({"minPartitions": "-1"}, "minPartitions: -1 is not above 0"),
        ({"endingOffsets": "latest"}, "endingOffsets: a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp: a stream has no end"),
        ({"failOnDataLoss": "perhaps"}, "not one of true, false"),
        ({"startingOffsets": '{"cod-none": {"0": 5, "9": 5}}'}, "cod-none-9, which is not read"),
    ],
)
def test_wrong_options_are_refused(logs: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _reader(logs, **options).initialOffset()


def test_a_checkpoint_moves_between_sparks_own_source_and_this_one(
    spark: SparkSession, tmp_path: Path, logs: Path
) -> None:
    """The line of a source in `offsets/<n>` is the same JSON, and Spark's own source finds what it wrote in `sources/0/0`."""
    checkpoint, target = tmp_path / "checkpoint", tmp_path / "rows"
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "offsets").mkdir()
    (checkpoint / "commits").mkdir()
    # As Spark's own source leaves them after its first batch. The second one was planned, and not written.
    start, first, second = (f'{{"cod-none":{{"0":{zero},"1":{one}}}}}' for zero, one in ((0, 0), (20, 30), (40, 50)))
    (checkpoint / "metadata").write_text('{"id":"8c2d8b8e-7c43-4f4b-9e53-0a3f6a1f0c11"}')
    (checkpoint / "sources" / "0" / "0").write_text(f"0v1\n{start}")
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n'
    (checkpoint / "offsets" / "0").write_text(head + first)
    (checkpoint / "offsets" / "1").write_text(head + second)
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    query = (
        spark.readStream.format("kafka_log")
        .option("subscribe", TOPIC)
        .load(str(logs))
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(target))
    )
    assert query.awaitTermination(120)
    # The target's own log lacks the batch before.
    rows = [row for path in target.glob("*.parquet") for row in parquet.read_table(path).to_pylist()]
    read = sorted((row["partition"], row["offset"]) for row in rows)
    # The offsets of a checkpoint are where the batch ends.
    assert read == [*((0, offset) for offset in range(20, 64)), *((1, offset) for offset in range(30, 76))]
    last = max(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    line = last.read_text().splitlines()[-1]
    assert json.loads(line) == ENDS
    assert (checkpoint / "sources" / "0" / "0").read_text() == f"0v1\n{start}"
