"""Frames as the log holds them: pulls of queues, and messages at offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
import wire
from logdex import _core
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST = 1 << 30
UNITS_A_FILE = 50
"""Files of 1000 bytes."""


def _offset(frame: bytes) -> int:
    return int.from_bytes(frame[28:36], "big")


@pytest.mark.parametrize("case", ["basic", "killed", "cqext", "rolled", "v5-basic"])
def test_pulling_a_queue_returns_the_messages_of_its_units(case: str, store: Callable[[str], Path]) -> None:
    pulled = 0
    with MessageStore.open(store(case)) as opened:
        for row in golden.rows(case, "units"):
            if row.get("kind") == "batch" or not row["units"]:
                continue
            queue = opened.queue(row["topic"], row["queueId"]).view()
            begin, end = queue.bounds
            first = row["firstOffset"]
            wanted = [unit[0] for unit in row["units"][begin - first :]]
            found: list[int] = []
            while begin < end:
                frames, count, next_offset, status = queue.pull(begin, max_num=7, max_bytes=MOST)
                assert status == "FOUND"
                assert count == next_offset - begin <= 7
                found += map(_offset, wire.frames(frames))
                begin = next_offset
            assert found == wanted
            pulled += len(found)
    assert pulled > 300


def test_a_pull_looks_at_one_file(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        queue = opened.queue("TopicTest", 0).view()
        assert queue.bounds == (0, 129)
        ends = [queue.pull(begin, max_num=1000, max_bytes=MOST)[2] for begin in (0, 49, 50, 100)]
    assert ends == [UNITS_A_FILE, UNITS_A_FILE, 2 * UNITS_A_FILE, 129]


def test_the_first_message_is_returned_whatever_its_size(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        queue = opened.queue("TopicTest", 0).view()
        frames, count, next_offset, status = queue.pull(0, max_num=32, max_bytes=0)
    assert (count, next_offset, status) == (1, 1, "FOUND")
    assert len(wire.frames(frames)) == 1


@pytest.mark.parametrize(("case", "tag"), [("basic", "TagA"), ("cqext", "T3")])
def test_tags_choose_by_their_hash(case: str, tag: str, store: Callable[[str], Path]) -> None:
    tags_at = {row["physicalOffset"]: row["tags"] for row in golden.rows(case, "messages")}
    compared = 0
    with MessageStore.open(store(case)) as opened:
        for topic, queue_id in opened.queues():
            queue = opened.queue(topic, queue_id)
            units = queue.units()
            places = units.column("phy_offset").to_pylist()
            if topic.startswith("SCHEDULE") or not places:
                continue
            wanted = [place for place in places if tags_at[place] == tag]
            view = queue.view()
            begin, end = view.bounds
            found: list[int] = []
            codes = [_core.tags_hash(tag)]
            while begin < end:
                frames, _, begin, status = view.pull(begin, max_num=32, max_bytes=MOST, codes=codes)
                assert status in ("FOUND", "NO_MATCHED_MESSAGE")
                found += map(_offset, wire.frames(frames))
            assert found == wanted
            compared += len(found)
    assert compared > 20


def test_hashes_of_tags_are_those_of_java() -> None:
    assert _core.tags_hash("TagA") == 0x27A807
    assert _core.tags_hash("Aa") == _core.tags_hash("BB") == 2112
    assert _core.tags_hash("polygenelubricants") == -(1 << 31)


def test_messages_of_a_missing_log_file_are_passed_over(store: Callable[[str], Path]) -> None:
    root = store("basic")
    (root / "commitlog" / f"{65536:020}").unlink()
    statuses = set()
    with MessageStore.open(root) as opened:
        queue = opened.queue("TopicTest", 0).view()
        begin, end = queue.bounds
        found: list[int] = []
        while begin < end:
            frames, _, begin, status = queue.pull(begin, max_num=1, max_bytes=MOST)
            statuses.add(status)
            found += map(_offset, wire.frames(frames))
    assert statuses == {"FOUND", "MESSAGE_WAS_REMOVING"}
    assert found
    assert not any(65536 <= offset < 131072 for offset in found)


def test_a_missing_queue_file_is_passed_over(store: Callable[[str], Path]) -> None:
    root = store("basic")
    (root / "consumequeue" / "TopicTest" / "0" / f"{1000:020}").unlink()
    with MessageStore.open(root) as opened:
        queue = opened.queue("TopicTest", 0).view()
        assert queue.pull(60, max_num=32, max_bytes=MOST) == (b"", 0, 100, "OFFSET_FOUND_NULL")


def test_a_batch_queue_is_pulled_by_the_offsets_of_messages(store: Callable[[str], Path]) -> None:
    pulled = 0
    with MessageStore.open(store("v5-basic")) as opened:
        for row in golden.rows("v5-basic", "units"):
            if row.get("kind") != "batch":
                continue
            queue = opened.queue(row["topic"], row["queueId"]).view()
            begin, end = queue.bounds
            found: list[int] = []
            while begin < end:
                frames, count, begin, status = queue.pull(begin, max_num=2, max_bytes=MOST)
                assert (status, 1 <= count <= 2) == ("FOUND", True)
                found += map(_offset, wire.frames(frames))
            assert found == [unit[0] for unit in row["units"]]
            pulled += len(found)
    assert pulled


def test_frames_at_offsets_are_in_the_order_of_the_log(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        log = opened.commit_log
        rows = golden.rows("basic", "messages")
        offsets = [row["physicalOffset"] for row in rows]
        frames = wire.frames(log.stored_frames([*reversed(offsets), 1, -5, 10**12], MOST))
        assert [_offset(frame) for frame in frames] == offsets
        assert [len(frame) for frame in frames] == [row["storeSize"] for row in rows]
        assert log.stored_frames([offsets[3], offsets[3]], MOST) == 2 * frames[3]
        assert log.stored_frames([offsets[3], offsets[2]], len(frames[3])) == frames[3]
        assert log.stored_frames([], MOST) == b""


def test_store_times_of_queue_offsets(store: Callable[[str], Path]) -> None:
    rows = [row for row in golden.rows("basic", "messages") if (row["topic"], row["queueId"]) == ("BBTopic", 1)]
    with MessageStore.open(store("basic")) as opened:
        queue = opened.queue("BBTopic", 1)
        assert [queue.store_timestamp(n) for n in range(41)] == [row["storeTimestamp"] for row in rows]
        assert queue.store_timestamp(41) is None
        assert queue.store_timestamp(-1) is None
