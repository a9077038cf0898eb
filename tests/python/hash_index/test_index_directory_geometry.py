"""Slots and entries that are not those of the files are refused for writing, before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import entries, messages, snapshot
from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from pathlib import Path

RIGHT: dict[str, Any] = {"hash_slots": 100, "max_entries": 1000}
WRONG = [(7, 70), (50, 1010), (200, 2000), (105, 999), (100, 900), (100, 2000)]


def make_index(directory: Path, count: int) -> None:
    with IndexService.open(directory, mode="a", **RIGHT) as index:
        index.put_batch(entries([f"k{i}" for i in range(count)]))


@pytest.mark.parametrize(("slots", "most"), WRONG)
@pytest.mark.parametrize("count", [5, 600, 1500])
@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_other_slots_and_entries_are_refused(
    tmp_path: Path, slots: int, most: int, count: int, *, last_exit_ok: bool
) -> None:
    make_index(tmp_path, count)
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match=rf"{slots} slots and {most} entries make .* 100 slots and 1000 entries"):
        IndexService.open(tmp_path, mode="a", hash_slots=slots, max_entries=most, last_exit_ok=last_exit_ok)
    assert snapshot(tmp_path) == before
    with IndexService.open(tmp_path, mode="a", **RIGHT) as index:
        assert index.verify().ok
        assert index.query_offset("T", "k4").phy_offsets == [1040]


def test_a_file_without_an_entry_may_not_be_too_long(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **RIGHT) as index:
        index.build_index(messages({"phy_offset": 10}))
    with pytest.raises(ValueError, match="7 slots and 70 entries make 1468 bytes, but the file has others in 20440"):
        IndexService.open(tmp_path, mode="a", hash_slots=7, max_entries=70)


@pytest.mark.parametrize("length", [20_540, 15_000])
def test_a_file_of_another_length_beside_a_right_one_is_damage(tmp_path: Path, length: int) -> None:
    make_index(tmp_path, 1500)
    first = min(tmp_path.iterdir())
    with first.open("r+b") as file:
        file.truncate(length)
    with IndexService.open(tmp_path, mode="a", **RIGHT) as index:
        assert [finding.kind for finding in index.verify().findings][:1] == ["file-size"]


@pytest.mark.parametrize(("slots", "most"), WRONG[:5])
@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_other_slots_and_entries_are_refused_for_reading(tmp_path: Path, slots: int, most: int, access: Any) -> None:
    make_index(tmp_path, 1500)
    what = rf"{slots} slots and {most} entries make .* 100 slots and 1000 entries in 20440 bytes"
    with pytest.raises(ValueError, match=what):
        IndexService.open(tmp_path, hash_slots=slots, max_entries=most, access=access)


def test_a_broker_with_other_slots_and_entries_answers_nonsense(tmp_path: Path) -> None:
    make_index(tmp_path, 600)
    with IndexService.open(tmp_path, hash_slots=7, max_entries=70, compat="4.9.3") as index:
        assert index.query_offset("T", "k4").phy_offsets == []


@pytest.mark.parametrize("count", [0, 2, 600])
@pytest.mark.parametrize("length", [15_000, 21_440])
def test_a_shorter_or_longer_file_is_read_with_the_slots_and_entries_that_it_had(
    tmp_path: Path, count: int, length: int
) -> None:
    make_index(tmp_path, count)
    for file in tmp_path.iterdir():
        with file.open("r+b") as opened:
            opened.truncate(length)
    with IndexService.open(tmp_path, **RIGHT) as index:
        assert index.query_offset("T", "k1").phy_offsets == ([1010] if count else [])
