"""Handles in several threads: other threads run while a call waits, and a failed call leaves no thread waiting."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

from logdex._core import key_hash
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = """
    import faulthandler, resource, signal, sys, threading
    from logdex._core import StoreCheckpoint
    from logdex.kafka import OffsetIndex
    faulthandler.dump_traceback_later(30, exit=True)
    path = sys.argv[1]
    # Then a write beyond the limit is an error.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def against(fails, reads):
        stopped = False
        failed = [0]
        def run():
            while not stopped:
                try:
                    fails()
                except OSError:
                    failed[0] += 1
        thread = threading.Thread(target=run)
        thread.start()
        read = 0
        while failed[0] < 2_000 or read < 2_000:
            reads()
            read += 1
        stopped = True
        thread.join()
        print("ended")
"""

PROGRAMS = {
    "OffsetIndex": """
        index = OffsetIndex.create(path, 0, 8_192)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, resource.RLIM_INFINITY))
        against(lambda: index.resize(10_000_000), lambda: (len(index), index.closed, repr(index)))
    """,
    "StoreCheckpoint": """
        checkpoint = StoreCheckpoint.open(path, mode="r+")
        checkpoint.physic_msg_timestamp = 5
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        against(checkpoint.flush, lambda: (checkpoint.physic_msg_timestamp, checkpoint.file_len))
    """,
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the size of files")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_write_that_fails_does_not_wait_for_a_thread_that_reads(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", textwrap.dedent(BEGIN) + textwrap.dedent(PROGRAMS[kind])),
            str(tmp_path / f"{0:020}.index"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_other_threads_run_while_a_damaged_file_is_scanned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slots, entries = 100, 1_500_000
    path = tmp_path / "20260101000000000"
    with path.open("wb") as out:
        out.truncate(40 + 4 * slots + 20 * entries)
        # All entries count, and the slot of the key is invalid.
        out.write(struct.pack(">qqqqii", 1, 1, 0, 0, 1, entries))
        out.seek(40 + 4 * (key_hash("T#k") % slots))
        out.write(struct.pack(">i", -5))
    ticks: list[float] = []
    stopped = threading.Event()

    def tick() -> None:
        while not stopped.wait(0.0005):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with IndexFile.open(path, hash_slots=slots, max_entries=entries) as file:
            begin = time.perf_counter()
            assert file.select_phy_offset("T#k") == []
            end = time.perf_counter()
    finally:
        stopped.set()
        thread.join()
    assert "found -5" in caplog.text
    # At the two ends the lock may pass from one thread to the other.
    assert len([each for each in ticks if begin < each < end]) > 4
