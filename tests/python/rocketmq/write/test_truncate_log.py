"""Truncating a log at its end: no bytes are left after the end that a later crash could bring back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]

FILE = 65_536


def test_a_clean_log_is_cut_at_its_end_without_a_change(store: Store) -> None:
    """After the end of a log that was never truncated nothing was written."""
    for case in sorted(set(golden.CLEAN_STORES) - {"pool"}):
        log = store(case) / "commitlog"
        before = {path.name: path.read_bytes() for path in sorted(log.iterdir())}
        with _core.CommitLog.open(log) as opened:
            end = opened.max_offset
        report = _core.truncate_log(log, end)
        assert report.ok
        assert report.checked == {"bytes_cut": 0, "files_deleted": 0}, case
        assert {path.name: path.read_bytes() for path in sorted(log.iterdir())} == before


def test_a_log_is_cut_at_a_message(store: Store) -> None:
    log = store("basic") / "commitlog"
    files = sorted(log.iterdir())
    assert [int(path.name) for path in files] == [FILE * number for number in range(len(files))]
    whole = b"".join(path.read_bytes() for path in files)
    written = len(whole.rstrip(b"\0"))
    rows = golden.rows("basic", "messages")
    at = next(row["physicalOffset"] for row in rows if row["physicalOffset"] > 2 * FILE + 1_000)
    with _core.CommitLog.open(log) as opened:
        ghosts = [row["physicalOffset"] for row in rows if row["physicalOffset"] >= at]
        assert len(ghosts) > 10
        report = _core.truncate_log(log, at)
        assert opened.max_offset == at
        assert opened.scan(stop="salvage").read_all().num_rows == len(rows) - len(ghosts)
        assert opened.messages(ghosts, columns=["topic"]).column("topic").null_count == len(ghosts)
    assert report.checked["files_deleted"] == len(files) - 3
    assert 0 < report.checked["bytes_cut"] <= written - at
    kept = sorted(log.iterdir())
    assert kept == files[:3]
    assert b"".join(path.read_bytes() for path in kept) == whole[:at] + bytes(3 * FILE - at)


def test_offsets_before_the_log_are_refused(store: Store) -> None:
    log = store("rolled") / "commitlog"
    first = int(min(log.iterdir()).name)
    assert first > 0, "files of this store expired"
    before = sorted(log.iterdir())
    for offset in (first - 1, 0):
        with pytest.raises(ValueError, match=f"the log begins at {first}"):
            _core.truncate_log(log, offset)
    for offset in (-1, 2**63):
        with pytest.raises(ValueError, match=r"offset|64-bit"):
            _core.truncate_log(log, offset)
    with pytest.raises(FileNotFoundError):
        _core.truncate_log(log / "none", 0)
    assert sorted(log.iterdir()) == before
