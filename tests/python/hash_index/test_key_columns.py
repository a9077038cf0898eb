"""Columns of keys in every form that a batch call takes, and the hashes that may stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    assert _core.offset_order(offsets).to_pylist() == sorted(range(len(offsets)), key=lambda row: offsets[row])


def test_a_null_offset_has_no_place() -> None:
    with pytest.raises(ValueError, match="row 1 has no phy_offset"):
        _core.offset_order([1, None])
