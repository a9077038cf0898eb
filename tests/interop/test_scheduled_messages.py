"""Scheduled messages that one side parks and the other delivers."""

from __future__ import annotations

import json
import re
import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.rocketmq import CommitLog, StoreWriter
from traffic_store import columns, mixture
from written_store import CONFIG, SIZES, both_say_the_same, log_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_driver import Driver

LEVELS = "1s 2s 1h"
SOON, LATER = "1", "3"
HOUR_MS = 3_600_000
PARKED = "SCHEDULE_TOPIC_XXXX"
DELAYED = CONFIG | {"messageDelayLevel": LEVELS}
OURS: dict[str, Any] = SIZES | {"delay_levels": LEVELS, "services": False}


def test_parked_messages_are_the_same_bytes(driver: Driver, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    messages = [
        _delayed(message, level)
        for message, level in zip(mixture(1, 40, transactions=True), ("3", "99") * 20, strict=True)
    ]
    _start(driver, theirs)
    put = driver.ask("store_put", messages=messages)["results"]
    driver.ask("store_stop")
    with StoreWriter.open(ours, **OURS) as writer:
        for message, where in zip(messages, put, strict=True):
            # The broker writes properties in the order of its map, also where it changes none.
            text = _stored_properties(theirs, where["phy_offset"])
            batch = columns([message | {"properties": _in_order_of(text, message["properties"])}])
            at = pa.array([where["store_timestamp"]], pa.timestamp("ms", "UTC"))
            writer.put_messages(batch.append_column("store_timestamp", at))
    assert _log_bytes(ours) == _log_bytes(theirs)
    assert {row["queue_id"] for row in log_rows(ours) if row["topic"] == PARKED} == {2}


def test_parked_by_logdex_delivered_by_the_broker(driver: Driver, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    soon = [_delayed(message, SOON) for message in mixture(2, 3, transactions=False)]
    later = [_delayed(message, LATER) for message in mixture(3, 2, transactions=False)]
    with StoreWriter.open(root, **OURS) as writer:
        writer.put_messages(columns(soon + later))
    before = len(log_rows(root))
    _start(driver, root)
    _wait_for(driver, before + len(soon), root)
    rows = both_say_the_same(driver, root, before + len(soon))
    delivered = [row for row in rows if row["topic"] != PARKED]
    assert [_told(row) for row in delivered] == [_told(message) for message in soon]
    kept = json.loads(re.sub(r"(\d+):", r'"\1":', driver.ask("store_state")["delay_offsets"]))["offsetTable"]
    driver.ask("store_stop")

    with StoreWriter.open(root, **OURS) as writer:
        # The broker's own offset: 4.9.3 counts one delivery a pass only, so that it may deliver some again, as it would itself.
        again = writer.deliver_due()
        assert again == len(soon) - kept[SOON]
        assert writer.deliver_due(_now() + 2 * HOUR_MS) == len(later)
        assert writer.deliver_due(_now() + 2 * HOUR_MS) == 0
    say(f"parked by logdex, delivered by the broker: {len(delivered)} messages alike")


def test_parked_by_the_broker_delivered_by_logdex(driver: Driver, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    messages = [_delayed(message, LATER) for message in mixture(4, 30, transactions=False)]
    _start(driver, root)
    driver.ask("store_put", messages=messages)
    driver.ask("store_stop")
    with StoreWriter.open(root, **OURS) as writer:
        assert writer.deliver_due() == 0
        assert writer.deliver_due(_now() + 2 * HOUR_MS) == 30
    _start(driver, root)
    rows = both_say_the_same(driver, root, 60)
    assert [_told(row) for row in rows if row["topic"] != PARKED] == [_told(message) for message in messages]
    state = driver.ask("store_state")
    assert json.loads(re.sub(r"(\d+):", r'"\1":', state["delay_offsets"]))["offsetTable"] == {LATER: 30}
    driver.ask("store_stop")
    say("parked by the broker, delivered by logdex: 30 messages alike, and the broker knows that they are delivered")


def test_delivered_messages_are_the_same_bytes(driver: Driver, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with StoreWriter.open(theirs, **OURS) as writer:
        writer.put_messages(columns([_delayed(message, SOON) for message in mixture(5, 20)]))
    shutil.copytree(theirs, ours)
    parked = [row for row in log_rows(theirs) if row["topic"] == PARKED]
    before = len(log_rows(theirs))
    assert parked
    _start(driver, theirs)
    _wait_for(driver, before + len(parked), theirs)
    driver.ask("store_stop")
    with StoreWriter.open(ours, **OURS) as writer:
        assert writer.deliver_due(_now() + HOUR_MS) == len(parked)
    assert _log_bytes(ours, without_time=True) == _log_bytes(theirs, without_time=True)


def _delayed(message: dict[str, Any], level: str) -> dict[str, Any]:
    return message | {"properties": message["properties"] | {"DELAY": level}}


def _told(message: dict[str, Any]) -> tuple[Any, ...]:
    body = message.get("body_base64", message.get("body"))
    return message["topic"], message["queue_id"], body, message["properties"]["UNIQ_KEY"], message["born_timestamp"]


def _wait_for(broker: Driver, messages: int, root: Path) -> None:
    """Wait until the log holds a number of messages and all are dispatched."""
    patience = time.monotonic() + 30
    while len(log_rows(root)) < messages or broker.ask("store_state")["dispatch_behind"] > 0:
        assert time.monotonic() < patience
        time.sleep(0.05)


def _stored_properties(root: Path, phy_offset: int) -> list[str]:
    with closing(CommitLog.open(root / "commitlog")) as log:
        message = log.message(phy_offset)
    assert message is not None
    return list(message.properties)


def _in_order_of(names: list[str], properties: dict[str, str]) -> dict[str, str]:
    return {name: properties[name] for name in names if name in properties}


def _log_bytes(root: Path, *, without_time: bool = False) -> list[str]:
    """Return the frames of a log, without the store times in one of the stores."""
    frames = []
    for file in sorted((root / "commitlog").iterdir()):
        content, at = bytearray(file.read_bytes()), 0
        while at + 8 <= len(content) and (size := int.from_bytes(content[at : at + 4], "big")):
            frame = content[at : at + size]
            if without_time:
                born_host = 20 if frame[39] & 16 else 8
                frame[48 + born_host : 56 + born_host] = bytes(8)
            frames.append(frame.hex())
            at += size
    return frames


def _now() -> int:
    return time.time_ns() // 1_000_000


def _start(broker: Driver, root: Path) -> None:
    assert broker.ask("store_load", root=root, config=DELAYED)["ok"]
    broker.ask("store_start")
