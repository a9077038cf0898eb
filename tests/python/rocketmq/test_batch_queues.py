"""Queues whose units hold several messages, read in parts: every unit once, and not the whole queue for each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
from logdex.rocketmq import MessageStore, queues

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


@pytest.mark.parametrize("step", [1, 2, 5, 8_192])
def test_messages_of_a_batch_queue_come_once(store: Store, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(queues, "_UNITS_A_STEP", step)
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


def test_a_batch_queue_is_read_in_few_parts() -> None:
    for end in (0, 1, 8_192, 100_000, 10**9 + 7):
        for kind in ("plain", "batch"):
            begin = end // 3
            parts = list(queues.parts(kind, begin, end)) if end < 10**6 or kind == "batch" else []
            assert [place for part in parts for place in part][1:-1:2] == [part[0] for part in parts[1:]]
            if parts:
                assert (parts[0][0], parts[-1][1]) == (begin, end)
                assert all(first < last for first, last in parts)
            if kind == "batch":
                assert len(parts) <= 16
            else:
                assert all(last - first <= 8_192 for first, last in parts)
