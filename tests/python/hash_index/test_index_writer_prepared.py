"""The next file is made ready by a thread before the current one is full, and nobody can tell but by the time it takes."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from index_inputs import T0
from logdex._core import IndexFile, PreparedFile
from logdex.hash_index import index_writer
from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from collections.abc import Iterator

# Just large enough to be prepared.
LARGE: dict[str, Any] = {"hash_slots": 1000, "max_entries": 60_000}
SIZE = 40 + 4 * 1000 + 20 * 60_000
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files without a name are Linux's")


def rows(start: int, stop: int) -> pa.Table:
    """Return entries `start` to `stop`, a quarter of them of keys that come again."""
    numbers = range(start, stop)
    return pa.table(
        {
            "topic": pa.array(["T"] * len(numbers)),
            "key": pa.array([f"k{i % 7 if i % 4 == 0 else i}" for i in numbers]),
            "phy_offset": pa.array([100 * i for i in numbers], pa.int64()),
            "store_timestamp": pa.array([T0 + i for i in numbers], pa.int64()),
        }
    )


def unnamed() -> set[int]:
    """Return the inodes of the files of index size that this process has open and that have no name."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            stat = fd.stat()
        except OSError:
            continue
        if stat.st_nlink == 0 and stat.st_size == SIZE:
            found.add(stat.st_ino)
    return found


def wait_until_unnamed() -> set[int]:
    while not (found := unnamed()):
        pass
    return found


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@on_linux
def test_a_roll_takes_the_prepared_file(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **LARGE) as index:
        index.put_batch(rows(0, 29_000))
        assert unnamed() == set()
        index.put_batch(rows(29_000, 31_000))
        prepared = wait_until_unnamed()
        assert len(list(tmp_path.iterdir())) == 1
        index.put_batch(rows(31_000, 70_000))
        first, second = sorted(tmp_path.iterdir())
        assert {second.stat().st_ino} == prepared
        assert second.stat().st_size == SIZE
        full, rolled = (file.header for file in index.files)
        assert (len(index.files[0]), len(index.files[1])) == (59_999, 10_001)
        assert rolled.begin_phy_offset == full.end_phy_offset + 100
        assert index.query_offset("T", "k69999").phy_offsets == [6_999_900]
        assert first.stat().st_size == SIZE


def test_files_are_the_same_as_without_preparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(directory: Path, threads: int) -> list[bytes]:
        with IndexService.open(directory, mode="a", **LARGE) as index:
            for start in range(0, 150_000, 25_000):
                index.put_batch(rows(start, start + 25_000), threads=threads)
        return [path.read_bytes() for path in sorted(directory.iterdir())]

    prepared = build(tmp_path / "prepared", 1)
    assert build(tmp_path / "threads", 3) == prepared
    monkeypatch.setattr(index_writer, "_WORTH_PREPARING", 1 << 40)
    assert build(tmp_path / "plain", 1) == prepared
    assert len(prepared) == 3


@on_linux
def test_close_without_a_roll_leaves_nothing(tmp_path: Path) -> None:
    before = unnamed()
    with IndexService.open(tmp_path, mode="a", **LARGE) as index:
        index.put_batch(rows(0, 31_000))
    assert len(list(tmp_path.iterdir())) == 1
    assert unnamed() == before


@on_linux
def test_death_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, sys; from logdex._core import PreparedFile\n"
        "kept = PreparedFile.start(sys.argv[1], hash_slots=1000, max_entries=60_000)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


@on_linux
def test_a_forked_process_leaves_the_prepared_file_alone(tmp_path: Path) -> None:
    prepared = PreparedFile.start(tmp_path, **LARGE)

    def child() -> None:
        prepared.close()
        with IndexFile.create(tmp_path / "1", **LARGE, prepared=prepared) as file:
            file.put_key("T#k", 1, T0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    with IndexFile.create(tmp_path / "2", **LARGE, prepared=prepared) as file:
        assert len(file) == 0
        assert file.put_key("T#k", 1, T0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_name_that_is_taken_is_not_lost_for_the_next(tmp_path: Path) -> None:
    prepared = PreparedFile.start(tmp_path, **LARGE)
    (tmp_path / "taken").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        IndexFile.create(tmp_path / "taken", **LARGE, prepared=prepared)
    with IndexFile.create(
        tmp_path / "free", **LARGE, begin_timestamp=T0, begin_phy_offset=7, prepared=prepared
    ) as file:
        assert (file.header.begin_timestamp, file.header.end_phy_offset) == (T0, 7)
        assert not file.is_full
    assert (tmp_path / "taken").read_bytes() == b"somebody's"
    # Given away: the next one is made anew.
    with IndexFile.create(tmp_path / "third", **LARGE, prepared=prepared) as file:
        assert len(file) == 0


def test_what_does_not_fit_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    prepared = PreparedFile.start(tmp_path, **LARGE)
    with IndexFile.create(tmp_path / "1", hash_slots=10, max_entries=8, prepared=prepared) as file:
        assert file.max_entries == 8
    with IndexFile.create(tmp_path / "other" / "1", **LARGE, prepared=prepared) as file:
        assert file.max_entries == 60_000
    prepared.close()
    prepared.close()
    with pytest.raises(ValueError, match="hash_slots"):
        PreparedFile.start(tmp_path, hash_slots=0, max_entries=8)
    gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "other"]


def test_no_room_for_the_next_file_is_an_error_at_the_roll(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **LARGE) as index:
        index.put_batch(rows(0, 20_000))
        with file_size_limit(SIZE - 4096):
            index.put_batch(rows(20_000, 59_999))
            with pytest.raises(OSError, match=r".") as raised:
                index.put_batch(rows(59_999, 70_000))
        assert raised.value.errno == errno.EFBIG
        assert len(list(tmp_path.iterdir())) == 1
        # With space again, the index continues where it was.
        index.put_batch(rows(59_999, 70_000))
        assert [len(file) for file in index.files] == [59_999, 10_001]


@on_linux
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"), reason="mounts a small file system"
)
def test_a_full_disk_is_an_error_at_the_roll(tmp_path: Path) -> None:
    mounted = subprocess.run(
        [shutil.which("mount") or "", "-t", "tmpfs", "-o", f"size={3 * SIZE // 2}", "tmpfs", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        with IndexService.open(tmp_path, mode="a", **LARGE) as index:
            index.put_batch(rows(0, 59_999))
            with pytest.raises(OSError, match=r".") as raised:
                index.put_batch(rows(59_999, 60_010))
            assert raised.value.errno == errno.ENOSPC
            assert len(list(tmp_path.iterdir())) == 1
            assert index.query_offset("T", "k59998").phy_offsets == [5_999_800]
    finally:
        subprocess.run([shutil.which("umount") or "", str(tmp_path)], check=True)
