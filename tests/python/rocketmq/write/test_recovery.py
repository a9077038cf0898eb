"""Opening a store for writing after a crash, after damage, and after a clean stop: all recoverable data is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest

import golden
from logdex.errors import CorruptFileError, GeometryError
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL: dict[str, Any] = {"file_size": 16_384, "queue_file_size": 400, "hash_slots": 20, "max_entries": 50}


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def open_golden(root: Path, case: str, **options: Any) -> StoreWriter:
    slots, entries = golden.geometry(case)
    zone = golden.info(case)["zone"]
    return StoreWriter.open(root, zone=zone, hash_slots=slots, max_entries=entries, services=False, **options)


def units(root: Path) -> list[dict[str, Any]]:
    """Return the units of all plain queues, as in the golden data."""
    rows = []
    with MessageStore.open(root) as store:
        for row in sorted((root / "consumequeue").glob("*/*")):
            queue = store.queue(row.parent.name, int(row.name))
            found = pa.record_batch(queue.units())
            rows.append(
                {
                    "topic": row.parent.name,
                    "queueId": int(row.name),
                    "firstOffset": queue.min_offset,
                    "units": [
                        list(unit)
                        for unit in zip(
                            *(found[name].to_pylist() for name in ("phy_offset", "size", "tags_code")), strict=True
                        )
                    ],
                }
            )
    return rows


def messages(root: Path) -> list[int]:
    with MessageStore.open(root) as store:
        return list(pa.table(store.messages(columns=["phy_offset"]))["phy_offset"].to_pylist())


def test_what_is_dispatched_again_is_read_at_once(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    with StoreWriter.open(tmp_path / "store", services=False, flush="sync", **SMALL) as writer:
        for number in range(5):
            writer.put_message("T", b"x", keys=f"k{number}")
        shutil.copytree(tmp_path / "store", crashed, ignore=shutil.ignore_patterns("lock"))
    with StoreWriter.open(crashed, services=False, **SMALL) as writer, MessageStore.open(crashed) as store:
        assert writer.recovered.checked["messages_dispatched"] == 5
        assert store.queue("T", 0).max_offset == 5


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_a_killed_store_becomes_what_its_broker_makes_of_it(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    with open_golden(root, case) as writer:
        assert writer.recovered.ok, writer.recovered
    assert not (root / "abort").exists()
    expected = [row for row in golden.rows(case, "restart_units") if row["units"]]
    found = {(row["topic"], row["queueId"]): row for row in units(root)}
    assert found.keys() >= {(row["topic"], row["queueId"]) for row in expected}
    for row in expected:
        assert found[row["topic"], row["queueId"]]["units"] == row["units"]
    assert messages(root) == [row["physicalOffset"] for row in golden.rows(case, "restart_messages")]
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report
        assert "messages_not_dispatched" not in report.checked
        for row in golden.rows(case, "messages")[-50:]:
            if row["uniqKey"] and row["topic"] != "SCHEDULE_TOPIC_XXXX":
                found_at = [message.phy_offset for message in opened.find(row["topic"], row["uniqKey"], scan=False)]
                assert row["physicalOffset"] in found_at


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_a_store_that_was_stopped_is_left_as_it_is(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    before = contents(root)
    with open_golden(root, case) as writer:
        assert writer.recovered.ok, writer.recovered
        assert writer.recovered.checked["messages_dispatched"] == 0
        assert writer.max_offset == golden.info(case)["load"]["opened"][0]["maxPhyOffset"]
    after = contents(root)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # The bytes that a transient store pool left after the end of the log are now zero.
    assert all(name.startswith("commitlog/") for name in changed) or not changed, changed
    assert case == "pool" or not changed


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_queues_and_index_are_made_anew_where_they_are_missing(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    before = units(root)
    with CommitLog.open(root / "commitlog") as log:
        begin = log.min_offset
    slots, entries = golden.geometry(case)
    tags = golden.info(case)["broker"] == "5.5.0"
    for part in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"):
        shutil.rmtree(root / part, ignore_errors=True)
    with StoreWriter.open(
        root,
        queue_file_size=1_000,
        hash_slots=slots,
        max_entries=entries,
        services=False,
        compat="5.5.0" if tags else None,
    ) as writer:
        assert writer.recovered.checked["messages_dispatched"] == len(golden.rows(case, "messages"))
    after = {(row["topic"], row["queueId"]): row["units"] for row in units(root)}
    for row in before:
        # A queue's file is kept longer than the log's.
        kept = [unit for unit in row["units"] if unit[0] >= begin]
        made = after.get((row["topic"], row["queueId"]), [])
        # Without extension files the units hold the tags codes.
        fields = 2 if case == "cqext" else 3
        assert [unit[:fields] for unit in made] == [unit[:fields] for unit in kept]
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report
        assert opened.indexes_tags == tags


def test_the_log_goes_on_in_the_fill_of_its_last_file(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL, services=False) as writer:
        while writer.max_offset < SMALL["file_size"]:
            writer.put_message("T", bytes(3_000), keys="k")
    (last, *_) = sorted((tmp_path / "commitlog").iterdir(), reverse=True)
    last.unlink()
    with StoreWriter.open(tmp_path, services=False, truncate=True) as writer:
        end = writer.max_offset
        assert end < SMALL["file_size"]
        assert writer.put_message("T", b"small", keys="k").phy_offset == end
        assert writer.put_message("T", bytes(3_000), keys="k").phy_offset == SMALL["file_size"]
    with MessageStore.open(tmp_path) as store:
        report = store.verify()
        assert report.ok, report


DAMAGED_LOGS = ("crc-last-clean", "crc-early-unclean", "magic-last")


@pytest.mark.parametrize("name", DAMAGED_LOGS)
def test_valid_messages_after_damage_are_kept_without_truncate(name: str, damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store(name)
    # No new lock file is left behind.
    (root / "lock").unlink()
    before = contents(root)
    with pytest.raises(CorruptFileError, match=r"[\d,]+ valid messages after it") as caught:
        open_golden(root, "basic")
    assert contents(root) == before
    kept = golden.damaged(name)["messageOffsets"]
    size = golden.info("basic")["store"]["mappedFileSizeCommitLog"]
    damage = int(Path(caught.value.path).name) + caught.value.offset
    assert kept[-1] < damage < kept[-1] + size
    lost = [row["physicalOffset"] for row in golden.rows("basic", "messages") if row["physicalOffset"] > damage]
    assert f"{len(lost):,} valid messages" in caught.value.found
    with open_golden(root, "basic", truncate=True) as writer:
        assert not writer.recovered.ok
        assert writer.recovered.checked["messages_cut_off"] == len(lost)
        assert writer.recovered.checked["bytes_cut"] > 0
        assert writer.max_offset == damage
        # No byte of the truncated part may come back after a message of the same length.
        writer.put_message("T", b"new", keys="new-key")
    assert messages(root) == [*kept, damage]
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report
        assert [message.phy_offset for message in opened.find("T", "new-key", scan=False)] == [damage]


def test_damage_that_no_start_meets_stays_a_matter_of_verify(damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store("crc-early-clean")
    with open_golden(root, "basic") as writer:
        assert writer.recovered.ok
        placed = writer.put_message("T", keys="new-key")
    with MessageStore.open(root) as opened:
        assert opened.verify().kinds.keys() >= {"log-frame"}
        assert opened.find("T", "new-key")[0].phy_offset == placed.phy_offset


def test_without_checkpoint_the_whole_log_is_dispatched_again(damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store("unclean-no-checkpoint")
    with open_golden(root, "basic") as writer:
        assert writer.recovered.checked["messages_dispatched"] == len(golden.rows("basic", "messages"))
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report


@pytest.mark.parametrize("last_exit_ok", [None, False])
@pytest.mark.parametrize("name", [name for name in golden.DAMAGED if name.startswith(("cq-", "index-", "no-index"))])
def test_a_store_with_damaged_queues_or_index_goes_on(
    name: str, last_exit_ok: bool | None, damaged_store: Callable[[str], Path]
) -> None:
    root = damaged_store(name)
    with open_golden(root, "basic", last_exit_ok=last_exit_ok) as writer:
        writer.put_message("T", keys="new-key")
    slots, entries = golden.geometry("basic")
    with MessageStore.open(root, hash_slots=slots, max_entries=entries) as opened:
        kinds = opened.verify().kinds
        assert [message.keys for message in opened.find("T", "new-key", scan=False)] == ["new-key"]
        # Damaged queues are repaired from the log; damaged index files are too, as far as possible, after a crash.
        assert not [kind for kind in kinds if kind.startswith("queue")]
        if last_exit_ok is False:
            assert kinds.keys() <= {"file-size", "file-name", "not-a-file", "index-count"}


def test_a_last_file_of_another_length_gets_its_own(damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store("log-zero-length")
    with open_golden(root, "basic", last_exit_ok=False) as writer:
        assert [finding.kind for finding in writer.recovered.findings] == ["file-empty"]
    assert messages(root) == [row["physicalOffset"] for row in golden.rows("basic", "messages")]
    root = damaged_store("log-truncated")
    with open_golden(root, "basic", last_exit_ok=False) as writer:
        assert "file-size" in writer.recovered.kinds
    sizes = {path.stat().st_size for path in (root / "commitlog").iterdir()}
    assert sizes == {golden.info("basic")["store"]["mappedFileSizeCommitLog"]}
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report


def test_an_index_without_its_geometry_is_refused_before_anything_changes(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL, services=False) as writer:
        writer.put_message("T")
    before = contents(tmp_path)
    with pytest.raises(GeometryError):
        StoreWriter.open(tmp_path)
    assert contents(tmp_path) == before


def test_queues_in_a_database_are_refused(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL, services=False) as writer:
        writer.put_message("T")
    (tmp_path / "consumequeue" / "CURRENT").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="RocksDB"):
        StoreWriter.open(tmp_path)


def put_some(writer: StoreWriter, first: int, count: int) -> None:
    for number in range(first, first + count):
        writer.put_message(f"T{number % 5}", bytes(number % 300), queue_id=number % 3, keys=f"k{number}")


def check_some(root: Path, count: int) -> None:
    """Open a store that was not closed, and find its messages."""
    with StoreWriter.open(root, **SMALL, services=False) as writer:
        assert writer.recovered.ok, writer.recovered
        assert writer.recovered.checked["messages_cut_off"] == 0
        put_some(writer, count, 3)
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["messages"] == count + 3
        for number in range(max(0, count - 40), count + 3):
            assert len(store.find(f"T{number % 5}", f"k{number}", scan=False)) == 1, number


@pytest.mark.parametrize("step", ["put", "dispatch", "flush"])
def test_a_copy_of_an_open_store_has_everything(step: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, **SMALL, services=False) as writer:
        for number in range(12):
            put_some(writer, 30 * number, 30)
            if step != "put":
                getattr(writer, step)()
            copy = tmp_path / f"copy{number}"
            shutil.copytree(root, copy)
            check_some(copy, 30 * (number + 1))


def test_a_copy_beside_the_services_has_everything(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, **SMALL, services=True) as writer:
        for number in range(12):
            put_some(writer, 30 * number, 30)
            copy = tmp_path / f"copy{number}"
            shutil.copytree(root, copy)
            check_some(copy, 30 * (number + 1))


@pytest.mark.parametrize("services", [False, True])
def test_a_process_that_dies_loses_nothing(services: bool, tmp_path: Path) -> None:
    program = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_recovery import SMALL, put_some
        from logdex.rocketmq import StoreWriter
        writer = StoreWriter.open({str(tmp_path)!r}, **SMALL, services={services})
        put_some(writer, 0, 100)
        writer.flush()
        put_some(writer, 100, 77)
        os._exit(3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "support")},
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert (tmp_path / "abort").exists()
    check_some(tmp_path, 177)


def test_any_prefix_of_the_log_opens_again(tmp_path: Path) -> None:
    """A write that stopped in the middle: everything before it is kept, and nothing of it."""
    root = tmp_path / "store"
    with StoreWriter.open(root, **SMALL, services=False) as writer:
        put_some(writer, 0, 40)
        writer.flush()
        ends = [writer.max_offset]
        for number in range(40, 44):
            put_some(writer, number, 1)
            ends.append(writer.max_offset)
        shutil.copytree(root, tmp_path / "open")
    log = "commitlog/00000000000000000000"
    whole = (tmp_path / "open" / log).read_bytes()
    for cut in range(ends[0], ends[-1] + 1, 37):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "open", copy)
        (copy / log).write_bytes(whole[:cut] + bytes(len(whole) - cut))
        there = 40 + sum(end <= cut for end in ends[1:])
        with StoreWriter.open(copy, services=False) as writer:
            assert writer.max_offset == [*ends][there - 40]
        with MessageStore.open(copy) as store:
            report = store.verify()
            assert report.ok, (cut, report)
            assert report.checked["messages"] == there


def test_index_entries_behind_the_end_of_the_log_go(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, **SMALL, services=False) as writer:
        put_some(writer, 0, 90)
        writer.flush()
        before = writer.max_offset
        put_some(writer, 90, 30)
        writer.flush()
        shutil.copytree(root, tmp_path / "crashed")
    crashed = tmp_path / "crashed"
    with CommitLog.open(crashed / "commitlog") as log:
        files = {int(path.name): path for path in log.files}
    # The log lost messages that the queues and the index still have.
    for begin, path in files.items():
        if begin > before:
            path.unlink()
        elif begin + SMALL["file_size"] > before:
            kept = path.read_bytes()[: before - begin]
            path.write_bytes(kept + bytes(SMALL["file_size"] - len(kept)))
    with StoreWriter.open(crashed, services=False) as writer:
        assert writer.max_offset == before
        assert writer.recovered.checked["index_files_deleted"] > 0
        put_some(writer, 90, 30)
    with MessageStore.open(crashed) as store:
        report = store.verify()
        assert report.ok, report
        assert all(len(store.find(f"T{number % 5}", f"k{number}", scan=False)) == 1 for number in range(120))


def test_a_full_disk_while_dispatching_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        writer = StoreWriter.open(tmp_path, **SMALL, services=False)
        put_some(writer, 0, 60)
        patch.setattr("logdex.hash_index.index_writer.create_next", full)
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        assert (tmp_path / "abort").exists()
        with pytest.raises(OSError, match="No space left"):
            StoreWriter.open(tmp_path, **SMALL, services=False)
    check_some(tmp_path, 60)
