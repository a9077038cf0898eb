"""Entries and messages that cannot be put are refused before an index file, or its directory, is made."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from pathlib import Path

GOOD: dict[str, Any] = {
    "topic": pa.array(["T", "T"]),
    "key": pa.array(["a", "b"]),
    "phy_offset": pa.array([1, 2]),
    "store_timestamp": pa.array([1_700_000_000_000, 1_700_000_001_000]),
}


def _runs(values: pa.Array) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


NULL_TEXT = pa.array(["a", None])
NULL_NUMBER = pa.array([1, None])
BAD_TEXT = {
    "runs with a null": _runs(NULL_TEXT),
    "dictionary with a null": NULL_TEXT.dictionary_encode(),
    "dictionary whose value is null": pa.DictionaryArray.from_arrays(pa.array([0, 1]), NULL_TEXT),
    "runs of a dictionary with a null": _runs(NULL_TEXT.dictionary_encode()),
    "null": pa.nulls(2),
    "list": pa.array([["a"], ["b"]]),
    "list view": pa.array([["a"], ["b"]], pa.list_view(pa.string())),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
    "number": pa.array([1, 2]),
    "hash": pa.array([1, 2], pa.int32()),
    "boolean": pa.array([True, False]),
    "runs of numbers": _runs(pa.array([1, 2])),
    "chunks with a null": pa.chunked_array([["a"], [None]]),
    "sequence with a number": ["a", 5],
    "sequence with a null": ["a", None],
    "sequence with a lone surrogate": ["a", "\ud800"],
    "one text": "ab",
    "too short": ["a"],
}
BAD_NUMBERS = {
    "runs with a null": _runs(NULL_NUMBER),
    "dictionary with a null": NULL_NUMBER.dictionary_encode(),
    "null": pa.nulls(2),
    "text": pa.array(["1", "2"]),
    "float": pa.array([1.5, 2.5]),
    "decimal": pa.array([1, 2], pa.decimal128(5)),
    "list": pa.array([[1], [2]]),
    "more than 64 bits with a sign": pa.array([2**64 - 1, 1], pa.uint64()),
    "sequence with a text": [1, "2"],
    "sequence with a null": [1, None],
    "sequence with 70 bits": [1, 2**70],
    "number": 5,
    "too short": [1],
}
BAD = [
    *((column, name) for column in ("topic", "key") for name in BAD_TEXT),
    *((column, name) for column in ("phy_offset", "store_timestamp") for name in BAD_NUMBERS),
]


def _bad(column: str, name: str) -> dict[str, Any]:
    values = BAD_TEXT if column in ("topic", "key") else BAD_NUMBERS
    return {**GOOD, column: values[name]}


def _is_arrow(column: str, name: str) -> bool:
    return isinstance(_bad(column, name)[column], pa.Array | pa.ChunkedArray)


@pytest.mark.parametrize(("column", "name"), BAD)
def test_entries_in_a_mapping(tmp_path: Path, column: str, name: str) -> None:
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=9, max_entries=9) as index:
        with pytest.raises((ValueError, TypeError)):
            index.put_batch(_bad(column, name))
        assert not (tmp_path / "index").exists()
        assert index.put_batch(GOOD) == 2


@pytest.mark.parametrize(("column", "name"), [bad for bad in BAD if _is_arrow(*bad)])
def test_entries_in_a_table(tmp_path: Path, column: str, name: str) -> None:
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=9, max_entries=9) as index:
        with pytest.raises((ValueError, TypeError)):
            index.put_batch(pa.table(_bad(column, name)))
        assert not (tmp_path / "index").exists()


def test_a_time_without_zone_and_a_number_of_threads(tmp_path: Path) -> None:
    naive = [datetime(2026, 1, 1), datetime(2026, 1, 1)]  # noqa: DTZ001 -- the point
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=9, max_entries=9) as index:
        with pytest.raises(TypeError, match="time zone"):
            index.put_batch({**GOOD, "store_timestamp": naive})
        for threads in (0, -1, 65):
            with pytest.raises(ValueError, match=f"threads is 1 to 64, not {threads}"):
                index.put_batch(GOOD, threads=threads)
        assert not (tmp_path / "index").exists()
        assert index.put_batch(GOOD, threads=64) == 2


MESSAGES: dict[str, Any] = {
    **{name: GOOD[name] for name in ("topic", "phy_offset", "store_timestamp")},
    "uniq_key": pa.array(["a", "b"]),
    "keys": pa.array(["k", None]),
    "tags": pa.array([None, "t"]),
    "sys_flag": pa.array([0, 0], pa.int32()),
}


@pytest.mark.parametrize("name", ["list", "list view", "struct", "map", "number", "boolean", "runs of numbers"])
@pytest.mark.parametrize("column", ["topic", "uniq_key", "keys", "tags"])
def test_texts_of_messages(tmp_path: Path, column: str, name: str) -> None:
    with IndexService.open(tmp_path / "index", mode="a", compat="5.5.0") as index:
        with pytest.raises(TypeError, match=f"column {column}: expected text"):
            index.build_index(pa.table({**MESSAGES, column: BAD_TEXT[name]}))
        assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("name", ["null", "runs with a null", "dictionary with a null"])
@pytest.mark.parametrize("column", ["topic"])
def test_nulls_of_messages(tmp_path: Path, column: str, name: str) -> None:
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=9, max_entries=9) as index:
        with pytest.raises((ValueError, TypeError)):
            index.build_index(pa.table({**MESSAGES, column: BAD_TEXT[name]}))
        assert not (tmp_path / "index").exists()
        assert index.build_index(pa.table(MESSAGES)) == 3


@pytest.mark.parametrize("name", ["null", "text", "float", "list", "runs with a null", "dictionary with a null"])
@pytest.mark.parametrize("column", ["phy_offset", "store_timestamp", "sys_flag"])
def test_numbers_of_messages(tmp_path: Path, column: str, name: str) -> None:
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=9, max_entries=9) as index:
        with pytest.raises((ValueError, TypeError)):
            index.build_index(pa.table({**MESSAGES, column: BAD_NUMBERS[name]}))
        assert not (tmp_path / "index").exists()
