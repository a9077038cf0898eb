"""The check of a whole path in the background, with progress and findings."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from logdex.web.job import Job
from logdex.web.view import Listing, Query, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from logdex._types import Progress
    from logdex.report import Finding, Report
    from logdex.web.commands import Place

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
