"""The index of a store that is written: its slots and entries, its tags, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {
    "file_size": 65_536,
    "hash_slots": 100,
    "max_entries": 11,
    "zone": "UTC",
    "services": False,
}


@pytest.mark.parametrize(("slots", "most"), [(7, 70), (50, 1010), (200, 2000), (105, 999)])
@pytest.mark.parametrize("last_exit_ok", [None, False])
def test_other_slots_and_entries_are_refused(tmp_path: Path, slots: int, most: int, *, last_exit_ok: bool) -> None:
    options = SMALL | {"max_entries": 1000}
    with StoreWriter.open(tmp_path, **options) as writer:
        for i in range(5):
            writer.put_message("A", keys=f"k{i}")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    options |= {"hash_slots": slots, "max_entries": most, "last_exit_ok": last_exit_ok}
    with pytest.raises(ValueError, match="100 slots and 1000 entries"):
        StoreWriter.open(tmp_path, **options)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
