"""`logdex copy` and `logdex recover`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex.kafka import LogDirWriter
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def state(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_recover_repairs_the_store_of_a_killed_broker(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    ran = logdex_command("recover", root, "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.rows
    assert told["ok"] is True
    assert told["checked"]["messages_dispatched"] > 0
    assert not (root / "abort").exists()
    assert logdex_command("verify", root).code == 0
    again = logdex_command("recover", root)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"{root}: nothing to do; queues and index as a whole are checked by `logdex verify`")


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_recover_of_a_clean_store_has_nothing_to_do(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    for words in (("--dry-run",), (), ("--dry-run", "--verify"), ("--verify",)):
        ran = logdex_command("recover", root, *words)
        assert (ran.code, ran.err) == (0, ""), words
        assert ran.out.startswith(f"{root}: nothing to do")
        assert ("\nvalid; " in ran.out) == ("--verify" in words)


def test_the_prepared_file_of_a_killed_broker_is_no_deleted_file(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("killed")
    last = max((root / "commitlog").iterdir())
    assert not any(last.read_bytes())
    assert "deleted" not in logdex_command("recover", root, "--dry-run").out
    assert last.exists()
    ran = logdex_command("recover", root)
    assert (ran.code, ran.out.startswith(f"{root}: nothing to do; it was not closed, and counts as closed now")) == (
        0,
        True,
    )


@pytest.mark.parametrize("dry", [True, False])
def test_recover_names_damage_before_the_part_that_it_walks(
    dry: bool, damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = damaged_store("crc-early-clean")
    words = ("recover", root, *(["--dry-run"] if dry else []))
    ran = logdex_command(*words)
    assert ran.code == 1
    assert "log-frame" in ran.err
    finding, last = logdex_command(*words, "--json").rows
    assert (finding["kind"], last["ok"]) == ("log-frame", False)
    assert f"{finding['path']} at byte {finding['offset']}" in ran.err


def test_a_dry_run_says_what_would_be_truncated_and_changes_nothing(
    damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = damaged_store("crc-last-clean")
    before = state(root)
    assert logdex_command("recover", root, "--dry-run").code == 1
    (finding, told) = logdex_command("recover", root, "--dry-run", "--truncate", "--json").rows
    assert finding["kind"] == "log-frame"
    assert state(root) == before
    (_, done) = logdex_command("recover", root, "--truncate", "--json").rows
    for name in ("messages_cut_off", "bytes_cut", "log_files_deleted", "index_files_deleted", "log_bytes"):
        assert told["checked"][name] == done["checked"][name], name
    assert told["checked"]["messages_cut_off"] > 0


def test_a_dry_run_leaves_a_running_broker_alone(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("sync")
    with StoreWriter.open(root, services=False):
        ran = logdex_command("recover", root, "--dry-run")
    assert ran.code == 2
    assert "held by process" in ran.err


def test_messages_name_flags(damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = damaged_store("crc-last-clean")
    ran = logdex_command("recover", root)
    assert "--truncate would remove them" in ran.err
    assert "truncate=True" not in ran.err
    assert "file_size" not in logdex_command("recover", root, "--file-size", "12345").err


def test_recover_names_damage_and_changes_nothing(
    damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = damaged_store("crc-last-clean")
    before = state(root)
    ran = logdex_command("recover", root)
    assert ran.code == 1
    assert "valid messages after it" in ran.err
    assert "nothing was changed" in ran.err
    (told,) = logdex_command("recover", root, "--json").rows
    assert (told["ok"], told["offset"] > 0) == (False, True)
    assert state(root) == before
    cut = logdex_command("recover", root, "--truncate")
    assert cut.code == 1
    assert "log-frame" in cut.err
    assert "messages cut off" in cut.out
    assert logdex_command("verify", root).code == 0
    assert logdex_command("recover", root).code == 0


def lose_queue_files(root: Path) -> None:
    for queue in sorted((root / "consumequeue").glob("*/*"))[::2]:
        shutil.rmtree(queue)


def lose_an_index_file(root: Path) -> None:
    sorted((root / "index").iterdir())[1].unlink()


def lose_the_newest_index_files(root: Path) -> None:
    for path in sorted((root / "index").iterdir())[1:]:
        path.unlink()


def lose_the_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def break_slots(root: Path) -> None:
    with min((root / "index").iterdir()).open("r+b") as file:
        file.seek(40)
        file.write(bytes(40))


def break_a_queue(root: Path) -> None:
    """Set a unit to zero near the end of a long queue."""
    sizes = {path: len(path.read_bytes().rstrip(b"\0")) for path in (root / "consumequeue").glob("*/*/*")}
    queue = max((path for path, size in sizes.items() if size > 100), key=lambda path: path.name)
    with queue.open("r+b") as file:
        file.seek(sizes[queue] // 20 * 20 - 60)
        file.write(bytes(20))


def lose_the_end_of_the_log(root: Path) -> None:
    last = max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))
    size = last.stat().st_size
    with last.open("r+b") as file:
        file.truncate(size // 8)


def lose_everything_but_the_log(root: Path) -> None:
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue")


_LOSSES = (
    *(lose_queue_files, lose_an_index_file, lose_the_newest_index_files, lose_the_index, break_slots, break_a_queue),
    *(lose_the_end_of_the_log, lose_everything_but_the_log),
)


@pytest.mark.parametrize("case", ["rolled", "killed"])
@pytest.mark.parametrize("lose", _LOSSES)
def test_a_dry_run_says_all_that_recover_then_does(
    case: str, lose: Callable[[Path], None], store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    slots = golden.info(case)["store"]
    sizes = ("--hash-slots", slots["maxHashSlotNum"], "--max-entries", slots["maxIndexNum"])
    assert logdex_command("recover", root, *sizes).code == 0
    lose(root)
    before = state(root)
    planned = logdex_command("recover", root, "--dry-run", "--json", *sizes)
    text = logdex_command("recover", root, "--dry-run", *sizes)
    assert state(root) == before
    (*found, told) = planned.rows
    (*repaired, done) = logdex_command("recover", root, "--json", *sizes).rows
    assert planned.code == 0
    assert (found, told["checked"], told["broker_starts"]) == (repaired, done["checked"], True)
    assert all(each["repaired"] for each in found)
    assert "nothing to do" not in text.out
    assert "would be: " in text.out
    after = state(root)
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert any(path.parent.name != root.name for path in changed)
    indexes = {path for path in changed if path.parent.name == "index"}
    assert (told["checked"]["index_files_added"] > 0) == bool(indexes - {*before})
    deleted = {path for path in before if path not in after and path.parent.name == "index"}
    assert told["checked"]["index_files_deleted"] >= len(deleted)
    again = logdex_command("recover", root, *sizes)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"{root}: nothing to do")
    # Units before the checkpoint are not dispatched again; `verify` reports them.
    assert logdex_command("verify", root).code == 0 or lose is lose_queue_files


def test_recover_ends_with_whether_a_broker_starts(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("sync")
    assert logdex_command("recover", root).out.endswith("\na 4.9.3 broker starts with this store\n")
    queue = next((root / "consumequeue").glob("*/*"))
    strays = [root / "commitlog" / ".DS_Store", queue / "notes.txt", root / "commitlog" / "old"]
    strays[0].write_bytes(b"Mac")
    strays[1].write_bytes(b"")
    strays[2].mkdir()
    for words in (("--dry-run",), ()):
        ran = logdex_command("recover", root, *words)
        assert ran.code == 1
        start = ran.out.splitlines().index(
            "a 4.9.3 broker would still not start; left to do by hand:"
            if words
            else "a 4.9.3 broker does not start with this store; left to do by hand:"
        )
        left = ran.out.splitlines()[start + 1 :]
        assert all(any(f"move away or restore {path}" in line for line in left) for path in strays)
        assert len(left) == len(strays)
    # A later release ignores a directory.
    (last,) = logdex_command("recover", root, "--json", "--compat", "5.5.0").rows[-1:]
    assert (last["broker_starts"], {each["path"] for each in last["left_to_do"]}) == (False, {*map(str, strays[:2])})
    for path in strays[:2]:
        path.unlink()
    assert logdex_command("recover", root, "--compat", "5.5.0").out.endswith(
        "\na 5.5.0 broker starts with this store\n"
    )
    strays[2].rmdir()
    assert logdex_command("recover", root).code == 0


def test_recover_wants_a_store(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        ran = logdex_command("recover", path)
        assert ran.code == 2
        assert "no store" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_recover_leaves_a_running_broker_alone(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("sync")
    with StoreWriter.open(root, services=False):
        ran = logdex_command("recover", root)
        assert ran.code == 2
        assert "held by process" in ran.err


def test_copy_of_a_topic(store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root, target = store("basic"), tmp_path / "copy"
    ran = logdex_command("copy", root, target, "--topic", "AaTopic", "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.rows
    count = sum(row["topic"] == "AaTopic" for row in golden.rows("basic", "messages"))
    assert told["checked"]["messages"] == count
    assert logdex_command("verify", target).code == 0
    with MessageStore.open(target) as copied:
        assert copied.topics == ["AaTopic"]
    full = logdex_command("copy", root, target)
    assert full.code == 2
    assert "expected a missing or empty directory" in full.err
    none = logdex_command("copy", root, tmp_path / "none", "--topic", "nobody")
    assert none.code == 1
    assert not (tmp_path / "none").exists()
    assert f"{count:,} messages" in logdex_command("copy", root, tmp_path / "again", "--topic", "AaTopic").out


def test_copy_names_damage(
    damaged_store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    ran = logdex_command("copy", damaged_store("crc-last-clean"), tmp_path / "copy")
    assert ran.code == 1
    assert "log-frame" in ran.err


def test_a_copy_into_the_store_itself_is_refused(
    store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store("basic")
    before = sorted(root.rglob("*"))
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "queues").symlink_to(root / "consumequeue")
    monkeypatch.chdir(root / "index")
    for target in (
        root / "sub",
        root / "a" / "b",
        root / "commitlog" / "x",
        tmp_path / "link" / "sub",
        tmp_path / "queues" / "x",
        f"{tmp_path}/none/../link/sub",
        "../sub",
        "sub",
    ):
        ran = logdex_command("copy", root, target)
        assert (ran.code, ran.out) == (2, ""), target
        assert "expected a directory outside of the store" in ran.err
    elsewhere = tmp_path / "log"
    (root / "commitlog").rename(elsewhere)
    ran = logdex_command("copy", root, elsewhere / "x", "--commit-log", elsewhere)
    assert (ran.code, ran.out) == (2, "")
    elsewhere.rename(root / "commitlog")
    assert sorted(root.rglob("*")) == before
    assert logdex_command("copy", root, f"{root}-2").code == 0


def test_recover_repairs_a_kafka_log_directory(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = tmp_path / "logs"
    with LogDirWriter.open(root) as writer:
        writer.create_topic("orders", 1)
        for number in range(5):
            writer.append("orders", 0, {"value": [b"%d" % number]})
    assert logdex_command("recover", root).out == (
        f"{root}: 1 partitions, 1 segments, 0 replaced segments, 5 batches, 5 records, 0 restored batches, "
        "0 truncated batches, 0 left out bytes, 0 unfinished bytes\na broker starts with this log directory\n"
    )
    path = root / "orders-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[-90] ^= 1
    path.write_bytes(content)
    (root / "backup").mkdir()
    planned = logdex_command("recover", root, "--dry-run")
    assert planned.code == 1
    assert f"would be repaired: batch-crc in {path}" in planned.err
    ran = logdex_command("recover", root, "--json", "--verify")
    assert ran.code == 1
    *findings, told, verified = ran.rows
    assert [(each["kind"], each["repaired"]) for each in findings] == [("file-name", False), ("batch-crc", True)]
    assert (told["ok"], told["checked"]["records"], len(told["left_to_do"])) == (False, 4, 1)
    assert verified["ok"] is True
    (root / "backup").rmdir()
    assert logdex_command("recover", root).code == 0
    refused = logdex_command("recover", root, "--file-size", "100")
    assert refused.code == 2
    assert "expected a RocketMQ store" in refused.err
