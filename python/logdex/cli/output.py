"""Output of the commands: tables for people, one JSON object per line for programs, progress on a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import stat
import sys
import textwrap
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from logdex import _core
from logdex._core import format_rows, json_lines, match_json_lines, match_text_lines, text_lines, without_secrets
from logdex.errors import printable
from logdex.report import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from arro3.core import RecordBatch

    from logdex._core import Pattern
    from logdex.report import Finding, Report

_SECONDS_BETWEEN = 0.2
_MINUTE = 60
_HOUR = 3600
_USUAL_COLUMNS = 80
_INDENT = 4
_LEAST_NAME = 24
"""The characters of a cell of a table that are not shortened: those of a time."""
SHOWN_FAULTS = 20
BOLD = "1"
RED = "1;31"
_ARGUMENTS = re.compile(r"(?<![\w/.-])(hash_slots|max_entries|file_size|commit_log)(=?)(?![\w/.-])")


@dataclasses.dataclass(slots=True)
class Display:
    """The options of the output of this run.

    Attributes:
        zone: Returns the offset of the time zone from UTC in seconds, at a time in seconds; None: UTC.
        wide: Tables are not fitted to the terminal.
    """

    zone: Callable[[int], int] | None = None
    wide: bool = False


display = Display()


def time_text(time_ms: int | None) -> str | None:
    """Return a time in ms as ISO 8601 in the zone of the display."""
    return _core.time_text(time_ms, zone=display.zone)


def say(text: str = "", *, style: str | None = None) -> None:
    """Print a line for people. Line breaks in the text are escaped. A terminal gets it in lines that fit, broken at spaces."""
    lines = _wrapped(text, sys.stdout)
    sys.stdout.writelines(f"{styled(line, style, sys.stdout) if style else line}\n" for line in lines)


def _wrapped(text: str, stream: TextIO) -> list[str]:
    text, width = printable(text), _width(stream)
    if len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + _INDENT)
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def say_text(lines: object) -> None:
    """Print each line of an object's text as `say` does."""
    for line in _lines(lines):
        say(line)


def say_lines(lines: object) -> None:
    """Print each line of an object's text in full: rows, which are copied from a terminal."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(lines))


def _lines(lines: object) -> list[str]:
    return str(lines).removesuffix("\n").split("\n")


def say_json(row: dict[str, Any]) -> None:
    """Print one object on one line, in ASCII."""
    # The only control character that json.dumps does not escape.
    say(json.dumps(row, default=str).replace("\x7f", "\\u007f"))


def limited_batches(stream: Iterator[RecordBatch], limit: int | None) -> Iterator[RecordBatch]:
    """Iterate over the batches of a stream that have rows, with at most `limit` rows in all."""
    left = sys.maxsize if limit is None else limit
    while left and (batch := next(stream, None)) is not None:
        part = batch.slice(0, min(left, batch.num_rows))
        left -= part.num_rows
        if part.num_rows:
            yield part


def say_rows(
    batches: Iterable[RecordBatch], *, as_json: bool, labelled: bool = False, row_format: str | None = None
) -> int:
    """Print rows and return their number: as JSON lines, with times in ms; in a format; or as lines for people.

    With `labelled` a line for people has the columns of the batch with their names.
    """
    rows = 0
    for batch in batches:
        if as_json:
            json_lines(batch, lambda piece: sys.stdout.write(piece.decode()))
        elif row_format is not None:
            _say_formatted(batch, row_format)
        else:
            text_lines(batch, say_lines, labelled=labelled, zone=display.zone)
        rows += batch.num_rows
    return rows


def _say_formatted(batch: RecordBatch, row_format: str) -> None:
    """Print rows in a format: their bytes as they are, but to a terminal only what it does not obey."""
    if sys.stdout.isatty():
        format_rows(batch, row_format, lambda piece: say_lines(piece.decode(errors="replace")), zone=display.zone)
        return
    sys.stdout.flush()
    format_rows(batch, row_format, sys.stdout.buffer.write, zone=display.zone)
    sys.stdout.buffer.flush()


def say_matches(
    batches: Iterable[RecordBatch], matches: Pattern, *, path: str | None, as_json: bool, bodies: bool, only: bool
) -> int:
    """Print rows with the matches of a pattern; return the number of rows.

    As JSON lines they have the positions of all matches. For people they are lines with the first matches, in colour on a
    terminal; with `only` the matches alone. Each row names its `path` if that is given.
    """
    rows = 0
    before, _, after = styled("|", RED, sys.stdout).partition("|")
    prefix = "" if path is None else f"{printable(path)}: "
    for batch in batches:
        if as_json:
            match_json_lines(
                batch, matches, path=path, bodies=bodies, write=lambda piece: sys.stdout.write(piece.decode())
            )
        else:
            match_text_lines(
                batch,
                matches,
                prefix=prefix,
                marks=(before, after),
                bodies=bodies,
                only=only,
                write=sys.stdout.write,
                zone=display.zone,
            )
        rows += batch.num_rows
    return rows


def say_report(
    report: Report, *, json: bool, limit: int = SHOWN_FAULTS, more: Mapping[str, object] | None = None
) -> int:
    """Print a report; return the exit code: 1 if it has findings.

    For people, the findings of one kind in one file are one line with the position of the first; at most `limit` lines. `more` is
    further content of the last JSON line.
    """
    if json:
        for finding in report.findings:
            say_json(finding_row(finding))
        counts = {"findings": len(report.findings), "checked": report.checked, "absent": report.absent}
        say_json({"ok": report.ok, **counts, **(more or {})})
    elif report.ok:
        say_text(report)
    else:
        _say_findings(report, limit)
    return 0 if report.ok else 1


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    return {**dataclasses.asdict(finding), "severity": finding.severity}


def _say_findings(report: Report, limit: int) -> None:
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((str(finding.path), finding.kind), []).append(finding)
    say_text(report.heading)
    for (path, kind), found in islice(groups.items(), limit):
        first, number = found[0], f"{len(found):,} times, first at byte" if len(found) > 1 else "at byte"
        say()
        place = _fitting(printable(f"{kind}  {path}, {number} {first.offset:,}"))
        sys.stdout.write(f"{styled(kind, RED, sys.stdout)}{place.removeprefix(kind)}\n")
        say(_fitting(f"  expected {first.expected}, found {first.found}"))
    if len(groups) > limit:
        say()
        say(
            f"and {len(groups) - limit:,} more kinds of faults in files; --limit {len(groups)} shows all, --json each one"
        )


def _fitting(text: str) -> str:
    """Return a line that fits the terminal; a pipe gets the whole line."""
    width = _width(sys.stdout)
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def say_built(report: Report, directory: str, *, as_json: bool) -> int:
    """Print what was written, and the findings on standard error; return the exit code."""
    if as_json:
        return say_report(report, json=True)
    say(f"{directory}: {counts_text(report.checked)}")
    for finding in report.findings:
        complain(f"{finding.kind} in {finding}")
    return 0 if report.ok else 1


def counts_text(checked: dict[str, int]) -> str:
    """Return the counts of a report in one line."""
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in checked.items())


def complain(text: str) -> None:
    """Print an error on standard error. If that fails, the exit code still reports the error."""
    # One pipe may have both: what was printed before comes first.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        first, *more = _wrapped(f"logdex: {in_flags(without_secrets(text))}", sys.stderr)
        name = styled("logdex:", RED, sys.stderr)
        sys.stderr.writelines(f"{line}\n" for line in (name + first.removeprefix("logdex:"), *more))


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return a text in a style for a terminal; as it is for others, and if `NO_COLOR` is set (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def in_flags(text: str) -> str:
    """Return a message of the Python interface with the flags of the command line for the arguments that it names."""
    text = text.replace("find(..., scan=True)", "`logdex find --scan all`").replace("truncate=True", "--truncate")
    return _ARGUMENTS.sub(lambda found: f"--{found[1].replace('_', '-')}{' ' if found[2] else ''}", text)


def table(rows: Iterable[Sequence[object]], heads: Sequence[str] = (), *, indent: str = "") -> None:
    """Print rows in columns; numbers are right-aligned.

    On a terminal that is too narrow, long cells are shortened in the middle, and what still does not fit is in a further line of
    each row. A pipe gets whole cells in one line.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [*([list(heads)] if heads else []), *cells]
    if not lines:
        return
    right = [bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(lines[0]))]
    width = _width(sys.stdout) - len(indent)
    widths = _fitted([max(len(line[at]) for line in lines) for at in range(len(right))], width)
    parts = _parts(widths, width)
    for number, line in enumerate(lines):
        for before, part in enumerate(parts):
            texts = (_shortened(line[at], widths[at]) for at in part)
            padded = (
                text.rjust(widths[at]) if right[at] else text.ljust(widths[at])
                for text, at in zip(texts, part, strict=True)
            )
            text = printable((indent + " " * (_INDENT if before else 0) + "  ".join(padded)).rstrip())
            sys.stdout.write(f"{styled(text, BOLD, sys.stdout) if heads and not number else text}\n")


def _fitted(widths: list[int], width: int) -> list[int]:
    """Return widths of columns that fit together, if shorter cells can do that."""
    widths = list(widths)
    while (over := sum(widths) + 2 * (len(widths) - 1) - width) > 0 and (widest := max(widths)) > _LEAST_NAME:
        widths[widths.index(widest)] = max(_LEAST_NAME, widest - over)
    return widths


def _parts(widths: Sequence[int], width: int) -> list[list[int]]:
    """Divide columns into the lines of a row."""
    parts: list[list[int]] = [[]]
    used = 0
    for at, each in enumerate(widths):
        if parts[-1] and used + 2 + each > width:
            parts.append([])
        used = used + 2 + each if parts[-1] else each + (_INDENT if len(parts) > 1 else 0)
        parts[-1].append(at)
    return parts


def _shortened(text: str, width: int) -> str:
    """Return a text without its middle if it is longer than a width."""
    if len(text) <= width:
        return text
    begin = (width - 2) // 2
    return f"{text[:begin]}...{text[len(text) - (width - 3 - begin) :]}"


def say_facts(pairs: Iterable[tuple[str, object]], *, indent: str = "") -> None:
    """Print names with their values, without those that are None."""
    shown = [(name, _cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{indent}{name.ljust(width)}  {value}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").removeprefix("-").isdecimal()


class Progress:
    """One line on standard error with bytes done, rate and time left; silent if that is not a terminal, or in a pipe.

    Call it with the bytes done and the bytes in all. It is removed at the end of the `with` block.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = 0
        self._begun = time.monotonic()
        # The first line is delayed, so that a short command prints none.
        self._shown = self._begun
        self._width = 0
        # A pager shows the rows of a pipe on the same terminal.
        self._is_terminal = sys.stderr.isatty() and not _is_pipe(sys.stdout)

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show the progress, at most five times a second."""
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        self._write(progress_line(self._what, done, total, now - self._begun))

    def add(self, read: int, total: int | None = None) -> None:
        """Show the progress after `read` more bytes."""
        self._done += read
        self(self._done, total)

    def _write(self, line: str) -> None:
        # A wrapped line could not be removed.
        line = printable(line)[: _columns(sys.stderr) - 1]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def hide(self) -> None:
        """Remove the line, before rows are printed on the same terminal."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def hide_for(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield batches that are printed, each without the line."""
        for batch in batches:
            self.hide()
            yield batch

    def end(self) -> None:
        """Remove the line, and show none from now on."""
        self.hide()
        self._is_terminal = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *args: object) -> None:
        self.end()


def _is_pipe(stream: TextIO) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except OSError:
        return False


def _width(stream: TextIO) -> int:
    """Return how many characters a line of a stream holds."""
    return _columns(stream) if stream.isatty() and not display.wide else sys.maxsize


def _columns(stream: TextIO) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return columns or _USUAL_COLUMNS


def progress_line(what: str, done: int, total: int | None, seconds: float) -> str:
    """Return the text of a progress line."""
    rate = done / seconds if seconds > 0 else 0.0
    line = f"{what}: {size_text(done)}"
    if total:
        line += f" of {size_text(total)} ({min(1.0, done / total):.0%})"
    line += f", {size_text(rate)}/s"
    if total and rate > 0:
        line += f", {duration_text(max(0, total - done) / rate)} left"
    return line


def duration_text(seconds: float) -> str:
    """Return a duration in words."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def words(name: str) -> str:
    """Return the name of a fact or column as words. The unit is printed with the value."""
    return name.removesuffix("_bytes").replace("_timestamp", "").replace("_", " ")


def shown(name: str, value: Any) -> Any:  # noqa: ANN401 -- facts of every type
    """Return a value as it is printed for people: times as ISO 8601, sizes with a unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_timestamp") and isinstance(value, int):
        return time_text(value)
    return size_text(value) if name.endswith("_bytes") and value is not None else value
