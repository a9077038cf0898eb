"""What `kafka_log` says about data that is missing: in the plan, in a worker, and in a whole job.

The readers are called as Spark's workers call them, with plans that went through pickle.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from kafka_batches import Row, batch, write_segment
from logdex import spark as ls
from logdex.errors import CorruptFileError, DamageWarning, LogdexError
from logdex.kafka import Log, build_key_index
from logdex.spark import kafka_index
from logdex.spark.kafka_source import KafkaLogSource, OffsetRange
from logdex.spark.log_source import Task
from logdex.spark.workers import call_in_tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

SEGMENT = 10
ALL = list(range(4 * SEGMENT))
MIDDLE = f"{SEGMENT:020d}.log"
LAST = f"{3 * SEGMENT:020d}.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return a partition of four segments."""
    place = tmp_path / "logs" / "orders-0"
    for base in ALL[::SEGMENT]:
        write_segment(place, base, *(batch([Row(offset, offset, b"k")]) for offset in range(base, base + SEGMENT)))
    return place


def _gzip(partition: Path, name: str) -> None:
    (partition / name).rename(partition / f"{name}.gz")


def _unlink(partition: Path, name: str) -> None:
    (partition / name).unlink()


def _damage(partition: Path, name: str) -> None:
    content = bytearray((partition / name).read_bytes())
    content[-1] ^= 1
    (partition / name).write_bytes(content)


def planned(partition: Path, **options: str) -> tuple[Any, list[Any]]:
    """Return a reader and its tasks, as a worker unpickles them."""
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(partition.parent), "columns": "offset", **options}))
    reader = source.reader(source.schema())
    return reader, pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 -- as Spark does


def offsets(reader: Any, tasks: list[Any]) -> list[int]:
    return [offset for task in tasks for batch in reader.read(task) for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("lose", "name", "lost"),
    [
        (_unlink, MIDDLE, ALL[10:20]),
        (_gzip, MIDDLE, ALL[10:20]),
        (_gzip, f"{0:020d}.log", ALL[:10]),
        (_gzip, LAST, ALL[30:]),
        (_damage, MIDDLE, [19]),
    ],
)
def test_missing_data_is_an_error_or_a_warning(
    partition: Path, lose: Callable[[Path, str], None], name: str, lost: list[int]
) -> None:
    lose(partition, name)
    with pytest.raises(CorruptFileError, match=name):
        offsets(*planned(partition))
    for size in ("1000", "1000000"):
        with pytest.warns(DamageWarning, match=name):
            found = offsets(*planned(partition, onError="skip", maxPartitionBytes=size))
        assert found == [offset for offset in ALL if offset not in lost]


def test_a_job_tells_the_driver(spark: SparkSession, partition: Path) -> None:
    _unlink(partition, MIDDLE)
    ls.register(spark)
    frame = spark.read.format("kafka_log").option("onError", "skip").load(str(partition.parent))
    with pytest.warns(DamageWarning, match=MIDDLE):
        assert frame.count() == 30
    with pytest.raises(Exception, match=MIDDLE):
        spark.read.format("kafka_log").load(str(partition.parent)).count()


def _expire(partition: Path) -> int:
    for name in (f"{0:020d}.log", MIDDLE):
        _unlink(partition, name)
    return 20


def _delete_records(partition: Path) -> int:
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 13\n", encoding="ascii")
    return 27


def _truncate(partition: Path) -> int:
    _unlink(partition, LAST)
    return 30


def _empty(partition: Path) -> int:
    for path in partition.glob("*.log"):
        path.unlink()
    return 0


def _no_partition(partition: Path) -> int:
    shutil.rmtree(partition)
    return 0


def _lose_compacted(partition: Path) -> int:
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 40\n", encoding="ascii")
    _unlink(partition, MIDDLE)
    return 30


@pytest.mark.parametrize("lose", [_expire, _delete_records, _truncate, _empty, _no_partition, _lose_compacted])
def test_a_worker_that_lacks_what_was_planned_says_so(partition: Path, lose: Callable[[Path], int]) -> None:
    reader, tasks = planned(partition, maxPartitionBytes="1000")
    loose, same = planned(partition, maxPartitionBytes="1000", failOnDataLoss="false")
    assert len(tasks) >= 2
    assert offsets(reader, tasks) == ALL
    left = lose(partition)
    with pytest.raises(LogdexError, match=f"{partition}.* on .*failOnDataLoss=false"):
        offsets(reader, tasks)
    with pytest.warns(DamageWarning, match=str(partition)):
        assert len(offsets(loose, same)) == left


def _cut(partition: Path) -> int:
    """Truncate the last segment between two batches."""
    os.truncate(partition / LAST, (partition / LAST).stat().st_size // SEGMENT * 4)
    return 34


@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(("lose", "segment"), [(_expire, 0), (_truncate, 3), (_cut, 3)])
def test_a_file_that_changes_after_the_check_of_a_worker_is_a_loss(
    partition: Path, lose: Callable[[Path], int], segment: int, tolerant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, tasks = planned(partition, maxPartitionBytes="1000", failOnDataLoss=str(not tolerant).lower())
    pieces = [piece for task in tasks for piece in task.pieces]
    piece = next(each for each in pieces if each.base == segment * SEGMENT)
    check = OffsetRange.check

    def check_then_lose(self: OffsetRange, *arguments: Any) -> bool:
        is_there = check(self, *arguments)
        lose(partition)
        return is_there

    monkeypatch.setattr(OffsetRange, "check", check_then_lose)
    expected = pytest.warns(DamageWarning) if tolerant else pytest.raises(LogdexError, match="failOnDataLoss=false")
    with expected:
        list(reader.read(Task((piece,))))


def _empty_middle(partition: Path, name: str) -> None:
    (partition / name).write_bytes(b"")


@pytest.mark.parametrize(
    "loss",
    [
        (_unlink, MIDDLE, ["file-gap"], 10),
        (_gzip, MIDDLE, ["file-gap"], 10),
        (_empty_middle, MIDDLE, ["file-gap"], 10),
        (_damage, MIDDLE, ["batch-crc"], 1),
        (_unlink, MIDDLE.replace(".log", ".index"), [], 0),
    ],
)
def test_the_key_index_reports_it(
    spark: SparkSession, partition: Path, tmp_path: Path, loss: tuple[Callable[[Path, str], None], str, list[str], int]
) -> None:
    lose, name, kinds, lost = loss
    with Log.open(partition) as log:
        log.rebuild_indexes(partition)
    lose(partition, name)
    report = ls.build_key_index(spark, partition.parent, tmp_path / "keys")
    assert [(each.kind, each.path) for each in report.findings] == [(kind, str(partition / MIDDLE)) for kind in kinds]
    assert report.checked["records"] == len(ALL) - lost
    assert report == build_key_index(partition.parent, tmp_path / "local")


@pytest.mark.parametrize("lose", [_expire, _delete_records, _truncate, _empty, _no_partition])
def test_a_key_index_of_less_than_what_was_planned_is_not_built(
    spark: SparkSession,
    partition: Path,
    tmp_path: Path,
    lose: Callable[[Path], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_tasks(*arguments: Any) -> Any:
        # The driver has made its plan.
        lose(partition)
        return call_in_tasks(*arguments)

    monkeypatch.setattr(kafka_index, "call_in_tasks", in_tasks)
    with pytest.raises(Exception, match=f"{partition}.* on .*truncated since the read was planned"):
        ls.build_key_index(spark, partition.parent, tmp_path / "keys")


def test_a_stream_checks_in_its_workers(partition: Path) -> None:
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(partition.parent), "columns": "offset"}))
    reader: Any = source.streamReader(source.schema())
    tasks = reader.partitions(reader.initialOffset(), reader.latestOffset())
    assert offsets(reader, list(tasks)) == ALL
    _expire(partition)
    with pytest.raises(LogdexError, match="failOnDataLoss"):
        offsets(reader, list(tasks))


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        # Below the start of the log, beyond its end, beyond the end of the batch, and an end beyond that of the log.
        (5, -1, ALL[10:]),
        (45, -1, []),
        (30, 20, []),
        (12, 45, ALL[12:]),
    ],
)
def test_offsets_that_the_log_does_not_have_fail(partition: Path, start: int, end: int, rows: list[int]) -> None:
    _unlink(partition, f"{0:020d}.log")
    options = {
        name: json.dumps({"orders": {"0": n}}) for name, n in (("startingOffsets", start), ("endingOffsets", end))
    }
    with pytest.raises(LogdexError, match="failOnDataLoss=false"):
        planned(partition, **options)
    with pytest.warns(DamageWarning, match=str(partition)):
        assert offsets(*planned(partition, failOnDataLoss="false", **options)) == rows


@pytest.mark.parametrize("name", ["minOffsetsPerTrigger", "maxTriggerDelay", "maxRecordsPerPartition"])
def test_options_of_sparks_own_source_that_are_not_taken_say_why(partition: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"option {name}: .*(trigger|maxPartitionBytes)"):
        planned(partition, **{name: "5"})


def test_a_pattern_matches_a_part_of_a_name_and_no_internal_topic(partition: Path) -> None:
    for topic in ("my-orders", "order", "__consumer_offsets", "__transaction_state"):
        shutil.copytree(partition, partition.with_name(f"{topic}-0"))

    def topics(pattern: str) -> set[str]:
        _, tasks = planned(partition, subscribePattern=pattern)
        return {piece.topic for task in tasks for piece in task.pieces}

    assert topics("orders") == {"orders", "my-orders"}
    assert topics("^orders$") == {"orders"}
    assert topics("o") == {"orders", "my-orders", "order"}
    assert topics("\\w-") == {"my-orders"}
    for pattern in ("a*+", "[a-z&&[^o]]", "\\p{Alpha}+", "(?<name>o)", "(?>o)", "\\Qo\\E", "o{,3}"):
        with pytest.raises(ValueError, match="option subscribePattern"):
            topics(pattern)
