"""IndexService.recover: in compat the index after a broker's start that follows a kill, by default all keys of the log."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

import golden
from logdex.rocketmq import CommitLog, IndexService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FIELDS = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_compat_indexes_again_what_a_broker_does(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    info = golden.info(case)
    rows = golden.rows(case, "restart_queries")
    with (
        CommitLog.open(root / "commitlog", compat=info["broker"]) as log,
        IndexService.open(
            root / "index", mode="a", last_exit_ok=False, compat=info["broker"], zone=info["zone"]
        ) as index,
    ):
        assert index.recover(log) > 0
        files = golden.rows(case, "restart_index_files")
        headers = [
            (h.begin_timestamp, h.end_timestamp, h.begin_phy_offset, h.end_phy_offset, h.hash_slot_count, h.index_count)
            for h in (file.header for file in index.files)
        ]
        assert headers == [tuple(row[field] for field in _FIELDS) for row in files]
        kept = 0
        for file, row in zip(index.files, files, strict=True):
            # Rebuilt files have names of that start, and no digest.
            if "sha256" in row:
                assert file.path.name == row["file"]
                assert hashlib.sha256(file.path.read_bytes()).hexdigest() == row["sha256"]
                kept += 1
        assert kept
        compared = 0
        for row in rows:
            key = f"T#{row['key']}" if row.get("type") == "T" else row["key"]
            question = (row["topic"], key, row["maxNum"], row["begin"], row["end"])
            compared += 1
            if "exception" in row["index"]:
                with pytest.raises(ValueError, match="negative"):
                    index.query_offset(*question)
                continue
            answer = index.query_offset(*question)
            assert {
                "offsets": answer.phy_offsets,
                "lastTimestamp": answer.index_last_update_timestamp,
                "lastPhyOffset": answer.index_last_update_phyoffset,
            } == row["index"], row
    assert compared == len(rows)


# In the third killed store names and offsets disagree, so the first new file has another predecessor.
@pytest.mark.parametrize("case", ["killed", "v5-killed"])
def test_by_default_an_index_without_its_log_beside_it_gets_all_back(
    case: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = store(case)
    before = sorted(path.read_bytes() for path in (root / "index").iterdir())
    alone = tmp_path / "alone"
    shutil.copytree(root / "index", alone)
    newest = sorted(alone.iterdir(), key=lambda path: path.read_bytes()[16:24])[-3:]
    for path in newest:
        path.unlink()
    slots, entries = golden.geometry(case)
    with (
        CommitLog.open(root / "commitlog") as log,
        IndexService.open(alone, mode="a", last_exit_ok=False, hash_slots=slots, max_entries=entries) as index,
    ):
        assert index.recover(log) > 0
        assert index.recover(log) == 0
    assert sorted(path.read_bytes() for path in alone.iterdir()) == before


def test_a_reader_does_not_recover(store: Callable[[str], Path]) -> None:
    root = store("killed")
    with (
        CommitLog.open(root / "commitlog") as log,
        IndexService.open(root / "index") as index,
        pytest.raises(OSError, match="mode"),
    ):
        index.recover(log)


def test_message_index_safe_reads_the_whole_log(store: Callable[[str], Path]) -> None:
    """That setting counts the index's own time, which is before the first file here: no entry is lost."""
    root = store("rolled-killed")
    before = sorted(path.read_bytes() for path in (root / "index").iterdir())
    for path in (root / "index").iterdir():
        path.unlink()
    (root / "checkpoint").write_bytes(bytes(4096))
    slots, entries = golden.geometry("rolled-killed")
    with (
        CommitLog.open(root / "commitlog", compat="4.9.3") as log,
        IndexService.open(
            root / "index", mode="a", last_exit_ok=False, compat="4.9.3", hash_slots=slots, max_entries=entries
        ) as index,
    ):
        index.recover(log, message_index_safe=True)
    assert sorted(path.read_bytes() for path in (root / "index").iterdir()) == before
