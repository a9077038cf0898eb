"""The thread that does beside the puts what a broker's services do."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logdex.rocketmq.write.parts import StoreParts

_PAUSE_SECONDS = 0.005
_DELIVER_SECONDS = 0.1
_FLUSH_QUEUES_SECONDS = 1.0
_DELAY_OFFSETS_SECONDS = 10.0
_CHECKPOINT_SECONDS = 60.0


class ServiceThread:
    """Calls one function whenever it is woken, and others again and again after so many seconds each.

    The first error ends it and is kept: `error`.
    """

    def __init__(self, work: Callable[[], object], timed: Sequence[tuple[float, Callable[[], object]]]) -> None:
        """Start the thread.

        Args:
            work: What is called when it was woken, however often that was.
            timed: Seconds between two calls, and what is called.
        """
        self.error: BaseException | None = None
        self._work = work
        self._timed = timed
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="logdex-store", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let it work."""
        # To ask is cheaper than to set, and puts are many.
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """End the thread, after what it does now; in a forked child there is none."""
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
                    self._work()
                    # Puts one by one would each be worked at alone, and wait for the interpreter in between.
                    self._stopped.wait(_PAUSE_SECONDS)
                for place, (seconds, call) in enumerate(self._timed):
                    if time.monotonic() >= due[place] and not self._stopped.is_set():
                        call()
                        due[place] = time.monotonic() + seconds
        except BaseException as error:  # noqa: BLE001 -- raised where somebody sees it
            self.error = error


def store_services(parts: StoreParts) -> ServiceThread:
    """Start the services of a store: dispatch after puts; now and then deliver, flush queues, write offsets and checkpoint."""
    return ServiceThread(
        parts.dispatch,
        [
            (_DELIVER_SECONDS, parts.deliver_due),
            (_FLUSH_QUEUES_SECONDS, parts.flush_queues),
            (_DELAY_OFFSETS_SECONDS, parts.save_delay_offsets),
            (_CHECKPOINT_SECONDS, parts.write_checkpoint),
        ],
    )
