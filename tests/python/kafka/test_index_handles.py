"""Handles of the sparse indexes: what comes along when they are pickled."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from logdex.kafka import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = "cod-none-0"


def _copy(index: OffsetIndex | TimeIndex) -> OffsetIndex | TimeIndex:
    return pickle.loads(pickle.dumps(index))  # type: ignore[no-any-return]  # noqa: S301 -- our own


def _with_a_wrong_last_entry(log: Path, suffix: str) -> Path:
    """Move the last entry's key to one that is in order and in no batch of the log."""
    path = max(log.glob(f"*{suffix}"))
    entries = path.read_bytes()
    if suffix == ".index":
        key, position = struct.unpack(">ii", entries[-8:])
        last = struct.pack(">ii", key, position + 1)
    else:
        timestamp, offset = struct.unpack(">qi", entries[-12:])
        last = struct.pack(">qi", timestamp + 1, offset)
    path.write_bytes(entries[: -len(last)] + last)
    return path


def test_a_pickled_offset_index_asks_its_log(kafka_copy: Callable[[str], Path]) -> None:
    path = _with_a_wrong_last_entry(kafka_copy("codecs") / LOG, ".index")
    with OffsetIndex.open(path, check="trust") as wrong, OffsetIndex.open(path) as index:
        offset = wrong.last_offset
        assert index.lookup(offset) != wrong.lookup(offset) == _copy(wrong).lookup(offset)
        assert _copy(index).lookup(offset) == index.lookup(offset)


def test_a_pickled_time_index_asks_its_log(kafka_copy: Callable[[str], Path]) -> None:
    path = _with_a_wrong_last_entry(kafka_copy("codecs") / LOG, ".timeindex")
    with TimeIndex.open(path, check="trust") as wrong, TimeIndex.open(path) as index:
        timestamp, _ = wrong.last_entry
        assert index.lookup(timestamp) != wrong.lookup(timestamp) == _copy(wrong).lookup(timestamp)
        assert _copy(index).lookup(timestamp) == index.lookup(timestamp)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_given_base_offset_comes_along(tmp_path: Path, kind: type[OffsetIndex | TimeIndex]) -> None:
    path = tmp_path / "no-number"
    with kind.create(path, 7_000, 240) as index:
        copy = _copy(index)
        assert (copy.base_offset, copy.mode, copy.check) == (7_000, "r", "trust")
    with kind.open(path, base_offset=7_000) as index:
        copy = _copy(index)
        assert (copy.base_offset, copy.check) == (7_000, "verify")
    with pytest.raises(ValueError, match="closed"):
        _copy(index)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@pytest.mark.parametrize("slot", [-1, 0, 30, 2**62])
def test_a_slot_that_is_not_there(tmp_path: Path, kind: type[OffsetIndex | TimeIndex], slot: int) -> None:
    with (
        kind.create(tmp_path / "00000000000000000000.index", 0, 240) as index,
        pytest.raises(IndexError, match=f"no entry {slot}, the index has 0 entries"),
    ):
        index.entry(slot)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a limit of the address space")
def test_entries_are_copied_without_a_map(tmp_path: Path) -> None:
    """A map of a file that the broker truncates would kill the process. In this test a map would not fit in memory."""
    path = tmp_path / f"{0:020}.index"
    path.write_bytes(struct.pack(">ii", 5, 100))
    os.truncate(path, 2_147_483_640)
    program = f"""
        import resource
        from logdex.kafka import OffsetIndex, TimeIndex
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (256 << 20),) * 2)
        for access in ("auto", "mmap", "pread"):
            for mode in ("r", "r+"):
                with OffsetIndex.open({str(path)!r}, access=access, mode=mode) as index:
                    print(len(index), index.lookup(7))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["1 (5, 100)"] * 6, done.stderr
