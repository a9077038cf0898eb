"""Index files and directories that the real class and logdex fill in turns."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest

from comparison import build_with_the_real_service, first_difference, index_contents
from logdex.rocketmq import IndexFile, IndexService
from traffic import Put, puts, questions
from traffic_messages import Message, columns, messages

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_driver import Driver

GEOMETRY = (113, 1_300)
NAME = "20250102030405006"


class Shape(NamedTuple):
    """Geometry and seeds of a file, and the number of its entries."""

    hash_slots: int
    max_entries: int
    begin_phy_offset: int
    begin_timestamp: int
    rows: int


SHAPES = {
    "partly-full": Shape(97, 5_000, 0, 0, 3_000),
    "seeded": Shape(97, 5_000, 77, 1_699_999_990_000, 3_000),
    "full-in-the-last-part": Shape(53, 900, 5, 1_700_000_000_000, 1_200),
    "full-in-the-second-part": Shape(53, 500, 0, 0, 1_200),
    "one-slot": Shape(1, 600, 0, 0, 500),
}


class Side:
    """Writes one file with one of the two implementations, and opens it again for every part."""

    def __init__(self, path: Path, shape: Shape, driver: Driver) -> None:
        path.parent.mkdir(exist_ok=True)
        self.path, self.shape, self.driver = path, shape, driver

    def real(self, rows: list[Put]) -> int:
        taken = self.driver.ask(
            "index_file_put",
            path=self.path,
            hash_slots=self.shape.hash_slots,
            max_entries=self.shape.max_entries,
            begin_phy_offset=self.shape.begin_phy_offset,
            begin_timestamp=self.shape.begin_timestamp,
            keys=[f"{row.topic}#{row.key}" for row in rows],
            phy_offsets=[row.phy_offset for row in rows],
            store_timestamps=[row.store_timestamp for row in rows],
        )["taken"]
        return sum(taken)

    def batches(self, rows: list[Put]) -> int:
        with self._open() as file:
            return file.put_batch(
                pa.array([f"{row.topic}#{row.key}" for row in rows], pa.utf8()),
                pa.array([row.phy_offset for row in rows], pa.int64()),
                pa.array([row.store_timestamp for row in rows], pa.timestamp("ms", "UTC")),
            )

    def one_by_one(self, rows: list[Put]) -> int:
        with self._open() as file:
            return sum(file.put_key(f"{row.topic}#{row.key}", row.phy_offset, row.store_timestamp) for row in rows)

    def _open(self) -> IndexFile:
        hash_slots, max_entries, begin_phy_offset, begin_timestamp, _ = self.shape
        if self.path.exists():
            return IndexFile.open(self.path, mode="r+", hash_slots=hash_slots, max_entries=max_entries)
        return IndexFile.create(
            self.path,
            hash_slots=hash_slots,
            max_entries=max_entries,
            begin_phy_offset=begin_phy_offset,
            begin_timestamp=begin_timestamp,
        )


@pytest.mark.parametrize("logdex_puts", ["batches", "one_by_one"])
@pytest.mark.parametrize("order", ["real logdex real", "logdex real logdex", "real logdex logdex real logdex"])
@pytest.mark.parametrize("shape", SHAPES)
def test_file_passed_to_and_fro_equals_one_written_by_one_side(
    driver: Driver, tmp_path: Path, shape: str, order: str, logdex_puts: str
) -> None:
    how = SHAPES[shape]
    rows = puts(51, how.rows)
    alone = Side(tmp_path / "alone" / NAME, how, driver)
    ours = Side(tmp_path / "ours" / NAME, how, driver)
    shared = Side(tmp_path / "shared" / NAME, how, driver)

    taken = alone.real(rows)
    assert taken == min(len(rows), how.max_entries - 1)
    assert getattr(ours, logdex_puts)(rows) == taken
    assert first_difference([ours.path.read_bytes()], [alone.path.read_bytes()]) is None

    writers = order.split()
    part = -(-len(rows) // len(writers))
    for place, writer in enumerate(writers):
        put = shared.real if writer == "real" else getattr(shared, logdex_puts)
        put(rows[place * part : (place + 1) * part])
        _both_answer_alike(driver, shared, rows)
    assert first_difference([shared.path.read_bytes()], [alone.path.read_bytes()]) is None


def _both_answer_alike(driver: Driver, side: Side, rows: list[Put]) -> None:
    hash_slots, max_entries, *_ = side.shape
    topics, keys, max_num, begin, end = zip(*questions(52, rows, 100), strict=True)
    full = [f"{topic}#{key}" for topic, key in zip(topics, keys, strict=True)]
    theirs = driver.ask(
        "index_file_select",
        path=side.path,
        hash_slots=hash_slots,
        max_entries=max_entries,
        keys=full,
        max_num=max_num,
        begin=begin,
        end=end,
    )
    with IndexFile.open(side.path, hash_slots=hash_slots, max_entries=max_entries, compat="4.9.3") as file:
        assert len(file) == theirs["header"]["index_count"] - 1
        ours = [file.select_phy_offset(*asked) for asked in zip(full, max_num, begin, end, strict=True)]
    assert ours == theirs["phy_offsets"]
    assert any(ours)


def test_directory_passed_to_and_fro_equals_one_written_by_one_side(driver: Driver, tmp_path: Path) -> None:
    made = messages(puts(53, 9_000), seed=54)
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    build_with_the_real_service(driver, alone, made, GEOMETRY)

    # Opened anew for each part: every time the newest file is half full.
    for place, first in enumerate(range(0, len(made), 500)):
        part = made[first : first + 500]
        if place % 2:
            _build_with_logdex(shared, part)
        else:
            build_with_the_real_service(driver, shared, part, GEOMETRY)
    assert first_difference(index_contents(shared), index_contents(alone)) is None


def _build_with_logdex(root: Path, made: list[Message]) -> None:
    hash_slots, max_entries = GEOMETRY
    index = root / "index"
    with closing(
        IndexService.open(index, mode="a", hash_slots=hash_slots, max_entries=max_entries, zone="UTC")
    ) as service:
        service.build_index(columns(made))
