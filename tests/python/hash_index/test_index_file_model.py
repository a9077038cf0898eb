"""The plain model gives the real class's bytes and answers; `IndexFile` gives the model's, for any puts and questions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden
from index_file_model import IndexFileModel, key_hash
from logdex import rocketmq
from logdex.rocketmq import IndexFile

_T0 = 1_700_000_000_000
_I64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Few keys, so that they meet in slots and hashes; some share one hash, some have the hash that has no absolute value.
_KEYS = st.sampled_from(
    ["T#Aa", "T#BB", "T#a", "T#b", "", "\0", "polygenelubricants", "T#\U0001f600", "T#\ud83d"]
) | st.text(max_size=6)
_NEAR = st.integers(_T0 - 5_000, _T0 + 70_000)
_TIMES = _NEAR | st.sampled_from([0, -1, 1, _T0 + (1 << 31) * 1000]) | _I64
_PUTS = st.lists(st.tuples(_KEYS, _I64, _TIMES), max_size=40)
_QUESTIONS = st.lists(st.tuples(_KEYS, st.integers(-1, 70), _TIMES, _TIMES), max_size=20)


@pytest.mark.parametrize("name", golden.INDEX_FILES)
def test_model_is_the_real_class(name: str) -> None:
    case = golden.index_file(name)
    model = _model(case)
    assert [model.put_key(*put) for put in case["puts"]] == case["returns"]
    assert [key_hash(key) for key, _, _ in case["puts"]] == case["keyHashes"]
    if case["flush"]:
        model.flush()
    assert bytes(model.content) == golden.index_file_bytes(name)
    assert [model.select(*question) for question in case["selects"]] == case["answers"]
    assert [model.is_time_matched(*times) for times in case["timeMatched"]] == case["timeMatchedAnswers"]


def _model(case: dict[str, Any]) -> IndexFileModel:
    return IndexFileModel(case["hashSlotNum"], case["indexNum"], case["seedTimestamp"], case["seedPhyOffset"])


@given(st.text(st.characters()))
def test_key_hash_is_the_models(key: str) -> None:
    assert rocketmq.key_hash(key) == key_hash(key)


@given(
    hash_slots=st.integers(1, 12),
    max_entries=st.integers(1, 44),
    seeds=st.tuples(st.sampled_from([0, -5, _T0]), st.sampled_from([0, 7])),
    puts=_PUTS,
    cut=st.integers(0, 40),
    questions=_QUESTIONS,
    access=st.sampled_from(["mmap", "pread"]),
)
def test_index_file_is_the_model_in_compat(  # noqa: PLR0917 - named by hypothesis
    hash_slots: int,
    max_entries: int,
    seeds: tuple[int, int],
    puts: list[tuple[str, int, int]],
    cut: int,
    questions: list[tuple[str, int, int, int]],
    access: Any,
) -> None:
    """The first puts go one by one, the others in batches where Arrow can hold the keys."""
    model = IndexFileModel(hash_slots, max_entries, *seeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "20231114221320000"
        with IndexFile.create(
            path,
            hash_slots=hash_slots,
            max_entries=max_entries,
            begin_timestamp=seeds[0],
            begin_phy_offset=seeds[1],
            access=access,
            compat="4.9.3",
        ) as file:
            expected = [model.put_key(*put) for put in puts]
            cut = cut if all(_crosses_arrow(key) for key, _, _ in puts[cut:]) else len(puts)
            assert [file.put_key(*put) for put in puts[:cut]] == expected[:cut]
            rest = puts[cut:]
            taken = file.put_batch(
                [key for key, _, _ in rest], [phy for _, phy, _ in rest], [time for *_, time in rest]
            )
            assert taken == sum(expected[cut:])
            header = file.header
            assert (
                header.begin_timestamp,
                header.end_timestamp,
                header.begin_phy_offset,
                header.end_phy_offset,
                header.hash_slot_count,
                header.index_count,
            ) == model.header
            for key, max_num, begin, end in questions:
                assert file.select_phy_offset(key, max_num, begin, end) == model.select(key, max_num, begin, end)
                assert file.is_time_matched(begin, end) is model.is_time_matched(begin, end)
        assert path.read_bytes() == bytes(model.content)


@given(puts=st.lists(st.tuples(_KEYS, _I64, _NEAR), max_size=40), key=_KEYS, begin=_NEAR, end=_NEAR)
def test_default_answers_miss_nothing(puts: list[tuple[str, int, int]], key: str, begin: int, end: int) -> None:
    """Every put of the key inside the range is among the answers, newest first; all answers have the key's hash."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "20231114221320000"
        with IndexFile.create(path, hash_slots=7, max_entries=44) as file:
            assert all(file.put_key(*put) for put in puts)
            everything = [offset for other, offset, _ in reversed(puts) if key_hash(other) == key_hash(key)]
            assert file.select_phy_offset(key) == everything
            answers = iter(file.select_phy_offset(key, None, begin, end))
            for other, offset, time in reversed(puts):
                if key_hash(other) == key_hash(key) and begin <= time <= end:
                    assert offset in answers
            assert file.is_time_matched(begin, end) or not any(begin <= time <= end for _, _, time in puts)


def _crosses_arrow(key: str) -> bool:
    return not any("\ud800" <= unit <= "\udfff" for unit in key)
