"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, get_args

from logdex import _core
from logdex._types import MAX_INT32, Isolation
from logdex.cli.output import display
from logdex.hash_index.query import Milliseconds
from logdex.report import near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any, TypeAlias

    # The type in argparse has no public name.
    Subparsers: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001

_ARCHIVES = {
    (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"): "tar -xf",
    (".zip",): "unzip",
    (".7z",): "7z x",
    (".gz",): "gunzip -k",
    (".zst",): "unzstd",
    (".xz",): "unxz -k",
}
_PLACES = {"path", "paths", "index", "commit_log", "sealed", "tiered", "out", "to"}
"""Arguments that may be URLs."""
_OPEN_OPTIONS = ("hash_slots", "max_entries", "commit_log", "sealed", "tiered")
_LARGEST_PORT = (1 << 16) - 1
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line, or a group of commands.

    Attributes:
        name: The name, as the user types it.
        summary: What the command does, in one line.
        details: The rest of the help: explanation and examples.
        add_arguments: Adds the arguments to a parser; None for a group.
        run: Runs the command with parsed arguments and returns the exit code: 0 found or valid, 1 nothing found or faults
            found, 2 wrong use or unreadable.
        commands: The commands of a group.
    """

    name: str
    summary: str
    details: str
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    run: Callable[[argparse.Namespace], int] | None = None
    commands: tuple[Command, ...] = ()

    def add_to(self, subparsers: Subparsers) -> None:
        """Add the parser of this command, with the option `--json`."""
        opening = "" if self.commands else f"{self.summary[0].upper()}{self.summary[1:]}.\n\n"
        parser = subparsers.add_parser(
            self.name,
            help=self.summary,
            description=opening + self.details,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if self.add_arguments is None:
            below = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            for each in self.commands:
                each.add_to(below)
            return
        parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
        self.add_arguments(parser)
        parser.set_defaults(run=self.run, parser=parser)


def _storage_option(text: str) -> tuple[str, str]:
    """Parse an option of an object store. The value may be a secret, so an error does not repeat it."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return name, value


def _format(text: str) -> tuple[str, str]:
    """Parse a column and its format."""
    column, equals, name = text.partition("=")
    if not column or not equals:
        raise argparse.ArgumentTypeError("expected COLUMN=FORMAT, such as body=json")
    return column, name


def locate_urls(arguments: argparse.Namespace) -> None:
    """Apply the options of `--storage` to each URL among the path arguments."""
    if not getattr(arguments, "storage", None):
        return
    for name in _PLACES & vars(arguments).keys():
        value = getattr(arguments, name)
        located = (
            [_located(each, arguments) for each in value] if isinstance(value, list) else _located(value, arguments)
        )
        setattr(arguments, name, located)


def _located(place: Any, arguments: argparse.Namespace) -> Any:  # noqa: ANN401 -- a text, a path, or None
    if not isinstance(place, str) or "://" not in place or place.startswith("file:"):
        return place
    options = dict(arguments.storage)
    return _core.locate_all(place, options)


def _tiered_key(text: str) -> tuple[str, str]:
    """Parse the file of a private key, with the name of its key pair before it."""
    name, equals, file = text.partition("=")
    return (name, file) if equals and "/" not in name else ("", text)


def refuse_archive(arguments: argparse.Namespace) -> None:
    """Raise `ValueError` with the command that unpacks it, if the path to read is an archive."""
    path = str(getattr(arguments, "path", ""))
    unpack = next((command for suffixes, command in _ARCHIVES.items() if path.lower().endswith(suffixes)), None)
    if unpack is not None and os.path.isfile(path):  # noqa: PTH113 -- any text may be a URL
        raise ValueError(
            f"{path}: expected a directory, found an archive; unpack it first: {unpack} {shlex.quote(path)}"
        )


def add_source(parser: argparse.ArgumentParser, text: str, *, metavar: str = "PATH") -> None:
    """Add a path that may be a URL, and the options of its object store."""
    parser.add_argument("path", metavar=metavar, help=text)
    add_options(parser, "--storage")


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that several commands have."""
    for name in names:
        parser.add_argument(name, *_ALIASES.get(name, ()), **_OPTIONS[name])


def open_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `logdex.open` that were given."""
    given = {name: getattr(arguments, name, None) for name in _OPEN_OPTIONS}
    given["tiered_keys"] = dict(getattr(arguments, "tiered_key", ())) or None
    return {name: value for name, value in given.items() if value is not None}


def count(text: str) -> int:
    """Parse a number that is not negative."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {text}")
    return number


def int32(text: str) -> int:
    """Parse a number that is not negative and fits in a Java int."""
    number = count(text)
    if number > MAX_INT32:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_INT32}: {text}")
    return number


def port(text: str) -> int:
    """Parse the number of a TCP port."""
    number = count(text)
    if number > _LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"must be at most {_LARGEST_PORT}: {text}")
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


def _pattern(text: str) -> _core.Pattern:
    """Parse a regular expression that is searched in bodies."""
    try:
        return _core.Pattern(pattern_text(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pattern_text(text: str) -> str | bytes:
    """Return a pattern as text; as bytes if it is not valid UTF-8."""
    raw = raw_bytes(text)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A time before that of the last message."""

    age_ms: int


def time_ms(text: str, *, end: bool = False) -> int | BeforeEnd:
    """Parse a time: see `_core.parse_time`; or an age at the last message (`end-2h`). It is in the zone of the display."""
    try:
        if text == "end" or text.startswith("end-"):
            return BeforeEnd(-_core.parse_time(text[3:] or "-0s", now=0, end=end))
        now = time.time_ns() // 1_000_000
        return Milliseconds(_core.parse_time(text, now=now, end=end, zone=display.zone))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def time_zone(text: str) -> Callable[[int], int] | None:
    """Parse a time zone: `UTC`, `local`, or an IANA name. Return the function for `Display.zone`."""
    if text.upper() == "UTC":
        return None
    if text.lower() == "local":
        return lambda time_s: time.localtime(time_s).tm_gmtoff
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # noqa: PLC0415 -- few runs need it

    try:
        zone = ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = near_names(text, available_timezones())
        raise argparse.ArgumentTypeError(f"expected local, UTC or the name of a zone: {text!r}; {known}") from None

    def offset_at(time_s: int) -> int:
        offset = datetime.fromtimestamp(time_s, zone).utcoffset()
        # ISO 8601 has no seconds in an offset, which old local mean times have.
        return 0 if offset is None else offset // _MINUTE * 60

    return offset_at


def zone_name(text: str) -> str:
    """Parse a time zone as `time_zone` does, and return its name."""
    time_zone(text)
    return text


def column_names(text: str) -> list[str]:
    """Parse names of columns with commas between."""
    return [name for each in text.split(",") if (name := each.strip())]


def row_format(text: str) -> str:
    """Check the letters and escapes of a format; see `_core.format_columns`."""
    try:
        _core.format_columns(text, [])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def chosen_columns(arguments: argparse.Namespace, known: Sequence[str], hidden: Collection[str] = ()) -> list[str]:
    """Return the columns to read: those of `--format` or `--columns`, or else all but the hidden ones.

    Raises:
        ValueError: There is no such column; with near spellings.
    """
    wanted = getattr(arguments, "columns", None)
    if (text := getattr(arguments, "format", None)) is not None:
        wanted = _core.format_columns(text, known)
    if wanted is None:
        return [name for name in known if name not in hidden]
    for name in wanted:
        if name not in known:
            raise ValueError(f"no column {name!r} here; {near_names(name, known)}")
    # Without a column, the rows could not be counted.
    return wanted or list(known[:1])


def settle_times(arguments: argparse.Namespace, times: Callable[[], Sequence[int]]) -> None:
    """Replace times before the end by times; `times` returns those of messages in ms, the last one among them."""
    for name in ("begin", "end", "as_of"):
        value = getattr(arguments, name, None)
        if isinstance(value, BeforeEnd):
            setattr(arguments, name, Milliseconds(max(times(), default=0) - value.age_ms))


ANY_PATH = "a store, a commit log, an index directory or file; a Kafka log directory, or a part of it"
STORE_OR_LOG = "a store, or its commit log; a Kafka log directory, a partition, a segment"
SEARCHED = "the broker's store directory, or a copy of it; or a Kafka log directory, or a partition"
STORE = "the store, or its commit log"
TARGET = "where to write; created if it is missing"
WHOLE = "a store, or a Kafka log directory"

GEOMETRY = ("--hash-slots", "--max-entries")
OPEN_STORE = (*GEOMETRY, "--commit-log")
"""Options to open a RocketMQ store."""
TIERED = ("--tiered", "--tiered-key")
OPEN = (*OPEN_STORE, *TIERED)
"""Options to open a source of either broker."""
TIMES = ("--begin", "--end", "--tz")
FILTERS = ("--topic", "--queue", *TIMES, "--offset", "--key", "--tag", "--isolation", "--skip-damaged", "--limit")

_ALIASES = {"--topic": ("-t",), "--queue": ("--partition", "-p"), "--limit": ("-n",)}
"""Other names of options, as those of Kafka's tools."""
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
    "--tiered": {
        "metavar": "URL",
        "help": "Kafka: where the broker's plugin for remote storage keeps segments, to be read as one log with those here",
    },
    "--tiered-key": {
        "action": "append",
        "default": [],
        "type": _tiered_key,
        "metavar": "[NAME=]FILE",
        "help": "the private key, in PEM, of segments that are encrypted; of the key pair NAME, or of all",
    },
    "--storage": {
        "action": "append",
        "default": [],
        "type": _storage_option,
        "metavar": "KEY=VALUE",
        "help": "an option of the object store that a URL names, such as aws_region=eu-west-1",
    },
    "--sealed": {
        "metavar": "DIR_OR_URL",
        "help": "the sealed index that `logdex seal --out` wrote, or never (default: that at the path, if there is one)",
    },
    "--zone": {
        "metavar": "Z",
        "help": "time zone of the index files' names: the broker's (default: this machine's)",
    },
    "--topic": {"action": "append", "type": word, "metavar": "T", "help": "only this topic; may be repeated"},
    "--queue": {"type": int32, "metavar": "N", "help": "only this queue (partition) of the topic"},
    "--begin": {"type": time_ms, "metavar": "T", "help": "earliest store time"},
    "--end": {"type": partial(time_ms, end=True), "metavar": "T", "help": "latest store time, inclusive"},
    "--tz": {
        "type": time_zone,
        "metavar": "ZONE",
        "help": "time zone of printed times, and of times without one: local, UTC (the default) or a name such as Asia/Shanghai",
    },
    "--wide": {"action": "store_true", "help": "do not fit tables and lines to the terminal"},
    "--columns": {"type": column_names, "metavar": "A,B", "help": "only these columns, in this order"},
    "--offset": {
        "type": count,
        "metavar": "N",
        "help": "begin at this offset: of the partition; of the queue, with a topic and a queue; else of the commit log",
    },
    "--key": {"action": "append", "type": word, "metavar": "K", "help": "only with this key; may be repeated"},
    "--tag": {
        "action": "append",
        "type": word,
        "metavar": "T",
        "help": "RocketMQ: only with this tag; may be repeated",
    },
    "--index": {
        "metavar": "DIR",
        "help": "Kafka: the directory that build-index wrote; without it the topic is scanned",
    },
    "--header": {"type": word, "metavar": "NAME", "help": "Kafka: compare the values of the header of this name"},
    "--isolation": {
        "choices": get_args(Isolation),
        "help": "Kafka: whether to leave out records of aborted and open transactions (default: read_uncommitted)",
    },
    "--skip-damaged": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "continue after damage and report it (the default); for Kafka, --no-skip-damaged stops there",
    },
    "--decode": {
        "action": "append",
        "default": [],
        "type": _format,
        "metavar": "COLUMN=FORMAT",
        "help": "decode bodies (RocketMQ: body, Kafka: value, key): text, json, msgpack, avro:FILE.avsc, "
        "protobuf:FILE.desc:MESSAGE; for Confluent's framing a directory with NUMBER.avsc or NUMBER.desc, or the URL of a "
        "registry",
    },
    "--grep": {
        "dest": "matches",
        "type": _pattern,
        "metavar": "REGEX",
        "help": "only with a match of this regular expression in the body as it is stored; `logdex grep --help` has more",
    },
    "--where": {
        "metavar": "EXPR",
        "help": "only where this condition of SQL holds, on columns and fields of decoded bodies; see `logdex sql --help`",
    },
    "--limit": {"type": count, "metavar": "N", "help": "at most N rows"},
    "--body": {"action": "store_true", "help": "print the bodies, too"},
}
