"""Queues after a power loss that kept any of their pages since the last checkpoint: recovery fills them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZES: dict[str, Any] = {
    "file_size": 65_536,
    "queue_file_size": 2_000,
    "hash_slots": 50,
    "max_entries": 500,
    "zone": "UTC",
}
COUNT = 950


def crashed(root: Path, count: int = COUNT, *, flushed: int = 0) -> Path:
    """Return a copy of a store whose units are written and not flushed, but for the first `flushed` messages."""
    left = root.with_name("left")
    with StoreWriter.open(root, **SIZES, services=False) as writer:
        for number in range(count):
            writer.put_message("T", b"x" * 50, keys=f"k{number}", tags="tag")
            if number + 1 == flushed:
                writer.flush()
        # Delivery writes the units without a flush.
        writer.deliver_due(0)
        shutil.copytree(root, left)
    return left


def queue(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "T" / "0").iterdir())


def zero(path: Path, begin: int = 0, end: int = 2_000) -> None:
    content = bytearray(path.read_bytes())
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)


def an_old_file(files: list[Path]) -> None:
    zero(files[1])


def a_missing_file(files: list[Path]) -> None:
    files[2].unlink()


def the_first_file(files: list[Path]) -> None:
    zero(files[0])


def every_other_sector(files: list[Path]) -> None:
    for path in files:
        for begin in range(0, 2_000, 1_024):
            zero(path, begin, min(begin + 512, 2_000))


@pytest.mark.parametrize("lose", [an_old_file, a_missing_file, the_first_file, every_other_sector])
@pytest.mark.parametrize("flushed", [0, 80])
def test_a_hole_is_found_and_filled(tmp_path: Path, lose: Callable[[list[Path]], None], flushed: int) -> None:
    root = crashed(tmp_path / "store", flushed=flushed)
    whole = [path.read_bytes() for path in queue(root)]
    assert len(whole) == 10
    # What was flushed is on the disk.
    lose(queue(root)[1 if flushed else 0 :])
    with StoreWriter.open(root, **SIZES, services=False) as writer:
        assert [finding.kind for finding in writer.recovered.findings] == (
            ["file-gap"] if lose is a_missing_file else ["queue-unit"]
        ) or lose is the_first_file
        assert writer.recovered.checked["units_added"] >= 75
    assert [path.read_bytes() for path in queue(root)] == whole
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        assert store.queue("T", 0).units(0, 2 * COUNT).num_rows == COUNT
    with StoreWriter.open(root, **SIZES, services=False, last_exit_ok=False) as writer:
        assert writer.recovered.ok
        assert writer.recovered.checked["units_added"] == 0


@pytest.mark.parametrize("lost", [False, True])
def test_a_unit_that_is_torn_in_its_tags_is_written_again(tmp_path: Path, *, lost: bool) -> None:
    """Unit 76 begins at byte 1,520, and a sector ends at 1,536: inside the tags code."""
    root = crashed(tmp_path / "store", 77)
    (path,) = queue(root)
    whole = path.read_bytes()
    if lost:
        zero(path, 1_536)
        assert path.read_bytes() != whole
    with StoreWriter.open(root, **SIZES, services=False) as writer:
        assert writer.recovered.ok
        assert writer.recovered.checked["units_added"] == lost
    assert path.read_bytes() == whole
