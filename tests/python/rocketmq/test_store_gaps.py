"""Gaps of a log and of its queues, and names that fit no file."""

from __future__ import annotations

import logging
import shutil
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex import DamageWarning
from logdex.cli import main
from logdex.rocketmq import CommitLog, IndexService, MessageStore
from store_losses import FILE, GAP, IN_GAP, ROWS, TOPIC, log_file, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]


def offsets(stream: Any) -> list[int]:
    found: list[int] = pa.table(stream)["phy_offset"].to_pylist()
    return found


COMMANDS: dict[str, Callable[[Path, dict[str, Any], Path], list[object]]] = {
    "find": lambda root, row, _: ["find", root, row["topic"], row["uniqKey"]],
    "explain": lambda root, row, _: ["explain", root, row["topic"], row["uniqKey"]],
    "cat": lambda root, *_: ["cat", root, "--json"],
    "export": lambda root, _, tmp: ["export", root, tmp / "x.parquet"],
    "copy": lambda root, _, tmp: ["copy", root, tmp / "copy"],
    "build-index": lambda root, _, tmp: ["build-index", root, tmp / "index"],
    "build-queues": lambda root, _, tmp: ["build-queues", root, tmp / "queues"],
    "info": lambda root, *_: ["info", root],
    "verify": lambda root, *_: ["verify", root],
}
PRINTED = {
    "find": "the log from 0 to 65,536 cannot be read",
    "explain": "missing-file",
    "cat": "a file that begins at 0",
    "export": "a file that begins at 0",
    "copy": "file-gap",
    "build-index": "file-gap",
    "build-queues": "file-gap",
    "info": "missing log",
    "verify": "file-gap",
}


@pytest.mark.parametrize("command", PRINTED)
def test_the_command_line_names_a_first_file_that_was_set_aside(
    command: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store("basic")
    take(root, "first-log-file")
    row = next(row for row in ROWS if row["uniqKey"])
    handlers = logging.getLogger().handlers[:]
    logging.getLogger().handlers[:] = []
    try:
        code = main([str(word) for word in COMMANDS[command](root, row, tmp_path)])
    finally:
        logging.getLogger().handlers[:] = handlers
    out, err = capsys.readouterr()
    assert PRINTED[command] in out + err
    assert command == "find" or f"{0:020}.gz" in out + err
    assert code == 1
    if command == "cat":
        assert out.count("\n") == sum(row["physicalOffset"] >= FILE for row in ROWS)


@pytest.mark.parametrize("name", [".gz", ".zst", ".bak", "_old", "-1", ".d/", " -> nowhere"])
def test_a_first_file_that_was_set_aside_is_missing_and_not_expired(name: str, store: Store) -> None:
    root = store("basic")
    path = log_file(root, 0)
    if name.endswith("nowhere"):
        path.unlink()
        path.symlink_to(root / "nowhere")
    else:
        path.rename(root / "moved")
        aside = path.with_name(path.name + name.rstrip("/"))
        aside.mkdir() if name.endswith("/") else (root / "moved").rename(aside)
    row = next(row for row in ROWS if row["uniqKey"])
    late = next(each for each in ROWS if each["uniqKey"] and each["physicalOffset"] >= 4 * FILE)
    with MessageStore.open(root, clock_slack_ms=0) as opened:
        ((begin, end, finding),) = opened.commit_log.gaps()
        assert (begin, end, finding.kind) == (0, FILE, "file-gap")
        assert f"{0:020} is missing" in finding.found
        found = opened.find(row["topic"], row["uniqKey"])
        assert (len(found), found.complete, found.unreadable) == (0, False, [(0, FILE)])
        assert [cause.kind for cause in opened.explain(row["topic"], row["uniqKey"]).causes].count("missing-file") > 0
        with pytest.warns(DamageWarning):
            assert opened.message(row["physicalOffset"]) is None
        # A read of later messages does not need the missing file.
        assert opened.commit_log.gaps(begin=late["storeTimestamp"], clock_slack_ms=0) == []
        assert opened.messages(begin=late["storeTimestamp"]).read_all().num_rows > 0
        with pytest.warns(DamageWarning, match="begins at 0"):
            assert min(offsets(opened.messages())) == FILE


def test_a_missing_file_is_named(store: Store) -> None:
    root = store("basic")
    log_file(root, 2).unlink()
    with CommitLog.open(root / "commitlog") as log:
        ((_, _, finding),) = log.gaps()
    assert str(finding) == (
        f"{log_file(root, 3)} at byte 0: expected a file that begins at {2 * FILE}, "
        f"found none: {2 * FILE:020} is missing, the next is {3 * FILE:020}"
    )


def test_a_copy_of_a_file_that_is_there_and_files_set_aside_behind_the_log(store: Store) -> None:
    root = store("basic")
    shutil.copy(log_file(root, 0), f"{log_file(root, 0)}.bak")
    with CommitLog.open(root / "commitlog") as log:
        assert log.gaps() == []
        count = len(log.files)
    last = log_file(root, count - 1)
    last.rename(f"{last}.gz")
    with CommitLog.open(root / "commitlog") as log:
        assert [part[:2] for part in log.gaps()] == [((count - 1) * FILE, count * FILE)]
    for path in (root / "commitlog").iterdir():
        path.rename(path.with_suffix(".gz"))
    with MessageStore.open(root) as opened:
        assert opened.find("T", "k").complete is False


def test_totals_of_queues_name_a_first_file_that_was_set_aside(store: Store) -> None:
    root = store("basic")
    path = root / "consumequeue" / TOPIC / "0" / f"{0:020}"
    path.rename(f"{path}.gz")
    with MessageStore.open(root) as opened:
        assert [part[:2] for part in opened.queue(TOPIC, 0).gaps()] == [(0, 1000)]
        with pytest.warns(DamageWarning, match=f"{0:020}.gz"):
            opened.overview()


def test_all_log_files_set_aside_are_missing_as_a_whole(store: Store) -> None:
    root = store("basic")
    paths = sorted((root / "commitlog").iterdir())
    for path in paths:
        path.rename(path.with_suffix(".gz"))
    with CommitLog.open(root / "commitlog") as log:
        assert [part[:2] for part in log.gaps()] == [(n * FILE, (n + 1) * FILE) for n in range(len(paths))]
        for path in paths[1:]:
            path.with_suffix(".gz").unlink()
        # The default length of a broker.
        assert [part[:2] for part in log.gaps()] == [(0, 1 << 30)]


# Around the gap


def test_expired_files_and_files_never_written_are_no_gap(store: Store) -> None:
    root = store("basic")
    log_file(root, 0).unlink()
    log_file(root, 1).unlink()
    # Allocated for later, and not written.
    (root / "commitlog" / f"{7 * FILE:020}").write_bytes(bytes(FILE))
    with MessageStore.open(root) as opened:
        assert opened.commit_log.gaps() == []
        stream = opened.messages()
        assert len(offsets(stream)) == sum(row["physicalOffset"] >= 2 * FILE for row in ROWS)
        assert stream.findings == []


def test_several_missing_files_are_one_gap_each_and_files_may_be_in_several_directories(
    store: Store, tmp_path: Path
) -> None:
    root = store("basic")
    other = tmp_path / "other-disk"
    other.mkdir()
    log_file(root, 1).unlink()
    log_file(root, 2).unlink()
    shutil.move(log_file(root, 3), other)
    with CommitLog.open(f"{root / 'commitlog'},{other}") as log:
        assert [part[:2] for part in log.gaps()] == [(FILE, 3 * FILE)]
        (finding,) = [each for each in log.check_files().findings if each.kind == "file-gap"]
        assert [finding] == [part[2] for part in log.gaps()]
    with CommitLog.open(root / "commitlog") as log:
        assert [part[:2] for part in log.gaps()] == [(FILE, 4 * FILE)]


def test_a_gap_is_no_damage_of_a_read_that_does_not_touch_it(store: Store) -> None:
    root = store("basic")
    take(root, "log-file")
    late = next(row["storeTimestamp"] for row in ROWS if row["physicalOffset"] >= 4 * FILE)
    with MessageStore.open(root, clock_slack_ms=0) as opened:
        stream = opened.messages(begin=late)
        assert offsets(stream) == [row["physicalOffset"] for row in ROWS if row["storeTimestamp"] >= late]
        assert stream.findings == []
        log = opened.commit_log
        assert log.gaps(begin=late, clock_slack_ms=0) == []
        for begin, end, gaps in ((0, GAP[0], 0), (0, GAP[0] + 1, 1), (GAP[1] - 1, None, 1), (GAP[1], None, 0)):
            for stop, threads in (("broker", 1), ("broker", 2), ("valid", 1), ("salvage", 1)):
                way: Any = stop
                reader = log.scan(begin_phy_offset=begin, end_phy_offset=end, stop=way, threads=threads)
                reader.read_all()
                assert [each.kind for each in reader.report.findings] == ["file-gap"] * gaps, (
                    begin,
                    end,
                    stop,
                    threads,
                )


@pytest.mark.parametrize("scan", ["auto", True, False])
@pytest.mark.parametrize("index", [True, False])
def test_find_is_not_complete_beside_a_gap(scan: Any, index: bool, store: Store) -> None:
    root = store("basic")
    take(root, "log-file")
    if not index:
        shutil.rmtree(root / "index")
    first = ROWS[0]
    with MessageStore.open(root) as opened:
        for _ in range(2):
            result = opened.find(first["topic"], first["uniqKey"], scan=scan)
            assert not result.complete
            assert any(begin <= GAP[0] and GAP[1] <= end for begin, end in result.unscanned)
            assert result.unreadable == [GAP]
            if scan:
                assert (result.unscanned, len(result)) == ([GAP], 1)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_topic_read_by_its_queue_is_whole_without_one_of_its_files(lost: int, store: Store) -> None:
    root = store("basic")
    (root / "consumequeue" / TOPIC / "0" / f"{1000 * lost:020}").unlink()
    with MessageStore.open(root) as opened:
        found = offsets(opened.messages(topic=TOPIC, scan=False))
        assert set(found) >= {
            row["physicalOffset"] for row in ROWS if row["topic"] == TOPIC and row["sysFlag"] & 12 not in (4, 12)
        }


# Names that fit no file


@pytest.mark.parametrize("name", ["00000000000000000007", "09223372036854775807", "00000000000000131073"])
@pytest.mark.parametrize("content", [b"", b"\x07" * 5_000])
def test_a_log_file_of_a_name_that_fits_nothing_is_a_finding(name: str, content: bytes, store: Store) -> None:
    root = store("basic")
    (root / "commitlog" / name).write_bytes(content)
    with MessageStore.open(root) as opened:
        assert offsets(opened.messages()) == [row["physicalOffset"] for row in ROWS]
        findings = opened.verify().findings
        assert [(each.kind, each.path.rsplit("/", 1)[1]) for each in findings] == [("file-name", name)]
        assert opened.commit_log.gaps() == []


@pytest.mark.parametrize("folder", ["consumequeue", "batchconsumequeue", "consumequeue_ext"])
@pytest.mark.parametrize("content", [b"", b"\x07" * 5_000])
@pytest.mark.parametrize("number", [2**63 - 1, 1_000 * (2**63 // 1_000)])
def test_a_queue_file_of_a_large_name_does_not_stop_a_check(
    folder: str, content: bytes, number: int, store: Store
) -> None:
    case = {"consumequeue": "basic", "batchconsumequeue": "basic", "consumequeue_ext": "cqext"}[folder]
    root = store(case)
    directory = root / folder / TOPIC / "0"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{number:020}").write_bytes(content)
    begun = time.monotonic()
    with MessageStore.open(root) as opened:
        report = opened.verify()
        list(opened.messages(topic=TOPIC, scan=False))
    assert time.monotonic() - begun < 30
    assert not report.ok or folder == "consumequeue_ext"


# Directories that are no index


@pytest.mark.parametrize("place", ["", "commitlog", "consumequeue", "consumequeue/TopicTest/0", "config"])
def test_what_is_no_index_directory_is_refused(place: str, store: Store) -> None:
    root = store("basic")
    with pytest.raises(FileNotFoundError, match="expected an index directory") as refused:
        IndexService.open(root / place)
    assert refused.value.filename == str(root / place)
    assert ("this is a store, its index is" in str(refused.value)) == (place == "")
    if not place:
        with pytest.raises(FileNotFoundError, match="this is a store"):
            IndexService.open(root, mode="a")


def test_an_empty_directory_is_an_empty_index(store: Store, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with IndexService.open(empty) as index:
        assert index.query_offset("t", "k").phy_offsets == []
    root = store("basic")
    for path in (root / "index").iterdir():
        path.unlink()
    (root / "index" / "notes.txt").touch()
    with MessageStore.open(root) as opened:
        assert "file-name" in opened.verify().kinds


# Messages that no search finds


def test_explain_says_that_a_rolled_back_message_is_there(store: Store) -> None:
    row = next(row for row in ROWS if row["sysFlag"] & 12 == 12 and row["uniqKey"])
    with MessageStore.open(store("basic")) as opened:
        told = opened.explain(row["topic"], row["uniqKey"])
    assert not told.found
    causes = {cause.kind: cause.text for cause in told.causes}
    assert (
        f"the message at offset {row['physicalOffset']:,} carries the key; it was rolled back" in causes["not-indexed"]
    )


def test_scan_all_does_not_advise_itself(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    root = store("basic")
    take(root, "frame")
    shutil.rmtree(root / "index")
    for scan in ("all", "auto"):
        main(["find", str(root), TOPIC, IN_GAP["uniqKey"], "--scan", scan])
        told = capsys.readouterr().err
        at = IN_GAP["physicalOffset"]
        assert f"the log from {at:,} to {at + IN_GAP['storeSize']:,} cannot be read" in told
        assert "--scan all" not in told
