"""How far a command has come: rate and time left, on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from logdex.cli.output import size_text

if TYPE_CHECKING:
    from types import TracebackType

_SECONDS_BETWEEN = 0.2
_MINUTE = 60
_HOUR = 3600
_USUAL_COLUMNS = 80


class Progress:
    """Shows one line on the standard error stream and takes it away at the end; silent where that is no terminal.

    Call it with what is done and what there is in all, in bytes.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun = time.monotonic()
        # Nothing is shown of what ends at once.
        self._shown = self._begun
        self._width = 0
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how far it is, no more often than the eye sees."""
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        self._write(progress_line(self._what, done, total, now - self._begun))

    def _write(self, line: str) -> None:
        # A line that the terminal breaks could not be taken away.
        line = line[: _columns() - 1]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()


def _columns() -> int:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return columns or _USUAL_COLUMNS


def progress_line(what: str, done: int, total: int | None, seconds: float) -> str:
    """Say what is done of what, how fast, and how long it will still take."""
    rate = done / seconds if seconds > 0 else 0.0
    line = f"{what}: {size_text(done)}"
    if total:
        line += f" of {size_text(total)} ({min(1.0, done / total):.0%})"
    line += f", {size_text(rate)}/s"
    if total and rate > 0:
        line += f", {duration_text(max(0, total - done) / rate)} left"
    return line


def duration_text(seconds: float) -> str:
    """Write a duration for people."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
