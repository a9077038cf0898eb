"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    # The type in argparse has no public name.
    Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

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
    """Parse a time: epoch milliseconds, ISO 8601, or an age (`-2h`)."""
    try:
        return _core.parse_time(text, now=time.time_ns() // 1_000_000, end=end)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
