"""Long work that pages do not wait for: jobs with progress, the check of a whole path, and results that requests share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from logdex.browse.view import Listing, Query, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from logdex._types import Progress
    from logdex.browse.view import Place
    from logdex.report import Finding, Report


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
        """True if the work is running."""
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


_HEADS = ("path", "offset", "kind", "expected", "found")


@dataclass(frozen=True, slots=True)
class CheckPages:
    """Pages about the check of a store or log directory; `python` is the call."""

    place: Place
    job: Job[Report]
    python: str

    @classmethod
    def of(cls, place: Place, work: Callable[[Progress], Report], python: str) -> CheckPages:
        """Return the pages about some work, which has not begun."""
        return cls(place, Job(work), python)

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""
        return {"/verify": self.verify, "/verify/progress": self.progress}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return what changes the state of the check, by address."""
        return {"/verify/start": self._start, "/verify/cancel": self._cancel}

    def _start(self) -> str:
        self.job.start()
        return "/verify"

    def _cancel(self) -> str:
        self.job.cancel()
        self.job.wait(2.0)
        return "/verify"

    def verify(self, query: Query) -> View:
        """Show the state of the check and its findings."""
        kind, first, most = query.text("kind"), query.number("from") or 0, query.rows()
        findings = self._findings(kind)
        shown = findings[first : first + most]
        values = {
            "job": self.job,
            "report": self.job.result,
            "kind": kind,
            "first": first,
            "count": len(findings),
            "findings": shown,
            "next": first + most if first + most < len(findings) else None,
            "kept": query.given("kind", "rows"),
        }
        rows = Listing(_HEADS, [astuple(finding) for finding in shown])
        return View("verify.html", "Check", values, rows, self.place.command("verify"), self.python)

    def progress(self, query: Query) -> View:
        """Show only the state of the check, for a page that polls it."""
        return View(
            "progress.html", "Check", {"job": self.job, "report": self.job.result, "was_running": query.text("was")}
        )

    def _findings(self, kind: str | None) -> list[Finding]:
        report = self.job.result
        return [] if report is None else [each for each in report.findings if kind in (None, each.kind)]
