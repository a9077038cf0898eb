"""Rows become records of a Kafka log directory: each once, in its partition and in order, or none."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

import golden_kafka
import object_store
from logdex import LockedError
from logdex._core import locate
from logdex.kafka import Log, LogDir, LogDirWriter, LogWriter
from logdex.spark.kafka_sink import RecordSink, record_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType([StructField(name, StringType()) for name in ("topic", "key", "value")])
# Of Kafka's own UtilsTest#testMurmur2.
HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
ORDERS = (
    "'orders' as topic",
    "if(id % 11 = 0, null, concat('key ', id % 37)) as key",
    "if(id % 13 = 0, null, concat('value ', id)) as value",
    "if(id % 5 = 0, array(struct('trace', cast(id as string)), struct('none', cast(null as string))), null) as headers",
    "timestamp_millis(1700000000000 + id) as timestamp",
)
WHOLE = "array<struct<key:string,value:binary>>"


def orders(spark: SparkSession, rows: int, tasks: int = 4) -> DataFrame:
    return spark.range(0, rows, 1, tasks).selectExpr(*ORDERS).withColumn("headers", sf.col("headers").cast(WHOLE))


def save(frame: DataFrame, target: object, **options: Any) -> None:
    given = {name.replace("__", "."): value for name, value in options.items()}
    frame.write.format("kafka_log").mode("append").options(**given).save(str(target))


def rows_of(log_dir: Path, *topics: str, columns: str = "partition,offset,timestamp,key,value,headers") -> list[Any]:
    with LogDir.open(log_dir) as logs:
        table = pa.table(logs.records(list(topics) or None, columns=columns.split(",")))
    rows: list[Any] = table.to_pylist()
    return rows


def values(log_dir: Path, *topics: str) -> list[bytes | None]:
    return [row["value"] for row in rows_of(log_dir, *topics)]


def ends(log_dir: Path) -> dict[str, int]:
    with LogDir.open(log_dir) as logs:
        assert logs.verify().ok
        return {str(each): logs.log(each.topic, each.partition).log_end_offset for each in logs.partitions()}


def leftovers(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(".logdex-*"))


def names(url: str, server: object_store.ObjectStore) -> list[str]:
    """Return the names of all objects below a URL."""
    root = locate(url, server.options)
    found: list[Path] = []
    waiting = [root] if root.exists() else []
    while waiting:
        for path in waiting.pop().iterdir():
            (waiting if path.is_dir() else found).append(path)
    return sorted(str(path).removeprefix(f"{root}/") for path in found)


def begun(target: object, **options: str) -> RecordSink:
    return record_sink(CaseInsensitiveDict({"path": str(target), **options}), SCHEMA, overwrite=False)


def written(sink: RecordSink, *values: str, topic: str = "orders") -> WriterCommitMessage:
    columns = {"topic": [topic] * len(values), "key": list(values), "value": list(values)}
    return sink.write(iter([pa.RecordBatch.from_pydict(columns)]))


def put(target: Path, *values: str, **options: str) -> None:
    sink = begun(target, **options)
    sink.commit([written(sink, *values)])


def test_rows_are_read_back_in_order(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark, 20_000)
    expected = {row["timestamp"]: row for row in frame.toArrow().to_pylist()}
    for count, codec in enumerate(("none", "zstd"), 1):
        options = {"partitions": 3, "kafka__compression__type": codec, "config__segment__bytes": 100_000}
        save(frame, tmp_path / "logs", **options)
        found = rows_of(tmp_path / "logs")
        assert Counter(row["timestamp"] for row in found) == dict.fromkeys(expected, count)
        for partition in range(3):
            own = sorted((row for row in found if row["partition"] == partition), key=lambda row: row["offset"])
            assert [row["offset"] for row in own] == list(range(len(own)))
            keyed = [row["timestamp"] for row in own if row["key"] is not None]
            assert keyed == sorted(keyed[: len(keyed) // count]) * count
        for row in found:
            wanted = expected[row["timestamp"]]
            text = {name: None if wanted[name] is None else wanted[name].encode() for name in ("key", "value")}
            assert {name: row[name] for name in text} == text
            assert (row["headers"] or None) == (wanted["headers"] or None)
    with LogDir.open(tmp_path / "logs") as logs:
        assert len(logs.log("orders", 1).segments) > 2
    assert sum(ends(tmp_path / "logs").values()) == 40_000
    assert leftovers(tmp_path / "logs") == []


def test_keys_choose_the_partitions_of_java_producers(spark: SparkSession, tmp_path: Path) -> None:
    keys = spark.createDataFrame([(key,) for key in HASHES], "value string").selectExpr("value as key", "value")
    save(keys, tmp_path / "logs", topic="orders", partitions=7)
    found = {row["key"].decode(): row["partition"] for row in rows_of(tmp_path / "logs")}
    assert found == {key: (number & 0x7FFF_FFFF) % 7 for key, number in HASHES.items()}
    # All partitions of the topic are there.
    assert len(ends(tmp_path / "logs")) == 7


def test_rows_name_their_partitions(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 3_000, 1, 3).selectExpr(
        "concat('t', id % 2) as topic", "cast(id % 5 as int) as partition", "'k' as key", "cast(id as string) as value"
    )
    save(frame, tmp_path / "logs")
    found = rows_of(tmp_path / "logs", columns="topic,partition,value")
    assert sorted((int(row["value"]), row["topic"], row["partition"]) for row in found) == [
        (number, f"t{number % 2}", number % 5) for number in range(3_000)
    ]
    # Both topics exist with partitions 0 to 4.
    for wrong in ("5", "-1"):
        with pytest.raises(Exception, match=f"row 0: topic t0, partition {wrong}: expected one of the 5"):
            save(frame.selectExpr("topic", f"cast({wrong} as int) as partition", "value"), tmp_path / "logs")
    with pytest.raises(Exception, match="topic new, partition 2: expected 0 to 1"):
        save(frame.selectExpr("2 as partition", "value"), tmp_path / "logs", topic="new", partitions=2)
    assert sum(ends(tmp_path / "logs").values()) == 3_000
    assert leftovers(tmp_path / "logs") == []


def test_rows_without_keys_fill_one_batch_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 9_000, 1, 1).selectExpr("cast(id as string) as value")
    save(frame, tmp_path / "logs", topic="t", partitions=3, kafka__batch__size=2_000)
    found = sorted(rows_of(tmp_path / "logs"), key=lambda row: int(row["value"]))
    partitions = [row["partition"] for row in found]
    changes = [at for at in range(1, 9_000) if partitions[at] != partitions[at - 1]]
    runs = [end - begin for begin, end in zip([0, *changes], [*changes, 9_000], strict=True)]
    assert min(runs[:-1]) > 100
    assert {partitions.count(number) // 1_000 for number in range(3)} <= {2, 3}


def test_a_directory_of_a_broker_is_continued(spark: SparkSession, tmp_path: Path) -> None:
    """Old records stay; those of the new rows follow, in the partitions that are there."""
    log_dir = golden_kafka.unpack("transactions", tmp_path)
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    before, old = ends(log_dir), rows_of(log_dir, "tx-two")
    frame = spark.range(0, 300, 1, 2).selectExpr("concat('k', id) as key", "concat('new ', id) as value")
    save(frame, log_dir, topic="tx-two")
    after = ends(log_dir)
    assert sum(after.values()) == sum(before.values()) + 300
    found = rows_of(log_dir, "tx-two")
    assert [row for row in found if not (row["value"] or b"").startswith(b"new ")] == old
    assert all(row["offset"] >= before[f"tx-two-{row['partition']}"] for row in found if row not in old)


def raising(where: Callable[[TaskContext], bool]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that fails after some rows in some attempts of tasks."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for batch in batches:
            yield batch
            if context is not None and where(context):
                raise RuntimeError("this attempt fails")

    return rows


def test_attempts_that_fail_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flaky = raising(lambda context: context.attemptNumber() == 0)
    failing = raising(lambda context: context.partitionId() == 1)
    frame = orders(spark, 50_000)
    save(frame.mapInArrow(flaky, frame.schema), tmp_path / "logs", partitions=2)
    assert sum(ends(tmp_path / "logs").values()) == 50_000
    assert len({row["timestamp"] for row in rows_of(tmp_path / "logs")}) == 50_000
    assert leftovers(tmp_path / "logs") == []
    for target in ("logs", "new"):
        with pytest.raises(Exception, match="this attempt fails"):
            save(frame.mapInArrow(failing, frame.schema), tmp_path / target, partitions=2)
    assert sum(ends(tmp_path / "logs").values()) == 50_000
    assert leftovers(tmp_path / "logs") == []
    assert not (tmp_path / "new").exists()


def test_an_attempt_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    sink = begun(tmp_path / "logs", partitions="1")
    sink.commit([written(sink, "a"), WriterCommitMessage(), None])
    with pytest.raises(FileNotFoundError, match="the job has ended"):
        written(sink, "b")
    assert values(tmp_path / "logs") == [b"a"]
    assert leftovers(tmp_path / "logs") == []


def test_no_rows_make_a_directory_without_topics(spark: SparkSession, tmp_path: Path) -> None:
    save(orders(spark, 0), tmp_path / "logs", partitions=2)
    assert ends(tmp_path / "logs") == {}
    assert {"meta.properties", ".kafka_cleanshutdown"} <= {path.name for path in (tmp_path / "logs").iterdir()}


def test_a_commit_that_fails_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = tmp_path / "logs"
    put(log_dir, "a", "b", "c", partitions="2")
    before = ends(log_dir)
    sink = begun(log_dir, partitions="2")
    message: list[WriterCommitMessage | None] = [written(sink, *map(str, range(100))), written(sink, "x", topic="new")]

    def fail(_: LogDirWriter) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(LogDirWriter, "checkpoint", fail)
        with pytest.raises(OSError, match="no space"):
            sink.commit(message)
    # The writer that undoes it fails as well: the file of the job stays.
    assert len(leftovers(log_dir)) == 3
    sink.abort(message)
    assert len(leftovers(log_dir)) == 1
    put(log_dir, "d", interruptedCommit="undo", partitions="2")
    assert sorted(values(log_dir), key=str) == [b"a", b"b", b"c", b"d"]

    sink = begun(log_dir, partitions="2")
    message = [written(sink, *map(str, range(100))), written(sink, "x", topic="new")]
    calls: list[object] = []

    def fail_once(log: LogDirWriter) -> None:
        calls.append(log)
        if len(calls) == 1:
            raise OSError(28, "no space")
        whole(log)

    whole = LogDirWriter.checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(LogDirWriter, "checkpoint", fail_once)
        with pytest.raises(OSError, match="no space"):
            sink.commit(message)
    sink.abort(message)
    assert sorted(values(log_dir), key=str) == [b"a", b"b", b"c", b"d"]
    assert ends(log_dir).keys() == before.keys()
    assert leftovers(log_dir) == []


KILLED = """
import os, sys
from test_kafka_sink import begun, written
from logdex.spark import kafka_sink

sink = begun(sys.argv[1], partitions="2")
messages = [written(sink, *map(str, range(100))), written(sink, "x", topic="new")]
kafka_sink.LogDirWriter.close = lambda _: os._exit(9)
sink.commit(messages)
"""


def killed(log_dir: Path) -> None:
    path = [str(Path(__file__).parent), *sys.path]
    program = [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{KILLED}", str(log_dir)]
    assert subprocess.run(program, cwd=str(log_dir.parent), check=False).returncode == 9


def test_a_killed_commit_does_not_double_rows(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    put(log_dir, "a", "b", "c", partitions="2")
    before = ends(log_dir)
    killed(log_dir)
    assert len(values(log_dir)) == 104
    with pytest.raises(
        ValueError, match=r"interrupted, its rows may be in new-0 from offset 0 to 1.* and 1 more; .*=undo"
    ):
        begun(log_dir)
    assert len(values(log_dir)) == 104
    put(log_dir, "d", interruptedCommit="undo")
    assert sorted(values(log_dir), key=str) == [b"a", b"b", b"c", b"d"]
    assert ends(log_dir).keys() == before.keys()
    # Files of the attempts of the killed job are no log; only the job could remove them.
    assert len(leftovers(log_dir)) == 2


def test_undo_keeps_what_others_appended(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    put(log_dir, "a", partitions="2")
    killed(log_dir)
    with LogDirWriter.open(log_dir) as writer:
        writer.append("orders", 1, {"value": [b"later"]})
    (job,) = log_dir.glob(".logdex-*.commit")
    end = json.loads(job.read_bytes())["orders-1"][1]
    with pytest.raises(ValueError, match=f"expected an end of at most {end}, found {end + 1}"):
        begun(log_dir, interruptedCommit="undo")
    assert len(values(log_dir)) == 103
    # The user decides to keep the rows.
    job.unlink()
    put(log_dir, "d")
    assert len(values(log_dir)) == 104


def test_a_locked_directory_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    put(log_dir, "a", partitions="1")
    sink = begun(log_dir)
    message = written(sink, "b")
    with LogDirWriter.open(log_dir):
        with pytest.raises(Exception, match=r"\.lock"):
            save(orders(spark, 10), log_dir)
        with pytest.raises(LockedError):
            sink.commit([message])
        sink.abort([message])
    assert values(log_dir) == [b"a"]
    assert leftovers(log_dir) == []


def test_a_topic_that_another_job_created_is_refused(tmp_path: Path) -> None:
    sink = begun(tmp_path / "logs", partitions="2")
    message = written(sink, "a")
    put(tmp_path / "logs", "b", partitions="3")
    with pytest.raises(ValueError, match="topic orders was created or deleted while the job ran"):
        sink.commit([message])
    sink.abort([message])
    assert values(tmp_path / "logs") == [b"b"]


def test_a_file_of_batches_that_changed_is_refused(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    for end in (b"", b"?"):
        sink = begun(log_dir, partitions="1")
        message: Any = written(sink, "a", "b")
        message.file.write_bytes(message.file.read_bytes()[:-1] + end)
        with pytest.raises(Exception, match=r"expected .*, found"):
            sink.commit([message])
        sink.abort([message])
        assert ends(log_dir) == {}


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("'t' as topic", {}, "needs the columns value, topic; missing value"),
        ("'v' as value", {}, "needs the columns value, topic; missing topic"),
        ("'v' as value; 1 as body", {"topic": "t"}, "no record columns: body; there are topic, partition"),
        ("1 as value", {"topic": "t"}, "column value: expected binary or string, found int"),
        ("'v' as value; 1L as partition", {"topic": "t"}, "column partition: expected int, found bigint"),
        ("'v' as value; 'now' as timestamp", {"topic": "t"}, "column timestamp: expected timestamp, found string"),
        ("'v' as value; array('h') as headers", {"topic": "t"}, "column headers: expected array<struct<key:string"),
        ("'v' as value", {"topic": "t", "partition": 3}, "has no option partition; it has"),
        ("'v' as value", {"topic": "t", "partitions": 0}, "option partitions: 0 is not above 0"),
        ("'v' as value", {"topic": "t t", "partitions": 1}, 'topic "t t": expected 1 to 249 letters'),
        ("'v' as value", {"topic": "t", "config.segment.byte": 1}, 'found "segment.byte"'),
        ("'v' as value", {"topic": "t", "kafka.compression.type": "lzma"}, 'codec="lzma": expected "none"'),
        ("'v' as value", {"topic": "t", "kafka.partitioner.class": "x"}, "kafka.partitioner.class: expected a column"),
        ("'v' as value", {"topic": "t", "compat": "x"}, 'compat="x": expected'),
    ],
)
def test_invalid_columns_and_options_are_refused_before_any_task(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, Any], text: str
) -> None:
    frame = spark.range(10).withColumn("id", sf.assert_true(sf.lit(False))).selectExpr(*split(columns))
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        frame.write.format("kafka_log").mode("append").options(**options).save(str(tmp_path / "logs"))
    assert text in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def split(columns: str) -> list[str]:
    return columns.split("; ")


def test_a_directory_of_something_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(Exception, match="expected a Kafka log directory or an empty one, found letters"):
        save(orders(spark, 10), tmp_path)
    put(tmp_path / "logs", "a", partitions="1")
    with pytest.raises(Exception, match=r'appends: use mode\("append"\)'):
        orders(spark, 10).write.format("kafka_log").mode("overwrite").save(str(tmp_path / "logs"))
    assert values(tmp_path / "logs") == [b"a"]


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("cast(null as string) as topic; 'v' as value", {"partitions": 1}, "topic: row 0 is null"),
        ("'a/b' as topic; 'v' as value", {"partitions": 1}, 'topic "a/b": expected 1 to 249 letters'),
        ("'t' as topic; 'v' as value", {}, "topic t: expected a partition for each row, found none; it is new"),
        ("'t' as topic; 'v' as value", {"partitions": 1, "config.cleanup.policy": "compact"}, "or no key"),
        ("'t' as topic; repeat('v', 200) as value", {"partitions": 1, "config.max.message.bytes": 100}, "at most 100"),
    ],
)
def test_rows_that_are_no_records_leave_nothing(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, Any], text: str
) -> None:
    frame = spark.range(1).selectExpr(*split(columns))
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        frame.write.format("kafka_log").mode("append").options(**options).save(str(tmp_path / "logs"))
    assert text in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_topic_with_holes_takes_only_rows_with_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """The directory of a broker has only its replicas."""
    with LogDirWriter.open(tmp_path / "logs") as writer:
        for number in (0, 2):
            writer.append("t", number, {"value": [b"old"]})
    frame = spark.range(1).selectExpr("'k' as key", "'new' as value")
    with pytest.raises(Exception, match="not all of its partitions are here"):
        save(frame, tmp_path / "logs", topic="t")
    save(frame.selectExpr("*", "2 as partition"), tmp_path / "logs", topic="t")
    assert ends(tmp_path / "logs") == {"t-0": 1, "t-2": 2}


def test_settings_of_the_topic_count(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark, 100, 1)
    save(frame, tmp_path / "logs", partitions=1, config__message__timestamp__type="LogAppendTime", compat="4.3.1")
    assert {row["timestamp"].year for row in rows_of(tmp_path / "logs")} != {2023}
    with Log.open(tmp_path / "logs" / "orders-0") as log:
        assert {row["timestampType"] for row in pa.table(log.records(columns=["timestampType"])).to_pylist()} == {1}


def test_a_new_directory_in_an_object_store(
    spark: SparkSession, server: object_store.ObjectStore, tmp_path: Path
) -> None:
    url = f"s3://{object_store.BUCKET}/kafka-sink/logs"
    storage = {f"storage.{name}": value for name, value in server.options.items()}
    frame = orders(spark, 20_000)
    options: dict[str, Any] = {**storage, "partitions": 3, "config.segment.bytes": 100_000}
    flaky = raising(lambda context: context.attemptNumber() == 0)
    failing = raising(lambda context: context.partitionId() == 1)
    frame.mapInArrow(flaky, frame.schema).write.format("kafka_log").mode("append").options(**options).save(url)
    save(frame, tmp_path / "logs", partitions=3)
    found = names(url, server)
    assert not [name for name in found if "_jobs" in name]
    assert {".kafka_cleanshutdown", "meta.properties", "recovery-point-offset-checkpoint"} <= set(found)
    read = spark.read.format("kafka_log").options(includeHeaders="true", **storage).load(url)
    here = spark.read.format("kafka_log").options(includeHeaders="true").load(str(tmp_path / "logs"))
    assert read.count() == 20_000
    assert read.exceptAll(here).count() == 0
    with pytest.raises(Exception, match="nothing can be appended to the objects of a log directory"):
        frame.write.format("kafka_log").mode("append").options(**options).save(url)
    other = f"s3://{object_store.BUCKET}/kafka-sink/other"
    with pytest.raises(Exception, match="this attempt fails"):
        frame.mapInArrow(failing, frame.schema).write.format("kafka_log").mode("append").options(**options).save(other)
    # Another task may still have been writing when the job was aborted; it deletes its object by itself.
    until = time.monotonic() + 20
    while names(other, server) and time.monotonic() < until:
        time.sleep(0.1)
    assert names(other, server) == []


def test_an_attempt_that_outlives_its_job_leaves_no_object(server: object_store.ObjectStore) -> None:
    url = f"s3://{object_store.BUCKET}/kafka-sink/outlived"
    sink = begun(url, partitions="1", **{f"storage.{name}": value for name, value in server.options.items()})
    sink.abort([])
    with pytest.raises(FileNotFoundError, match="the job has ended"):
        written(sink, "a")
    assert names(url, server) == []


def test_a_commit_in_an_object_store_that_fails_is_undone(
    server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{object_store.BUCKET}/kafka-sink/undone"
    storage = {f"storage.{name}": value for name, value in server.options.items()}
    first, second = (begun(url, partitions="2", **storage) for _ in range(2))
    messages: list[list[WriterCommitMessage | None]] = [[written(sink, "a", "b")] for sink in (first, second)]

    def fail(_: LogDirWriter) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(LogDirWriter, "checkpoint", fail)
        with pytest.raises(OSError, match="no space"):
            first.commit(messages[0])
    assert {name.partition("/")[0] for name in names(url, server)} == {"_jobs"}
    second.commit(messages[1])
    before = names(url, server)
    with pytest.raises(FileExistsError):
        first.commit(messages[0])
    first.abort([])
    assert [name for name in before if not name.startswith("_jobs")] == names(url, server)


def test_a_writer_takes_chunks_in_order(tmp_path: Path) -> None:
    """`append_chunks` gives offsets from the end of the log on, and rolls segments between batches."""
    sink = begun(tmp_path / "logs", partitions="1", **{"kafka.batch.size": "100", "config.segment.bytes": "500"})
    messages: list[Any] = [written(sink, *(f"{task}-{row:03}" for row in range(50))) for task in range(3)]
    with LogWriter.open(tmp_path / "t-0", config={"segment.bytes": 500}) as log:
        for message in reversed(messages):
            ((_, _, chunks),) = message.spooled
            result = log.append_chunks([(message.file, *chunk) for chunk in chunks])
            assert result.last_offset - result.first_offset == 49
        assert log.end_offset == log.high_watermark == 150
        assert len(log.segments) > 5
        assert log.append_chunks([]).first_offset == -1
    found = [row["value"].decode() for row in pa.table(Log.open(tmp_path / "t-0").records()).to_pylist()]
    assert found == [f"{task}-{row:03}" for task in (2, 1, 0) for row in range(50)]
    sink.abort([])
