"""The lock of a store: one holder at a time, be it a JVM, this process or another logdex process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import entries
from logdex import _core
from logdex.errors import LockedError
from logdex.rocketmq import IndexFile, IndexService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

fcntl = pytest.importorskip("fcntl")

SMALL: Any = {"hash_slots": 20, "max_entries": 60}

# As Java's FileLock: an exclusive record lock of the first byte.
BROKER = textwrap.dedent("""
    import fcntl, sys
    with open(sys.argv[1], "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as refused:
            print("refused", type(refused).__name__, flush=True)
        else:
            print("locked", flush=True)
            sys.stdin.read()
""")

WRITER = textwrap.dedent("""
    import sys
    from logdex import _core
    from logdex.errors import LockedError
    print(_core.broker_lock_holder(sys.argv[1]), flush=True)
    try:
        lock = _core.StoreLock.take(sys.argv[1])
    except LockedError as refused:
        print("refused", refused.pid, flush=True)
    else:
        print("locked", flush=True)
        sys.stdin.read()
""")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Return the root of a store."""
    (tmp_path / "commitlog").mkdir()
    yield tmp_path
    assert _core.broker_lock_holder(tmp_path / "lock") is None, "the test kept the lock"


def run(program: str, path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], input="", capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_brokers_and_writers_in_other_processes_are_refused(store: Path) -> None:
    path = store / "lock"
    lock = _core.StoreLock.take(path)
    assert path.read_bytes() == b"lock"
    assert (lock.path, lock.closed) == (path, False)
    # A plain record lock would be gone: this process opened the file and closed it.
    for _ in range(2):
        assert run(BROKER, path) == ["refused BlockingIOError"]
    lock.release()
    lock.release()
    assert lock.closed
    assert run(BROKER, path) == ["locked"]


def test_another_writer_is_told_who_holds_it(store: Path) -> None:
    path = store / "lock"
    lock = _core.StoreLock.take(path)
    assert run(WRITER, path) == [str(os.getpid()), f"refused {os.getpid()}"]
    with pytest.raises(LockedError) as refused:
        _core.StoreLock.take(path)
    assert (refused.value.path, refused.value.pid) == (str(path), os.getpid())
    # Through another name it is the same file.
    (store / "link").symlink_to(path)
    with pytest.raises(LockedError):
        _core.StoreLock.take(store / "link")
    assert run(WRITER, path) == [str(os.getpid()), f"refused {os.getpid()}"]
    lock.release()
    assert run(WRITER, path) == ["None", "locked"]


@pytest.mark.parametrize("program", [BROKER, WRITER])
def test_the_lock_of_another_process_is_respected(store: Path, program: str) -> None:
    path = store / "lock"
    path.write_bytes(b"lock")
    arguments = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        while other.stdout.readline() != b"locked\n":
            assert other.poll() is None
        for call in (
            lambda: _core.StoreLock.take(path),
            lambda: IndexService.open(store / "index", mode="a", **SMALL),
            lambda: IndexFile.create(store / "index" / "20260101000000000", **SMALL),
        ):
            with pytest.raises(LockedError) as refused:
                call()
            assert (refused.value.path, refused.value.pid) == (str(path), other.pid)
        assert _core.broker_lock_holder(path) == other.pid
        other.communicate()
    _core.StoreLock.take(path).release()


def test_a_lock_goes_with_its_process(store: Path) -> None:
    path = store / "lock"
    arguments = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert [other.stdout.readline() for _ in range(2)] == [b"None\n", b"locked\n"]
        other.kill()
    _core.StoreLock.take(path).release()


def test_an_index_under_our_own_lock_is_written(store: Path) -> None:
    lock = _core.StoreLock.take(store / "lock")
    assert _core.broker_lock_holder(store / "lock") == os.getpid()
    with IndexService.open(store / "index", mode="a", **SMALL) as index:
        index.put_batch(entries(["a", "b"]))
        assert index.query_offset("T", "a").phy_offsets == [1000]
    assert run(BROKER, store / "lock") == ["refused BlockingIOError"]
    lock.release()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child is not told what its parent holds")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_neither_holds_nor_releases_the_lock(store: Path) -> None:
    path = store / "lock"
    lock = _core.StoreLock.take(path)
    child = os.fork()
    if not child:
        status = 1
        try:
            assert _core.broker_lock_holder(path) == os.getppid()
            try:
                _core.StoreLock.take(path)
            except LockedError as refused:
                lock.release()
                status = 0 if refused.pid == os.getppid() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(BROKER, path) == ["refused BlockingIOError"]
    lock.release()


def test_what_cannot_be_locked_is_refused(store: Path) -> None:
    with pytest.raises(IsADirectoryError):
        _core.StoreLock.take(store)
    with pytest.raises(FileNotFoundError):
        _core.StoreLock.take(store / "none" / "lock")
    lock = _core.StoreLock.take(store / "lock")
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(lock)
    lock.release()


def test_an_unknown_holder_is_not_named() -> None:
    assert (
        str(LockedError("lock", 0))
        == "lock is held by another process: stop this broker or writer before writing to its files"
    )
    assert "process 7:" in str(LockedError("lock", 7))
