"""Long work that pages do not wait for: jobs with progress that a reader can cancel, and results that requests share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._types import Progress

_Result = TypeVar("_Result")

_HOLDS = 10
"""Lifetime of a shared result as a multiple of its computing time, so that the work uses at most a tenth of a processor."""


class _CancelledError(Exception):
    """Ends the work at its next step."""


class Job(Generic[_Result]):
    """Runs one piece of work at a time, and keeps its last result.

    Attributes:
        result: The result of the last finished work.
        error: The error of the last work; None if it did not fail.
        seconds: How long the work took, or has taken so far.
        finished_ms: The time at which it finished, in ms.
    """

    def __init__(self, work: Callable[[Progress], _Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = False
        self._begun = 0.0
        self.done, self.total = 0, 0
        self.result: _Result | None = None
        self.error: str | None = None
        self.is_cancelled = False
        self.seconds = 0.0
        self.finished_ms: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether the work is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, unless it runs already."""
        with self._lock:
            if self.is_running:
                return
            self._stop = self.is_cancelled = False
            self.error, self.done, self.total = None, 0, 0
            self._begun = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="logdex-job", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """End the work at its next step."""
        self._stop = True

    def wait(self, seconds: float) -> bool:
        """Wait until the work ends; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_running

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.seconds = time.monotonic() - self._begun
        if self._stop:
            raise _CancelledError

    def _run(self) -> None:
        try:
            self.result = self._work(self._progress)
            self.finished_ms = time.time_ns() // 1_000_000
        except _CancelledError:
            self.is_cancelled = True
        except Exception as error:  # noqa: BLE001 -- shown on the page
            self.error = f"{type(error).__name__}: {error}"
        self.seconds = time.monotonic() - self._begun


class Shared(Generic[_Result]):
    """Result that all requests share. One thread at a time computes it, and each request limits its waiting time."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._running: Future[_Result] | None = None
        self._last: _Result | None = None
        self._holds_until = 0.0

    def get(self, seconds: float) -> _Result | None:
        """Return the result. After some seconds, return the previous result; None: there is none yet.

        Raises:
            Exception: The work failed.
        """
        with self._lock:
            if self._running is None:
                if self._last is not None and time.monotonic() < self._holds_until:
                    return self._last
                self._running = Future()
                arguments = (self._running,)
                threading.Thread(target=self._run, args=arguments, name="logdex-shared", daemon=True).start()
            running = self._running
        try:
            return running.result(seconds)
        except FutureTimeoutError:
            # The work may raise a timeout error of the operating system itself.
            if running.done():
                return running.result()
            return self._last

    def _run(self, running: Future[_Result]) -> None:
        begun = time.monotonic()
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 -- the requests that wait raise it
            with self._lock:
                self._running = None
            running.set_exception(error)
            return
        with self._lock:
            self._last, self._running = result, None
            self._holds_until = begun + (1 + _HOLDS) * (time.monotonic() - begun)
        running.set_result(result)
