"""Queues whose units hold several messages, read in parts: each unit once, without reading the whole queue for each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import golden
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]

TOPIC = "batch_events"


def units() -> list[tuple[int, int]]:
    """Return offset in the log and first queue offset of the units of the one batch queue."""
    (row,) = (row for row in golden.rows("v5-basic", "units") if row.get("kind") == "batch")
    assert row["topic"] == TOPIC
    found = [(unit[0], unit[3]) for unit in row["units"]]
    assert len(found) > 5
    return found


def test_messages_of_a_batch_queue_come_once(store: Store) -> None:
    with MessageStore.open(store("v5-basic")) as opened:
        for scan in (False, True):
            offsets = opened.messages(topic=TOPIC, columns=["phy_offset"], scan=scan).read_all()
            assert offsets.column("phy_offset").to_pylist() == [phy_offset for phy_offset, _ in units()], scan


def test_verify_follows_every_unit_once(store: Store) -> None:
    with MessageStore.open(store("v5-basic")) as opened:
        expected = opened.verify()
    assert expected.ok
    everywhere = sum(len(row["units"]) for row in golden.rows("v5-basic", "units"))
    assert expected.checked["units_followed"] == everywhere
