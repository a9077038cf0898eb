"""A client that does not see the files of the cluster: what it asks about them, it asks the workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
from logdex import spark as ls
from logdex.errors import GeometryError
from logdex.kafka import build_key_index
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def only_workers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Return a path of a directory that only the workers have: it begins at the current directory of each process."""
    del spark  # it was started here
    start = Path.cwd()
    # So deep that no way up from here leads where it leads from there.
    deep = tmp_path.joinpath(*"abcdefghijklmnop")
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)

    def unseen(root: Path) -> Path:
        path = Path("/proc/self/cwd", os.path.relpath(root, start))
        assert not path.exists()
        return path

    return unseen


@pytest.fixture
def keys(spark: SparkSession) -> DataFrame:
    asked = [("AaTopic", "BB"), ("TopicTest", "dup")]
    return spark.createDataFrame(asked, "topic string, key string").coalesce(1)


def test_keys_are_found(
    shared_store: Callable[[str], Path], only_workers: Callable[[Path], Path], keys: DataFrame
) -> None:
    root = shared_store("basic")
    hidden = only_workers(root)
    seen = [ls.find(keys, root), ls.lookup(keys, root / "index"), _offsets(keys, root / "index")]
    unseen = [ls.find(keys, hidden), ls.lookup(keys, hidden / "index"), _offsets(keys, hidden / "index")]
    for there, here in zip(unseen, seen, strict=True):
        assert there.collect() == here.collect() != []


def _offsets(keys: DataFrame, index_dir: Path) -> DataFrame:
    return keys.select(ls.query_offset(index_dir)("topic", "key").alias("offsets"))


def test_an_index_is_built(
    spark: SparkSession, shared_store: Callable[[str], Path], only_workers: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = shared_store("basic")
    slots, entries = golden.geometry("basic")
    store, target = only_workers(root), only_workers(tmp_path / "index")
    with MessageStore.open(root) as opened:
        expected = opened.build_index(tmp_path / "local", hash_slots=slots, max_entries=entries)
    report = ls.build_index(spark, store, target, hash_slots=slots, max_entries=entries)
    assert report.checked["entries"] == expected.checked["entries"] > 0
    made = [sorted(path.read_bytes() for path in (tmp_path / name).glob("2*")) for name in ("index", "local")]
    assert made[0] == made[1] != []
    with pytest.raises(FileExistsError, match="index files exist"):
        ls.build_index(spark, store, target, hash_slots=slots, max_entries=entries)
    assert ls.build_index(spark, store, target, hash_slots=slots, max_entries=entries, mode="overwrite") == report
    assert sorted(path.name for path in (tmp_path / "index").iterdir() if not path.name.isdecimal()) == ["_SUCCESS"]


def test_a_key_index_is_built(spark: SparkSession, only_workers: Callable[[Path], Path], tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    expected = build_key_index(root, tmp_path / "local", topics="cod-none")
    report = ls.build_key_index(spark, only_workers(root), only_workers(tmp_path / "index"), topics=iter(["cod-none"]))
    assert report == expected
    with pytest.raises(FileNotFoundError, match=r"no partition of this topic.*nobodys-0"):
        ls.build_key_index(spark, only_workers(root), only_workers(tmp_path / "other"), topics="nobodys")


@pytest.mark.parametrize("call", ["lookup", "find", "query_offset", "build_index", "build_key_index"])
def test_a_directory_that_no_machine_has_is_named(
    spark: SparkSession, keys: DataFrame, tmp_path: Path, call: str
) -> None:
    nowhere = tmp_path / "nowhere"
    calls: dict[str, Callable[[], object]] = {
        "lookup": lambda: ls.lookup(keys, nowhere),
        "find": lambda: ls.find(keys, nowhere),
        "query_offset": lambda: ls.query_offset(nowhere),
        "build_index": lambda: ls.build_index(spark, nowhere, tmp_path / "index"),
        "build_key_index": lambda: ls.build_key_index(spark, nowhere, tmp_path / "index"),
    }
    with pytest.raises(FileNotFoundError, match=r"no such directory on .*nowhere") as caught:
        calls[call]()
    assert caught.value.errno == 2
    assert not list(tmp_path.iterdir())


def test_errors_of_a_worker_keep_their_class(
    keys: DataFrame, only_workers: Callable[[Path], Path], tmp_path: Path
) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 64 + 20 * 256))
    with pytest.raises(GeometryError) as caught:
        ls.lookup(keys, only_workers(tmp_path / "index"))
    assert caught.value.path.endswith("20260101000000000")
    assert "give hash_slots and max_entries" in str(caught.value)
