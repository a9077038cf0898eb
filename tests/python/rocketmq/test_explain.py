"""MessageStore.explain: each cause of the closed list, on a real or a damaged store, and no cause without evidence."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import golden
from index_inputs import snapshot
from logdex.rocketmq import IndexService, MessageStore
from logdex.rocketmq.explain import CAUSES, Explanation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]

SEEN: set[str] = set()


def explain(root: Path, topic: str, key: str, **times: int) -> Explanation:
    with MessageStore.open(root) as opened:
        explanation = opened.explain(topic, key, **times)
    kinds = [cause.kind for cause in explanation.causes]
    assert set(kinds) <= set(CAUSES)
    assert all(kind in str(explanation) for kind in kinds)
    json.dumps(explanation.to_dict())
    SEEN.update(kinds)
    return explanation


def kinds(explanation: Explanation) -> list[str]:
    return [cause.kind for cause in explanation.causes]


def messages(case: str) -> list[dict[str, Any]]:
    return golden.rows(case, "messages")


def keyed(case: str, offset: int) -> dict[str, Any]:
    return next(row for row in messages(case) if row["physicalOffset"] == offset)


@pytest.mark.parametrize("case", golden.STORES)
def test_what_is_found_is_what_find_gives(case: str, store: Store) -> None:
    root = store(case)
    before = snapshot(root)
    compared = 0
    with MessageStore.open(root) as opened:
        rows = [row for row in golden.rows(case, "queries") if "exception" not in row["index"]]
        for row in rows[:: len(rows) // 25]:
            topic, key, begin, end = row["topic"], row["key"], row["begin"], row["end"]
            told = opened.explain(topic, key, begin=begin, end=end)
            found = [message.phy_offset for message in opened.find(topic, key, begin=begin, end=end)]
            assert list(told.found) == found
            assert [c.phy_offset for c in told.candidates if c.verdict == "match"] == found
            entries = sum(link.key_hash == told.key_hash for f in told.files if f.chain for link in f.chain.links)
            assert entries == sum(len(file.candidates) for file in told.files)
            assert bool(told.causes) or bool(found)
            compared += 1
    assert compared >= 25
    assert snapshot(root) == before


def test_the_way_of_a_key(store: Store) -> None:
    told = explain(store("basic"), "AaTopic", "BB")
    assert (told.index_key, told.key_hash) == ("AaTopic#BB", 10_606_476)
    assert len(told.files) == 6
    assert all(file.searched and file.chain is not None and file.chain.slot == 12 for file in told.files)
    assert (told.min_offset, told.max_offset, told.indexed_up_to, told.lag_bytes) == (0, 313_165, 312_902, 0)
    assert (len(told.found), told.causes) == (16, ())
    assert {candidate.verdict for candidate in told.candidates} == {"match", "other-key", "other-topic"}


def test_files_out_of_the_time_range_are_skipped_and_it_says_why(store: Store) -> None:
    row = messages("rolled")[0]
    told = explain(store("rolled"), row["topic"], row["uniqKey"], end=row["storeTimestamp"])
    assert {file.searched for file in told.files} == {True, False}
    assert all("misses" in file.why and file.chain is None for file in told.files if not file.searched)
    assert row["physicalOffset"] in told.found


def test_offset_id(store: Store) -> None:
    row = messages("basic")[7]
    told = explain(store("basic"), row["topic"], row["msgId"])
    assert kinds(told) == ["offset-id"]
    assert row["uniqKey"] in told.causes[0].text


def test_split_key(store: Store) -> None:
    row = next(row for row in messages("basic") if " " in (row["keys"] or "") and row["topic"] == "order_events")
    assert kinds(explain(store("basic"), "order_events", row["keys"])) == ["split-key"]
    assert "split-key" in kinds(explain(store("basic"), "order_events", "no such key"))


def test_retry_topic(store: Store) -> None:
    told = explain(store("basic"), "TopicTest", "plan-again")
    assert "retry-topic" in kinds(told)
    assert "'order_events'" in next(cause.text for cause in told.causes if cause.kind == "retry-topic")
    assert "retry-topic" in kinds(explain(store("basic"), "TopicTest", "plan-dead"))


def test_delayed(store: Store) -> None:
    rows = messages("basic")
    waiting = [row for row in rows if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    pending = [row for row in waiting if sum(other["uniqKey"] == row["uniqKey"] for other in rows) == 1]
    assert pending
    told = explain(store("basic"), "TopicTest", pending[0]["uniqKey"])
    assert kinds(told) == ["delayed"]
    assert "'TopicTest'" in told.causes[0].text


def test_half_message(store: Store) -> None:
    assert kinds(explain(store("basic"), "AaTopic", "tx-unknow")) == ["half-message"]


def test_other_topic(store: Store) -> None:
    row = next(row for row in messages("basic") if row["topic"] == "order_events" and row["uniqKey"])
    told = explain(store("basic"), "AaTopic", row["uniqKey"])
    assert kinds(told) == ["other-topic"]
    assert "'order_events'" in told.causes[0].text


def test_unknown_topic(store: Store) -> None:
    told = explain(store("basic"), "order_event", "nobody's")
    assert set(kinds(told)) == {"unknown-topic", "not-here"}
    assert told.causes[0].text.endswith("; near spellings: order_events")


def test_expired_file(store: Store) -> None:
    root = store("basic")
    # As a broker does when a file expires. The index still has the entries.
    min((root / "commitlog").iterdir()).unlink()
    row = keyed("basic", 21_105)
    told = explain(root, row["topic"], row["uniqKey"])
    assert kinds(told) == ["expired-file"]
    assert [(c.phy_offset, c.verdict) for c in told.candidates] == [(21_105, "expired")]


def test_index_lost(damaged_store: Store, store: Store) -> None:
    told = explain(damaged_store("no-index"), "AaTopic", "BB")
    assert (len(told.found), kinds(told)) == (16, ["index-lost"])
    root = store("killed")
    third = sorted((root / "index").iterdir())[2]
    with IndexService.open(root / "index") as index:
        middle = sorted({o for batch in index.files[2].entries() for o in batch.column("phy_offset").to_pylist()})[40]
    third.unlink()
    row = keyed("killed", middle)
    told = explain(root, row["topic"], row["uniqKey"])
    assert kinds(told) == ["index-lost"]
    assert "abort" in told.causes[0].text


def test_index_behind(store: Store) -> None:
    root = store("basic")
    max((root / "index").iterdir()).unlink()
    row = next(row for row in reversed(messages("basic")) if row["uniqKey"] and row["topic"] == "TopicTest")
    told = explain(root, row["topic"], row["uniqKey"])
    assert row["physicalOffset"] in told.found
    assert "index-behind" in kinds(told)
    assert told.indexed_up_to is not None
    size = keyed("basic", told.indexed_up_to)["storeSize"]
    assert told.lag_bytes == told.max_offset - told.indexed_up_to - size > 0
    assert told.scanned_bytes > 0


def test_hash_collision(store: Store) -> None:
    # "C#", "Aa" and "BB" have the same hash.
    told = explain(store("basic"), "order_events", "C#")
    assert set(kinds(told)) == {"hash-collision", "not-here"}
    assert {candidate.verdict for candidate in told.candidates} <= {"other-key", "other-topic"}


def test_clock_difference(store: Store) -> None:
    row = messages("basic")[0]
    between = (row["bornTimestamp"] + row["storeTimestamp"]) // 2
    told = explain(store("basic"), row["topic"], row["uniqKey"], end=between)
    assert kinds(told) == ["clock-difference"]
    ahead = store("basic")
    path = ahead / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[40:48] = (row["storeTimestamp"] + 5_000).to_bytes(8, "big")
    path.write_bytes(content)
    told = explain(ahead, row["topic"], row["uniqKey"])
    assert (told.found, kinds(told)) == ((0,), ["clock-difference"])
    assert "5,000 ms" in told.causes[0].text


def test_out_of_range(store: Store) -> None:
    row = messages("basic")[0]
    told = explain(store("basic"), row["topic"], row["uniqKey"], begin=row["storeTimestamp"] + 1)
    assert kinds(told) == ["out-of-range"]
    assert str(row["storeTimestamp"]) in told.causes[0].text


def test_damaged_message(damaged_store: Store) -> None:
    row = keyed("basic", 98_616)
    told = explain(damaged_store("crc-early-clean"), row["topic"], row["uniqKey"])
    assert "damaged-message" in kinds(told)
    assert "98,616" in next(cause.text for cause in told.causes if cause.kind == "damaged-message")


def test_stale_entry(store: Store) -> None:
    root = store("basic")
    row = messages("basic")[20]
    other = messages("basic")[5]["physicalOffset"]
    path = min((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    with IndexService.open(root / "index") as index:
        entries = [e for batch in index.files[0].entries() for e in batch.column("phy_offset").to_pylist()]
    for position, offset in enumerate(entries, 1):
        if offset == row["physicalOffset"]:
            at = 40 + 4 * 64 + 20 * position
            content[at + 4 : at + 12] = other.to_bytes(8, "big")
    path.write_bytes(content)
    told = explain(root, row["topic"], row["uniqKey"])
    assert "stale-entry" in kinds(told)


def test_broker_cap_and_broker_time(store: Store) -> None:
    root = store("rolled")
    told = explain(root, "AaTopic", "BB")
    assert "broker-cap" in kinds(told)
    assert told.broker_found is not None
    assert len(told.broker_found) < len(told.found)
    seen: set[str] = set()
    with MessageStore.open(root) as opened:
        for row in messages("rolled")[::5]:
            time = row["storeTimestamp"]
            if not row["uniqKey"] or row["sysFlag"] & 12 == 12:
                continue
            alone = opened.explain(row["topic"], row["uniqKey"], begin=time, end=time)
            assert row["physicalOffset"] in alone.found
            seen.update(cause.kind for cause in alone.causes)
    SEEN.update(seen)
    assert "broker-time" in seen


def test_spelling(store: Store) -> None:
    row = messages("basic")[0]
    assert kinds(explain(store("basic"), row["topic"], row["uniqKey"].lower())) == ["spelling"]
    assert "spelling" in kinds(explain(store("basic"), row["topic"], f"{row['uniqKey']} "))


def test_tags_not_indexed(store: Store) -> None:
    assert "tags-not-indexed" in kinds(explain(store("basic"), "t", "T#TagA"))
    assert explain(store("v5-basic"), "t", "T#TagA").found


def test_unread_log(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdex.rocketmq.find._SCAN_BUDGET_BYTES", 20_000)
    root = store("basic")
    shutil.rmtree(root / "index")
    row = messages("basic")[400]
    told = explain(root, row["topic"], row["uniqKey"])
    assert "unread-log" in kinds(told)
    assert told.unscanned


def test_a_missing_log_file(store: Store) -> None:
    root = store("basic")
    row = next(each for each in messages("basic") if each["physicalOffset"] > 140_000 and each["uniqKey"])
    (root / "commitlog" / "00000000000000131072").unlink()
    told = explain(root, row["topic"], row["uniqKey"])
    assert [each.verdict for each in told.candidates] == ["missing-file"]
    assert kinds(told) == ["missing-file", "missing-file"]
    assert told.unreadable == ((131_072, 196_608),)
    assert "cannot be read: offsets 131,072 to 196,608" in str(told)


def test_a_rolled_back_message(store: Store) -> None:
    row = next(each for each in messages("basic") if each["sysFlag"] & 12 == 12 and each["uniqKey"])
    assert "not-indexed" in kinds(explain(store("basic"), row["topic"], row["uniqKey"]))


def test_what_a_broker_cut_off(damaged_store: Store) -> None:
    root = damaged_store("crc-last-clean")
    row = next(each for each in messages("basic") if each["physicalOffset"] > 290_000 and each["uniqKey"])
    path = root / "commitlog" / "00000000000000262144"
    content = bytearray(path.read_bytes())
    # Older than the messages before the end of the log: messages after the end were truncated and left.
    at = row["physicalOffset"] - 262_144 + 56
    content[at : at + 8] = (row["storeTimestamp"] - 3_600_000).to_bytes(8, "big")
    path.write_bytes(content)
    (root / "abort").touch()
    told = explain(root, row["topic"], row["uniqKey"])
    assert [(each.phy_offset, each.verdict) for each in told.candidates] == [(row["physicalOffset"], "cut-off")]
    assert kinds(told) == ["cut-off"]
    assert not told.found


def test_every_cause_has_its_test() -> None:
    if len(SEEN) > len(CAUSES) // 2:
        # All of this file ran.
        assert set(CAUSES) == SEEN
