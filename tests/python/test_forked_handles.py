"""Handles in a forked child: writers raise an error, readers work, and no handle waits for a thread of the parent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

BEGIN = """
    import faulthandler, os, signal, sys, threading, traceback
    from logdex.errors import LogdexError
    from pathlib import Path
    from logdex._core import CommitLog, StoreCheckpoint, StoreLock
    from logdex.kafka import OffsetIndex, TimeIndex
    from logdex.rocketmq import IndexFile, IndexService
    root = Path(sys.argv[1])
    faulthandler.register(signal.SIGALRM, chain=True)
    def in_child(call):
        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                call()
                sys.stdout.flush()
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert status == 0, status
    def is_refused(call):
        try:
            call()
        except ValueError as error:
            assert "belongs to the process that opened it" in str(error), error
            return True
        return False
"""


def run(root: Path, program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(BEGIN) + textwrap.dedent(program), str(root)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_child_cannot_write_through_the_handles_of_its_parent(tmp_path: Path) -> None:
    lines = run(
        tmp_path,
        """
        index = IndexFile.create(root / "20260101000000000", hash_slots=50, max_entries=120)
        index.put_key("T#parent", 1, 1)
        checkpoint = StoreCheckpoint.open(root / "checkpoint", mode="r+")
        offsets = OffsetIndex.create(root / f"{0:020}.index", 0, 800)
        times = TimeIndex.create(root / f"{0:020}.timeindex", 0, 1_200)
        service = IndexService.open(root / "index", mode="a", hash_slots=50, max_entries=120)
        writes = {
            "IndexFile.put_key": lambda: index.put_key("T#later", 2, 2),
            "IndexFile.put_batch": lambda: index.put_batch(["T#later"], [3], [3]),
            "IndexFile.put_batch threads": lambda: index.put_batch(["T#later"], [3], [3], threads=2),
            "IndexFile.flush": index.flush,
            "StoreCheckpoint set": lambda: setattr(checkpoint, "physic_msg_timestamp", 5),
            "StoreCheckpoint.flush": checkpoint.flush,
            "OffsetIndex.append": lambda: offsets.append(len(offsets) + 1, len(offsets)),
            "OffsetIndex.truncate_to": lambda: offsets.truncate_to(1_000),
            "OffsetIndex.resize": lambda: offsets.resize(80),
            "OffsetIndex.trim": offsets.trim,
            "OffsetIndex.flush": offsets.flush,
            "TimeIndex.maybe_append": lambda: times.maybe_append(len(times) + 1, len(times) + 1),
            # This creates a file, because there is none yet.
            "IndexService.put_key": lambda: service.put_key("T#later", 2, 2),
            "IndexService.flush": service.flush,
            "IndexService.delete_expired_files": lambda: service.delete_expired_files(0),
        }
        def child():
            for name, write in writes.items():
                print(name, is_refused(write))
            assert os.listdir(root / "index") == [] if (root / "index").exists() else True
            # Reading and closing still work.
            assert index.select_phy_offset("T#parent") == [1] and len(index) == 1
            assert checkpoint.physic_msg_timestamp == 0 and len(offsets) == len(times) == 0
            for handle in (index, checkpoint, offsets, times, service):
                repr(handle)
                handle.close()
        in_child(child)
        refused = [name for name, write in writes.items() if is_refused(write)]
        assert not refused, refused
        assert index.verify().ok and len(index) == 4
        """,
    )
    assert len(lines) == 15
    assert [line for line in lines if not line.endswith(" True")] == []


def test_a_child_never_waits_for_a_lock_that_a_thread_of_its_parent_held(
    tmp_path: Path, store: Callable[[str], Path]
) -> None:
    run(
        tmp_path,
        f"""
        log = CommitLog.open({str(store("basic") / "commitlog")!r})
        index = IndexFile.create(root / "20260101000000000", hash_slots=50_000, max_entries=3_000_000)
        checkpoint = StoreCheckpoint.open(root / "checkpoint", mode="r+")
        offsets = OffsetIndex.create(root / f"{{0:020}}.index", 0, 800)
        reader = [log.scan(batch_size=1)]
        stopped = False
        def scan():
            while not stopped:
                try:
                    reader[0].read_next_batch()
                except StopIteration:
                    reader[0] = log.scan(batch_size=1)
        def puts():
            keys, numbers = [f"T#{{i}}" for i in range(20_000)], list(range(20_000))
            while not stopped:
                index.put_batch(keys, numbers, numbers)
        def sizes():
            bytes = 800
            while not stopped:
                bytes ^= 2_048
                offsets.resize(bytes)
        def flush():
            while not stopped:
                checkpoint.flush()
        def locks():
            while not stopped:
                StoreLock.take(root / "lock").release()
        threads = [threading.Thread(target=each) for each in (scan, puts, sizes, flush, locks)]
        for thread in threads:
            thread.start()
        def child():
            for call in (
                lambda: index.put_key("T#child", 1, 1), checkpoint.flush, lambda: checkpoint.physic_msg_timestamp,
                lambda: len(offsets), lambda: offsets.resize(80), lambda: reader[0].closed, reader[0].read_next_batch,
                reader[0].close, lambda: IndexService.open(root), lambda: StoreLock.take(root / "lock"),
                index.close, checkpoint.close, offsets.close,
            ):
                try:
                    call()
                except (ValueError, OSError, StopIteration, LogdexError):
                    pass
        for _ in range(4):
            in_child(child)
        stopped = True
        for thread in threads:
            thread.join()
        """,
    )
