"""`verify` of a store that logdex writes: queues are flushed one after the other, and none may be reported as missing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.report import Report

SIZES: dict[str, Any] = {"hash_slots": 20, "max_entries": 500}
UNIT = 20


def verify(root: Path) -> Report:
    with MessageStore.open(root, **SIZES) as store:
        return store.verify()


def zero_units(root: Path, topic: str, first: int, end: int) -> None:
    path = root / "consumequeue" / topic / "0" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(first * UNIT)
        file.write(bytes((end - first) * UNIT))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Make a store that a writer has open: 10 messages each in the queues A, B and C, all flushed."""
    root = tmp_path / "store"
    writer = StoreWriter.open(root, file_size=65_536, queue_file_size=400, zone="UTC", services=False, **SIZES)
    for number in range(30):
        writer.put_message("ABC"[number % 3], keys=f"k{number}")
    writer.flush()
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    writer.close()
    return copy


def test_queues_without_files_or_with_an_earlier_end_are_on_their_way(written: Path) -> None:
    shutil.rmtree(written / "consumequeue" / "A")
    zero_units(written, "B", 6, 10)
    report = verify(written)
    assert report.ok, report
    assert report.checked["messages_not_dispatched"] == 10 + 4
    assert report.checked["units_followed"] == 6 + 10


def test_a_hole_is_a_finding_all_the_same(written: Path) -> None:
    zero_units(written, "B", 4, 6)
    assert "queue-missing" in {finding.kind for finding in verify(written).findings}


def test_a_broker_has_a_unit_for_what_came_before_others(written: Path) -> None:
    (written / "abort").write_bytes(b"")
    shutil.rmtree(written / "consumequeue" / "A")
    assert [finding.kind for finding in verify(written).findings] == ["queue-missing"]


def test_after_its_end_no_queue_may_be_missing(written: Path) -> None:
    (written / "abort").unlink()
    shutil.rmtree(written / "consumequeue" / "A")
    assert [finding.kind for finding in verify(written).findings] == ["queue-missing"]
