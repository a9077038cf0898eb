"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

from logdex import _core
from logdex._types import MAX_INT64
from logdex.cli.output import time_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    # The type in argparse has no public name.
    Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

_AGO = re.compile(r"-(\d{1,20}(?:\.\d{1,20})?)(ms|[smhdw])")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DATE = re.compile(r"(\d{4})(-?)(\d\d)\2(\d\d)")
_YEAR_1990_MS = 631_152_000_000
_LARGEST_INT = (1 << 31) - 1


def command(
    subparsers: Subparsers, name: str, summary: str, details: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command, with the option `--json`; `run` returns the exit code."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{details}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    parser.set_defaults(run=run)
    return parser


def add_source(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a path and the options to open it."""
    parser.add_argument(name, metavar=name.upper(), help=text)
    add_options(parser, *OPEN)


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that several commands have."""
    for name in names:
        parser.add_argument(name, **_OPTIONS[name])


def open_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of `OPEN`, for `MessageStore.open` and `open_source`."""
    return {name: getattr(arguments, name) for name in ("hash_slots", "max_entries", "commit_log")}


def count(text: str) -> int:
    """Parse a number that is not negative."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {text}")
    return number


def int32(text: str) -> int:
    """Parse a number that is not negative and fits in a Java int."""
    number = count(text)
    if number > _LARGEST_INT:
        raise argparse.ArgumentTypeError(f"must be at most {_LARGEST_INT}: {text}")
    return number


def word(text: str) -> str:
    """Parse a topic or a key as UTF-8, in any locale.

    Python passes bytes that the locale cannot decode as lone surrogates, which are not valid in a topic or a key.
    """
    try:
        return raw_bytes(text).decode()
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"is not valid UTF-8: {os.fsencode(text)!r}") from None


def raw_bytes(text: str) -> bytes:
    """Return an argument as bytes: UTF-8, or the original bytes if they are not UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)


def time_ms(text: str, *, end: bool = False) -> int:
    """Parse a time: epoch milliseconds, ISO 8601, or an age (`-2h`).

    ISO 8601 without a zone is UTC, as in the output. A date, also as `20261121`, is its first millisecond as a begin and its
    last as an end. Fractions of a millisecond are rounded into the range. A number before 1990 is refused: it is seconds, or a
    mistake, and as a begin it would select everything.
    """
    ago, date = _AGO.fullmatch(text), _DATE.fullmatch(text)
    if not date and (ago or re.fullmatch(r"[+-]?\d{1,30}", text)):
        number = time.time_ns() // 1_000_000 - round(float(ago[1]) * _UNIT_MS[ago[2]]) if ago else int(text)
        if abs(number) > MAX_INT64:
            raise argparse.ArgumentTypeError(f"a time must fit in a signed 64-bit integer of milliseconds: {text}")
        if number < _YEAR_1990_MS and not ago:
            readings = f"{time_text(number)} in milliseconds, {time_text(number * 1000)} in seconds"
            raise argparse.ArgumentTypeError(
                f"{text} is ambiguous: {readings}; expected milliseconds of 1990 or later, or ISO 8601"
            )
        return number
    try:
        moment = _moment("-".join(date.group(1, 3, 4)) if date else text, end=end)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        if end and date:
            moment += timedelta(days=1, milliseconds=-1)
        return _core.time_ms(moment, end=end)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"expected a time (epoch milliseconds, ISO 8601 such as 2026-11-21T19:30:00Z, or an age such as -2h): {text!r}"
        ) from None


def _moment(text: str, *, end: bool) -> datetime:
    """Parse ISO 8601, also in forms that Python 3.10 does not know: `Z`, any number of decimals, `+0800`."""
    parts = re.fullmatch(r"(.*?)(?:[.,](\d+))?([zZ]|[+-]\d\d:?\d\d)?", text)
    if parts is None:
        raise ValueError(text)
    base, decimals, zone = parts[1], parts[2] or "", parts[3] or ""
    if not zone.startswith(("+", "-")):
        zone = "+00:00" if zone else ""
    elif ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    micros = decimals[:6].ljust(6, "0") if decimals else ""
    moment = datetime.fromisoformat(f"{base}{'.' if micros else ''}{micros}{zone}")
    # Fractions of a microsecond are rounded into the range, too.
    return moment + timedelta(microseconds=1) if decimals[6:].strip("0") and not end else moment


GEOMETRY = ("--hash-slots", "--max-entries")
OPEN = (*GEOMETRY, "--commit-log")
TIMES = ("--begin", "--end")
FILTERS = ("--topic", "--queue", *TIMES, "--skip-damaged", "--limit")

_OPTIONS: dict[str, dict[str, Any]] = {
    "--hash-slots": {
        "type": int32,
        "metavar": "N",
        "help": "maxHashSlotNum, if it cannot be inferred from the index files",
    },
    "--max-entries": {"type": int32, "metavar": "N", "help": "maxIndexNum, likewise"},
    "--commit-log": {
        "metavar": "DIR",
        "help": "the log of a RocketMQ store, if it is elsewhere; several directories with commas between",
    },
    "--zone": {
        "metavar": "Z",
        "help": "time zone of the index files' names: the broker's (default: this machine's)",
    },
    "--topic": {"type": word, "metavar": "T", "help": "only this topic"},
    "--queue": {"type": int32, "metavar": "N", "help": "only this queue (partition) of the topic"},
    "--begin": {"type": time_ms, "metavar": "T", "help": "earliest store time"},
    "--end": {"type": partial(time_ms, end=True), "metavar": "T", "help": "latest store time, inclusive"},
    "--skip-damaged": {
        "action": "store_true",
        "help": "Kafka: skip damaged batches and report them; a RocketMQ log is always read to its end",
    },
    "--limit": {"type": count, "metavar": "N", "help": "at most N rows"},
    "--body": {"action": "store_true", "help": "print the bodies, too"},
}
