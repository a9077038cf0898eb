"""Whole stores of real brokers, and damaged ones: in compat the store's own answers, by default the right ones.

The expected default answers come from a brute-force search in the list of messages that the real store returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from index_inputs import snapshot
from logdex.rocketmq import CommitLog, IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex._types import Compat

_MAX_MSGS = 64
_ROLLED_BACK = 12
_ROUNDS = 3
_OPENED = tuple(name for name in golden.DAMAGED if "messageOffsets" in golden.damaged(name))
_ALONE = tuple(name for name in golden.DAMAGED if "indexAlone" in golden.damaged(name))
_REFUSED = {"cq-truncated", "log-stray-file", "log-truncated", "log-zero-length", "index-cycle-foreign"}
# Their start deletes index files and dispatches the log again: the answers are those of the rebuilt index.
_UNCLEAN = {"crc-early-unclean", "unclean-no-checkpoint"}
# Their start truncates the log, but not the index: its entries refer to offsets without a message.
_CUT = {"crc-last-clean", "magic-last"}


def query_message(index: IndexService, log: CommitLog, row: dict[str, Any], end_of_log: int) -> dict[str, Any]:
    """Return what `DefaultMessageStore#queryMessage` makes of the index's answers: up to three rounds, nothing verified."""
    key = f"T#{row['key']}" if row.get("type") == "T" else row["key"]
    answer: dict[str, Any] = {"offsets": [], "msgIds": [], "lastTimestamp": 0, "lastPhyOffset": 0}
    last_time = row["end"]
    for _ in range(_ROUNDS):
        found = index.query_offset(row["topic"], key, row["maxNum"], row["begin"], last_time)
        if not found.phy_offsets:
            break
        answer["lastTimestamp"] = found.index_last_update_timestamp
        answer["lastPhyOffset"] = found.index_last_update_phyoffset
        for place, offset in enumerate(sorted(found.phy_offsets)):
            message = log.message(offset) if offset < end_of_log else None
            if message is None:
                continue
            if not place:
                last_time = message.store_timestamp
            answer["offsets"].append(offset)
            answer["msgIds"].append(message.msg_id)
        if answer["offsets"] or last_time < row["begin"]:
            break
    return answer


def compare_queries(index: IndexService, log: CommitLog, rows: list[dict[str, Any]], end_of_log: int) -> int:
    compared = 0
    for row in rows:
        if "exception" in row["store"]:
            with pytest.raises(ValueError, match="negative"):
                query_message(index, log, row, end_of_log)
        else:
            assert query_message(index, log, row, end_of_log) == row["store"], row
        compared += 1
    return compared


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_compat_answers_queries_as_the_store(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    broker = golden.info(case)["broker"]
    rows = [row for row in golden.rows(case, "queries") if "store" in row]
    with (
        CommitLog.open(root / "commitlog", compat=broker) as log,
        IndexService.open(root / "index", compat=broker) as index,
    ):
        assert compare_queries(index, log, rows, log.max_offset) == len(rows) > 300


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_compat_answers_queries_after_a_kill_as_the_store(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    broker = golden.info(case)["broker"]
    with (
        CommitLog.open(root / "commitlog", compat=broker) as log,
        IndexService.open(root / "index", mode="a", last_exit_ok=False, compat=broker) as index,
    ):
        index.recover(log)
        for name in ("queries", "restart_queries"):
            rows = [row for row in golden.rows(case, name) if "store" in row]
            assert compare_queries(index, log, rows, log.max_offset) == len(rows) > 300


@pytest.mark.parametrize("case", golden.STORES)
def test_queues_are_those_of_the_broker(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    broker = golden.info(case)["broker"]
    bounds = units = 0
    with MessageStore.open(root, compat=broker) as compat, MessageStore.open(root) as default:
        for row in golden.rows(case, "queues"):
            if not (root / "consumequeue" / row["topic"] / str(row["queueId"])).exists() and not row["maxOffset"]:
                continue
            for opened in (compat, default):
                queue = opened.queue(row["topic"], row["queueId"])
                assert (queue.min_offset, queue.max_offset) == (row["minOffset"], row["maxOffset"]), row
                bounds += 1
        for row in golden.rows(case, "units"):
            if not row["units"]:
                continue
            queue = default.queue(row["topic"], row["queueId"])
            names = [
                "phy_offset",
                "size",
                "tags_code",
                *(["queue_offset", "messages"] if row.get("kind") == "batch" else []),
            ]
            table = queue.units(row["firstOffset"])
            found = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
            assert found == [tuple(unit) for unit in row["units"]], (row["topic"], row["queueId"])
            units += len(found)
    assert bounds > 20
    assert units == sum(len(row["units"]) for row in golden.rows(case, "units"))


@pytest.mark.parametrize("compat", [None, "4.9.3", "5.3.3"])
@pytest.mark.parametrize("case", golden.STORES)
def test_totals_are_those_of_each_queue(case: str, compat: Compat | None, store: Callable[[str], Path]) -> None:
    with MessageStore.open(store(case), compat=compat) as opened:
        expected: dict[str, list[int]] = {}
        ends: list[int] = []
        for topic, queue_id in opened.queues():
            queue = opened.queue(topic, queue_id)
            first, end = queue.min_offset, queue.max_offset
            row = expected.setdefault(topic, [0, 0, 0])
            for at, value in enumerate((1, end - first, queue.measure(first, end)[1])):
                row[at] += value
            for offset in {first, end - 1} if first < end else ():
                ends += queue.units(offset, offset + 1).column("phy_offset").to_pylist()
        totals = opened.topic_totals(measure=True)
        assert {each.topic: [each.queues, each.messages, each.log_bytes] for each in totals} == expected
        assert [each.topic for each in totals] == opened.topics == sorted(expected)
        assert len(expected) > 1
        assert [each.log_bytes for each in opened.topic_totals([totals[0].topic])] == [None]
        assert opened.topic_totals(["absent"]) == []
        assert opened.overview()["topics"] == [each[:3] for each in totals]
        column = opened.commit_log.messages(ends, columns=["store_timestamp"]).column(0)
        times = [time.timestamp() * 1000 for time in column.to_pylist() if time is not None]
        assert sorted(opened.times()) == sorted(map(round, times))


@pytest.mark.parametrize("case", golden.STORES)
def test_messages_are_those_of_the_broker_field_by_field(case: str, store: Callable[[str], Path]) -> None:
    rows = golden.rows(case, "messages")
    with MessageStore.open(store(case)) as opened:
        table = pa.table(opened.messages())
        found = table.set_column(
            table.column_names.index("store_timestamp"), "store_timestamp", table["store_timestamp"].cast(pa.int64())
        ).drop_columns(["born_timestamp"])
        for row, message in zip(rows, found.to_pylist(), strict=True):
            assert (message["topic"], message["queue_id"], message["queue_offset"], message["phy_offset"]) == (
                row["topic"],
                row["queueId"],
                row["queueOffset"],
                row["physicalOffset"],
            )
            assert (message["store_timestamp"], message["msg_id"]) == (row["storeTimestamp"], row["msgId"])
            assert (message["uniq_key"], message["tags"], message["keys"]) == (row["uniqKey"], row["tags"], row["keys"])
            assert dict(message["properties"]) == row["properties"]
            assert (message["body"] is None) == ("bodyError" in row)
            assert opened.message(row["msgId"]) == opened.message(row["physicalOffset"])


@pytest.mark.parametrize("name", _ALONE)
def test_compat_answers_a_damaged_index_as_the_broker(name: str, damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store(name)
    case = golden.damaged(name)["indexAlone"]
    compared = 0
    with IndexService.open(root / "index", compat="4.9.3", hash_slots=64, max_entries=256) as index:
        assert [file.path.name for file in index.files] == [row["file"] for row in case["open"]["files"]]
        for row in case["queries"]:
            answer = index.query_offset(row["topic"], row["key"], row["maxNum"], row["begin"], row["end"])
            assert {
                "offsets": answer.phy_offsets,
                "lastTimestamp": answer.index_last_update_timestamp,
                "lastPhyOffset": answer.index_last_update_phyoffset,
            } == row["index"], row
            compared += 1
    assert compared == len(case["queries"]) > 0


@pytest.mark.parametrize("name", _OPENED)
def test_compat_answers_a_damaged_store_as_the_broker(name: str, damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store(name)
    case = golden.damaged(name)
    with MessageStore.open(root, compat="4.9.3", hash_slots=64, max_entries=256) as opened:
        found = pa.table(opened.messages(columns=["phy_offset"])).column(0).to_pylist()
        assert found == case["messageOffsets"]
    unclean = name in _UNCLEAN
    with (
        CommitLog.open(root / "commitlog", compat="4.9.3") as log,
        IndexService.open(
            root / "index",
            mode="a" if unclean else "r",
            last_exit_ok=not unclean,
            compat="4.9.3",
            hash_slots=64,
            max_entries=256,
        ) as index,
    ):
        if unclean:
            index.recover(log)
        end_of_log = case["storeOpen"]["maxPhyOffset"]
        assert compare_queries(index, log, case["queries"], end_of_log) == len(case["queries"]) > 0


@pytest.mark.filterwarnings("ignore::logdex.DamageWarning")
@pytest.mark.parametrize("name", golden.DAMAGED)
def test_the_default_answers_a_damaged_store_right(name: str, damaged_store: Callable[[str], Path]) -> None:
    """Every valid message is found by its keys, and nothing else; damage is a finding."""
    root = damaged_store(name)
    before = snapshot(root)
    lost = {98_616} if "early" in name else {278_675} if name == "crc-last-clean" else set()
    lost |= {266_851} if name == "magic-last" else {312_902} if name == "log-truncated" else set()
    compared = 0
    with MessageStore.open(root, hash_slots=64, max_entries=256) as opened:
        for row in golden.rows("basic", "messages"):
            if name == "tag-byte" and row["physicalOffset"] == 262_144:
                continue
            offset = row["physicalOffset"]
            assert (opened.message(offset) is None) == (offset in lost)
            if not row["uniqKey"] or row["sysFlag"] & 12 == _ROLLED_BACK:
                continue
            found = [message.phy_offset for message in opened.find(row["topic"], row["uniqKey"])]
            assert (offset in found) == (offset not in lost), offset
            compared += 1
        stream = opened.messages(columns=["phy_offset"])
        whole = pa.table(stream).column(0).to_pylist()
        assert stream.findings or not lost
        assert whole == [
            r["physicalOffset"] for r in golden.rows("basic", "messages") if r["physicalOffset"] not in lost
        ]
        assert not opened.verify().ok
    assert compared > 400
    assert snapshot(root) == before


def test_what_a_broker_refuses_to_open_is_read(damaged_store: Callable[[str], Path]) -> None:
    for name in sorted(_REFUSED - {"index-cycle-foreign"}):
        assert golden.damaged(name)["storeOpen"]["ok"] is False
        with MessageStore.open(damaged_store(name)) as opened:
            assert len(opened.find("AaTopic", "BB")) == 16


@pytest.mark.parametrize("name", _OPENED)
def test_compat_queues_of_a_damaged_store_are_the_broker_s(
    name: str, damaged_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = damaged_store(name)
    compared = 0
    if name == "crc-early-unclean":
        # The start there deletes all queues and dispatches the rest of the log.
        with MessageStore.open(root, compat="4.9.3") as before:
            before.build_queues(tmp_path / "anew")
        (tmp_path / "anew" / "commitlog").symlink_to(root / "commitlog")
        root = tmp_path / "anew"
    with MessageStore.open(root, compat="4.9.3", hash_slots=64, max_entries=256) as opened:
        for row in golden.damaged(name)["queues"]:
            try:
                queue = opened.queue(row["topic"], row["queueId"])
            except FileNotFoundError:
                assert row["maxOffset"] == 0
                continue
            assert (queue.min_offset, queue.max_offset) == (row["minOffset"], row["maxOffset"]), row
            compared += 1
    assert compared >= 10
