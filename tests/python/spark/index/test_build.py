"""`ls.build_index` against the sequential build, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import golden
from logdex import spark as ls
from logdex.rocketmq import CommitLog, IndexService
from logdex.spark.index.build import list_log_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from logdex._types import Compat


def contents(directory: Path) -> list[bytes]:
    paths = sorted(path for path in directory.iterdir() if path.name != "_SUCCESS")
    assert all(len(path.name) == 17 and path.name.isdecimal() for path in paths)
    return [path.read_bytes() for path in paths]


def sequential(store: Path, directory: Path, geometry: tuple[int, int], compat: Compat | None = None) -> list[bytes]:
    slots, entries = geometry
    with IndexService.open(directory, mode="a", hash_slots=slots, max_entries=entries, compat=compat) as index:
        index.build_index(CommitLog.open(store / "commitlog").scan())
    return contents(directory)


@dataclass(frozen=True)
class Build:
    """One build to compare: of which store, into which geometry, by how many tasks."""

    case: str
    hash_slots: int
    max_entries: int
    max_tasks: int | None = None
    compat: Compat | None = None


BUILDS = [
    Build("basic", 64, 256),
    Build("basic", 64, 256, max_tasks=1),
    Build("sync", 7, 4, max_tasks=5),
    Build("basic", 7, 12, max_tasks=3),
    Build("basic", 1000, 5000),
    Build("killed", 64, 256, max_tasks=4),
    Build("rolled", 128, 300, max_tasks=3),
    Build("rolled-killed", 60, 130, max_tasks=16),
    Build("pool", 64, 150, max_tasks=2),
    Build("v5-basic", 64, 256, max_tasks=3, compat="5.5.0"),
    Build("v5-basic", 5, 33, max_tasks=4),
    Build("v5-3-3", 64, 31, max_tasks=7),
]


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_equals_a_sequential_build(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, build: Build
) -> None:
    store = shared_store(build.case)
    expected = sequential(store, tmp_path / "plain", (build.hash_slots, build.max_entries), build.compat)
    assert len(expected) > 0
    report = ls.build_index(
        spark,
        store,
        tmp_path / "spark",
        hash_slots=build.hash_slots,
        max_entries=build.max_entries,
        max_tasks=build.max_tasks,
        compat=build.compat,
    )
    assert contents(tmp_path / "spark") == expected
    assert not (tmp_path / "spark" / "_temporary").exists()
    assert report.ok
    assert report.checked["index_files"] == len(expected)
    assert report.checked["messages"] == len(golden.rows(build.case, "messages"))


@pytest.mark.parametrize("case", ["basic", "rolled"])
def test_slots_and_entries_are_those_of_the_store_s_own_index(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    """As `logdex build-index` does."""
    store = shared_store(case)
    expected = sequential(store, tmp_path / "plain", golden.geometry(case))
    ls.build_index(spark, store, tmp_path / "spark")
    assert contents(tmp_path / "spark") == expected


@pytest.mark.parametrize(
    "name", [name for name in golden.DAMAGED if name.startswith(("crc-", "log-", "magic-", "tag-"))]
)
def test_a_damaged_log_ends_where_a_sequential_build_ends(spark: SparkSession, tmp_path: Path, name: str) -> None:
    store = golden.unpack_damaged(name, tmp_path)
    expected = sequential(store, tmp_path / "plain", (16, 40))
    ls.build_index(spark, store, tmp_path / "spark", hash_slots=16, max_entries=40)
    assert contents(tmp_path / "spark") == expected


def test_last_full_file_is_followed_by_an_empty_one(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """Any entry count that divides the whole, so that the last file is full."""
    sequential(shared_store("basic"), tmp_path / "all", (4, 5000))
    with IndexService.open(tmp_path / "all", hash_slots=4, max_entries=5000) as index:
        total = sum(map(len, index.files))
    divisor = next(n for n in range(20, total) if total % n == 0)
    expected = sequential(shared_store("basic"), tmp_path / "plain", (4, divisor + 1))
    ls.build_index(spark, shared_store("basic"), tmp_path / "spark", hash_slots=4, max_entries=divisor + 1)
    assert contents(tmp_path / "spark") == expected


@pytest.mark.parametrize("case", ["basic", "v5-basic"])
def test_equals_the_brokers_files(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    slots, entries = golden.geometry(case)
    compat: Compat | None = "5.5.0" if case == "v5-basic" else None
    ls.build_index(spark, shared_store(case), tmp_path / "spark", hash_slots=slots, max_entries=entries, compat=compat)
    assert contents(tmp_path / "spark") == contents(shared_store(case) / "index")


def test_existing_index_is_kept_unless_overwritten(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path
) -> None:
    def build(mode: str) -> None:
        ls.build_index(spark, shared_store("sync"), tmp_path / "i", hash_slots=8, max_entries=100, mode=mode)

    build("errorifexists")
    before = contents(tmp_path / "i")
    names = sorted(path.name for path in (tmp_path / "i").iterdir())
    with pytest.raises(FileExistsError):
        build("errorifexists")
    build("overwrite")
    assert contents(tmp_path / "i") == before
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) != names


def test_zone_names_the_files(spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path) -> None:
    made = {}
    for zone in ("Etc/GMT+12", "Etc/GMT-14"):
        target = tmp_path / zone.replace("/", "-")
        ls.build_index(spark, shared_store("sync"), target, hash_slots=8, max_entries=5000, zone=zone)
        (made[zone],) = (path.name for path in target.iterdir() if path.name != "_SUCCESS")
    assert made["Etc/GMT+12"][:8] < made["Etc/GMT-14"][:8]


def test_a_log_without_messages_makes_no_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    report = ls.build_index(spark, tmp_path / "store", tmp_path / "index", hash_slots=8, max_entries=100)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["_SUCCESS"]
    assert report.checked["index_files"] == 0


def test_an_index_of_a_running_broker_is_refused(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").touch()
    monkeypatch.setattr("logdex.rocketmq.index_service.broker_lock_holder", lambda _: 4711)
    with pytest.raises(Exception, match="4711"):
        ls.build_index(spark, shared_store("sync"), tmp_path / "index", hash_slots=8, max_entries=100)
    assert not (tmp_path / "index").exists()


def test_log_files_cover_the_log_without_a_gap(shared_store: Callable[[str], Path]) -> None:
    log = CommitLog.open(shared_store("rolled") / "commitlog")
    files = list_log_files(log)
    assert len(files) == len(log.files) > 1
    assert files[0].begin == log.min_offset
    assert [file.end for file in files[:-1]] == [file.begin for file in files[1:]]
    assert files[-1].end is None
