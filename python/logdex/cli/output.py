"""What the commands print: tables for people, one JSON object a line for programs; complaints go to the other stream."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from logdex.report import Report

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNIT = 1024


def say(text: str = "") -> None:
    """Print a line for people."""
    sys.stdout.write(f"{text}\n")


def say_json(row: Any) -> None:  # noqa: ANN401 -- what JSON holds
    """Print one object on one line, in ASCII."""
    sys.stdout.write(json.dumps(row, default=_plain) + "\n")


def say_report(report: Report, *, json: bool) -> int:
    """Print a report; give the exit code that says whether it has findings."""
    if json:
        for finding in report.findings:
            say_json(dataclasses.asdict(finding))
        say_json(
            {"ok": report.ok, "findings": len(report.findings), "checked": report.checked, "absent": report.absent}
        )
    else:
        for line in str(report).splitlines():
            say(printable(line))
    return 0 if report.ok else 1


def complain(text: str) -> None:
    """Tell people about an error; if they cannot be told, the exit code still says it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"logdex: {printable(text)}\n")


def table(rows: Iterable[Sequence[object]], heads: Sequence[str] = (), *, indent: str = "") -> None:
    """Print rows in columns; numbers stand to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [*([list(heads)] if heads else []), *cells]
    if not lines:
        return
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    right = [bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(widths))]
    for line in lines:
        parts = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        )
        say((indent + "  ".join(parts)).rstrip())


def facts(pairs: Iterable[tuple[str, object]], *, indent: str = "") -> None:
    """Print names with their values, those that are None left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{indent}{name.ljust(width)}  {value}")


def printable(text: str) -> str:
    """Write what a terminal would act upon as escapes: keys and bodies come from anybody."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def time_text(time_ms: int | None) -> str | None:
    """Write a time in ms as ISO 8601 in UTC; what no calendar holds stays a number."""
    if time_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(time_ms)


def size_text(size: float) -> str:
    """Write a number of bytes for people."""
    value = float(size)
    unit = 0
    while value >= _UNIT and unit + 1 < len(_UNITS):
        value /= _UNIT
        unit += 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} bytes"


def body_text(body: bytes | None) -> str | None:
    """Give a body as text where it is text, else None."""
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


def json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """Give bytes as text under their name; where they are no text, null, and base64 under another name."""
    text = body_text(value)
    if text is None and value is not None:
        return {name: None, f"{name}_base64": base64.b64encode(value).decode("ascii")}
    return {name: text}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").removeprefix("-").isdecimal()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)
