"""Pulls that wait until their queue grows. Source: PullRequestHoldService."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from logdex._listener import Connection
    from logdex.rocketmq.server.exchange import Hold, Request

_Key = TypeVar("_Key")

_log = logging.getLogger(__name__)

_AT_ONCE = 32
"""Pulls that are answered in one turn of the event loop, so that other clients do not wait longer."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """A pull that waits."""

    connection: Connection
    request: Request
    hold: Hold
    size: int
    """Bytes of the request."""

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.hold.topic, self.hold.queue_id


class HeldPulls:
    """Waiting pulls by queue, so that a growing queue costs no work for pulls of other queues.

    The thread of the event loop calls every method.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[HeldPull], None]) -> None:
        """Call `answer` for each pull whose queue has grown or whose time is over."""
        self._loop = loop
        self._answer = answer
        self._timers: dict[HeldPull, asyncio.TimerHandle] = {}
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._due: deque[HeldPull] = deque()
        self.size = 0
        """Bytes of the requests."""

    def __len__(self) -> int:
        return len(self._timers) + len(self._due)

    def add(self, held: HeldPull) -> None:
        """Add a waiting pull."""
        self._timers[held] = self._loop.call_later(held.hold.seconds, self._let_answer, held)
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_connection.setdefault(held.connection, {})[held] = None
        self.size += held.size

    def grown(self, ends: Iterable[tuple[str, int, int]]) -> None:
        """Answer the pulls of queues that have grown. `ends`: topic, queue id, and queue offset of the next message."""
        for topic, queue_id, end in ends:
            for held in [*self._by_queue.get((topic, queue_id), ())]:
                if held.hold.offset < end:
                    self._let_answer(held)

    def queues(self) -> list[tuple[str, int]]:
        """Return the queues with waiting pulls."""
        return [*self._by_queue]

    def forget(self, connection: Connection) -> None:
        """Drop the pulls of a disconnected client."""
        for held in [*self._by_connection.get(connection, ())]:
            self._stop_waiting(held)
            self.size -= held.size

    def clear(self) -> None:
        """Drop all pulls."""
        for connection in [*self._by_connection]:
            self.forget(connection)
        self._due.clear()

    def _stop_waiting(self, held: HeldPull) -> None:
        self._timers.pop(held).cancel()
        _remove(self._by_queue, held.queue, held)
        _remove(self._by_connection, held.connection, held)

    def _let_answer(self, held: HeldPull) -> None:
        self._stop_waiting(held)
        if not self._due:
            self._loop.call_soon(self._answer_some)
        self._due.append(held)

    def _answer_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._due))):
            held = self._due.popleft()
            self.size -= held.size
            try:
                self._answer(held)
            except Exception:  # noqa: BLE001 -- logged
                # A bug in logdex must not keep the others from their answers.
                _log.exception("the answer to a held pull")
        if self._due:
            self._loop.call_soon(self._answer_some)


def _remove(table: dict[_Key, dict[HeldPull, None]], key: _Key, held: HeldPull) -> None:
    del table[key][held]
    if not table[key]:
        del table[key]
