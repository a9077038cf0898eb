"""Stores of a real broker with an index of logdex: the broker loads, queries, starts and continues them."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import golden
from comparison import first_difference, index_contents
from logdex.rocketmq import CommitLog, IndexService, MessageStore, StoreCheckpoint
from rocketmq_driver import FOREVER, Driver, Question

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEW_MESSAGES = 400


# The stores whose log still has its beginning: from it the index can be made anew in full. The load of a killed one drops
# the index files beyond its checkpoint, whichever program wrote them.
@pytest.mark.parametrize("case", ["basic", "ipv6", "sync", "cqext", "pool", "killed"])
def test_store_lives_on_with_an_index_from_logdex(
    store: Callable[[str], Path], tmp_path: Path, case: str, say: Callable[[str], None]
) -> None:
    root, zone = store(case), golden.info(case)["zone"]
    _replace_index(root, tmp_path, case, zone)
    # Files of a broker expire by their age: these are older by the day.
    config = golden.info(case)["store"] | {"fileReservedTime": 1_000_000}
    with Driver(tmp_path / "jvm", zone) as broker:
        loaded = broker.ask("store_load", root=root, config=config)
        assert loaded["ok"]
        asked = _answers_of_the_broker(broker, case)

        broker.ask("store_start")
        offsets = _put_new_messages(broker)
        _new_messages_are_found(broker, offsets)
        stopped = broker.ask("store_stop")
        assert len(stopped["files"]) > len(loaded["files"])

    with closing(MessageStore.open(root)) as ours:
        _logdex_finds(ours, offsets)
        _logdex_still_finds_the_old(ours, case)
    say(f"store {case}: {asked} old answers alike, {NEW_MESSAGES} new messages found by both sides")


def test_broker_goes_by_the_checkpoint_that_logdex_wrote(store: Callable[[str], Path], tmp_path: Path) -> None:
    case = "basic"
    zone, (slots, entries) = golden.info(case)["zone"], golden.geometry(case)
    theirs = store(case)
    ours = tmp_path / "ours"
    shutil.copytree(theirs, ours)
    shutil.rmtree(ours / "index")
    with closing(StoreCheckpoint.open(ours / "checkpoint", mode="r+")) as checkpoint:
        checkpoint.index_msg_timestamp = 0
        checkpoint.flush()
    with (
        closing(CommitLog.open(ours / "commitlog")) as log,
        closing(IndexService.open(ours / "index", mode="a", hash_slots=slots, max_entries=entries, zone=zone)) as index,
    ):
        index.build_index(log.scan(body="stored"))
    assert (ours / "checkpoint").read_bytes() == (theirs / "checkpoint").read_bytes()

    with Driver(tmp_path / "jvm", zone) as broker:
        expected = _answers_after_a_crash(broker, theirs, case)
        assert _answers_after_a_crash(broker, ours, case) == expected


def _answers_after_a_crash(broker: Driver, root: Path, case: str) -> tuple[list[dict[str, Any]], list[list[int]]]:
    (root / "abort").touch()
    before = {file.name for file in (root / "index").iterdir()}
    loaded = broker.ask("store_load", root=root, config=golden.info(case)["store"])
    # The broker keeps what ends by the checkpoint, and makes the rest anew from its log.
    kept = [file.pop("name") in before for file in loaded["files"]]
    assert kept == [file["full"] for file in loaded["files"]]
    answers = broker.query("index_query", [_question(row) for row in _answered_rows(case)])
    return loaded["files"], answers["phy_offsets"]


def _replace_index(root: Path, tmp_path: Path, case: str, zone: str) -> None:
    # Made elsewhere and moved in: made in place, it would also bring the store's checkpoint up to date.
    slots, entries = golden.geometry(case)
    with (
        closing(CommitLog.open(root / "commitlog")) as log,
        closing(
            IndexService.open(tmp_path / "index", mode="a", hash_slots=slots, max_entries=entries, zone=zone)
        ) as index,
    ):
        index.build_index(log.scan(body="stored"))
    assert first_difference(index_contents(tmp_path), index_contents(root)) is None
    shutil.rmtree(root / "index")
    (tmp_path / "index").rename(root / "index")


def _answers_of_the_broker(broker: Driver, case: str) -> int:
    rows = _answered_rows(case)
    asked = [_question(row) for row in rows]
    index = broker.query("index_query", asked)
    expected = [row.get("indexAfterLoad", row["index"]) for row in rows]
    assert index["phy_offsets"] == [answer["offsets"] for answer in expected]
    assert index["index_last_update_timestamp"] == expected[-1]["lastTimestamp"]
    assert index["index_last_update_phyoffset"] == expected[-1]["lastPhyOffset"]
    whole = broker.query("store_query", asked)
    assert whole["phy_offsets"] == [row["store"]["offsets"] for row in rows]
    return len(asked)


def _answered_rows(case: str) -> list[dict[str, Any]]:
    # The real service refuses a negative limit with an exception.
    return [row for row in golden.rows(case, "queries") if "exception" not in row["index"]]


def _question(row: dict[str, Any]) -> Question:
    return row["topic"], row["key"], row["maxNum"], row["begin"], row["end"]


def _message(serial: int) -> dict[str, Any]:
    properties = {"UNIQ_KEY": f"NEW{serial:06}", "KEYS": f"new-{serial} tens-{serial // 10}", "TAGS": "new"}
    return {"topic": "NewTopic", "queue_id": serial % 3, "body": f"body {serial}", "properties": properties}


def _put_new_messages(broker: Driver) -> list[int]:
    offsets = []
    # The broker names a file by the millisecond and writes over one that has the name already. The smallest files hold
    # 119 entries and a message makes three: a batch fills no more than one, and the next batch is milliseconds later.
    for first in range(0, NEW_MESSAGES, 30):
        messages = [_message(serial) for serial in range(first, min(first + 30, NEW_MESSAGES))]
        put = broker.ask("store_put", messages=messages)
        offsets += [result["phy_offset"] for result in put["results"]]
        time.sleep(0.003)
    return offsets


def _new_messages_are_found(broker: Driver, offsets: list[int]) -> None:
    for form in ("NEW{:06}", "new-{}"):
        answers = broker.query(
            "store_query", [("NewTopic", form.format(serial), 32, 0, FOREVER) for serial in range(NEW_MESSAGES)]
        )
        assert answers["phy_offsets"] == [[offset] for offset in offsets]
    tens = broker.query(
        "store_query", [("NewTopic", f"tens-{ten}", 32, 0, FOREVER) for ten in range(NEW_MESSAGES // 10)]
    )
    assert tens["phy_offsets"] == [offsets[first : first + 10] for first in range(0, NEW_MESSAGES, 10)]


def _logdex_finds(ours: MessageStore, offsets: list[int]) -> None:
    for serial, offset in enumerate(offsets):
        for key in (f"NEW{serial:06}", f"new-{serial}"):
            found = ours.find("NewTopic", key, scan=False)
            assert [message.phy_offset for message in found] == [offset]
            assert found[0].body == f"body {serial}".encode()
    for ten in range(NEW_MESSAGES // 10):
        found = ours.find("NewTopic", f"tens-{ten}", scan=False)
        assert [message.phy_offset for message in found] == offsets[10 * ten : 10 * ten + 10][::-1]


def _logdex_still_finds_the_old(ours: MessageStore, case: str) -> None:
    for row in golden.rows(case, "messages"):
        if row.get("uniqKey") and row["sysFlag"] & 12 != 12:
            found = ours.find(row["topic"], row["uniqKey"], scan=False)
            assert row["physicalOffset"] in [message.phy_offset for message in found]
