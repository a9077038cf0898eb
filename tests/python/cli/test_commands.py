"""Every command on stores of real brokers: rows as the broker's own, exit codes, words for people."""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import golden
from logdex.rocketmq import IndexFile, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("case", golden.STORES)
def test_info_counts_what_lies_there(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    ran = logdex_command("info", root, "--json")
    (told,) = ran.rows
    load = golden.info(case)["load"]["opened"][0]
    assert ran.code == 0
    assert (told["min_offset"], told["max_offset"]) == (load["minPhyOffset"], load["maxPhyOffset"])
    assert told["index_entries"] == sum(row["indexCount"] - 1 for row in golden.rows(case, "index_files"))
    assert (told["hash_slots"], told["max_entries"]) == golden.geometry(case)
    truth: dict[str, int] = {}
    for row in golden.rows(case, "queues"):
        if row["maxOffset"] > row["minOffset"]:
            truth[row["topic"]] = truth.get(row["topic"], 0) + row["maxOffset"] - row["minOffset"]
    assert {row["topic"]: row["messages"] for row in told["topics"]} == truth
    assert "RocketMQ message store" in logdex_command("info", root).out


def test_info_of_an_index(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    index = store("basic") / "index"
    file = min(index.iterdir())
    (told,) = logdex_command("info", index, "--json").rows
    assert (told["files"], told["hash_slots"], told["max_entries"]) == (6, 64, 256)
    (told,) = logdex_command("info", file, "--json").rows
    assert (told["files"], told["entries"]) == (1, 255)


def test_find_prints_the_messages(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    with MessageStore.open(root) as opened:
        expected = [message.phy_offset for message in opened.find("AaTopic", "BB")]
    ran = logdex_command("find", root, "AaTopic", "BB", "--json")
    assert ran.code == 0
    assert [row["phy_offset"] for row in ran.rows] == expected
    assert all("body" not in row for row in ran.rows)
    some = logdex_command("find", root, "AaTopic", "BB", "--max", 2, "--body")
    assert some.out.count("AaTopic/") == 2
    assert "more than 2" in some.err
    none = logdex_command("find", root, "AaTopic", "BB", "--max", 0)
    assert (none.code, none.out, none.err) == (0, "", "logdex: there are more than 0\n")


def test_find_says_that_nothing_is_there(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    for topic, words in (("AaTopic", "the same arguments"), ("*", "a topic and the key")):
        ran = logdex_command("find", store("basic"), topic, "nobody's")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == f"logdex: nothing found; run `logdex explain` with {words} to see why\n"


@pytest.mark.parametrize("case", ["basic", "ipv6", "v5-basic"])
def test_find_without_a_topic(case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store(case)
    rows = golden.rows(case, "messages")
    for row in rows[:: len(rows) // 12]:
        by_id = logdex_command("find", root, "*", row["msgId"], "--json")
        assert [found["phy_offset"] for found in by_id.rows] == [row["physicalOffset"]]
        if row["uniqKey"]:
            by_key = logdex_command("find", root, "*", row["uniqKey"], "--json")
            assert row["physicalOffset"] in [found["phy_offset"] for found in by_key.rows]


def test_find_by_an_offset_id_keeps_to_the_range(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    row = golden.rows("basic", "messages")[5]
    stored = row["storeTimestamp"]
    ask = ("find", root, "*", row["msgId"], "--json")
    for times in ((), ("--begin", stored), ("--end", stored), ("--begin", stored, "--end", stored)):
        assert [found["phy_offset"] for found in logdex_command(*ask, *times).rows] == [row["physicalOffset"]]
    for times in (("--begin", stored + 1), ("--end", stored - 1), ("--begin", stored + 1, "--end", stored - 1)):
        ran = logdex_command(*ask, *times)
        assert (ran.code, ran.out) == (1, "")


def test_cat_gives_what_the_filters_let_pass(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    rows = golden.rows("basic", "messages")
    times = sorted(row["storeTimestamp"] for row in rows)
    begin, end = times[100], times[300]
    ran = logdex_command("cat", root, "--topic", "t", "--begin", begin, "--end", end, "--json")
    expected = [r["physicalOffset"] for r in rows if r["topic"] == "t" and begin <= r["storeTimestamp"] <= end]
    assert expected
    assert [row["phy_offset"] for row in ran.rows] == expected
    assert [row["phy_offset"] for row in logdex_command("cat", root, "--limit", 7, "--json").rows] == [
        row["physicalOffset"] for row in rows[:7]
    ]
    assert logdex_command("cat", root, "--topic", "nobody's").code == 1
    assert logdex_command("cat", root, "--limit", 0).code == 1


def test_cat_prints_bodies_whole_and_safely(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("v5-basic")
    ran = logdex_command("cat", root, "--body", "--json")
    rows = {row["physicalOffset"]: row for row in golden.rows("v5-basic", "messages")}
    compared = 0
    for row in ran.rows:
        # The name of the column is there for every row, null where its bytes are no text.
        body = base64.b64decode(row["body_base64"]) if row["body"] is None else row["body"].encode()
        assert len(body) == rows[row["phy_offset"]]["bodyLength"]
        compared += 1
    assert compared == len(rows)
    shown = logdex_command("cat", root, "--body").out
    # Nothing that a terminal would act upon.
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_export_writes_parquet(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("basic")
    file = tmp_path / "out.parquet"
    ran = logdex_command("export", root, file, "--json")
    table = pq.read_table(file)
    with MessageStore.open(root) as opened:
        assert table.equals(pa.table(opened.messages()))
    assert ran.rows == [{"file": str(file), "rows": 553, "bytes": file.stat().st_size}]
    assert logdex_command("export", root, file).code == 2
    empty = tmp_path / "empty.parquet"
    assert logdex_command("export", root, empty, "--topic", "nobody's").code == 1
    assert pq.read_table(empty).num_rows == 0
    assert logdex_command("export", root, tmp_path / "x.parquet", "--compression", "nope").code == 2
    nowhere = logdex_command("export", root, tmp_path / "nowhere" / "x.parquet")
    assert (nowhere.code, nowhere.err) == (2, f"logdex: {tmp_path}/nowhere/x.parquet: No such file or directory\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["empty.parquet", "out.parquet"]
    # Another program's file with a similar name is not touched, even if a killed export left it.
    (tmp_path / "other.parquet.part").write_bytes(b"theirs")
    assert logdex_command("export", root, tmp_path / "other.parquet").code == 0
    assert (tmp_path / "other.parquet.part").read_bytes() == b"theirs"


def test_verify_says_what_is_broken(
    store: Callable[[str], Path], damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    valid = logdex_command("verify", store("basic"))
    assert valid.code == 0
    assert valid.out.startswith("valid")
    broken = damaged_store("cq-zero-unit")
    assert logdex_command("verify", broken).code == 1
    *findings, last = logdex_command("verify", broken, "--json").rows
    assert {row["kind"] for row in findings} == {"queue-unit", "queue-missing"}
    assert (last["ok"], last["findings"]) == (False, len(findings))
    assert logdex_command("verify", min((store("basic") / "index").iterdir())).code == 0


def test_verify_says_what_was_not_there(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    shutil.rmtree(root / "index")
    said = logdex_command("verify", root)
    assert (said.code, said.out.startswith("valid; missing, not checked: key index; checked ")) == (0, True)
    assert logdex_command("verify", root, "--json").rows[-1]["absent"] == ["key index"]


def test_build_index_makes_the_broker_s_files(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    for case in ("basic", "v5-basic"):
        root = store(case)
        target = tmp_path / f"index-{case}"
        ran = logdex_command("build-index", root, target, "--zone", golden.info(case)["zone"], "--json")
        (report,) = ran.rows
        assert (ran.code, report["checked"]["messages"]) == (0, len(golden.rows(case, "messages")))
        brokers = sorted(path.read_bytes() for path in (root / "index").iterdir())
        assert sorted(path.read_bytes() for path in target.iterdir()) == brokers
        assert logdex_command("build-index", root, target).code == 2


def test_build_index_wants_a_directory_of_its_own(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("basic")
    before = sorted(root.rglob("*"))
    for place in (root, root / "commitlog", root / "index", root / "consumequeue" / "t" / "0"):
        ran = logdex_command("build-index", root, place)
        assert (ran.code, ran.out) == (2, "")
        assert f"{place}: the directory is not empty" in ran.err
    assert sorted(root.rglob("*")) == before
    assert logdex_command("build-index", root, tmp_path / "x", "--zone", "Nowhere/At-all").code == 2


def test_what_is_built_ends_at_damage_and_says_so(
    damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = damaged_store("crc-early-clean")
    for command in ("build-index", "build-queues"):
        finding, last = logdex_command(command, root, tmp_path / command, "--json").rows
        assert finding["kind"] == "log-frame"
        end = int(finding["path"].rpartition("/")[2]) + finding["offset"]
        assert (last["ok"], last["findings"]) == (False, 1)
        assert last["checked"]["log_bytes"] == end
        assert last["checked"]["log_bytes_behind_damage"] == 313_165 - end


def test_build_queues_makes_the_broker_s_files(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    for case in ("basic", "v5-basic", "v5-3-3", "sync", "cqext"):
        root = store(case)
        target = tmp_path / f"queues-{case}"
        assert logdex_command("build-queues", root, target).code == 0
        compared = 0
        for folder in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
            assert (target / folder).exists() == (root / folder).exists()
            for path in (root / folder).rglob("0*"):
                if path.is_file():
                    assert (target / path.relative_to(root)).read_bytes() == path.read_bytes(), path
                    compared += 1
        assert compared
        assert logdex_command("build-queues", root, target).code == 2


def test_stats_add_up(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("rolled")
    (told,) = logdex_command("stats", root, "--json").rows
    files = golden.rows("rolled", "index_files")
    assert told["entries"] == sum(row["indexCount"] - 1 for row in files)
    assert told["slots"] == len(files) * 128
    assert sum(row["slots"] for row in told["chains"]) == told["slots"]
    assert sum(row["length"] * row["slots"] for row in told["chains"]) == told["entries"]
    assert sum(row["expected"] for row in told["chains"]) == pytest.approx(told["slots"], rel=0.01)
    assert sum(row["entries"] for row in told["times"]) == told["entries"]
    used = 0
    for path in (root / "index").iterdir():
        with IndexFile.open(path, hash_slots=128, max_entries=300) as file:
            used += len({slot for batch in file.entries() for slot in batch.column("hash_slot").to_pylist()})
    assert told["used_slots"] == used
    shown = logdex_command("stats", root / "index").out
    assert "#" in shown
    assert "|" in shown


def test_explain_tells_the_way(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    found = logdex_command("explain", root, "AaTopic", "BB")
    assert found.code == 0
    assert found.out.startswith("key 'BB' of topic 'AaTopic': 16 found\n")
    assert "slot 12" not in found.out
    assert "slot 12" in logdex_command("explain", root, "AaTopic", "BB", "--verbose").out
    ran = logdex_command("explain", root, "AaTopic", "nobody's", "--json")
    (told,) = ran.rows
    assert ran.code == 1
    assert [cause["kind"] for cause in told["causes"]] == ["not-here"]


def test_the_log_may_lie_elsewhere_on_several_disks(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("basic")
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        disk = tmp_path / f"disk-{number % 2}"
        disk.mkdir(exist_ok=True)
        path.rename(disk / path.name)
    (root / "commitlog").rmdir()
    where = ("--commit-log", f"{tmp_path / 'disk-0'},{tmp_path / 'disk-1'}")
    assert logdex_command("cat", root).code == 2
    assert len(logdex_command("cat", root, *where, "--json").rows) == 553
    assert len(logdex_command("find", root, "AaTopic", "BB", *where, "--json").rows) == 16
    assert logdex_command("verify", root, *where).code == 0
    assert logdex_command("explain", root, "AaTopic", "BB", *where).code == 0
    assert logdex_command("build-index", root, tmp_path / "index", *where).code == 0
    (told,) = logdex_command("info", root, *where, "--json").rows
    assert (told["min_offset"], told["max_offset"]) == (0, 313_165)


def test_an_index_that_does_not_tell_its_geometry_is_told(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    for path in (root / "index").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    told = ("--hash-slots", 64, "--max-entries", 256)
    for words in (("info", root), ("cat", root), ("verify", root), ("stats", root), ("find", root, "AaTopic", "BB")):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "maxHashSlotNum" in ran.err
        assert logdex_command(*words, *told, "--json").rows
