"""Puts of all clients, by one thread: what came in the meantime is stored together, so that one flush serves all.

Source: CommitLog.GroupCommitService.
"""

from __future__ import annotations

import logging
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from logdex._core import Sends
    from logdex.rocketmq.server.exchange import Places
    from logdex.rocketmq.server.new_message import NewMessage

    Placed: TypeAlias = "Places | str | OSError | ValueError"
    """Where messages are; why no log takes one; or why the store takes nothing."""
    Answered: TypeAlias = "tuple[bytes, int] | OSError | ValueError"
    """The answers to plain sends, and how many are stored; or why the store takes nothing."""
    PutEach: TypeAlias = "Callable[[list[NewMessage | Sends]], list[Any]]"
    Waiting: TypeAlias = "tuple[NewMessage | Sends, int, int, Callable[[Any], None]]"
    """What is put, its messages and about its bytes, and what is called then."""

_log = logging.getLogger(__name__)

_MOST_TOGETHER = 4096
_MOST_BYTES_TOGETHER = 32 << 20
_MOST_WAITING_BYTES = 256 << 20
_BESIDE_BODY = 1024
"""About what a message takes beside its body."""


class PutService:
    """Stores messages. The thread of the event loop calls, and is told there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, put_each: PutEach) -> None:
        """Start the thread, which calls `put_each`."""
        self._loop = loop
        self._put_each = put_each
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._is_closed = False
        self.waiting = 0
        """Messages that are not stored yet."""
        self._thread = threading.Thread(target=self._run, name="logdex-put", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether so much waits that nothing more should be taken."""
        return self._is_closed or self._waiting_bytes > _MOST_WAITING_BYTES

    def put(self, message: NewMessage, then: Callable[[Placed], None]) -> None:
        """Store a message, and call `then` in the event loop."""
        self._put_soon((message, 1, len(message.body) + _BESIDE_BODY, then))

    def put_sends(self, sends: Sends, then: Callable[[Answered], None]) -> None:
        """Store plain sends, and call `then` in the event loop."""
        self._put_soon((sends, sends.count, len(sends), then))

    def _put_soon(self, waiting: Waiting) -> None:
        _, messages, size, _ = waiting
        self.waiting += messages
        self._waiting_bytes += size
        self._queue.put(waiting)

    def close(self) -> None:
        """Store what waits, and end the thread; it blocks until then."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = self._queue.get()
            together: list[Waiting] = []
            count = size = 0
            while taken is not None:
                together.append(taken)
                count += taken[1]
                size += taken[2]
                if count >= _MOST_TOGETHER or size >= _MOST_BYTES_TOGETHER:
                    break
                try:
                    taken = self._queue.get_nowait()
                except Empty:
                    break
            else:
                is_open = False
            if together:
                placed = self._put(count, [each[0] for each in together])
                self._loop.call_soon_threadsafe(self._tell, together, placed, count, size)

    def _put(self, count: int, together: list[NewMessage | Sends]) -> list[Any]:
        try:
            return self._put_each(together)
        except (OSError, ValueError) as error:
            _log.error("%d messages are not stored: %s", count, error)
            return [error] * len(together)
        except Exception as error:  # noqa: BLE001 -- logged
            # A fault of logdex, which must not end the thread.
            _log.exception("%d messages are not stored", count)
            return [ValueError(f"{type(error).__name__}: {error}")] * len(together)

    def _tell(self, together: list[Waiting], placed: list[Any], count: int, size: int) -> None:
        self.waiting -= count
        self._waiting_bytes -= size
        for (*_, then), result in zip(together, placed, strict=True):
            try:
                then(result)
            except Exception:  # noqa: BLE001 -- logged
                # A fault of logdex, which must not keep the others from their answers.
                _log.exception("the answer to a put")
