"""Formats and functions take URLs: rows, candidates and index files over S3 are those of the disk."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import golden
import golden_kafka
import object_store
from logdex import spark as ls
from logdex._core import locate, plan_files, planned_file_faults, read_file
from logdex.errors import DamageWarning, LogdexError
from logdex.rocketmq import IndexService
from logdex.spark.index.job import ObjectJob, WrittenFile, index_files
from logdex.spark.kafka_source import KafkaLogSource
from logdex.spark.messages.source import MessagesSource
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 2931
"""Of the store `rolled`."""


@pytest.fixture(scope="module")
def options(server: object_store.ObjectStore) -> dict[str, str]:
    """Return the options of a format."""
    return {f"storage.{name}": value for name, value in server.options.items()}


@pytest.fixture(scope="module")
def store(server: object_store.ObjectStore, shared_store: Callable[[str], Path]) -> tuple[Path, str]:
    """Return a store, and the URL of its copy."""
    root = shared_store("rolled")
    return root, server.put("spark-rolled", root)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=repr)


def test_the_pages_of_spark_show_no_storage_option(
    spark: SparkSession, store: tuple[Path, str], options: dict[str, str], server: object_store.ObjectStore
) -> None:
    given = {**options, "storage.retry_timeout": "47s"}
    spark.read.format("rocketmq").options(**given).load(store[1]).createOrReplaceTempView("hidden")
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = spark._jsparkSession.sharedState().statusStore().executionsList()
    (plan,) = [
        plan
        for number in range(jobs.size())
        if "hidden" in (plan := jobs.apply(number).physicalPlanDescription()) and "storage." in plan
    ]
    for name, value in {**server.options, "retry_timeout": "47s"}.items():
        assert f"storage.{name}=" in plan
        assert value not in plan
    spark.catalog.dropTempView("hidden")


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({}, MESSAGES),
        ({"maxPartitionBytes": "60000"}, MESSAGES),
        ({"topic": "TopicTest", "queue_id": "1"}, None),
        ({"keys": "KEY"}, 1),
        ({"compat": "4.9.3"}, MESSAGES),
    ],
)
def test_messages_are_those_of_the_disk(
    spark: SparkSession, options: dict[str, str], store: tuple[Path, str], chosen: dict[str, str], count: int | None
) -> None:
    root, url = store
    if "keys" in chosen:
        chosen = {"keys": golden.rows("rolled", "messages")[77]["uniqKey"]}
    local = rows(spark.read.format("rocketmq").options(**chosen).load(str(root)))
    assert rows(spark.read.format("rocketmq").options(**chosen, **options).load(url)) == local
    assert len(local) == count or (count is None and 0 < len(local) < MESSAGES)


def test_entries_are_those_of_the_disk(spark: SparkSession, options: dict[str, str], store: tuple[Path, str]) -> None:
    root, url = store
    columns = "file,key_hash,phy_offset,store_timestamp"
    read = spark.read.format("rocketmq_index").option("columns", columns)
    local = rows(read.load(f"{root}/index"))
    assert rows(read.options(**options).load(f"{url}/index")) == local
    assert len(local) > MESSAGES


def test_records_are_those_of_the_disk(
    spark: SparkSession, server: object_store.ObjectStore, options: dict[str, str], tmp_path: Path
) -> None:
    logs = object_store.whole_seconds(golden_kafka.unpack("transactions", tmp_path / "logs"))
    url = server.put("spark-transactions", logs)
    read = spark.read.format("kafka_log").option("includeHeaders", "true")
    for isolation, count in (("read_uncommitted", 930), ("read_committed", None)):
        local = rows(read.option("isolation", isolation).load(str(logs)))
        assert rows(read.options(**options).load(url)) == local
        assert len(local) == count or (count is None and 0 < len(local) < 930)


def test_streams_read_what_is_there(
    spark: SparkSession,
    server: object_store.ObjectStore,
    options: dict[str, str],
    store: tuple[Path, str],
    tmp_path: Path,
) -> None:
    logs = server.put("spark-legacy", golden_kafka.unpack("legacy", tmp_path / "logs"))
    for format_, url, count in (("rocketmq", store[1], MESSAGES), ("kafka_log", logs, 782)):
        frame = spark.readStream.format(format_).options(**options).load(url)
        query = frame.writeStream.format("memory").queryName(f"remote_{format_}")
        query = query.option("checkpointLocation", str(tmp_path / format_)).trigger(availableNow=True)
        query.start().awaitTermination()
        assert spark.table(f"remote_{format_}").count() == count


def test_keys_are_found_as_on_the_disk(
    spark: SparkSession, server: object_store.ObjectStore, store: tuple[Path, str]
) -> None:
    root, url = store
    messages = golden.rows("rolled", "messages")[::30]
    asked = [(message["topic"], message["uniqKey"]) for message in messages] + [("TopicTest", "absent")]
    keys = spark.createDataFrame(asked, "topic string, key string").repartition(3)
    local = rows(ls.find(keys, root))
    assert rows(ls.find(keys, url, storage_options=server.options)) == local
    assert len(messages) >= len(local) > 80
    local = rows(ls.lookup(keys, root / "index"))
    assert rows(ls.lookup(keys, f"{url}/index", storage_options=server.options)) == local
    assert len(local) > 80
    local = rows(keys.select("key", ls.query_offset(root / "index")("topic", "key")))
    query = ls.query_offset(f"{url}/index", storage_options=server.options)
    assert [list(row.values()) for row in rows(keys.select("key", query("topic", "key")))] == [
        list(row.values()) for row in local
    ]


def test_a_second_set_of_options_is_a_store_of_its_own(
    spark: SparkSession, options: dict[str, str], store: tuple[Path, str]
) -> None:
    """A worker that read with one set reads with the other as well, and without options it has none of them."""
    _, url = store
    bad = {**options, "storage.aws_endpoint": "http://127.0.0.1:9", "storage.retry_timeout": "300ms"}
    for _ in range(2):
        assert spark.read.format("rocketmq").options(**options).load(url).count() == MESSAGES
        with pytest.raises(Exception, match=r"127\.0\.0\.1:9|error sending request|retry timeout"):
            spark.read.format("rocketmq").options(**bad).load(url).count()
    with pytest.raises(Exception, match="s3://stores") as error:
        spark.read.format("rocketmq").option("storage.retry_timeout", "300ms").load(url).count()
    assert object_store.SECRET not in str(error.value)


def test_a_file_url_and_dbfs_mean_local_directories(spark: SparkSession, store: tuple[Path, str]) -> None:
    root, _ = store
    assert spark.read.format("rocketmq").load(f"file:{root}").count() == MESSAGES
    with pytest.raises(Exception, match="/dbfs/no/such/store"):
        spark.read.format("rocketmq").load("dbfs:/no/such/store").count()


def test_no_plan_says_a_secret(
    spark: SparkSession, options: dict[str, str], store: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, url = store
    frame = spark.read.format("rocketmq").options(**options).load(url)
    keys = spark.createDataFrame([("TopicTest", "k")], "topic string, key string")
    stored = {name.removeprefix("storage."): value for name, value in options.items()}
    for each in (
        frame,
        ls.find(keys, url, storage_options=stored),
        ls.lookup(keys, f"{url}/index", storage_options=stored),
    ):
        each.explain(extended=True)
        each.explain("formatted")
    said = capsys.readouterr().out
    assert "Physical Plan" in said
    with pytest.raises(Exception, match="no option topicc") as error:
        spark.read.format("rocketmq").options(**options, topicc="x").load(url).count()
    said += str(error.value)
    with pytest.raises(Exception, match="no-such-store") as error:
        spark.read.format("rocketmq").options(**options).load(f"{url}/no-such-store").count()
    said += str(error.value)
    assert object_store.SECRET not in said
    assert object_store.ACCESS_KEY not in said


def planned(
    url: str, given: dict[str, str], format_: type[MessagesSource | KafkaLogSource] = MessagesSource
) -> tuple[Any, list[Any]]:
    """Return reader and tasks as a worker gets them."""
    columns = "phy_offset" if format_ is MessagesSource else "offset"
    source = format_(CaseInsensitiveDict({"path": url, "columns": columns, **given}))
    reader = source.reader(source.schema())
    found: tuple[Any, list[Any]] = pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301 -- as Spark does
    return found


def read(reader: Any, tasks: list[Any]) -> int:
    return sum(pa.record_batch(batch).num_rows for task in tasks for batch in reader.read(task))


def test_an_object_that_was_replaced_or_deleted_since_the_plan_is_lost(
    server: object_store.ObjectStore, options: dict[str, str], shared_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = shared_store("rolled")
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 4
    # One that the plan has not read, so that it is in no cache of this process.
    changed_file = files[3]
    url = server.put("spark-replaced", root)
    reader, tasks = planned(url, options)
    lenient = planned(url, {**options, "failOnDataLoss": "false"})
    # As long, and with the same first message.
    name = f"spark-replaced/commitlog/{changed_file.name}"
    changed = bytearray(changed_file.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    changes: list[Callable[[], None]] = [
        lambda: server.replace(name, tmp_path / "changed"),
        lambda: server.delete(name),
    ]
    for change in changes:
        change()
        with pytest.raises(LogdexError, match=rf"{url}/commitlog/{changed_file.name}.*failOnDataLoss"):
            read(reader, tasks)
        with pytest.warns(DamageWarning, match=changed_file.name):
            assert 0 < read(*lenient) < MESSAGES


_TASKS = """
import pickle, sys
reader, tasks = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for task in tasks for batch in reader.read(task)))
"""


def in_worker(reader: Any, tasks: list[Any]) -> subprocess.CompletedProcess[bytes]:
    """Read in another process, which has listed nothing."""
    words = [sys.executable, "-c", _TASKS]
    return subprocess.run(words, input=pickle.dumps((reader, tasks)), capture_output=True, timeout=100, check=False)


def test_a_segment_that_was_replaced_or_deleted_since_the_plan_is_lost(
    server: object_store.ObjectStore, options: dict[str, str], tmp_path: Path
) -> None:
    root = golden_kafka.unpack("compacted", tmp_path / "logs")
    url = server.put("spark-replaced-logs", root)
    given = {**options, "subscribe": "cp-keep"}
    reader, tasks = planned(url, given, KafkaLogSource)
    lenient = planned(url, {**given, "failOnDataLoss": "false"}, KafkaLogSource)
    whole = int(in_worker(reader, tasks).stdout)
    # As long, and with the same first batch.
    place = "cp-keep-0/00000000000000000280.log"
    changed = bytearray((root / place).read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    changes: list[tuple[Callable[[], None], str]] = [
        (lambda: server.replace(f"spark-replaced-logs/{place}", tmp_path / "changed"), "another object, of 2304 bytes"),
        (lambda: server.delete(f"spark-replaced-logs/{place}"), "no such file"),
    ]
    for change, found in changes:
        change()
        said = in_worker(reader, tasks).stderr.decode()
        assert f"{url}/{place} at byte 0: expected the file as it was planned, of 2304 bytes, found {found}" in said
        rest = in_worker(*lenient)
        assert f"{url}/{place}" in rest.stderr.decode()
        assert 0 < int(rest.stdout) < whole


_WORKER = """
import pickle, sys
reader, task = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for batch in reader.read(task)))
"""


def test_a_plan_lists_once_and_a_task_lists_nothing(
    server: object_store.ObjectStore, shared_store: Callable[[str], Path], store: tuple[Path, str]
) -> None:
    """A plan asks for no file of the log but its ends; a task for its own file only."""
    _, url = store
    files = sorted(path.name for path in (shared_store("rolled") / "commitlog").iterdir())
    with SlowProxy(server.port) as proxy:
        given = {f"storage.{name}": value for name, value in object_store.options(proxy.endpoint).items()}
        reader, tasks = planned(url, {**given, "maxPartitionBytes": "60000"})
        asked = [request.target for request in proxy.requests]
        assert {name for name in files if any(name in target for target in asked)} <= {*files[:1], *files[-2:]}
        listed = [target for target in asked if "list-type" in target]
        assert len(listed) == len(set(listed)) <= 8
        proxy.requests.clear()
        (piece,) = tasks[len(tasks) // 2].pieces
        words = [sys.executable, "-W", "ignore", "-c", _WORKER]
        sent = pickle.dumps((reader, tasks[len(tasks) // 2]))
        done = subprocess.run(words, input=sent, capture_output=True, timeout=100, check=True)
        assert int(done.stdout) > 0
        asked = [request.target for request in proxy.requests]
    own = max(name for name in files if int(name) <= piece.begin)
    assert {target.split("?")[0].rpartition("/")[2] for target in asked} == {own}
    assert len(asked) <= 4


def test_an_object_is_compared_with_the_plan_by_its_etag(
    server: object_store.ObjectStore, store: tuple[Path, str]
) -> None:
    root, url = store
    log = locate(f"{url}/commitlog", server.options)
    names = [log / path.name for path in sorted((root / "commitlog").iterdir())]
    files = plan_files(names)
    assert [size for _, size, _ in files] == [path.stat().st_size for path in sorted((root / "commitlog").iterdir())]
    assert planned_file_faults(files) == []
    path, size, _ = files[0]
    ((lost, expected, found),) = planned_file_faults([(path, size, '"another"')])
    assert (lost, expected) == (names[0], f"the file as it was planned, of {size} bytes")
    assert found == f"another object, of {size} bytes"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.isdecimal()}


def committed(url: str, server: object_store.ObjectStore) -> list[bytes]:
    """Return the content of an index, as any program gets it: by the names of the commit."""
    root = locate(url, server.options)
    files = json.loads(read_file(root / "_committed.json"))["files"]
    assert all(len(name) == 17 and name.isdecimal() for name in files)
    held = [read_file(root / files[name]["object"]) for name in sorted(files)]
    assert [len(content) for content in held] == [files[name]["size"] for name in sorted(files)]
    return held


def objects(url: str, server: object_store.ObjectStore) -> set[str]:
    """Return the names of all objects below a directory but those that its commit names."""
    root = locate(url, server.options)
    waiting, found = [root], set()
    named = {each["object"] for each in json.loads(read_file(root / "_committed.json"))["files"].values()}
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir():
                waiting.append(path)
            else:
                found.add(str(path).removeprefix(f"{root}/"))
    assert found >= named
    return found - named


def test_an_index_is_built_in_a_bucket(
    spark: SparkSession,
    server: object_store.ObjectStore,
    options: dict[str, str],
    store: tuple[Path, str],
    tmp_path: Path,
) -> None:
    """The same bytes as on the disk; a reader sees all files or none; a second build needs overwrite."""
    root, url = store
    geometry: dict[str, Any] = {"hash_slots": 128, "max_entries": 300, "zone": "UTC"}
    local = ls.build_index(spark, root, tmp_path / "index", **geometry)
    expected = [content for _, content in sorted(contents(tmp_path / "index").items())]
    out = f"s3://{object_store.BUCKET}/built/index"
    report = ls.build_index(spark, url, out, **geometry, max_tasks=3, storage_options=server.options)
    assert report.checked == local.checked
    assert committed(out, server) == expected
    assert len(expected) > 5
    assert objects(out, server) == {"_committed.json"}
    entries = spark.read.format("rocketmq_index").option("columns", "key_hash,phy_offset")
    assert rows(entries.options(**options).load(out)) == rows(entries.load(str(tmp_path / "index")))
    messages = golden.rows("rolled", "messages")[::50]
    topics, keys = [each["topic"] for each in messages], [each["uniqKey"] for each in messages]
    with (
        IndexService.open(out, storage_options=server.options) as remote,
        IndexService.open(tmp_path / "index") as local_index,
    ):
        assert remote.query_batch(topics, keys).to_pylist() == local_index.query_batch(topics, keys).to_pylist()
        assert remote.verify().ok
        assert [name for name, _ in remote.named_files()] == sorted(name for name, _ in remote.named_files())
    with pytest.raises(FileExistsError, match="overwrite"):
        ls.build_index(spark, url, out, **geometry, storage_options=server.options)
    geometry["max_entries"] = 1_000
    ls.build_index(spark, url, out, **geometry, mode="overwrite", storage_options=server.options)
    assert 1 < len(committed(out, server)) < len(expected)
    assert objects(out, server) == {"_committed.json"}


def test_a_frame_is_written_into_a_bucket(
    spark: SparkSession, server: object_store.ObjectStore, options: dict[str, str], tmp_path: Path
) -> None:
    out = f"s3://{object_store.BUCKET}/written"
    columns = "topic string, key string, phy_offset long, store_timestamp long"
    geometry = {"hashSlots": "50", "maxEntries": "40", "zone": "UTC"}
    for first in (0, 100):
        frame = spark.createDataFrame([("T", f"k{n}", 100 + n, 1_000 + n) for n in range(first, first + 100)], columns)
        written = ls.arrange(frame, 2).write.format("rocketmq_index").mode("append").options(**geometry)
        written.options(**options).save(out)
        written.save(str(tmp_path / "index"))
    local = [content for _, content in sorted(contents(tmp_path / "index").items())]
    assert committed(out, server) == local
    assert len(local) > 6
    early = spark.createDataFrame([("T", "k", 1, 1)], columns)
    with pytest.raises(Exception, match="only rows after those of the directory"):
        early.write.format("rocketmq_index").mode("append").options(**geometry, **options).save(out)
    assert committed(out, server) == local
    assert objects(out, server) == {"_committed.json"}
    keys = spark.createDataFrame([("T", f"k{n}") for n in range(250)], "topic string, key string")
    assert ls.lookup(keys, out, storage_options=server.options).count() == 200


def test_a_write_that_fails_leaves_nothing(
    spark: SparkSession, server: object_store.ObjectStore, options: dict[str, str]
) -> None:
    out = f"s3://{object_store.BUCKET}/failed"
    columns = "topic string, key string, phy_offset long, store_timestamp long"
    frame = spark.createDataFrame([("T", "k" if n < 150 else None, n, 1_000 + n) for n in range(200)], columns)
    written = ls.arrange(frame, 2).write.format("rocketmq_index").mode("append")
    with pytest.raises(Exception, match="null"):
        written.options(hashSlots="50", maxEntries="40", **options).save(out)
    root = locate(out, server.options)
    assert not root.exists()
    assert index_files(root) == []


def test_of_two_jobs_at_the_same_time_one_commits(server: object_store.ObjectStore) -> None:
    """And a job that was killed before its commit is no index for a reader."""
    out = locate(f"s3://{object_store.BUCKET}/jobs", server.options)
    jobs = [ObjectJob(out, 4, 4, "UTC") for _ in range(3)]
    files = []
    for number, job in enumerate(jobs):
        job.start()
        attempt = job.start_attempt()
        (attempt / "0").write_bytes(b"%d" % number * 20_000_000)
        files.append([WrittenFile(job.keep(attempt / "0"), 1, 20_000_000)])
        assert not attempt.exists()
    assert index_files(out) == []
    (first,) = jobs[0].commit(files[0])
    assert index_files(out) == [first]
    assert read_file(first) == b"0" * 20_000_000
    with pytest.raises(FileExistsError, match="another job has committed"):
        jobs[1].commit(files[1])
    jobs[1].abort()
    jobs[0].abort()
    assert index_files(out) == [first]
    # The third was killed: what it uploaded is there, and nobody takes it for an index.
    assert len(objects(str(out), server)) == 2
    later = ObjectJob(out, 4, 4, "UTC")
    later.start()
    later.commit([])
    assert index_files(out) == [first]


def test_a_key_index_is_built_in_a_bucket(
    spark: SparkSession, server: object_store.ObjectStore, tmp_path: Path
) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    url = server.put("spark-codecs", logs)
    out = f"s3://{object_store.BUCKET}/keys"
    local = ls.build_key_index(spark, logs, tmp_path / "keys")
    assert ls.build_key_index(spark, url, out, storage_options=server.options).checked == local.checked
    partitions = sorted(path.name for path in (tmp_path / "keys").iterdir())
    assert len(partitions) > 3
    for name in partitions:
        held = [content for _, content in sorted(contents(tmp_path / "keys" / name).items())]
        assert committed(f"{out}/{name}", server) == held
        assert objects(f"{out}/{name}", server) == {"_committed.json", "_key_index.json"}
    with pytest.raises(FileExistsError, match="not continued"):
        ls.build_key_index(spark, url, out, storage_options=server.options)
