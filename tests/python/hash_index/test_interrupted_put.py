"""A put interrupted between its slot and its count (vectors of the real 4.9.3 classes); a put that can start no threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import T0
from logdex.hash_index import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY: dict[str, Any] = {"hash_slots": 10, "max_entries": 8}
UNUSED = "00" * 80


def cut(path: Path, count: int) -> Path:
    """Put three entries of one key, then set the count back, as if the last stores of a put were lost."""
    with IndexFile.create(path, **GEOMETRY) as file:
        for phy_offset in (1, 2, 3):
            file.put_key("T#a", phy_offset, T0)
    content = bytearray(path.read_bytes())
    content[36:40] = count.to_bytes(4, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("count", "phy_offset", "before", "content"),
    [
        (
            3,
            33,
            [3, 2, 1],
            "0000018bcfe568000000018bcfe56800000000000000000100000000000000210000000100000004"
            "00000000000000000000000000000000000000000000000000000003000000000000000000000000"
            "000000000000000000000000000000000000000000013ff200000000000000010000000000000000"
            "00013ff20000000000000002000000000000000100013ff200000000000000210000000000000003" + UNUSED,
        ),
        (
            2,
            44,
            [],
            "0000018bcfe568000000018bcfe568000000000000000001000000000000002c0000000200000003"
            "00000000000000000000000000000000000000000000000000000002000000000000000000000000"
            "000000000000000000000000000000000000000000013ff200000000000000010000000000000000"
            "00013ff2000000000000002c000000000000000000013ff200000000000000030000000000000002" + UNUSED,
        ),
    ],
)
def test_compat_goes_on_as_the_broker(
    tmp_path: Path, count: int, phy_offset: int, before: list[int], content: str
) -> None:
    path = cut(tmp_path / "100", count)
    with IndexFile.open(path, compat="4.9.3", **GEOMETRY) as file:
        assert file.select_phy_offset("T#a") == before
    with IndexFile.open(path, mode="r+", compat="4.9.3", **GEOMETRY) as file:
        assert file.put_key("T#a", phy_offset, T0)
        assert file.select_phy_offset("T#a") == [phy_offset]
    assert path.read_bytes().hex() == content


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_default_keeps_the_older_entries(tmp_path: Path, count: int) -> None:
    path = cut(tmp_path / "100", count)
    with IndexFile.open(path, **GEOMETRY) as file:
        assert file.select_phy_offset("T#a") == [3, 2, 1]
    with IndexFile.open(path, mode="r+", **GEOMETRY) as file:
        assert file.put_key("T#a", 33, T0)
        assert file.select_phy_offset("T#a") == [33, 3, 2, 1]
        assert file.verify().ok


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a limit of the address space")
def test_without_threads_a_batch_is_put_by_one(tmp_path: Path) -> None:
    path = tmp_path / "20260101000000000"
    program = f"""
        import resource
        import numpy as np, pyarrow as pa
        from logdex.rocketmq import IndexFile
        count = 30_000
        keys, numbers = pa.array([f"T#{{number}}" for number in range(count)]), pa.array(np.arange(1, count + 1))
        file = IndexFile.create({str(path)!r}, hash_slots=20_000, max_entries=40_000)
        file.put_batch(keys.slice(0, 10), numbers.slice(0, 10), numbers.slice(0, 10))
        pages = int(open("/proc/self/statm").read().split()[0])
        # No space for the stack of a thread.
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (3 << 19),) * 2)
        print(file.put_batch(keys, numbers, numbers, start=10, threads=4))
        print(file.put_key("T#later", 1, 1))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["29990", "True"], done.stderr
    with IndexFile.open(path, hash_slots=20_000, max_entries=40_000) as file:
        assert file.verify().ok
        assert len(file) == 30_001
        found = file.select_batch([f"T#{number}" for number in range(30_000)]).to_pylist()
    assert all(number + 1 in hits for number, hits in enumerate(found))
