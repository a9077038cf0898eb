"""Index directories of real brokers: each answer as the real IndexService returned it, each rebuilt file byte for byte."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex.rocketmq import CommitLog, IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOG_BEGINS = tuple(case for case in golden.STORES if case != "rolled")
"""Stores whose log still has its beginning, so that the whole index can be made again."""


def asked(row: dict[str, Any]) -> tuple[str, str, int, int, int]:
    """Return the question of a row; 5.5.0 marks the key of a question for tags."""
    key = f"T#{row['key']}" if row.get("type") == "T" else row["key"]
    return row["topic"], key, row["maxNum"], row["begin"], row["end"]


def compare(index: IndexService, row: dict[str, Any], expected: dict[str, Any]) -> None:
    if "exception" in expected:
        with pytest.raises(ValueError, match="negative"):
            index.query_offset(*asked(row))
        return
    answer = index.query_offset(*asked(row))
    given = {
        "offsets": answer.phy_offsets,
        "lastTimestamp": answer.index_last_update_timestamp,
        "lastPhyOffset": answer.index_last_update_phyoffset,
    }
    assert given == expected, row


def files_in_log_order(directory: Path) -> list[bytes]:
    with IndexService.open(directory) as index:
        ranked = [(file.header.begin_phy_offset, place, file.path) for place, file in enumerate(index.files)]
    return [path.read_bytes() for _, _, path in sorted(ranked)]


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("case", golden.STORES)
def test_compat_answers_every_question_as_the_broker(
    case: str,
    access: Any,
    store: Callable[[str], Path],
) -> None:
    rows = golden.rows(case, "queries")
    compared = 0
    with IndexService.open(store(case) / "index", compat=golden.info(case)["broker"], access=access) as index:
        assert {(file.hash_slots, file.max_entries) for file in index.files} == {golden.geometry(case)}
        for row in rows:
            compare(index, row, row["index"])
            compared += 1
    assert compared == len(rows)


@pytest.mark.parametrize("case", golden.STORES)
def test_compat_answers_batches_as_the_broker(case: str, store: Callable[[str], Path]) -> None:
    groups: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    rows = [row for row in golden.rows(case, "queries") if "exception" not in row["index"]]
    for row in rows:
        groups.setdefault((row["maxNum"], row["begin"], row["end"]), []).append(row)
    compared = 0
    with IndexService.open(store(case) / "index", compat=golden.info(case)["broker"]) as index:
        for (max_num, begin, end), group in groups.items():
            topics, keys = [asked(row)[0] for row in group], [asked(row)[1] for row in group]
            answers = index.query_batch(topics, keys, max_num=max_num, begin=begin, end=end).to_pylist()
            assert answers == [row["index"]["offsets"] for row in group]
            compared += len(answers)
    assert compared == len(rows)


@pytest.mark.parametrize("case", golden.STORES)
def test_the_default_finds_all_that_the_broker_finds(case: str, store: Callable[[str], Path]) -> None:
    """The broker adds to a right answer only because it rounds times to seconds; missing messages are found."""
    rows = [row for row in golden.rows(case, "queries") if "exception" not in row["index"]]
    compared = 0
    times = {row["physicalOffset"]: row["storeTimestamp"] for row in golden.rows(case, "messages")}
    with IndexService.open(store(case) / "index") as index:
        for row in rows:
            topic, key, _, begin, end = asked(row)
            answer = index.query_offset(topic, key, None, begin, end)
            stored_in_range = {o for o in row["index"]["offsets"] if begin <= times.get(o, begin - 1) <= end}
            assert stored_in_range <= set(answer.phy_offsets), row
            assert not answer.truncated
            assert answer.phy_offsets == sorted(answer.phy_offsets, reverse=True)
            compared += 1
    assert compared == len(rows)


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_compat_answers_after_an_unclean_load_as_the_broker(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    broker = golden.info(case)["broker"]
    rows = golden.rows(case, "queries")
    differing = compared = 0
    with (
        CommitLog.open(root / "commitlog", compat=broker) as log,
        IndexService.open(root / "index", mode="a", last_exit_ok=False, compat=broker) as index,
    ):
        # The broker deletes index files by the checkpoint and dispatches the log again; its duplicate filter drops the rest.
        index.build_index(log.scan())
        for row in rows:
            compare(index, row, row.get("indexAfterLoad", row["index"]))
            differing += "indexAfterLoad" in row
            compared += 1
        headers = [
            (f.header.begin_timestamp, f.header.end_timestamp, f.header.begin_phy_offset, f.header.end_phy_offset)
            for f in index.files
        ]
    assert compared == len(rows)
    loaded = golden.info(case)["load"]["opened"][0]["files"]
    fields = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset")
    assert headers == [tuple(file[field] for field in fields) for file in loaded]
    assert case != "killed" or differing


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_the_default_opens_after_a_crash_as_if_there_had_been_none(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    before = files_in_log_order(root / "index")
    with IndexService.open(root / "index", mode="a", last_exit_ok=False) as index:
        assert index.verify().ok
    assert files_in_log_order(root / "index") == before
    with MessageStore.open(root) as opened:
        for row in golden.rows(case, "messages"):
            if row["uniqKey"] and row["sysFlag"] & 12 != 12:
                found = opened.find(row["topic"], row["uniqKey"], scan=False)
                assert row["physicalOffset"] in [message.phy_offset for message in found]


@pytest.mark.parametrize("case", _LOG_BEGINS)
def test_an_index_made_again_from_the_log_equals_the_brokers(
    case: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = store(case)
    hash_slots, max_entries = golden.geometry(case)
    with (
        CommitLog.open(root / "commitlog") as log,
        IndexService.open(
            tmp_path / "again",
            mode="a",
            hash_slots=hash_slots,
            max_entries=max_entries,
            zone=golden.info(case)["zone"],
            compat=golden.info(case)["broker"],
        ) as index,
    ):
        index.build_index(log.scan())
    ours, brokers = files_in_log_order(tmp_path / "again"), files_in_log_order(root / "index")
    assert len(ours) == len(golden.rows(case, "index_files"))
    assert ours == brokers


@pytest.mark.parametrize("case", _LOG_BEGINS)
def test_a_lost_index_is_made_again_after_a_crash(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    before = files_in_log_order(root / "index")
    hash_slots, max_entries = golden.geometry(case)
    # Without any file nothing shows that the broker indexed tags.
    for keep in (len(before) // 2, *([] if golden.info(case)["broker"] == "5.5.0" else [0])):
        for path in sorted((root / "index").iterdir(), key=lambda path: path.read_bytes()[16:24])[keep:]:
            path.unlink()
        with IndexService.open(
            root / "index", mode="a", last_exit_ok=False, hash_slots=hash_slots, max_entries=max_entries
        ):
            pass
        assert files_in_log_order(root / "index") == before


def test_a_hole_in_the_index_is_filled_after_a_crash(store: Callable[[str], Path]) -> None:
    for lost in range(6):
        # Pages of a whole file were lost while those of later files were on the disk; or its name was lost, too.
        for gone in (False, True):
            root = store("basic")
            before = files_in_log_order(root / "index")
            path = sorted((root / "index").iterdir())[lost]
            if gone:
                path.unlink()
            else:
                path.write_bytes(bytes(len(before[lost])))
            with IndexService.open(root / "index", mode="a", last_exit_ok=False) as index:
                assert index.verify().ok
            # A message shows that the first file is missing: its other keys are in the second.
            assert files_in_log_order(root / "index") == before
            shutil.rmtree(root)
