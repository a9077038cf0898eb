"""After a crash: a writer killed at any moment, and a power loss with any pages unwritten."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import T0, entries
from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20261121
PAGE = 4096

WRITER = textwrap.dedent("""
    import sys
    from logdex.rocketmq import IndexService

    directory, access, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    index = IndexService.open(directory, mode="a", hash_slots=50, max_entries=400, access=access)
    print("open", flush=True)
    n = first
    while True:
        rows = range(n, n + 1 + n % 70)
        index.put_batch({
            "topic": ["T"] * len(rows),
            "key": [f"k{i}" for i in rows],
            "phy_offset": [100 * i for i in rows],
            "store_timestamp": [1_700_000_000_000 + 10 * i for i in rows],
        })
        n = rows.stop
        print(n, flush=True)
""")


def kill_a_writer(directory: Path, access: str, first: int, after_s: float) -> int:
    """Run a writer, kill it, and return the number of entries whose puts had returned."""
    arguments = [sys.executable, "-c", WRITER, str(directory), access, str(first)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        time.sleep(after_s)
        writer.kill()
        lines = writer.stdout.read().splitlines()
    # The last line may be truncated.
    return int(lines[-2]) if len(lines) > 1 else first


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_killed_writer_loses_nothing_whose_put_returned(tmp_path: Path, access: str) -> None:
    chance = random.Random(f"{SEED} {access}")
    done = 0
    for _ in range(6):
        done = kill_a_writer(tmp_path, access, done, chance.uniform(0, 0.05))
        # A reader that opens before any repair, then a writer that repairs.
        for mode in ("r", "a"):
            with IndexService.open(tmp_path, mode=mode, hash_slots=50, max_entries=400) as index:
                found = index.query_batch("T", [f"k{i}" for i in range(done + 71)]).to_pylist()
                held = 0
                for number, candidates in enumerate(found):
                    assert 100 * number in candidates or number >= done, (SEED, number, done)
                    held += 100 * number in candidates
                if mode == "a":
                    report = index.verify()
                    # A writer killed while it creates a file may leave an empty file, which all readers skip.
                    assert {(f.kind, f.found) for f in report.findings} <= {("file-size", "0 bytes")}, (
                        f"seed {SEED}: {report}"
                    )
        # Entries put after the last answer are put again: an entry may occur twice, but none may be lost.
    assert done > 0


def mixture(old: bytes, new: bytes, chance: random.Random) -> bytes:
    """Choose each page of a file either from the last flush or from its current state."""
    old = old.ljust(len(new), b"\0")
    share = chance.random()
    return b"".join((new if chance.random() < share else old)[at : at + PAGE] for at in range(0, len(new), PAGE))


def power_loss(tmp_path: Path, flushed: int, put: int, first_offset: int) -> tuple[Path, bytes, bytes]:
    """Put entries, flush after the first of them; return the newest file, as it was flushed and as it is."""
    directory = tmp_path / "index"
    columns = entries([f"k{i % 700}" for i in range(put)], first_offset=first_offset)
    with IndexService.open(directory, mode="a", hash_slots=1500, max_entries=2000) as index:
        index.put_batch({name: values[:flushed] for name, values in columns.items()})
        index.flush()
        newest = index.files[-1].path if flushed else None
        old = newest.read_bytes() if newest else b""
        index.put_batch({name: values[flushed:] for name, values in columns.items()})
        if index.files[-1].path != newest:
            # The full file was flushed when it was rolled, so only the new one can lose pages.
            newest, old = index.files[-1].path, b""
    return newest, old, newest.read_bytes()


@pytest.mark.parametrize("first_offset", [0, 1000, 7 << 32])
@pytest.mark.parametrize(("flushed", "put"), [(0, 900), (300, 1900), (1500, 1999), (1999, 3500), (100, 4500)])
def test_power_loss_costs_nothing_that_was_flushed(tmp_path: Path, flushed: int, put: int, first_offset: int) -> None:
    newest, old, new = power_loss(tmp_path, flushed, put, first_offset)
    chance = random.Random(f"{SEED} {flushed} {put} {first_offset}")
    safe = flushed if old else put - put % 1999
    offsets = [first_offset + 10 * i for i in range(put)]
    keys = [f"k{i}" for i in range(700)]
    for _ in range(30):
        newest.write_bytes(mixture(old, new, chance))
        options: dict[str, Any] = {"hash_slots": 1500, "max_entries": 2000, "last_exit_ok": False}
        with IndexService.open(tmp_path / "index", **options) as index:
            read = index.query_batch("T", keys).to_pylist()
        with IndexService.open(tmp_path / "index", mode="a", **options) as index:
            mended = index.query_batch("T", keys).to_pylist()
            assert index.verify().ok
            if safe:
                assert index.query_offset("T", "k0", begin=T0, end=T0).phy_offsets[-1:] == offsets[:1]
            # The file goes on.
            index.put_batch(entries(["more"], first_offset=offsets[-1] + 10))
            assert index.query_offset("T", "more").phy_offsets == [offsets[-1] + 10]
        for answers in (read, mended):
            for number, candidates in enumerate(answers):
                expected = offsets[number:safe:700]
                assert set(expected) <= set(candidates), (SEED, number)
        assert all(set(candidates) <= set(offsets) for candidates in mended)
        newer = [path for path in (tmp_path / "index").iterdir() if path.name > newest.name]
        for path in newer:
            path.unlink()
