"""A writer's death between any two of its memory stores: the stores of a run, applied one by one.

The stores are those between two snapshots of the file, in the order of docs/formats/rocketmq-index.md, "Publication", or in
the broker's own order (IndexFile#putKey).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import T0, entries
from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HASH_SLOTS, MAX_ENTRIES = 7, 60
GEOMETRY: dict[str, Any] = {"hash_slots": HASH_SLOTS, "max_entries": MAX_ENTRIES}
FIRST_ENTRY = 40 + 4 * HASH_SLOTS

BEGIN, SLOT_COUNT, COUNT, END = ((16, 20, 0, 4), (32,), (36,), (24, 28, 8, 12))
ENTRIES = tuple(range(FIRST_ENTRY, FIRST_ENTRY + 20 * MAX_ENTRIES, 4))
SLOTS = tuple(range(40, FIRST_ENTRY, 4))
OURS = (*BEGIN, *ENTRIES, *SLOT_COUNT, *COUNT, *SLOTS, *END)
BROKERS = (*ENTRIES, *SLOTS, *BEGIN, *SLOT_COUNT, *COUNT, *END)

KEYS = [f"k{i % 9}" for i in range(40)]
COLUMNS = entries(KEYS)


def put(index: IndexService, first: int, end: int) -> None:
    index.put_batch({name: values[first:end] for name, values in COLUMNS.items()})


def run(directory: Path, blocks: list[tuple[int, int]]) -> list[bytes]:
    """Put blocks of rows; return the file before and after each."""
    images = [bytes(FIRST_ENTRY + 20 * MAX_ENTRIES)]
    with IndexService.open(directory, mode="a", **GEOMETRY) as index:
        for first, end in blocks:
            put(index, first, end)
            images.append(index.files[0].path.read_bytes())
    return images


def stores(images: list[bytes], order: tuple[int, ...]) -> Iterator[tuple[int, bytes]]:
    """Return the number of whole blocks, and the file after each store."""
    for done, (before, after) in enumerate(itertools.pairwise(images)):
        now = bytearray(before)
        yield done, bytes(now)
        for at in order:
            if after[at : at + 4] != now[at : at + 4]:
                now[at : at + 4] = after[at : at + 4]
                yield done, bytes(now)
        assert bytes(now) == after


def check(index: IndexService, whole: int, *, begun: int) -> None:
    """All rows of whole blocks are found, and no row that was never put."""
    for key in set(KEYS):
        found = index.query_offset("T", key).phy_offsets
        offsets = [COLUMNS["phy_offset"][row] for row in range(begun) if KEYS[row] == key]
        certain = [COLUMNS["phy_offset"][row] for row in range(whole) if KEYS[row] == key]
        assert set(certain) <= set(found) <= set(offsets), (key, whole)
        assert len(found) == len(set(found))


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("blocks", "order"),
    [
        pytest.param([(0, 3), (3, 20), (20, 40)], OURS, id="blocks"),
        pytest.param([(row, row + 1) for row in range(12)], OURS, id="single puts"),
        pytest.param([(row, row + 1) for row in range(12)], BROKERS, id="the broker's single puts"),
    ],
)
def test_a_cut_loses_no_whole_block(
    tmp_path: Path,
    blocks: list[tuple[int, int]],
    order: tuple[int, ...],
    access: Any,
) -> None:
    images = run(tmp_path / "index", blocks)
    path = next((tmp_path / "index").iterdir())
    cuts = 0
    for done, image in stores(images, order):
        path.write_bytes(image)
        whole = blocks[done - 1][1] if done else 0
        begun = blocks[done][1]
        for compat in (None, "4.9.3"):
            with IndexService.open(tmp_path / "index", access=access, compat=compat, **GEOMETRY) as index:
                check(index, whole, begun=begun)
        with IndexService.open(tmp_path / "index", mode="a", access=access, **GEOMETRY) as index:
            check(index, whole, begun=begun)
            report = index.verify()
            assert report.ok, f"after {cuts} stores: {report}"
            put(index, begun, len(KEYS))
            for key in set(KEYS):
                late = {COLUMNS["phy_offset"][row] for row in range(begun, len(KEYS)) if KEYS[row] == key}
                assert late <= set(index.query_offset("T", key).phy_offsets)
            assert index.verify().ok
        cuts += 1
    assert cuts > 50


def test_a_cut_while_a_file_is_created_loses_nothing(tmp_path: Path) -> None:
    with IndexService.open(tmp_path / "index", mode="a", hash_slots=7, max_entries=5) as index:
        put(index, 0, 5)
    full, rolled = sorted((tmp_path / "index").iterdir())
    size = rolled.stat().st_size
    header = full.read_bytes()[:40]
    end_time, end_offset = header[8:16], header[24:32]
    seeds = [b"", bytes(16) + end_offset, bytes(16) + 2 * end_offset, end_time + bytes(8) + 2 * end_offset]
    for image in (b"", *(seed.ljust(size, b"\0") for seed in (*seeds, 2 * end_time + 2 * end_offset))):
        rolled.write_bytes(image)
        with IndexService.open(tmp_path / "index", hash_slots=7, max_entries=5) as index:
            assert [index.query_offset("T", key).phy_offsets for key in KEYS[:4]] == [[1000 + 10 * i] for i in range(4)]
        with IndexService.open(tmp_path / "index", mode="a", hash_slots=7, max_entries=5) as index:
            put(index, 4, 6)
            assert [index.query_offset("T", key).phy_offsets for key in KEYS[:6]] == [[1000 + 10 * i] for i in range(6)]
            time = T0 + 5000
            assert index.query_offset("T", KEYS[5], begin=time, end=time).phy_offsets == [1050]
        for path in (tmp_path / "index").iterdir():
            if path not in (full, rolled):
                path.unlink()
