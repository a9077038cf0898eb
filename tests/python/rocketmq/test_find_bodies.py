"""A result of `find` keeps few bodies in memory, and reads the others when they are asked for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from logdex.rocketmq import FindResult, MessageStore, StoreWriter
from logdex.rocketmq.find import result_of

if TYPE_CHECKING:
    from pathlib import Path

_SIZES = {"hash_slots": 100, "max_entries": 4_000, "zone": "UTC", "services": False}
_BODIES = [f"{number:04}".encode() * 250 for number in range(300)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store of 300 messages of one key with bodies of 1,000 bytes, in files of 64 KiB."""
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=65_536, **_SIZES) as writer:  # type: ignore[arg-type]
        for number, body in enumerate(_BODIES):
            writer.put_message("T", body, keys=f"same k{number}", tags=f"t{number}")
    return root


@pytest.mark.parametrize("budget", [0, 1_000, 100_000, 1 << 20])
def test_all_bodies_come_whatever_is_kept(root: Path, budget: int) -> None:
    newest_first = _BODIES[::-1]
    with MessageStore.open(root) as store:
        # Batches of 64 rows, so that a part of them fits.
        result = _find(store, budget)
        kept = pa.table(result.heads())["body"].to_pylist()
        assert len(result) == len(kept) == 300
        count = sum(body is not None for body in kept)
        assert {0: 0, 1_000: 64, 100_000: 128, 1 << 20: 300}[budget] == count
        assert kept[:count] == newest_first[:count]
        assert pa.table(result.heads())["tags"].to_pylist() == [f"t{number}" for number in range(299, -1, -1)]
    # The result outlives the store.
    assert [message.body for message in result] == newest_first
    assert pa.table(result)["body"].to_pylist() == newest_first
    assert pa.table(result.to_arrow())["body"].to_pylist() == newest_first
    assert [message.body for message in result.messages] == newest_first
    for begin, end in ((0, 3), (60, 70), (120, 135), (290, 300), (5, 5), (299, 400)):
        assert [message.body for message in result[begin:end]] == newest_first[begin:end]
    assert [result[at].body for at in (0, 63, 64, 299, -1)] == [newest_first[at] for at in (0, 63, 64, 299, -1)]
    assert result == result  # noqa: PLR0124


def _find(store: MessageStore, body_budget: int) -> FindResult:
    options = {"is_any_topic": False, "begin": None, "end": None, "max_num": None, "scan_bytes": None, "progress": None}
    found = store._search.find(["T"], "same", **options, body_budget=body_budget, batch_size=64)  # type: ignore[arg-type]
    return result_of(found)


def test_a_body_that_is_gone_is_an_error(root: Path) -> None:
    with MessageStore.open(root) as store:
        result = _find(store, 0)
        (root / "commitlog" / f"{0:020}").unlink()
        with pytest.raises(FileNotFoundError, match=f"{0:020}"):
            list(result)
        assert result.heads().num_rows == 300


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory in KiB")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", [(), ("--body",), ("--body", "--json")])
def test_large_bodies_take_little_memory(tmp_path: Path, words: tuple[str, ...]) -> None:
    """12 bodies of 63 MiB, 64 KB each in the log: together they would be 756 MiB. One is decoded while one is printed."""
    root, body = tmp_path / "store", zlib.compress(b"x" * (63 << 20), 9)
    with StoreWriter.open(root, file_size=1 << 22, **_SIZES) as writer:  # type: ignore[arg-type]
        for number in range(12):
            writer.put_message("T", body, keys=f"same k{number}", sys_flag=1)
    program = f"""
        import os, sys
        from logdex.cli import main
        sys.stdout = open(os.devnull, "w")
        assert main(["find", {str(root)!r}, "T", "same", *{words!r}]) == 0
        # The peak of getrusage would begin with that of the process that started this one.
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        sys.stderr.write(str(int(peak.split()[1]) >> 10))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=True
    )
    assert int(ran.stderr) < 330, f"{ran.stderr} MiB"
