"""Columns of keys in every form that a batch call takes, and the hashes that may stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index_file_model import key_hash
from logdex import _core
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = [
    "a",
    "",
    "order-1",
    "caf\u00e9",
    "\u8ba2\u5355",
    "\U0001f600 and more than thirty-two bytes of text",
    "polygenelubricants",
]
TOPICS = ["T", "T", "TopicTest", "T", "caf\u00e9", "T", ""]
FORMS: dict[str, Callable[[list[str | None]], Any]] = {
    "utf8": pa.array,
    "large": lambda texts: pa.array(texts, pa.large_utf8()),
    "view": lambda texts: pa.array(texts, pa.string_view()),
    "dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "runs": lambda texts: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(texts) + 1), pa.int32()), pa.array(texts)
    ),
    "binary": lambda texts: pa.array(texts).cast(pa.binary()),
    "slice": lambda texts: pa.array(["x", *texts]).slice(1),
    "chunked": lambda texts: pa.chunked_array([texts[:2], texts[2:]]),
    "list": list,
}


@pytest.mark.parametrize("form", FORMS)
def test_hashes_of_a_column(form: str) -> None:
    column = FORMS[form]
    assert _core.key_hashes(column([*KEYS])).to_pylist() == [key_hash(key) for key in KEYS]
    joined = [key_hash(f"{topic}#{key}") for topic, key in zip(TOPICS, KEYS, strict=True)]
    assert _core.key_hashes(column([*KEYS]), topics=column([*TOPICS])).to_pylist() == joined
    under_one = [key_hash(f"T#{key}") for key in KEYS]
    assert _core.key_hashes(column([*KEYS]), topics="T").to_pylist() == under_one


@pytest.mark.parametrize("form", FORMS)
def test_a_null_has_no_hash(form: str) -> None:
    keys, topics = FORMS[form](["a", None, "b", "c"]), FORMS[form](["T", "T", None, "T"])
    expected = [key_hash("T#a"), None, None, key_hash("T#c")]
    assert _core.key_hashes(keys, topics=topics).to_pylist() == expected


@pytest.mark.parametrize("key", [b"k\xed\xa0\x80", b"\xf0\x9f\x98k", b"\xff"])
def test_bytes_that_are_no_utf8_hash_as_java_decodes_them(key: bytes) -> None:
    """In a sequence, in Arrow, alone, and behind a topic."""
    expected = _core.key_hash(b"T#" + key)
    for keys in ([key], pa.array([key])):
        assert _core.key_hashes(keys, topics="T").to_pylist() == [expected]
        assert _core.key_hashes(keys, topics=["T"]).to_pylist() == [expected]
    for keys in ([b"T#" + key], pa.array([b"T#" + key])):
        assert _core.key_hashes(keys).to_pylist() == [expected]


def test_a_key_may_hold_a_lone_surrogate() -> None:
    assert _core.index_key("T", "k\ud800") == "T#k\ud800"
    assert _core.key_hash(_core.index_key("T", "k\ud800")) == key_hash("T#k\ud800")


def test_numbers_in_every_form(tmp_path: Path) -> None:
    offsets, times = [5, 5, 70], [1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000]
    stamps = pa.array(times).cast(pa.timestamp("ms", "UTC"))
    forms: list[tuple[Any, Any]] = [
        (offsets, times),
        (pa.array(offsets, pa.int8()), stamps.cast(pa.timestamp("s", "UTC"))),
        (pa.array(offsets, pa.uint64()), stamps.cast(pa.timestamp("ns", "Asia/Tokyo"))),
        (pa.array(offsets).dictionary_encode(), stamps.dictionary_encode()),
        (
            pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 70])),
            pa.chunked_array([stamps]),
        ),
    ]
    for number, (phy_offsets, store_timestamps) in enumerate(forms):
        with IndexFile.create(tmp_path / str(number), hash_slots=4, max_entries=10) as file:
            assert file.put_batch(["a", "b", "c"], phy_offsets, store_timestamps) == 3
        assert (tmp_path / str(number)).read_bytes() == (tmp_path / "0").read_bytes()


def test_a_column_of_nulls_alone_has_no_type_and_no_numbers(tmp_path: Path) -> None:
    with IndexFile.create(tmp_path / "f", hash_slots=4, max_entries=10) as file:
        for phy_offsets, times in ((pa.nulls(1), [1]), ([1], pa.nulls(1))):
            with pytest.raises(ValueError, match="row 0 has no"):
                file.put_batch(["a"], phy_offsets, times)
        assert file.put_batch(pa.array([]), pa.array([]), pa.array([])) == 0
        assert len(file) == 0


@pytest.mark.parametrize("huge", [1 << 63, -(1 << 63) - 1, 10**30])
def test_a_number_of_more_than_64_bits_is_a_value_error(huge: int, tmp_path: Path) -> None:
    with IndexFile.create(tmp_path / "f", hash_slots=4, max_entries=10) as file:
        calls: tuple[Callable[[], object], ...] = (
            lambda: file.put_key("a", huge, 0),
            lambda: file.put_key("a", 0, huge),
            lambda: file.put_batch(["a"], [huge], [0]),
            lambda: file.put_batch(["a"], [0], [huge]),
            lambda: file.select_phy_offset("a", huge),
            lambda: file.select_phy_offset("a", begin=huge),
            lambda: file.select_batch(["a"], max_num=huge),
            lambda: file.select_batch(["a"], end=huge),
        )
        for call in calls:
            with pytest.raises(ValueError, match="64-bit"):
                call()
        assert len(file) == 0


def test_a_time_finer_than_a_millisecond_rounds_into_the_range() -> None:
    """A datetime counts microseconds, pandas' own nanoseconds."""
    for nanos in (1, 999, 1_000, 999_999):
        time = pd.Timestamp(1_700_000_000_123_000_000 + nanos, tz="Asia/Tokyo")
        assert _core.time_ms(time) == 1_700_000_000_124
        assert _core.time_ms(time, end=True) == 1_700_000_000_123
    whole = pd.Timestamp(-1_000_000, tz="UTC")
    assert _core.time_ms(whole) == _core.time_ms(whole, end=True) == -1


def test_a_negative_number_of_rows_or_threads_is_refused(tmp_path: Path) -> None:
    with IndexFile.create(tmp_path / "f", hash_slots=4, max_entries=10) as file:
        with pytest.raises(ValueError, match="batch_size=-1: expected 1 or more"):
            file.entries(-1)
        with pytest.raises(ValueError, match="threads=-1: expected 1 to 64"):
            file.put_batch(["a"], [0], [0], threads=-1)
        with pytest.raises(ValueError, match="start=-1: expected 0 or more"):
            file.put_batch(["a"], [0], [0], start=-1)


def test_hashes_stand_for_keys(tmp_path: Path) -> None:
    offsets, times = [100 * n for n in range(len(KEYS))], [1_700_000_000_000 + n for n in range(len(KEYS))]
    hashes = _core.key_hashes(KEYS)
    for name, keys in (("keys", KEYS), ("hashes", hashes)):
        with IndexFile.create(tmp_path / name, hash_slots=4, max_entries=10) as file:
            assert file.put_batch(keys, offsets, times) == len(KEYS)
    assert (tmp_path / "keys").read_bytes() == (tmp_path / "hashes").read_bytes()
    with IndexFile.open(tmp_path / "keys", hash_slots=4, max_entries=10) as file:
        expected = file.select_batch([*KEYS, None]).to_pylist()
        assert file.select_batch(pa.concat_arrays([pa.array(hashes), pa.nulls(1, pa.int32())])).to_pylist() == expected


def test_a_negative_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 is -5"):
        _core.key_hashes(pa.array([5, -5], pa.int32()))


def test_hashes_cannot_be_joined_with_topics() -> None:
    with pytest.raises(TypeError, match="Int32"):
        _core.key_hashes(pa.array([5], pa.int32()), topics="T")


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=60))
def test_rows_of_one_offset_keep_their_order(offsets: list[int]) -> None:
    held = _core.EntryRows()
    held.add(_core.entry_rows(["T"] * len(offsets), ["k"] * len(offsets), offsets, range(len(offsets))))
    rows = [row for batch in held.sorted() for row in pa.record_batch(batch).column("store_timestamp").to_pylist()]
    assert rows == sorted(range(len(offsets)), key=lambda row: offsets[row])


def test_a_row_with_a_null_is_no_entry() -> None:
    with pytest.raises(ValueError, match="cannot index a row whose phy_offset is null"):
        _core.entry_rows(["T", "T"], ["a", "b"], [1, None], [1, 2])
