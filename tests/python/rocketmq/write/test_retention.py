"""Retention: which files go, what a crash in between leaves, and a disk that is too full for puts."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from logdex.rocketmq import Deleted, MessageStore, Retention, StoreWriter
from logdex.rocketmq.write import store_writer

KILLS = int(os.environ.get("LOGDEX_RETENTION_KILLS", "3"))
SIZES: dict[str, Any] = {
    "file_size": 16_384,
    "queue_file_size": 400,
    "extension_file_size": 500,
    "hash_slots": 20,
    "max_entries": 50,
    "zone": "UTC",
}
FILES = 8
"""Log files of `store`."""
ALL_HOURS = ";".join(map(str, range(24)))


def put(writer: StoreWriter, messages: int = 300) -> None:
    writer.put_messages(
        {
            "topic": ["T"] * messages,
            "queue_id": [number % 2 for number in range(messages)],
            "keys": [f"k{number}" for number in range(messages)],
            "tags": ["a"] * messages,
            "body": [b"x" * 300] * messages,
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of eight log files, the first five of which are old."""
    path = tmp_path / "store"
    with StoreWriter.open(path, **SIZES, services=False) as writer:
        put(writer)
    files = sorted((path / "commitlog").iterdir())
    assert len(files) == FILES
    for file in files[:5]:
        os.utime(file, (1, 1))
    return path


def open_store(root: Path, **options: Any) -> StoreWriter:
    return StoreWriter.open(root, zone="UTC", **{"services": False, **options})


def log_files(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def check(root: Path, begin: int) -> None:
    """Check that a store is valid, and that it has every message of its log from an offset on."""
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        log, queued = (pa.table(store.messages(topic, columns=["phy_offset", "keys"])) for topic in (None, "T"))
        offsets = log["phy_offset"].to_pylist()
        assert offsets
        assert offsets[0] == begin
        assert sorted(queued["phy_offset"].to_pylist()) == offsets
        for row in log.to_pylist():
            assert row["phy_offset"] in {message.phy_offset for message in store.find("T", row["keys"], scan=False)}


def test_old_log_files_go_and_queues_and_index_follow(root: Path) -> None:
    with MessageStore.open(root) as reader, open_store(root) as writer:
        assert reader.queue("T", 0).min_offset == 0
        deleted = writer.delete_expired(1)
        assert [int(path.name) for path in deleted.log_files] == [16_384 * number for number in range(5)]
        assert writer.min_offset == deleted.min_offset == 5 * 16_384
        assert not any(path.exists() for path in [*deleted.log_files, *deleted.queue_files, *deleted.index_files])
        # A message of a file begins each queue; its first 100 units are those of 200 messages.
        queue, other = reader.queue("T", 0), reader.queue("T", 1)
        assert (queue.min_offset, queue.max_offset) == (other.min_offset, other.max_offset) == (100, 150)
        assert {path.parent.name for path in deleted.queue_files} == {"0", "1"}
        assert {path.parts[-4] for path in deleted.queue_files} == {"consumequeue", "consumequeue_ext"}
        assert len(deleted.index_files) == 4
        # The reader was open before.
        assert reader.find("T", "k299")[0].queue_offset == 149
        assert not reader.find("T", "k1")
        assert writer.delete_expired(1) == Deleted([], [], [], 5 * 16_384)
        put(writer)
    check(root, 5 * 16_384)
    with open_store(root, last_exit_ok=False) as writer:
        assert writer.recovered.ok, writer.recovered
    check(root, 5 * 16_384)


def test_the_newest_file_and_the_one_that_is_written_stay(root: Path) -> None:
    with open_store(root) as writer:
        # What a killed broker prepared: the file that is written is not the last one.
        prepared = root / "commitlog" / f"{FILES * 16_384:020}"
        prepared.write_bytes(bytes(16_384))
        for path in (root / "commitlog").iterdir():
            os.utime(path, (1, 1))
        writer.delete_expired(0)
        assert log_files(root) == [(FILES - 1) * 16_384, FILES * 16_384]
        put(writer, 3)
        assert writer.delete_expired(0).log_files == []
    check(root, (FILES - 1) * 16_384)


def test_a_file_that_is_not_old_ends_the_deletion(root: Path) -> None:
    os.utime(root / "commitlog" / f"{2 * 16_384:020}")
    with open_store(root, retention=Retention(file_reserved_hours=1, clean_forcibly=False)) as writer:
        assert len(writer.delete_expired().log_files) == 2
    with open_store(root) as writer:
        with pytest.raises(ValueError, match="reserved_hours: expected an age"):
            writer.delete_expired()
        with pytest.raises(ValueError, match="reserved_hours=-1"):
            writer.delete_expired(-1)
        assert writer.min_offset == 2 * 16_384


def test_a_crash_after_any_deletion_loses_nothing_else(root: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    with open_store(root) as writer:
        put(writer, 30)
        writer.flush()
        # As after a kill: `abort` is there.
        shutil.copytree(root, before)
        deleted = writer.delete_expired(1)
    gone = [path.relative_to(root) for part in deleted[:3] for path in part]
    assert len(gone) > 20
    logs = len(deleted.log_files)
    for count in [*range(logs + 1), *range(logs + 2, len(gone), 5), len(gone)]:
        crashed = tmp_path / "crashed"
        shutil.copytree(before, crashed)
        for path in gone[:count]:
            (crashed / path).unlink()
        with open_store(crashed) as writer:
            assert writer.recovered.ok, writer.recovered
            begin = writer.min_offset
            # What the crash left goes with the next call.
            rest = writer.delete_expired(10**6)
            assert not rest.log_files
            missed = gone[max(count, logs) :] if begin == deleted.min_offset else []
            assert {path.relative_to(crashed) for path in [*rest.queue_files, *rest.index_files]} >= set(missed)
        assert begin == min(count, logs) * 16_384
        check(crashed, begin)
        shutil.rmtree(crashed)


WRITER = """
    import sys, itertools
    from logdex.rocketmq import StoreWriter
    with StoreWriter.open(sys.argv[1], zone="UTC", file_size=16384, queue_file_size=400, hash_slots=20, max_entries=50) as writer:
        for number in itertools.count():
            columns = {"topic": ["T"] * 40, "queue_id": [0, 1] * 20, "body": [b"x" * 300] * 40}
            placed = writer.put_messages(columns | {"keys": [f"{sys.argv[2]}-{number}-{each}" for each in range(40)]})
            deleted = writer.delete_expired(0)
            print(placed.column("phy_offset")[39].as_py(), len(deleted.log_files), flush=True)
"""


def test_a_killed_writer_that_deletes_loses_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "store"
    deleted = 0
    for turn in range(KILLS):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(root), str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(20 + turn)]
            child.kill()
            lines += [line for line in child.stdout.readlines() if line.endswith("\n")]
        told = [tuple(map(int, line.split())) for line in lines]
        deleted += sum(count for _, count in told)
        with open_store(root) as writer:
            assert writer.recovered.ok, writer.recovered
            assert writer.max_offset > told[-1][0]
            begin = writer.min_offset
            # Only the newest files are left, and those of the last puts.
            assert writer.max_offset - begin <= 4 * 16_384
        check(root, begin)
    assert deleted > KILLS * 10


# The thread


def until(passed: Any) -> None:
    deadline = time.monotonic() + 30
    while not passed():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_thread_deletes_at_the_hours_and_a_few_files_at_a_time(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "_CLEAN_SECONDS", 0.01)
    monkeypatch.setattr("logdex.rocketmq.write.parts._FILES_A_ROUND", 2)
    disk(monkeypatch, 10)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    hour = time.gmtime().tm_hour
    hours = ";".join(str(each) for each in range(24) if each not in {hour, (hour + 1) % 24})
    with open_store(other, services=True, retention=Retention(delete_when=hours)) as writer:
        with open_store(root, services=True, retention=Retention(delete_when=ALL_HOURS)) as deleting:
            until(lambda: deleting.min_offset == 5 * 16_384)
        assert writer.min_offset == 0
    check(root, 5 * 16_384)


# The disk


def disk(monkeypatch: pytest.MonkeyPatch, percent: int) -> None:
    """Let the disk be this full."""
    found = SimpleNamespace(total=1_000_000, used=percent * 10_000, free=(100 - percent) * 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: found)


def test_a_full_disk_refuses_puts_until_there_is_space(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Retention(clean_forcibly=False, file_reserved_hours=10**6)
    with open_store(root, retention=options) as writer:
        disk(monkeypatch, 91)
        put(writer, 1)
        writer.delete_expired()
        for call in (lambda: put(writer, 1), lambda: writer.put_message("T"), lambda: writer.put_each([])):
            with pytest.raises(OSError, match="the disk is 91% full, more than 90%") as error:
                call()
            assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(root / "commitlog"))
        with pytest.raises(OSError, match="the disk is 91% full"):
            writer.deliver_due()
        disk(monkeypatch, 90)
        writer.delete_expired()
        put(writer, 1)
        assert writer.deliver_due() == 0
        assert log_files(root)[0] == 0


def test_a_rather_full_disk_deletes_old_files_at_any_hour(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "_CLEAN_SECONDS", 0.01)
    hour = (time.gmtime().tm_hour + 12) % 24
    disk(monkeypatch, 76)
    with open_store(root, services=True, retention=Retention(delete_when=str(hour))) as writer:
        until(lambda: writer.min_offset == 5 * 16_384)


@pytest.mark.parametrize(("percent", "files"), [(85, 0), (86, 1), (88, 2), (95, 7), (100, 7)])
def test_a_too_full_disk_deletes_as_many_new_files_as_are_in_excess(
    root: Path, monkeypatch: pytest.MonkeyPatch, percent: int, files: int
) -> None:
    """A percent is 10,000 bytes, a file 16,384."""
    disk(monkeypatch, percent)
    with open_store(root, retention=Retention(file_reserved_hours=10**6)) as writer:
        assert len(writer.delete_expired().log_files) == files


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_readers_of_the_process_close_deleted_files(root: Path) -> None:
    def still_open() -> list[str]:
        links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [link for link in links if str(root) in link and "/commitlog/" in link]

    with open_store(root) as writer, MessageStore.open(root) as reader:
        for number in range(0, 300, 10):
            assert reader.find("T", f"k{number}")
        assert len(still_open()) > 5
        writer.delete_expired(1)
        assert still_open()
        assert not [link for link in still_open() if "deleted" in link]


@pytest.mark.parametrize(
    "wrong",
    [
        {"file_reserved_hours": -1},
        {"file_reserved_hours": float("nan")},
        {"delete_when": "24"},
        {"delete_when": ""},
        {"delete_when": "4,5"},
        {"disk_max_used": 75},
        {"disk_force": -0.1},
        {"disk_full": float("nan")},
    ],
)
def test_a_value_without_a_meaning_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}="):
        Retention(**wrong)
