"""What Spark says of missing data: a call, and what is missing. No cell of the table in docs/findings.md is silent.

A plan and a task run in processes of their own. Their findings arrive as a `DamageWarning` of the driver before the job ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex import spark as ls
from logdex.errors import DamageWarning
from logdex.rocketmq import CommitLog, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FILE = 65_536
MESSAGES = 900
GEOMETRY: dict[str, Any] = {"hash_slots": 100, "max_entries": 500}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written")
    with StoreWriter.open(root, file_size=FILE, zone="UTC", services=False, **GEOMETRY) as writer:
        for number in range(MESSAGES):
            writer.put_message("T", b"x" * 200, keys=f"k{number}")
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "store")


def messages(spark: SparkSession, store: Path) -> DataFrame:
    return spark.read.format("rocketmq").option("columns", "phy_offset").load(str(store))


def lose_log_file(store: Path) -> str:
    path = sorted((store / "commitlog").iterdir())[2]
    path.unlink()
    return f"a file that begins at {int(path.name)}"


def compress_first_log_file(store: Path) -> str:
    path = min((store / "commitlog").iterdir())
    path.rename(path.with_suffix(".gz"))
    return "a file that begins at 0"


def damage_frame(store: Path) -> str:
    path = sorted((store / "commitlog").iterdir())[1]
    with CommitLog.open(store / "commitlog") as log:
        offsets = pa.table(log.scan(columns=["phy_offset"])).column(0).to_pylist()
    at = next(offset for offset in offsets if offset > int(path.name) + FILE // 2) - int(path.name)
    with path.open("r+b") as file:
        file.seek(at + 100)
        file.write(b"\xff" * 20)
    return f"{path} at byte {at}"


def lose_index_file(store: Path) -> str:
    path = min((store / "index").iterdir())
    path.unlink()
    return str(path)


def warned(call: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of a call and the texts of the driver's warnings."""
    with pytest.warns(DamageWarning) as caught:
        result = call()
    return result, "\n".join(str(each.message) for each in caught)


@pytest.mark.parametrize("lose", [lose_log_file, compress_first_log_file, damage_frame])
def test_messages(spark: SparkSession, store: Path, lose: Callable[[Path], str]) -> None:
    said = lose(store)
    rows, text = warned(lambda: messages(spark, store).count())
    assert 0 < rows < MESSAGES
    assert said in text


@pytest.mark.parametrize("lose", [lose_log_file, damage_frame])
def test_find(spark: SparkSession, store: Path, lose: Callable[[Path], str]) -> None:
    keys = spark.createDataFrame([("T", f"k{number}") for number in range(MESSAGES)], "topic string, key string")
    said = lose(store)
    rows, text = warned(lambda: ls.find(keys, store, **GEOMETRY).count())
    assert 0 < rows < MESSAGES
    assert said in text


@pytest.mark.parametrize("lose", [lose_log_file, damage_frame])
def test_build_index(spark: SparkSession, store: Path, lose: Callable[[Path], str], tmp_path: Path) -> None:
    said = lose(store)
    report = ls.build_index(spark, store, tmp_path / "built", **GEOMETRY)
    assert not report.ok
    assert said in "\n".join(map(str, report.findings))
    assert 0 < report.checked["messages"] < MESSAGES


def test_a_missing_index_file_costs_a_search_no_message(spark: SparkSession, store: Path) -> None:
    """The log that the file covered is read."""
    keys = spark.createDataFrame([("T", "k3"), ("T", "k700")], "topic string, key string")
    lose_index_file(store)
    assert ls.find(keys, store, **GEOMETRY).count() == 2


def test_a_missing_queue_costs_a_read_no_message(spark: SparkSession, store: Path) -> None:
    """The log is read instead."""
    shutil.rmtree(store / "consumequeue" / "T")
    assert spark.read.format("rocketmq").options(columns="phy_offset", topic="T").load(str(store)).count() == MESSAGES


def test_index_files_that_vanish_after_the_plan(spark: SparkSession, store: Path) -> None:
    keys = spark.createDataFrame([("T", "k3")], "topic string, key string")
    lookup = ls.lookup(keys, store / "index", **GEOMETRY)
    found = ls.find(keys, store, scan=False, **GEOMETRY)
    path = lose_index_file(store)
    for frame in (lookup, found):
        with pytest.raises(Exception, match=rf"{path}.*no such file on \S+: .*read again"):
            frame.count()


def test_a_lost_file_is_an_error_or_counted(spark: SparkSession, store: Path) -> None:
    keys = spark.createDataFrame([("T", "k3")], "topic string, key string")
    frame, found = messages(spark, store), ls.find(keys, store, **GEOMETRY)
    lenient = spark.read.format("rocketmq").option("failOnDataLoss", "false").load(str(store)).select("phy_offset")
    assert frame.count() == lenient.count() == MESSAGES
    path = min((store / "commitlog").iterdir())
    path.unlink()
    # Spark keeps the plan of a loaded table.
    for each in (frame, found):
        with pytest.raises(Exception, match=rf"{path}.*no such file on \S+: .*failOnDataLoss=false"):
            each.count()
    rows, text = warned(lenient.count)
    assert 0 < rows < MESSAGES
    assert f"{path} at byte 0: expected the file as it was planned, of {FILE} bytes, found no such file on " in text


def test_workers_write_findings_to_standard_error(store: Path) -> None:
    """A worker has no logging configuration, and its driver may be out of reach."""
    said = damage_frame(store)
    program = f"""
        from pyspark.sql.datasource import CaseInsensitiveDict
        from logdex.spark.damage import Address
        from logdex.spark.messages.source import MessagesSource
        MessagesSource.driver = Address("127.0.0.1", 1, "")
        source = MessagesSource(CaseInsensitiveDict({{"path": {str(store)!r}, "columns": "phy_offset"}}))
        reader = source.reader(source.schema())
        print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=120
    )
    assert 0 < int(done.stdout) < MESSAGES
    assert f"\n{said}" in f"\n{done.stderr}"
    assert "the driver at 127.0.0.1:1 cannot be reached" in done.stderr
    assert "DamageWarning" in done.stderr
