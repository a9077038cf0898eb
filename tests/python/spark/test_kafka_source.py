"""Format `kafka_log`: what Spark reads is what a consumer got, however it is cut and filtered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import golden_kafka
import kafka_records as records
from logdex import spark as ls
from logdex.kafka import LogDir, build_key_index
from logdex.spark.kafka_source import KafkaLogSource
from logdex.spark.schema import RECORD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SPARKS_OWN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.fixture(scope="session")
def kafka_case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the unpacked log directory of a case, one copy for all tests: nobody may change it."""
    unpacked: dict[str, Path] = {}

    def unpack(case: str) -> Path:
        if case not in unpacked:
            unpacked[case] = golden_kafka.unpack(case, tmp_path_factory.mktemp(case))
        return unpacked[case]

    return unpack


def _load(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    return spark.read.format("kafka_log").options(**options).load(str(root))


def _rows(frame: DataFrame) -> list[tuple[str, int, records.Row]]:
    """Return all rows by topic, partition and offset, times as milliseconds."""
    table: pa.Table = frame.toArrow()
    at = table.column_names.index("timestamp")
    times = table.column(at).cast(pa.timestamp("ms", tz="UTC"))
    table = table.set_column(at, "timestamp", times)
    names = zip(table.column("topic").to_pylist(), table.column("partition").to_pylist(), strict=True)
    rows = records.rows(table.to_batches())
    return sorted((topic, partition, row) for (topic, partition), row in zip(names, rows, strict=True))


def _expected(case: str, **wanted: Any) -> list[tuple[str, int, records.Row]]:
    return sorted(
        (row["topic"], row["partition"], records.golden_row(row))
        for row in golden_kafka.rows(case, "records")
        if all(row[name] == value for name, value in wanted.items())
    )


def _topics(case: str) -> str:
    return ",".join(sorted({row["topic"] for row in golden_kafka.rows(case, "records")}))


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_read_equals_what_a_consumer_got(spark: SparkSession, kafka_case: Callable[[str], Path], case: str) -> None:
    frame = _load(spark, kafka_case(case), subscribe=_topics(case), includeHeaders="true", maxPartitionBytes="3000")
    assert frame.columns == [*SPARKS_OWN, "headers"] == list(RECORD_COLUMNS)
    assert _rows(frame) == _expected(case)


def test_columns_are_those_of_sparks_own_source(spark: SparkSession, kafka_case: Callable[[str], Path]) -> None:
    root = kafka_case("codecs")
    frame = _load(spark, root)
    assert frame.columns == SPARKS_OWN
    assert dict(frame.dtypes) == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    headers = dict(_load(spark, root, includeHeaders="true").dtypes)["headers"]
    assert headers == "array<struct<key:string,value:binary>>"
    assert _load(spark, root, columns="offset, key").columns == ["offset", "key"]


def test_committed_records_only(spark: SparkSession, kafka_case: Callable[[str], Path]) -> None:
    frame = _load(
        spark,
        kafka_case("transactions"),
        subscribe=_topics("transactions"),
        includeHeaders="true",
        **{"kafka.isolation.level": "read_committed"},
    )
    expected = _expected("transactions", readCommitted=True)
    assert len(expected) < len(_expected("transactions"))
    assert _rows(frame) == expected


def test_offsets_choose(spark: SparkSession, kafka_case: Callable[[str], Path]) -> None:
    root = kafka_case("codecs")
    offsets = {"startingOffsets": '{"cod-none": {"0": 10, "1": -2}}', "endingOffsets": '{"cod-none": {"0": 20}}'}
    found = _load(spark, root, topic="cod-none", **offsets).select("partition", "offset").collect()
    expected = [
        (p, row[0])
        for _, p, row in _expected("codecs", topic="cod-none")
        if p == 1 or 10 <= row[0] < 20
    ]  # fmt: skip
    assert sorted((row.partition, row.offset) for row in found) == expected
    times = sorted(row[1] for _, _, row in _expected("codecs", topic="cod-none", partition=0))
    begin, end = times[len(times) // 4], times[len(times) // 2]
    with LogDir.open(root) as logs:
        log = logs.log("cod-none", 0)
        first, last = log.offset_for_timestamp(begin), log.offset_for_timestamp(end)
        assert first is not None
        assert last is not None
    bounds = {"assign": '{"cod-none": [0]}', "startingTimestamp": str(begin), "endingTimestamp": str(end)}
    by_time = [row.offset for row in _load(spark, root, **bounds).select("offset").collect()]
    assert sorted(by_time) == list(range(first[1], last[1]))
    assert by_time
    exact = _load(spark, root, assign='{"cod-none": [0]}', begin=str(begin), end=str(end)).count()
    assert exact == sum(begin <= time <= end for time in times)


@pytest.mark.parametrize("topic", ["cod-[ns]*", "/cod-(n|s).*/", '["cod-n*", "/cod-s.*/"]'])
def test_topics_by_patterns(spark: SparkSession, kafka_case: Callable[[str], Path], topic: str) -> None:
    wanted = [each for each in _topics("codecs").split(",") if each.startswith(("cod-n", "cod-s"))]
    frame = _load(spark, kafka_case("codecs"), topic=topic, includeHeaders="true")
    assert _rows(frame) == sorted(row for each in wanted for row in _expected("codecs", topic=each))
    assert len(wanted) > 1


def test_an_unknown_topic_or_option_is_an_error(spark: SparkSession, kafka_case: Callable[[str], Path]) -> None:
    for options, text in (
        ({"subscribe": "cod-nine"}, "does not hold cod-nine"),
        ({"topic": "cod-q*"}, r"does not hold cod-q\*"),
        ({"topic": "/(/"}, "expected a regular expression between slashes"),
        ({"subscribed": "cod-none"}, "no option subscribed"),
        ({"isolation": "dirty"}, "isolation"),
        ({"subscribe": " , "}, "subscribe: ' , ' names nothing"),
        ({"subscribe": "cod-none", "startingOffsets": '{"cod-nine": {"0": 5}}'}, "cod-nine-0, which is not read"),
        (
            {"subscribe": "cod-none", "startingOffsets": "latest"},
            "a batch that begins at the latest offset reads nothing",
        ),
        ({"endingOffsetsByTimestamp": '{"cod-none": {"7": 5}}'}, "cod-none-7, which is not read"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes: 0 is not above 0"),
    ):
        with pytest.raises(Exception, match=text):
            _load(spark, kafka_case("codecs"), **options).count()


def test_a_directory_of_another_kind_does_not_read_as_empty(
    spark: SparkSession, kafka_case: Callable[[str], Path], tmp_path: Path
) -> None:
    partition = kafka_case("codecs") / "cod-none-0"
    for place in (tmp_path, partition):
        with pytest.raises(Exception, match="no Kafka log directory"):
            spark.read.format("kafka_log").load(str(place)).count()


def test_options_of_a_live_job_that_speak_of_brokers_do_no_harm(
    spark: SparkSession, kafka_case: Callable[[str], Path]
) -> None:
    live = {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.group.id": "job",
        "groupIdPrefix": "job",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "500",
        "fetchOffset.numRetries": "3",
        "subscribe": "cod-none",
        "startingOffsets": "earliest",
    }
    assert _load(spark, kafka_case("codecs"), **live).count() == len(_expected("codecs", topic="cod-none"))


def test_tasks_are_balanced_by_bytes(kafka_case: Callable[[str], Path]) -> None:
    root = kafka_case("timestamps")
    options = {"path": str(root), "topic": "ts-warm", "maxPartitionBytes": "20000"}
    source = KafkaLogSource(CaseInsensitiveDict(options))
    tasks = [task.pieces for task in source.reader(source.schema()).partitions()]  # type: ignore[attr-defined]
    with LogDir.open(root) as logs:
        size = sum(logs.log(each.topic, each.partition).size for each in logs.partitions("ts-warm"))
        ends = {
            each.partition: logs.log("ts-warm", each.partition).log_end_offset for each in logs.partitions("ts-warm")
        }
    sizes = [sum(each.size for each in task) for task in tasks]
    assert sum(sizes) == size
    assert len(sizes) >= size // 20_000 > 3
    assert max(sizes) < 22_000  # a cut lies at the next entry of the index
    for partition, end in ends.items():
        parts = [each for task in tasks for each in task if each.partition == partition]
        assert [each.begin for each in parts[1:]] == [each.end for each in parts[:-1]]
        assert parts[-1].end == end
    least = KafkaLogSource(CaseInsensitiveDict({"path": str(root), "topic": "ts-warm", "minPartitions": "7"}))
    assert len(least.reader(least.schema()).partitions()) >= 7


def test_options_choose_what_is_read_and_filters_of_queries_lose_nothing(
    spark: SparkSession, kafka_case: Callable[[str], Path]
) -> None:
    root = kafka_case("codecs")
    everything = _expected("codecs")
    expected = [row[0] for t, p, row in everything if (t, p) == ("cod-none", 1) and 20 <= row[0] < 40]
    offsets = {name: json.dumps({"cod-none": {"1": at}}) for name, at in (("starting", 20), ("ending", 40))}
    one = {"assign": '{"cod-none":[1]}', "startingOffsets": offsets["starting"], "endingOffsets": offsets["ending"]}
    frame = _load(spark, root, **one, minPartitions="20")
    assert sorted(row.offset for row in frame.select("offset").collect()) == expected
    assert expected
    assert frame.rdd.getNumPartitions() < _load(spark, root, minPartitions="20").rdd.getNumPartitions()
    time = everything[len(everything) // 2][2][1]
    assert _load(spark, root, begin=str(time)).count() == sum(row[1] >= time for _, _, row in everything)
    for setting in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", setting)
        try:
            loaded = _load(spark, root)
            few = loaded.where("topic = 'cod-none' and partition = 1 and offset < 5")
            rest = loaded.where("not (topic = 'cod-none' and partition = 1 and offset < 5)")
            assert few.count() == 5
            assert loaded.count() == len(everything)
            assert few.union(rest).count() == few.union(loaded).count() - 5 == len(everything)
            assert loaded.join(few, ["topic", "partition", "offset"], "left_anti").count() == len(everything) - 5
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_damage_is_an_error_or_passed_over(spark: SparkSession, kafka_case: Callable[[str], Path]) -> None:
    root = kafka_case("damaged-crc")
    with pytest.raises(Exception, match="CorruptFileError"):
        _load(spark, root).count()
    assert 0 < _load(spark, root, onError="skip").count() < len(golden_kafka.rows("damaged-crc", "records-before"))


def test_an_index_of_keys_equals_a_local_one(
    spark: SparkSession, kafka_case: Callable[[str], Path], tmp_path: Path
) -> None:
    root = kafka_case("codecs")
    local = build_key_index(root, tmp_path / "local", topics=["cod-none", "cod-lz4"], header="a")
    report = ls.build_key_index(spark, root, tmp_path / "spark", topics=["cod-none", "cod-lz4"], header="a")
    assert report == local
    assert report.checked["partitions"] == 4
    contents = {
        made: {
            folder.name: sorted(path.read_bytes() for path in folder.iterdir())
            for folder in (tmp_path / made).iterdir()
        }
        for made in ("local", "spark")
    }
    assert contents["spark"] == contents["local"]
    assert all(len(files) == 2 for files in contents["local"].values())  # an index file, and its settings


def test_a_stream_follows_a_growing_log(spark: SparkSession, tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    last = max((root / "cod-none-0").glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(b"")
    checkpoint, out = str(tmp_path / "checkpoint"), str(tmp_path / "out")

    def run() -> None:
        stream = spark.readStream.format("kafka_log").option("subscribe", "cod-none").load(str(root))
        query = (
            stream.select("partition", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .option("path", out)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def read() -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for row in spark.read.parquet(out).collect())

    everything = [(p, row[0]) for _, p, row in _expected("codecs", topic="cod-none")]
    run()
    before = read()
    assert before == [place for place in everything if place[0] == 1 or place[1] < int(last.stem)] != everything
    last.write_bytes(content)
    run()
    assert read() == everything
    (offsets,) = {
        line for file in (tmp_path / "checkpoint" / "offsets").glob("1") for line in file.read_text().splitlines()[-1:]
    }
    assert set(json.loads(offsets)["cod-none"]) == {"0", "1"}
