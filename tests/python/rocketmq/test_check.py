"""MessageStore.verify: a valid store has no findings, and every damage has a finding at its position."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden
from index_inputs import snapshot
from logdex import DamageWarning
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The kind that names the damage, the file, and the byte.
DAMAGES = {
    "cq-truncated": ("file-size", "consumequeue/TopicTest/0/00000000000000000000", 333),
    "cq-zero-unit": ("queue-unit", "consumequeue/TopicTest/0/00000000000000000000", 140),
    "crc-early-clean": ("log-frame", "commitlog/00000000000000065536", 98616 - 65536),
    "crc-early-unclean": ("log-frame", "commitlog/00000000000000065536", 98616 - 65536),
    "crc-last-clean": ("log-frame", "commitlog/00000000000000262144", 278675 - 262144),
    "index-bad-name": ("file-name", "index/notes.txt", 0),
    "index-begin-time": ("header-time", "index/20261121193006196", 0),
    "index-count-high": ("index-count", "index/20261121193006196", 36),
    "index-count-low": ("index-count", "index/20261121193009060", 36),
    "index-cycle-foreign": ("prev-index", "index/20261121193006196", 332),
    "index-cycle-matching": ("prev-index", "index/20261121193006196", 612),
    "index-directory": ("not-a-file", "index/20261121193006197", 0),
    "index-header-cut": ("file-size", "index/20261121193009060", 21),
    "index-longer": ("file-size", "index/20261121193006196", 5416),
    "index-negative-time": ("time-diff", "index/20261121193006196", 2528),
    "index-self-loop": ("prev-index", "index/20261121193006196", 2532),
    "index-truncated": ("file-size", "index/20261121193007464", 3610),
    "index-wild-prev": ("prev-index", "index/20261121193006196", 2532),
    "index-wild-slot": ("slot-value", "index/20261121193006196", 88),
    "index-zero-length": ("file-size", "index/99990101000000000", 0),
    "log-stray-file": ("file-name", "commitlog/.DS_Store", 0),
    "log-truncated": ("file-size", "commitlog/00000000000000262144", 50984),
    "log-zero-length": ("file-empty", "commitlog/00000000000000327680", 0),
    "magic-last": ("log-frame", "commitlog/00000000000000262144", 266851 - 262144),
    "no-index": ("index-hole", "index", 0),
    "tag-byte": ("queue-tags", "consumequeue/BBTopic/1/00000000000000000000", 700),
    "unclean-no-checkpoint": ("checkpoint", "checkpoint", 0),
}


@pytest.mark.parametrize("case", golden.STORES)
def test_a_broker_s_store_is_sound(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    before = snapshot(root)
    rows = golden.rows(case, "messages")
    progress: list[tuple[int, int]] = []
    with MessageStore.open(root) as opened:
        report = opened.verify(progress=lambda done, total: progress.append((done, total)))
    assert report.ok, report
    assert report.checked["messages"] == len(rows)
    assert report.checked["entries"] == sum(row["indexCount"] - 1 for row in golden.rows(case, "index_files"))
    assert report.checked["units_followed"] == sum(len(row["units"]) for row in golden.rows(case, "units"))
    assert progress
    assert all(0 <= done <= total for done, total in progress)
    assert snapshot(root) == before


@pytest.mark.parametrize("lacking", [("index",), ("consumequeue", "batchconsumequeue"), ("index", "consumequeue")])
def test_parts_that_are_not_there_are_told_and_are_no_finding(
    store: Callable[[str], Path], lacking: tuple[str, ...]
) -> None:
    root = store("basic")
    for name in lacking:
        shutil.rmtree(root / name, ignore_errors=True)
    names = [words for part, words in (("consumequeue", "consume queues"), ("index", "key index")) if part in lacking]
    with MessageStore.open(root) as opened:
        report = opened.verify()
    assert report.ok
    assert report.absent == names
    assert f"valid; missing, not checked: {', '.join(names)}; checked" in str(report)
    assert report.to_dict()["absent"] == names
    counted = {"consume queues": ("queues", "units_followed"), "key index": ("entries", "entries_followed")}
    for words, counts in counted.items():
        assert all((report.checked[count] == 0) is (words in names) for count in counts)


def test_a_whole_store_lacks_nothing(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        report = opened.verify()
    assert report.absent == []
    assert "not there" not in str(report)


def test_queues_in_a_rocksdb_are_told(store: Callable[[str], Path]) -> None:
    root = store("basic")
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n", encoding="ascii")
    with MessageStore.open(root) as opened:
        assert opened.verify().absent == ["consume queues (kept in a RocksDB)"]


def test_every_damage_has_its_place() -> None:
    assert set(DAMAGES) == set(golden.DAMAGED)


@pytest.mark.parametrize("name", golden.DAMAGED)
def test_damage_is_named_where_it_lies(name: str, damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store(name)
    before = snapshot(root)
    with MessageStore.open(root) as opened:
        report = opened.verify()
    kind, path, offset = DAMAGES[name]
    assert (kind, str(root / path), offset) in [(f.kind, f.path, f.offset) for f in report.findings], report
    assert not report.ok
    assert sum(report.kinds.values()) == len(report.findings)
    assert snapshot(root) == before


def test_a_lost_queue_is_missed_message_by_message(store: Callable[[str], Path]) -> None:
    root = store("basic")
    queue = root / "consumequeue" / "order_events" / "2"
    for path in queue.iterdir():
        path.unlink()
    with MessageStore.open(root) as opened:
        report = opened.verify()
    (finding,) = report.findings
    count = next(
        r["maxOffset"] for r in golden.rows("basic", "queues") if (r["topic"], r["queueId"]) == ("order_events", 2)
    )
    assert (finding.kind, finding.path, finding.found) == ("queue-missing", str(queue), "no queue")
    assert f"units 0 to {count - 1} for {count} messages" in finding.expected


def test_a_unit_that_leads_elsewhere_is_found(store: Callable[[str], Path]) -> None:
    root = store("basic")
    path = root / "consumequeue" / "t" / "0" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[40:60] = content[20:40]
    path.write_bytes(content)
    with MessageStore.open(root) as opened:
        report = opened.verify()
    assert {(f.kind, f.path, f.offset) for f in report.findings} == {
        (kind, str(path), 40) for kind in ("queue-missing", "queue-message", "queue-order")
    }


def test_a_link_that_leads_nowhere_is_found(store: Callable[[str], Path], tmp_path: Path) -> None:
    """Files may be on another disk, which is no longer mounted."""
    root = store("basic")
    rows = golden.rows("basic", "messages")
    last = max((root / "commitlog").iterdir())
    links = [last, max((root / "index").iterdir()), root / "consumequeue" / "TopicTest" / "0" / ("0" * 20)]
    for link in links:
        link.unlink()
        link.symlink_to(tmp_path / "gone" / link.name)
    with MessageStore.open(root) as opened:
        with pytest.warns(
            DamageWarning,
            match=f"found {last.name}, which no reader opens",
        ):
            found = pa.table(opened.messages(columns=["phy_offset"])).column(0).to_pylist()
        report = opened.verify()
    assert found == [row["physicalOffset"] for row in rows if row["physicalOffset"] < int(last.name)]
    assert {f.path for f in report.findings if f.kind == "not-a-file"} == set(map(str, links))


def test_lost_extension_files_are_found(store: Callable[[str], Path]) -> None:
    """A backup of only the log and the queues: the units' tags codes are addresses of missing extension units."""
    root = store("cqext")
    shutil.rmtree(root / "consumequeue_ext")
    with MessageStore.open(root) as opened:
        report = opened.verify()
    units = [(row["topic"], row["queueId"], unit) for row in golden.rows("cqext", "units") for unit in row["units"]]
    extended = [(topic, queue_id) for topic, queue_id, (_, _, code) in units if code <= -(1 << 31) - 1]
    assert report.kinds == {"queue-tags": len(extended)}
    assert len(extended) > 0
    assert report.checked["units_followed"] == len(units)
    assert all(int(finding.found) < -(2**31) for finding in report.findings)


def test_an_entry_that_leads_elsewhere_is_found(store: Callable[[str], Path]) -> None:
    root = store("basic")
    path = min((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    at = 40 + 4 * 64 + 20 * 17
    moved = int.from_bytes(content[at + 4 : at + 12], "big") + 1
    content[at + 4 : at + 12] = moved.to_bytes(8, "big")
    path.write_bytes(content)
    with MessageStore.open(root) as opened:
        report = opened.verify()
    assert ("index-entry", str(path), at) in [(f.kind, f.path, f.offset) for f in report.findings]
    assert set(report.kinds) == {"index-entry", "index-missing"}


def test_a_hole_in_the_index_is_found(store: Callable[[str], Path]) -> None:
    root = store("basic")
    third = sorted((root / "index").iterdir())[2]
    third.unlink()
    with MessageStore.open(root) as opened:
        report = opened.verify()
    assert "index-hole" in report.kinds
    assert {finding.path for finding in report.findings if finding.kind == "index-hole"} == {str(root / "index")}


def test_what_was_cut_off_is_left_out(damaged_store: Callable[[str], Path]) -> None:
    """After the end of the log, messages older than those before it: they are left from a truncation."""
    root = damaged_store("magic-last")
    rows = golden.rows("basic", "messages")
    path = root / "commitlog" / "00000000000000262144"
    content = bytearray(path.read_bytes())
    ghosts = [row for row in rows if row["physicalOffset"] > 266_851]
    assert len(ghosts) > 100
    for row in ghosts:
        at = row["physicalOffset"] - 262_144 + 56
        content[at : at + 8] = (row["storeTimestamp"] - 3_600_000).to_bytes(8, "big")
    path.write_bytes(content)
    with MessageStore.open(root) as opened:
        report = opened.verify()
        with pytest.warns(DamageWarning, match="at byte 4707"):
            found = pa.table(opened.messages(columns=["phy_offset"])).column(0).to_pylist()
    assert found == [row["physicalOffset"] for row in rows if row["physicalOffset"] < 266_851]
    assert report.kinds["log-ghost"] == len(ghosts)
    assert report.checked["messages_back_in_time"] == len(ghosts)
