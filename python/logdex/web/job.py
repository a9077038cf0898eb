"""Long work beside the pages: one thread with progress, which a reader may cancel."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._types import Progress

_Result = TypeVar("_Result")


class _CancelledError(Exception):
    """Ends the work at its next step."""


class Job(Generic[_Result]):
    """Runs one piece of work at a time, and keeps its last result.

    Attributes:
        result: What the last work that came to its end returned.
        error: Why the last work failed; else None.
        seconds: How long the work took, or has taken so far.
        finished_ms: When it came to its end.
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
        """Whether the work goes on."""
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
        """Wait for the end of the work; return whether it came."""
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
