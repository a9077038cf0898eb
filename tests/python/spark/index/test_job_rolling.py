"""Index files that a task fills one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from logdex.errors import IndexFullError
from logdex.rocketmq import IndexFile
from logdex.spark.index.job import RollingFiles

if TYPE_CHECKING:
    from pathlib import Path


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    columns = {"key_hash": pa.array(numbers, pa.int32()), "phy_offset": numbers, "store_timestamp": numbers}
    return pa.record_batch(columns)


def test_a_full_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, hash_slots=4, max_entries=4)
    files.put(rows(7))
    assert [file.entries for file in files.close()] == [3, 3, 1]


def test_files_without_room_are_an_error_not_a_loop(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, hash_slots=4, max_entries=1)
    with pytest.raises(IndexFullError, match="max_entries is 1"):
        files.put(rows(1))
    assert len(list(tmp_path.iterdir())) == 1


def test_seeded_files_are_those_of_a_sequential_writer(tmp_path: Path) -> None:
    for name in ("all", "part"):
        (tmp_path / name).mkdir()
    whole = RollingFiles(tmp_path / "all", hash_slots=4, max_entries=4)
    whole.put(rows(9, first=1_000))
    part = RollingFiles(tmp_path / "part", hash_slots=4, max_entries=4, seed=(1_002, 1_002))
    part.put(rows(6, first=1_003))
    ours, theirs = ([tmp_path / file.path for file in files.close()] for files in (part, whole))
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs[1:]]


def test_a_file_without_entries_is_left_as_it_was_created(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, hash_slots=4, max_entries=4, seed=(7, 8))
    files.put_nothing()
    (file,) = files.close()
    with IndexFile.create(tmp_path / "new", hash_slots=4, max_entries=4, begin_phy_offset=7, begin_timestamp=8):
        pass
    assert file.entries == 0
    assert (tmp_path.parent / file.path).read_bytes() == (tmp_path / "new").read_bytes()
