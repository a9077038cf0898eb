"""Single index files: the real class's bytes and answers (tests/golden/rocketmq/indexfile), put by put."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pytest

import golden
from logdex.rocketmq import IndexFile, key_hash

if TYPE_CHECKING:
    from pathlib import Path

_Access: TypeAlias = Literal["mmap", "pread"]
_ACCESS: tuple[_Access, ...] = ("mmap", "pread")
_COMPAT: Literal["4.9.3"] = "4.9.3"


@dataclasses.dataclass
class Case:
    """One case, and the open file that its questions go to."""

    data: dict[str, Any]
    path: Path
    access: _Access

    def create(self) -> IndexFile:
        return IndexFile.create(
            self.path,
            hash_slots=self.data["hashSlotNum"],
            max_entries=self.data["indexNum"],
            begin_timestamp=self.data["seedTimestamp"],
            begin_phy_offset=self.data["seedPhyOffset"],
            access=self.access,
            compat=_COMPAT,
        )

    def open(self) -> IndexFile:
        slots, entries = self.data["hashSlotNum"], self.data["indexNum"]
        return IndexFile.open(self.path, hash_slots=slots, max_entries=entries, access=self.access, compat=_COMPAT)


def _case(name: str, folder: Path, access: _Access) -> Case:
    return Case(golden.index_file(name), folder / "20231114221320000", access)


def _crosses_arrow(key: str) -> bool:
    """Arrow strings are UTF-8, which has no lone surrogates; such keys go one by one."""
    return not any("\ud800" <= unit <= "\udfff" for unit in key)


def _put_batches(file: IndexFile, puts: list[Any], *, arrow: bool) -> int:
    """Put all, runs of keys that cross Arrow as one batch; return how many were taken."""
    taken = 0
    for crosses, run in itertools.groupby(puts, lambda put: _crosses_arrow(put[0])):
        if not crosses:
            taken += sum(file.put_key(*put) for put in run)
            continue
        keys, offsets, times = (list(column) for column in zip(*run, strict=True))
        if arrow:
            taken += file.put_batch(
                pa.array(keys, pa.utf8()), pa.array(offsets, pa.int64()), pa.array(times, pa.int64())
            )
        else:
            taken += file.put_batch(keys, offsets, times)
    return taken


def _check_header(file: IndexFile, case: Case) -> None:
    expected = dict(case.data["headerInMemory"])
    assert file.is_full is expected.pop("full")
    header = file.header
    assert {
        "beginTimestamp": header.begin_timestamp,
        "endTimestamp": header.end_timestamp,
        "beginPhyOffset": header.begin_phy_offset,
        "endPhyOffset": header.end_phy_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
    } == expected
    assert len(file) == max(expected["indexCount"], 1) - 1
    assert (file.hash_slots, file.max_entries) == (case.data["hashSlotNum"], case.data["indexNum"])


def _check_answers(file: IndexFile, case: Case) -> None:
    data = case.data
    answers = [file.select_phy_offset(*question) for question in data["selects"]]
    assert answers == data["answers"]
    assert len(answers) == len(data["selects"]) > 0
    matched = [file.is_time_matched(begin, end) for begin, end in data["timeMatched"]]
    assert matched == data["timeMatchedAnswers"]
    assert len(matched) == len(data["timeMatched"]) > 0


def _check_batch_answers(file: IndexFile, case: Case) -> None:
    """Ask every question again, those of one range together."""
    groups: defaultdict[tuple[int, int, int], list[tuple[str, list[int]]]] = defaultdict(list)
    asked = 0
    for (key, *bounds), answer in zip(case.data["selects"], case.data["answers"], strict=True):
        if _crosses_arrow(key):
            groups[tuple(bounds)].append((key, answer))
            asked += 1
    compared = 0
    for (max_num, begin, end), pairs in groups.items():
        found = file.select_batch([key for key, _ in pairs], max_num=max_num, begin=begin, end=end)
        assert pa.array(found).to_pylist() == [answer for _, answer in pairs]
        compared += len(pairs)
    assert compared == asked > 0


@pytest.mark.parametrize("access", _ACCESS)
@pytest.mark.parametrize("name", golden.INDEX_FILES)
def test_puts_one_by_one_give_the_bytes_and_answers(name: str, access: _Access, tmp_path: Path) -> None:
    case = _case(name, tmp_path, access)
    with case.create() as file:
        assert file.access == access
        assert [file.put_key(*put) for put in case.data["puts"]] == case.data["returns"]
        if case.data["flush"]:
            file.flush()
        _check_header(file, case)
        if not case.data["reopen"]:
            _check_answers(file, case)
    assert case.path.read_bytes() == golden.index_file_bytes(name)
    with case.open() as file:
        _check_header(file, case)
        _check_answers(file, case)
    assert case.path.read_bytes() == golden.index_file_bytes(name)


@pytest.mark.parametrize("access", _ACCESS)
@pytest.mark.parametrize("arrow", [False, True], ids=["sequences", "arrow"])
@pytest.mark.parametrize("name", golden.INDEX_FILES)
def test_one_batch_gives_the_bytes_and_answers(name: str, arrow: bool, access: _Access, tmp_path: Path) -> None:
    case = _case(name, tmp_path, access)
    with case.create() as file:
        assert _put_batches(file, case.data["puts"], arrow=arrow) == sum(case.data["returns"])
        if case.data["flush"]:
            file.flush()
        _check_header(file, case)
        _check_batch_answers(file, case)
    assert case.path.read_bytes() == golden.index_file_bytes(name)


@pytest.mark.parametrize("name", golden.INDEX_FILES)
def test_key_hashes(name: str) -> None:
    data = golden.index_file(name)
    hashes = [key_hash(key) for key, _, _ in data["puts"]]
    assert hashes == data["keyHashes"]
    assert len(hashes) == len(data["puts"])


def test_the_cases_ask_enough() -> None:
    cases = [golden.index_file(name) for name in golden.INDEX_FILES]
    assert sum(len(case["puts"]) for case in cases) == 4_192
    assert sum(len(case["selects"]) for case in cases) == 2_594
    assert sum(len(case["timeMatched"]) for case in cases) == 391
