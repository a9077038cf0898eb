"""The thread that does the work of a broker's services while messages are put."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex.rocketmq.write.parts import StoreParts

_PAUSE_SECONDS = 0.005


class ServiceThread:
    """Dispatches after puts; at intervals delivers scheduled messages, flushes queues, saves offsets and the checkpoint.

    The first error ends the thread and is kept in `error`.
    """

    def __init__(self, parts: StoreParts) -> None:
        """Start the thread."""
        self.error: BaseException | None = None
        self._dispatch = parts.dispatch
        # Seconds between two calls, and the call.
        self._timed: tuple[tuple[float, Callable[[], object]], ...] = (
            (0.1, parts.deliver_due),
            (1.0, parts.flush_queues),
            (10.0, parts.save_delay_offsets),
            (60.0, parts.write_checkpoint),
        )
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="logdex-store", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread dispatch."""
        # Reading the event is cheaper than setting it, and puts are many.
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """End the thread after its current call; a forked child has no thread."""
        if self._process != os.getpid():
            return
        self._stopped.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        due = [time.monotonic() + seconds for seconds, _ in self._timed]
        try:
            while not self._stopped.is_set():
                self._woken.wait(max(0.0, min(due) - time.monotonic()))
                if self._stopped.is_set():
                    return
                if self._woken.is_set():
                    self._woken.clear()
                    self._dispatch()
                    # Without a pause single puts would be dispatched one by one, and compete for the interpreter lock.
                    self._stopped.wait(_PAUSE_SECONDS)
                for place, (seconds, call) in enumerate(self._timed):
                    if time.monotonic() >= due[place] and not self._stopped.is_set():
                        call()
                        due[place] = time.monotonic() + seconds
        except BaseException as error:  # noqa: BLE001 -- raised in the thread of the caller
            self.error = error
