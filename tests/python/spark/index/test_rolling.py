"""Index files that a task fills one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from logdex.errors import IndexFullError
from logdex.spark.index.rolling import ROW_SCHEMA, RollingFiles

if TYPE_CHECKING:
    from pathlib import Path


def rows(count: int) -> pa.RecordBatch:
    numbers = list(range(count))
    return pa.record_batch([pa.array(numbers, field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


def test_a_full_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, hash_slots=4, max_entries=4)
    files.put(rows(7))
    assert [file.entries for file in files.close()] == [3, 3, 1]


def test_files_without_room_are_an_error_not_a_loop(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, hash_slots=4, max_entries=1)
    with pytest.raises(IndexFullError, match="max_entries is 1"):
        files.put(rows(1))
    assert len(list(tmp_path.iterdir())) == 1
