"""How IndexService opens a directory: damage, strange names, unclean stops, locks, checkpoint and expiry."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden
from index_inputs import T0, entries, messages, snapshot
from logdex.errors import LockedError
from logdex.rocketmq import IndexFile, IndexService

if TYPE_CHECKING:
    from collections.abc import Callable

MAX = (1 << 63) - 1
SMALL: dict[str, Any] = {"hash_slots": 10, "max_entries": 4}


def index_time(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[16:24], "big", signed=True)


def make_checkpoint(path: Path, index_msg_timestamp: int) -> Path:
    path.write_bytes(bytes(16) + index_msg_timestamp.to_bytes(8, "big") + bytes(4072))
    return path


def seven_messages(directory: Path, checkpoint: Path) -> list[Path]:
    """An unclean load that was run with the real 4.9.3 classes: seven one-key messages, one second apart, three per file."""
    with IndexService.open(directory, mode="a", checkpoint=checkpoint, **SMALL) as index:
        index.put_batch(entries([f"k{i}" for i in range(7)]))
    return sorted(directory.iterdir())


# Checkpoint


def test_a_roll_flushes_the_full_file_and_moves_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "point", 5)
    checkpoint.write_bytes(bytes(range(16)) + checkpoint.read_bytes()[16:24] + bytes([7] * 16) + bytes(4056))
    with IndexService.open(tmp_path / "index", mode="a", checkpoint=checkpoint, **SMALL) as index:
        index.put_batch(entries(["a", "b"]))
        index.flush()
        assert index_time(checkpoint) == 5
        index.put_batch(entries(["c"], begin=T0 + 7000))
        # Full, but nothing followed it yet.
        assert index_time(checkpoint) == 5
        index.put_batch(entries(["d"], begin=T0 + 9000))
        assert index_time(checkpoint) == T0 + 7000
    assert index_time(checkpoint) == T0 + 7000
    content = checkpoint.read_bytes()
    assert (len(content), content[:16], content[24:40]) == (4096, bytes(range(16)), bytes([7] * 16))


def test_flush_of_a_full_file_moves_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "point", 0)
    with IndexService.open(tmp_path / "index", mode="a", checkpoint=checkpoint, **SMALL) as index:
        index.put_batch(entries(["a", "b", "c"]))
        index.flush()
        assert index_time(checkpoint) == T0 + 2000


def test_a_store_has_its_own_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with IndexService.open(tmp_path / "index", mode="a", **SMALL) as index:
        index.put_batch(entries(["a"] * 7))
    assert index_time(tmp_path / "checkpoint") == T0 + 5000


def test_without_a_store_there_is_no_checkpoint(tmp_path: Path) -> None:
    with IndexService.open(tmp_path / "index", mode="a", **SMALL) as index:
        index.put_batch(entries(["a"] * 7))
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


# Expiry


@pytest.mark.parametrize("compat", [None, "4.9.3"])
def test_files_whose_messages_are_gone_expire(tmp_path: Path, compat: Any) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=2, compat=compat) as index:
        index.put_batch(entries(["a", "b", "c", "d"]))
        paths = [file.path for file in index.files]
        assert len(paths) == 4
        assert index.delete_expired_files(1000) == []
        assert index.delete_expired_files(1010) == paths[:1]
        assert index.delete_expired_files(1011) == paths[1:2]
        assert index.delete_expired_files(MAX) == paths[2:3]
        assert index.delete_expired_files(MAX) == []
        assert [file.path for file in index.files] == paths[3:]
        assert sorted(tmp_path.iterdir()) == paths[3:]
        assert index.query_offset("T", "d").phy_offsets == [1030]
        assert index.query_offset("T", "a").phy_offsets == []


# Unclean stops


def test_compat_deletes_what_ends_after_the_checkpoint(tmp_path: Path) -> None:
    paths = seven_messages(tmp_path / "index", tmp_path / "point")
    assert index_time(tmp_path / "point") == T0 + 5000
    before = snapshot(tmp_path)
    options = {"checkpoint": tmp_path / "point", "compat": "4.9.3", "last_exit_ok": False, **SMALL}
    with IndexService.open(tmp_path / "index", **options) as index:
        assert [file.path for file in index.files] == paths[:2]
        assert [index.query_offset("T", f"k{i}").phy_offsets for i in (0, 5, 6)] == [[1000], [1050], []]
    assert snapshot(tmp_path) == before
    with IndexService.open(tmp_path / "index", mode="a", **options) as index:
        assert [file.path for file in index.files] == paths[:2]
        assert [index.query_offset("T", f"k{i}").phy_offsets for i in (0, 5, 6)] == [[1000], [1050], []]
    assert sorted((tmp_path / "index").iterdir()) == paths[:2]


def test_compat_without_a_checkpoint_deletes_all(tmp_path: Path) -> None:
    seven_messages(tmp_path / "index", tmp_path / "point")
    with IndexService.open(tmp_path / "index", mode="a", compat="4.9.3", last_exit_ok=False, **SMALL) as index:
        assert index.files == []
    assert list((tmp_path / "index").iterdir()) == []


def test_compat_keeps_an_empty_file_at_the_checkpoint(tmp_path: Path) -> None:
    with IndexService.open(tmp_path / "index", mode="a", checkpoint=tmp_path / "point", **SMALL) as index:
        index.build_index(messages({"phy_offset": 10, "store_timestamp": T0, "keys": "a b c"}))
        index.build_index(messages({"phy_offset": 20, "store_timestamp": T0 + 1}))
    options = {"checkpoint": tmp_path / "point", "compat": "4.9.3", "last_exit_ok": False, **SMALL}
    with IndexService.open(tmp_path / "index", mode="a", **options) as index:
        assert [len(file) for file in index.files] == [3, 0]


def test_the_default_keeps_everything(tmp_path: Path) -> None:
    paths = seven_messages(tmp_path / "index", tmp_path / "point")
    before = [path.read_bytes() for path in paths]
    for mode in ("r", "a"):
        with IndexService.open(tmp_path / "index", mode=mode, last_exit_ok=False, **SMALL) as index:
            assert [index.query_offset("T", f"k{i}").phy_offsets for i in range(7)] == [
                [1000 + 10 * i] for i in range(7)
            ]
    assert [path.read_bytes() for path in paths] == before


def test_mending_links_every_file_again(tmp_path: Path) -> None:
    paths = seven_messages(tmp_path / "index", tmp_path / "point")
    sound = [path.read_bytes() for path in paths]
    for path in paths:
        with path.open("r+b") as file:
            file.seek(40)
            file.write(bytes(40))
    with IndexService.open(tmp_path / "index", last_exit_ok=False, **SMALL) as index:
        assert [index.query_offset("T", f"k{i}").phy_offsets for i in range(7)] == [[1000 + 10 * i] for i in range(7)]
    with IndexService.open(tmp_path / "index", mode="a", last_exit_ok=False, **SMALL) as index:
        assert [index.query_offset("T", f"k{i}").phy_offsets for i in range(7)] == [[1000 + 10 * i] for i in range(7)]
        assert index.verify().ok
    assert [path.read_bytes() for path in paths] == sound


# Damage


def test_damage_in_one_file_does_not_stop_the_others(tmp_path: Path) -> None:
    paths = seven_messages(tmp_path / "index", tmp_path / "point")
    directory = tmp_path / "index"
    os.truncate(paths[1], 21)
    (directory / "notes.txt").write_text("hello")
    (directory / "99990101000000000").touch()
    (directory / "20200101000000000").mkdir()
    with IndexService.open(directory, **SMALL) as index:
        found = [index.query_offset("T", f"k{i}").phy_offsets for i in range(7)]
        assert found == [[1000], [1010], [1020], [], [], [], [1060]]
        report = index.verify()
    kinds = {(os.path.basename(finding.path), finding.kind) for finding in report.findings}  # noqa: PTH119 -- text
    assert kinds == {
        ("notes.txt", "file-name"),
        ("20200101000000000", "not-a-file"),
        ("99990101000000000", "file-size"),
        (paths[1].name, "file-size"),
    }
    assert report.checked["files"] == 4


def test_puts_go_on_after_a_newest_file_that_takes_none(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.put_batch(entries(["a", "b", "c"]))
    broken = tmp_path / "99990101000000000"
    broken.touch()
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.put_batch(entries(["d"], first_offset=1030, begin=T0 + 65000))
        newest = index.files[-1]
        assert newest.path.name == "99990101000000001"
        # The seed is the last file with entries: 65 s after the seed's end at 2 s.
        assert newest.path.read_bytes()[112:116] == (63).to_bytes(4, "big")
        assert [index.query_offset("T", key).phy_offsets for key in "abcd"] == [[1000], [1010], [1020], [1030]]
    assert broken.stat().st_size == 0


@pytest.mark.parametrize("count", [5, 768, -1])
def test_puts_go_on_after_a_newest_file_whose_count_cannot_be_true(tmp_path: Path, count: int) -> None:
    checkpoint = make_checkpoint(tmp_path / "point", 7)
    options: dict[str, Any] = {"checkpoint": checkpoint, **SMALL}
    with IndexService.open(tmp_path / "index", mode="a", **options) as index:
        index.put_batch(entries(["a", "b"]))
        broken = index.files[-1].path
    content = bytearray(broken.read_bytes())
    content[36:40] = count.to_bytes(4, "big", signed=True)
    broken.write_bytes(content)
    with IndexService.open(tmp_path / "index", mode="a", **options) as index:
        index.put_batch(entries(["c", "d"], first_offset=1020))
        assert [index.query_offset("T", key).phy_offsets for key in "abcd"] == [[1000], [1010], [1020], [1030]]
    assert broken.read_bytes() == bytes(content)
    assert index_time(checkpoint) == 7


def test_a_reader_notices_that_a_short_file_was_completed(tmp_path: Path) -> None:
    paths = seven_messages(tmp_path / "index", tmp_path / "point")
    whole = paths[2].read_bytes()
    os.truncate(paths[2], 0)
    with IndexService.open(tmp_path / "index", **SMALL) as index:
        assert index.query_offset("T", "k6").phy_offsets == []
        paths[2].write_bytes(whole)
        assert index.query_offset("T", "k6").phy_offsets == [1060]


def test_a_reader_notices_a_file_that_was_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    directory.mkdir()
    with IndexService.open(directory, **SMALL) as index:
        for key, counts in (("a", [1, 0]), ("b", [0, 1])):
            with IndexFile.create(tmp_path / "new", **SMALL) as file:
                file.put_key(f"T#{key}", 7, T0)
            (tmp_path / "new").replace(directory / "100")
            assert [len(index.query_offset("T", asked).phy_offsets) for asked in "ab"] == counts


def test_a_quiet_directory_is_listed_again_when_it_changes(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.put_batch(entries(["a"] * 3))
    (only,) = tmp_path.iterdir()
    whole = only.read_bytes()

    def quiet() -> None:
        os.utime(tmp_path, (0, 0))

    quiet()
    with IndexService.open(tmp_path) as reader:
        assert len(reader.files) == len(reader.files) == 1
        (tmp_path / "99990101000000000").write_bytes(whole)
        assert len(reader.files) == 2
        only.unlink()
        assert [file.path.name for file in reader.files] == ["99990101000000000"]
        # A file that is still being copied grows without a change of the directory.
        (tmp_path / "99990101000000001").write_bytes(whole[:50])
        quiet()
        assert len(reader.query_offset("T", "a").phy_offsets) == 3
        with (tmp_path / "99990101000000001").open("ab") as copy:
            copy.write(whole[50:])
        assert len(reader.query_offset("T", "a").phy_offsets) == 6


def test_compat_loads_up_to_a_directory_with_a_numeric_name(damaged_store: Callable[[str], Path]) -> None:
    directory = damaged_store("index-directory") / "index"
    with IndexService.open(directory, compat="4.9.3") as index:
        assert len(index.files) == 2
    with IndexService.open(directory) as index:
        assert len(index.files) == 6


# Locks


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as first:
        with pytest.raises(LockedError) as refused:
            IndexService.open(tmp_path, mode="a", **SMALL)
        assert refused.value.path == str(tmp_path)
        first.put_batch(entries(["a"]))
        with pytest.raises(LockedError):
            IndexService.open(tmp_path, mode="a", **SMALL)
        with pytest.raises(LockedError):
            IndexFile.open(first.files[-1].path, mode="r+", **SMALL)
    with IndexService.open(tmp_path, mode="a", **SMALL) as second:
        second.put_batch(entries(["b"]))


def test_of_two_writers_to_a_directory_that_is_not_there_one_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    with (
        IndexService.open(directory, mode="a", **SMALL) as first,
        IndexService.open(directory, mode="a", **SMALL) as second,
    ):
        assert not directory.exists()
        first.put_batch(entries(["a"]))
        with pytest.raises(LockedError):
            second.put_batch(entries(["b"]))
        assert first.query_offset("T", "a").phy_offsets == [1000]
        assert second.query_offset("T", "b").phy_offsets == []


def test_a_file_held_by_another_writer_is_refused(tmp_path: Path) -> None:
    with IndexFile.create(tmp_path / "100", **SMALL), pytest.raises(LockedError):
        IndexService.open(tmp_path, mode="a", **SMALL)
    # The refused service released the directory.
    IndexService.open(tmp_path, mode="a", **SMALL).close()


BROKER = textwrap.dedent("""
    import fcntl, sys
    with open(sys.argv[1], "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
        print("locked", flush=True)
        sys.stdin.read()
""")


def test_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").write_bytes(b"lock")
    with IndexService.open(tmp_path / "index", mode="a", **SMALL) as index:
        index.put_batch(entries(["a"]))
        arguments = [sys.executable, "-c", BROKER, str(tmp_path / "lock")]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline() == b"locked\n"
            before = snapshot(tmp_path)
            for call in (
                lambda: index.put_batch(entries(["b"])),
                lambda: index.build_index(messages({"phy_offset": 9999, "store_timestamp": T0, "keys": "k"})),
                lambda: index.delete_expired_files(MAX),
                lambda: IndexService.open(tmp_path / "index", mode="a", **SMALL),
            ):
                with pytest.raises(LockedError) as held:
                    call()
                assert (held.value.path, held.value.pid) == (str(tmp_path / "lock"), broker.pid)
            assert index.query_offset("T", "a").phy_offsets == [1000]
            with IndexService.open(tmp_path / "index", **SMALL) as reader:
                assert reader.query_offset("T", "a").phy_offsets == [1000]
            assert snapshot(tmp_path) == before
            broker.communicate()
        index.put_batch(entries(["b"]))


def test_asking_for_the_brokers_lock_does_not_drop_it(tmp_path: Path) -> None:
    # POSIX drops a process's locks on a file when it closes any descriptor of it.
    (tmp_path / "commitlog").mkdir()
    with (tmp_path / "lock").open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
        arguments = [
            sys.executable,
            "-c",
            "from logdex import _core; import sys; print(_core.broker_lock_holder(sys.argv[1]))",
        ]
        for _ in range(2):
            held = subprocess.run([*arguments, str(tmp_path / "lock")], capture_output=True, check=True)
            assert int(held.stdout) == os.getpid()


# Damaged stores of a real broker


INDEX_DAMAGES = [name for name in golden.DAMAGED if name.startswith("index-")]


@pytest.mark.parametrize("name", [name for name in INDEX_DAMAGES if "indexAlone" in golden.damaged(name)])
def test_compat_answers_damaged_directories_as_the_broker(name: str, damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store(name)
    before = snapshot(root)
    alone = golden.damaged(name)["indexAlone"]
    hash_slots, max_entries = golden.geometry("basic")
    with IndexService.open(root / "index", compat="4.9.3", hash_slots=hash_slots, max_entries=max_entries) as index:
        headers = [
            {
                "file": file.path.name,
                "beginTimestamp": file.header.begin_timestamp,
                "endTimestamp": file.header.end_timestamp,
                "beginPhyOffset": file.header.begin_phy_offset,
                "endPhyOffset": file.header.end_phy_offset,
                "hashSlotCount": file.header.hash_slot_count,
                "indexCount": max(file.header.index_count, 1),
                "full": file.is_full,
            }
            for file in index.files
        ]
        assert headers == alone["open"]["files"]
        compared = 0
        for question in alone["queries"]:
            asked = (question["topic"], question["key"], question["maxNum"], question["begin"], question["end"])
            answer = index.query_offset(*asked)
            expected = question["index"]
            assert answer.phy_offsets == expected["offsets"], asked
            assert answer.index_last_update_timestamp == expected["lastTimestamp"]
            assert answer.index_last_update_phyoffset == expected["lastPhyOffset"]
            compared += 1
        assert compared == len(alone["queries"]) > 0
    assert snapshot(root) == before


FINDINGS = {
    "index-bad-name": [
        ("+5", 0, "file-size"),
        ("20261121193005123.bak", 0, "file-name"),
        ("notes.txt", 0, "file-name"),
    ],
    "index-begin-time": [("20261121193006196", 0, "header-time")],
    "index-count-high": [("20261121193006196", 36, "index-count")],
    "index-count-low": [("20261121193009060", 36, "index-count")],
    "index-cycle-foreign": [("20261121193006196", 332, "prev-index")],
    "index-cycle-matching": [("20261121193006196", 612, "prev-index")],
    "index-directory": [("20261121193006197", 0, "not-a-file")],
    "index-header-cut": [("20261121193009060", 21, "file-size")],
    "index-longer": [("20261121193006196", 5416, "file-size")],
    "index-negative-time": [("20261121193006196", 2528, "time-diff")],
    "index-self-loop": [("20261121193006196", 2532, "prev-index")],
    "index-truncated": [("20261121193007464", 3610, "file-size")],
    "index-wild-prev": [("20261121193006196", 2532, "prev-index")],
    "index-wild-slot": [("20261121193006196", 88, "slot-value")],
    "index-zero-length": [("99990101000000000", 0, "file-size")],
}


def test_every_index_damage_has_its_finding() -> None:
    assert sorted(FINDINGS) == sorted(INDEX_DAMAGES)


@pytest.mark.parametrize("name", INDEX_DAMAGES)
def test_verify_names_the_damage(name: str, damaged_store: Callable[[str], Path]) -> None:
    directory = damaged_store(name) / "index"
    for compat in (None, "4.9.3"):
        with IndexService.open(directory, compat=compat) as index:
            report = index.verify()
        findings = [(os.path.basename(f.path), f.offset, f.kind) for f in report.findings]  # noqa: PTH119 -- text
        assert sorted(findings) == sorted(FINDINGS[name])
        assert not report.ok


@pytest.mark.parametrize("case", golden.STORES)
def test_verify_finds_nothing_in_a_healthy_store(case: str, store: Callable[[str], Path]) -> None:
    with IndexService.open(store(case) / "index") as index:
        report = index.verify()
        assert report.ok, str(report)
        assert report.checked["files"] == len(index.files) == len(golden.rows(case, "index_files"))
        assert report.checked["entries"] == sum(len(file) for file in index.files)


# Errors of the system


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    # B8, B9. A dangling link, because permissions do not bind a superuser.
    (tmp_path / "index").symlink_to(tmp_path / "none" / "index")
    with IndexService.open(tmp_path / "index", mode="a", **SMALL) as index:
        for _ in range(3):
            with pytest.raises(FileExistsError):
                index.put_batch(entries(["a"]))
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_file_that_cannot_be_created_leaves_nothing(tmp_path: Path) -> None:
    # B9: more than any disk holds.
    with IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=1 << 25) as index:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
        try:
            with pytest.raises(OSError, match=r"."):
                index.put_batch(entries(["a"]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == []


def test_close_lets_all_descriptors_go(tmp_path: Path) -> None:
    seven_messages(tmp_path / "index", tmp_path / "point")
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for mode in ("r", "a"):
        for access in ("mmap", "pread"):
            with IndexService.open(tmp_path / "index", mode=mode, access=access, **SMALL) as index:
                index.query_offset("T", "k0")
                assert access == "mmap" or len(list(descriptors.iterdir())) > before
            assert len(list(descriptors.iterdir())) == before
