"""Pulls that wait for a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest.mock import Mock

from logdex.broker.rocketmq.handlers import pulls
from logdex.broker.rocketmq.handlers.pulls import HeldPull, HeldPulls
from logdex.broker.rocketmq.requests import Hold

if TYPE_CHECKING:
    import pytest


def test_held_pulls_are_answered_in_turns() -> None:
    async def body() -> None:
        answered: list[HeldPull] = []
        held = HeldPulls(asyncio.get_running_loop(), answered.append)
        for number in range(100):
            held.add(HeldPull(Mock(), Mock(), Hold("T", 0, number % 2, 60.0), 10))
        held.grown([("T", 1, 5), ("T", 0, 1)])
        assert not answered
        assert len(held) == 100
        await asyncio.sleep(0)
        assert 0 < len(answered) <= pulls._AT_ONCE
        for _ in range(50):
            await asyncio.sleep(0)
        assert [each.hold.offset for each in answered] == [0] * 50
        assert (len(held), held.size) == (50, 500)
        held.clear()
        assert (len(held), held.size, held.queues()) == (0, 0, [])

    asyncio.run(body())


def test_a_fault_in_the_answer_to_a_held_pull_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    answered = []

    def answer_held(held: HeldPull) -> None:
        answered.append(held)
        if len(answered) == 1:
            raise KeyError("a bug")

    async def body() -> None:
        held = HeldPulls(asyncio.get_running_loop(), answer_held)
        for _ in range(2 * pulls._AT_ONCE):
            held.add(HeldPull(Mock(), Mock(), Hold("T", 0, 0, 60.0), 10))
        held.grown([("T", 0, 1)])
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(answered) == 2 * pulls._AT_ONCE
        assert (len(held), held.size) == (0, 0)

    asyncio.run(body())
    assert "a bug" in caplog.text


# Time
