"""Scheduled messages: stored until they are due, then delivered once."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL: dict[str, Any] = {"file_size": 16_384, "queue_file_size": 400, "hash_slots": 20, "max_entries": 50}
PARKED = "SCHEDULE_TOPIC_XXXX"
NOW = 1_700_000_000_000


def open_small(root: Path, **options: Any) -> StoreWriter:
    return StoreWriter.open(root, **{**SMALL, "services": False, **options})


def delivered(root: Path, topic: str) -> list[str]:
    with MessageStore.open(root) as store:
        return list(pa.table(store.messages(topic, columns=["keys"]))["keys"].to_pylist())


@pytest.mark.parametrize(("flush", "again"), [("sync", 0), ("async", 3)])
def test_a_crash_repeats_no_delivery_if_the_flush_is_synchronous(flush: str, again: int, tmp_path: Path) -> None:
    root, crashed = tmp_path / "store", tmp_path / "crashed"
    with open_small(root, flush=flush) as writer:
        for _ in range(3):
            writer.put_message("T", b"later", keys="k", delay_level=1, store_timestamp=NOW)
        assert writer.deliver_due(NOW + 1_000) == 3
        shutil.copytree(root, crashed, ignore=shutil.ignore_patterns("lock"))
    with open_small(crashed) as writer:
        assert writer.deliver_due(NOW + 1_000) == again
    assert delivered(crashed, "T") == ["k"] * (3 + again)


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
def test_a_message_waits_for_its_time(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        placed = writer.put_message(
            "T", b"later", queue_id=3, keys="k", tags="t", delay_level=3, flag=5, store_timestamp=NOW
        )
        assert (placed.topic, placed.queue_id, placed.queue_offset) == (PARKED, 2, 0)
        assert writer.deliver_due(NOW + 9_999) == 0
        assert delivered(tmp_path, "T") == []
        assert writer.deliver_due(NOW + 10_000) == 1
        assert writer.deliver_due(NOW + 20_000) == 0
    with MessageStore.open(tmp_path) as store:
        report = store.verify()
        assert report.ok, report
        (message,) = store.find("T", "k")
        assert (message.queue_id, message.queue_offset, message.body, message.flag) == (3, 0, b"later", 5)
        assert message.properties == {
            "DELAY": "3",
            "KEYS": "k",
            "REAL_QID": "3",
            "REAL_TOPIC": "T",
            "TAGS": "t",
        }
        assert message.born_timestamp == NOW
        unit = store.queue("T", 3).units()
        # The hash of the tags, not a time.
        assert unit.column("tags_code").to_pylist() == [ord("t")]
        assert store.queue(PARKED, 2).units().column("tags_code").to_pylist() == [NOW + 10_000]
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == b'{\n\t"offsetTable":{3:1\n\t}\n}'


def test_levels_go_each_by_itself_and_in_order(tmp_path: Path) -> None:
    count = 60
    with open_small(tmp_path, delay_levels="1s 1m") as writer:
        writer.put_messages(
            {
                "topic": ["T"] * count,
                "keys": [f"k{number}" for number in range(count)],
                "properties": [{"DELAY": str(number % 3 + 1)} for number in range(count)],
                "store_timestamp": [NOW + number for number in range(count)],
            }
        )
        assert writer.deliver_due(NOW + 1_000 + 30) == 11
        assert writer.deliver_due(NOW + 2_000) == 9
        # A level above the last one is treated as the last one.
        assert writer.deliver_due(NOW + 60_000 + 29) == 20
        assert writer.deliver_due(NOW + 120_000) == 20
        writer.flush()
        assert delivered(tmp_path, "T") == [
            f"k{number}"
            for number in [
                *range(0, 60, 3),
                *(number for number in range(30) if number % 3),
                *(number for number in range(30, 60) if number % 3),
            ]
        ]


def test_nothing_is_delivered_twice_after_an_end(tmp_path: Path) -> None:
    for round_ in range(3):
        with open_small(tmp_path) as writer:
            for number in range(5):
                writer.put_message("T", keys=f"{round_}{number}", delay_level=1, store_timestamp=NOW + 10 * round_)
            assert writer.deliver_due(NOW + 10 * round_ + 1_000) == 5
    assert delivered(tmp_path, "T") == [f"{round_}{number}" for round_ in range(3) for number in range(5)]
    assert json.loads((tmp_path / "config" / "delayOffset.json").read_text().replace("1:", '"1":')) == {
        "offsetTable": {"1": 15}
    }


def test_compressed_bodies_stay_as_they_are(tmp_path: Path, store: Callable[[str], Path]) -> None:
    source = store("v5-basic")
    with CommitLog.open(source / "commitlog") as log:
        stored = pa.table(log.scan(body="stored"))
        decoded = pa.table(log.scan())
    compressed = [
        row for row, flag in enumerate(stored["sys_flag"].to_pylist()) if flag & 0x7C1 in (0x101, 0x201, 0x301)
    ]
    assert compressed
    rows = stored.take(compressed)
    table = pa.table(
        {
            "topic": ["T"] * len(rows),
            "body": rows["body"],
            "sys_flag": rows["sys_flag"],
            "properties": pa.array([[("DELAY", "1")]] * len(rows), pa.map_(pa.string(), pa.string())),
        }
    )
    with open_small(tmp_path / "new", compat="5.3.3") as writer:
        writer.put_messages(table, body="stored")
        assert writer.deliver_due(None if not rows else 1 << 62) == len(rows)
    with MessageStore.open(tmp_path / "new", hash_slots=20, max_entries=50) as opened:
        kinds = ("body", "sys_flag")
        assert pa.table(opened.messages("T", columns=kinds, body="stored")) == rows.select(kinds)
        bodies = pa.table(opened.messages("T", columns=["body"]))["body"].to_pylist()
        assert bodies == decoded.take(compressed)["body"].to_pylist()


def test_a_message_from_the_future_goes_at_once(tmp_path: Path) -> None:
    """A clock that was set back must not delay messages for years (ScheduleMessageService#correctDeliverTimestamp)."""
    with open_small(tmp_path) as writer:
        writer.put_message("T", keys="k", delay_level=1, store_timestamp=NOW + 1_000_000)
        assert writer.deliver_due(NOW) == 1


def test_what_cannot_be_delivered_does_not_hold_up_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_small(tmp_path) as writer:
        writer.put_messages(
            {
                "topic": [PARKED] * 5,
                "properties": [
                    {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0", "KEYS": "first"},
                    {"DELAY": "1", "REAL_TOPIC": "../T", "REAL_QID": "0"},
                    {"DELAY": "1", "REAL_TOPIC": "T"},
                    {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
                    {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0", "KEYS": "last"},
                ],
                "store_timestamp": [NOW] * 5,
            },
            park=False,
        )
        with caplog.at_level(logging.WARNING):
            assert writer.deliver_due(NOW + 1_000) == 2
    assert len(caplog.messages) == 3
    assert delivered(tmp_path, "T") == ["first", "last"]


def test_the_services_deliver(tmp_path: Path) -> None:
    with open_small(tmp_path, services=True, delay_levels="1s") as writer:
        writer.put_message("T", keys="k", delay_level=1, store_timestamp=NOW)
        # The index file may have no entry yet that tells its sizes.
        sizes = {name: SMALL[name] for name in ("hash_slots", "max_entries")}
        with MessageStore.open(tmp_path, **sizes) as store:
            for _ in range(3_000):
                if store.find("T", "k"):
                    break
                writer.deliver_due(NOW)
            assert len(store.find("T", "k")) == 1


def test_a_broker_s_store_goes_on_where_its_table_says(store: Callable[[str], Path]) -> None:
    root = store("v5-3-3")
    slots, entries = golden.geometry("v5-3-3")
    parked = [row for row in golden.rows("v5-3-3", "messages") if row["topic"] == PARKED]
    table = {1: 4, 2: 1, 3: 1, 5: 0, 6: 0}
    waiting = [row for row in parked if row["queueOffset"] >= table.get(row["queueId"] + 1, 0)]
    assert waiting
    with StoreWriter.open(root, hash_slots=slots, max_entries=entries, services=False) as writer:
        assert writer.deliver_due(1 << 62) == len(waiting)
        assert writer.deliver_due(1 << 62) == 0
    with MessageStore.open(root) as opened:
        report = opened.verify()
        assert report.ok, report


@pytest.mark.parametrize("extension_file_size", [None, 4_096])
@pytest.mark.parametrize("stored", [-3_000_000_000, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_a_time_that_looks_like_an_address_is_long_past(
    tmp_path: Path, stored: int, extension_file_size: int | None
) -> None:
    with open_small(tmp_path, extension_file_size=extension_file_size) as writer:
        writer.put_message("T", keys="odd", delay_level=1, store_timestamp=stored)
        writer.put_message("T", keys="next", delay_level=1, store_timestamp=NOW)
        assert writer.deliver_due(NOW + 1_000) == 2
    with open_small(tmp_path) as writer:
        assert writer.deliver_due(NOW + 1_000) == 0
    assert delivered(tmp_path, "T") == ["odd", "next"]


@pytest.mark.parametrize("queue", ["2147483648", "9" * 5_000, "\u0663", "-1", "", "1.0"])
def test_a_queue_that_is_no_number_of_a_queue_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    odd = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": queue}
    with open_small(tmp_path) as writer:
        writer.put_message(PARKED, properties=odd, keys="odd", store_timestamp=NOW)
        writer.put_message(PARKED, properties=odd | {"REAL_QID": "0" * 20 + "7"}, keys="zeros", store_timestamp=NOW)
        writer.put_message("T", keys="next", delay_level=1, store_timestamp=NOW)
        assert writer.deliver_due(NOW + 1_000) == 2
        assert writer.deliver_due(NOW + 1_000) == 0
    assert delivered(tmp_path, "T") == ["zeros", "next"]
    assert "no scheduled message" in caplog.text
