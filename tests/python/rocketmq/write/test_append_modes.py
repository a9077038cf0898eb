"""The places where puts append: the files are the same, a kill loses no acknowledged message, and the next file is ready."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex._core import CommitLogWriter
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._types import Append, Flush

SIZES: dict[str, Any] = {"file_size": 65_536, "queue_file_size": 4_000, "hash_slots": 500, "max_entries": 100_000}
APPENDS: tuple[Append, ...] = ("write", "mapped", "pool")

WRITER = """
    import sys, threading
    from logdex.rocketmq import StoreWriter
    root, flush, append, warm = sys.argv[1:]
    writer = StoreWriter.open(root, flush=flush, append=append, warm=bool(warm), zone="UTC", **{SIZES!r})
    lock = threading.Lock()
    def put(thread):
        for number in range(1_000_000):
            key = f"{{thread}}-{{number}}"
            if number % 4:
                writer.put_message("T", bytes(number % 3_000), queue_id=thread, keys=key)
            else:
                keys = [f"{{key}}-{{each}}" for each in range(30)]
                writer.put_messages({{"topic": ["B"] * 30, "keys": keys, "body": [bytes(700)] * 30}})
                key = keys[-1]
            with lock:
                print(key, flush=True)
    for thread in range(8):
        threading.Thread(target=put, args=(thread,), daemon=True).start()
    threading.Event().wait()
"""


def killed(root: Path, flush: str, append: str, least: int) -> set[str]:
    """Kill a writer of eight threads after some puts; return the keys that it acknowledged."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER.format(SIZES=SIZES)), str(root), flush, append]
    with subprocess.Popen([*command, "warm" if append == "mapped" else ""], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(least)]
        child.kill()
        lines += child.stdout.readlines()
    # The last line may be cut off.
    return {line.strip() for line in lines if line.endswith("\n")}


@pytest.mark.parametrize("append", APPENDS)
@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("least", [3, 200, 700])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, least: int, flush: Flush, append: Append) -> None:
    root = tmp_path / "store"
    told = killed(root, flush, append, least)
    assert len(told) >= least
    # Valid messages behind damage would be refused.
    with StoreWriter.open(root, **SIZES, zone="UTC", services=False, append=append) as writer:
        writer.put_message("T", keys="after")
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        rows = pa.table(store.messages(columns=["topic", "keys"])).to_pylist()
    found = {row["keys"] for row in rows}
    assert "after" in found
    if append != "pool" or flush == "sync":
        assert not told - found
    # Batches are there as a whole.
    assert sum(row["topic"] == "B" for row in rows) % 30 == 0


def test_all_modes_write_the_same_store(tmp_path: Path) -> None:
    digests = {}
    for append in APPENDS:
        root = tmp_path / append
        with StoreWriter.open(root, **SIZES, zone="UTC", services=False, append=append) as writer:
            for number in range(400):
                now = 1_700_000_000_000 + number
                body = bytes([number % 256]) * (7 * number)
                writer.put_message("T", body, keys=f"k{number}", store_timestamp=now, born_timestamp=now)
                if number % 50 == 0:
                    many = {"topic": ["B"] * 60, "body": [bytes(5_000)] * 60}
                    times = pa.array([now] * 60, pa.timestamp("ms", "UTC"))
                    writer.put_messages({**many, "store_timestamp": times, "born_timestamp": times})
                if number % 70 == 0:
                    writer.dispatch()
        digests[append] = {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.parent.name != "index"
        }
    assert len(digests["write"]) > 30
    assert digests["mapped"] == digests["write"]
    assert digests["pool"] == digests["write"]


def test_readers_see_messages_of_a_pool_when_they_are_committed(tmp_path: Path) -> None:
    # Only the thread of the log commits, which has just begun to wait.
    writer = CommitLogWriter.open(
        tmp_path / "commitlog", end_phy_offset=0, file_size=65_536, append="pool", flush="none"
    )
    writer.put_message("T", b"x", [])
    path = tmp_path / "commitlog" / f"{0:020}"
    committed, head = writer.committed_offset, path.read_bytes()[:8]
    # The thread may have come between.
    assert committed or head == bytes(8)
    until = time.monotonic() + 60
    while writer.committed_offset < writer.wrote_offset:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert int.from_bytes(path.read_bytes()[:4], "big") == writer.wrote_offset
    assert writer.flushed_offset == 0
    writer.close()


@pytest.mark.parametrize("append", APPENDS)
def test_the_services_dispatch_what_is_committed(tmp_path: Path, append: Append) -> None:
    with StoreWriter.open(tmp_path, **SIZES, append=append) as writer:
        for number in range(3):
            put = writer.put_message("T", keys=f"k{number}")
            until = time.monotonic() + 60
            while writer.statistics().dispatch_behind_bytes:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert writer.committed_offset == writer.max_offset > put.phy_offset


@pytest.mark.parametrize("append", ["mapped", "pool"])
def test_prepared_files_do_not_count_as_the_newest(tmp_path: Path, append: Append) -> None:
    """Retention keeps the file that is written, whatever was prepared after it."""
    with StoreWriter.open(tmp_path, **SIZES, services=False, append=append) as writer:
        for number in range(4):
            writer.put_message("T", bytes(40_000), keys=f"k{number}")
        until = time.monotonic() + 60
        while not (tmp_path / "commitlog" / f"{4 * 65_536:020}").exists():
            assert time.monotonic() < until
        writer.flush()
        deleted = writer.delete_expired(0)
        assert [path.name for path in deleted.log_files] == [f"{at * 65_536:020}" for at in range(3)]
        writer.put_message("T", bytes(40_000), keys="k4")
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok
        assert len(store.find("T", "k3")) == len(store.find("T", "k4")) == 1


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"append": "mmap"}, 'append is "mmap"; expected "write", "mapped" or "pool"'),
        ({"warm": True}, "warm, lock_memory: expected with"),
        ({"lock_memory": True}, "warm, lock_memory: expected with"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        StoreWriter.open(tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()
