"""One writer, readers in other processes: no entry is seen half-written, and no entry that was put is missed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest

from index_inputs import entries
from logdex.rocketmq import IndexService

if TYPE_CHECKING:
    from pathlib import Path

READER = textwrap.dedent("""
    import sys
    from logdex.rocketmq import IndexService

    directory, access = sys.argv[1:]
    answers = 0
    with IndexService.open(directory, hash_slots=20, max_entries=300, access=access) as index:
        for line in sys.stdin:
            # Everything below this number had been put before it was sent.
            put = int(line)
            found = index.query_batch("T", [f"k{i}" for i in range(50)]).to_pylist()
            for number, candidates in enumerate(found):
                offsets = [offset for offset in candidates if offset % 500 == 10 * number]
                assert candidates == offsets, (put, number, candidates)
                assert offsets == sorted(offsets, reverse=True), (put, number)
                assert len(set(offsets)) == len(offsets), (put, number)
                missed = set(range(10 * number, 10 * put, 500)) - set(offsets)
                assert not missed, (put, number, missed)
                one = index.query_offset("T", f"k{number}", 1).phy_offsets
                assert not offsets or one[0] >= offsets[0], (put, number)
            answers += 1
    print(answers)
""")


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_readers_in_other_processes_see_whole_entries(tmp_path: Path, access: str) -> None:
    arguments = [sys.executable, "-c", READER, str(tmp_path), access]
    total, step = 3_000, 25
    with IndexService.open(tmp_path, mode="a", hash_slots=20, max_entries=300) as index:
        readers = [
            subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for first in range(0, total, step):
            rows = range(first, first + step)
            index.put_batch(entries([f"k{i % 50}" for i in rows], first_offset=10 * first))
            for reader in readers:
                assert reader.stdin is not None
                reader.stdin.write(f"{first + step}\n")
                reader.stdin.flush()
        for reader in readers:
            output, errors = reader.communicate()
            assert (reader.returncode, errors) == (0, "")
            assert int(output) == total // step


def test_queries_run_beside_puts_in_one_process(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with IndexService.open(tmp_path, mode="a", hash_slots=20, max_entries=100) as index:
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    offsets = index.query_offset("T", "k7").phy_offsets
                    assert offsets == list(range(70, 70 + 500 * len(offsets), 500))[::-1]
            except BaseException as error:  # noqa: BLE001 -- shown below
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for first in range(0, 2_000, 10):
            index.put_batch(entries([f"k{i % 50}" for i in range(first, first + 10)], first_offset=10 * first))
        stop.set()
        for thread in threads:
            thread.join()
        assert index.query_offset("T", "k7").phy_offsets == list(range(70, 20_000, 500))[::-1]
    assert failures == []


def test_puts_from_several_threads_are_serialised(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=20, max_entries=64) as index:

        def put(thread: int) -> None:
            for first in range(0, 200, 10):
                index.put_batch(entries([f"t{thread}"] * 10, first_offset=10_000 * thread + 10 * first))

        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(4):
            found = sorted(index.query_offset("T", f"t{number}").phy_offsets)
            assert found == list(range(10_000 * number, 10_000 * number + 2_000, 10))
        assert index.verify().ok
