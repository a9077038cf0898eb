"""Options of the data sources, which Spark passes as text with lower-cased names.

Each function returns None if its option is not set, unless it has a default, and raises ValueError if the value is invalid.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from logdex._core import Pattern, join_directories, locate, parse_time
from logdex._types import MAX_INT64, MIN_INT64, Access, Compat, check_int64
from logdex.hash_index.query import time_bound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_Item = TypeVar("_Item")

_RELATIVE = re.compile(r"-\d+[smhdw]|now|today|yesterday")
"""Times that count from the moment at which they are read."""
STORAGE = "storage."
"""Options of this prefix are those of the store of a URL."""


MATCHES_OPTIONS = (
    "matches",
    "matchesIn",
    "matchesLiteral",
    "matchesIgnoreCase",
    "matchesWord",
    "matchesInvert",
)
"""A pattern that is searched in bodies or values, its fields, and its flags."""


def check_names(
    options: Mapping[str, str], known: tuple[str, ...], what: str, ignored_prefixes: tuple[str, ...] = ()
) -> None:
    """Raise ValueError for an unknown option: a mistyped filter must not read everything.

    Names that begin with one of `ignored_prefixes`, in lower case, are ignored: they mean nothing here.
    """
    known = ("path", "paths", *known)
    lowered = {name.lower() for name in known}
    unknown = sorted(
        name
        for name in options
        if name.lower() not in lowered and not name.lower().startswith((STORAGE, *ignored_prefixes))
    )
    if unknown:
        raise ValueError(f"format {what} has no option {', '.join(unknown)}; it has {', '.join(known)}, {STORAGE}*")


def storage(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the store of a URL: those that begin with `storage.`, without it."""
    given = {name.lower(): value for name, value in options.items()}
    return {name.removeprefix(STORAGE): value for name, value in given.items() if name.startswith(STORAGE)}


def path(options: Mapping[str, str], what: str) -> Path:
    """Return the one directory that `load` or `save` was called with, as an absolute path or a path of a remote store."""
    found, *others = paths(options, what)
    if others:
        raise ValueError(f"{what} takes one directory, not {options['paths']}")
    return found


def paths(options: Mapping[str, str], what: str) -> list[Path]:
    """Return the directories that `load` was called with, as absolute paths or paths of a remote store.

    Raises:
        ValueError: There is none, or one comes twice.
    """
    given = json.loads(options["paths"]) if options.get("paths") else list(filter(None, [options.get("path")]))
    if not given:
        raise ValueError(f"{what} needs a directory, as in load(directory)")
    found = [_located(each, options) for each in given]
    if len({each.resolve() for each in found}) < len(found):
        raise ValueError(f"{what}: a directory is named twice in {', '.join(given)}, its rows would come twice")
    return found


def _located(given: str, options: Mapping[str, str]) -> Path:
    return locate(given, storage(options)).absolute()


def directories(options: Mapping[str, str], name: str) -> Path | None:
    """Return a directory, or several as one path, absolute."""
    given = names(options, name)
    return None if given is None else join_directories([_located(each, options) for each in given])


def texts(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return one text, or the texts of a JSON array."""
    value = options.get(name)
    if value is None or not value.lstrip().startswith("["):
        return None if value is None else (value,)
    return _array(value, name, str, "a text")


def integers(options: Mapping[str, str], name: str, *, ranges: bool = False) -> tuple[int, ...] | range | None:
    """Return one integer, the integers of a JSON array, or a range `low..high`, both included; a missing end is no bound."""
    value = options.get(name, "")
    if value.lstrip().startswith("["):
        return _array(value, name, int, "a whole number")
    low, dots, high = value.partition("..")
    if dots and ranges:
        least, greatest = (integer({name: end}, name) if end else None for end in (low, high))
        return range(MIN_INT64 if least is None else least, (MAX_INT64 if greatest is None else greatest) + 1)
    one = integer(options, name)
    return None if one is None else (one,)


def _array(value: str, name: str, kind: type[_Item], what: str) -> tuple[_Item, ...]:
    try:
        items = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"option {name}: not a JSON array: {error}") from error
    if any(type(item) is not kind for item in items):
        raise ValueError(f"option {name}: every item of the JSON array must be {what}")
    return tuple(items)


def pattern(options: Mapping[str, str]) -> Pattern | None:
    """Return the option `matches`, with those that begin with its name: `matchesIn` and the flags."""
    text = options.get("matches")
    flags = {
        "literal": "matchesLiteral",
        "ignore_case": "matchesIgnoreCase",
        "word": "matchesWord",
        "invert": "matchesInvert",
    }
    if text is None:
        given = [name for name in MATCHES_OPTIONS[1:] if name in options]
        if given:
            raise ValueError(f"option {given[0]}: expected the option matches as well")
        return None
    set_flags = {word: flag(options, name, default=False) for word, name in flags.items()}
    return Pattern(text, fields=names(options, "matchesIn"), **set_flags)


def names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the names of a comma-separated list, at least one."""
    value = options.get(name)
    if value is None:
        return None
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise ValueError(f"option {name}: {value!r} names nothing")
    return found


def integer(options: Mapping[str, str], name: str) -> int | None:
    """Return a signed 64-bit integer."""
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"option {name}: {value!r} is not a whole number") from None
    check_int64(**{f"option {name}": number})
    return number


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Return an integer above 0."""
    value = integer(options, name)
    if value is not None and value < 1:
        raise ValueError(f"option {name}: {value} is not above 0")
    return value


def instant(options: Mapping[str, str], name: str, *, end: bool) -> int | None:
    """Return milliseconds since the epoch from milliseconds, an age or ISO 8601; TypeError without a zone. See `time_bound`."""
    value = options.get(name)
    if value is None:
        return None
    if _RELATIVE.fullmatch(value):
        return parse_time(value, now=time.time_ns() // 1_000_000, end=end)
    if value.lstrip("+-").isdecimal():
        return time_bound(integer(options, name) or 0, f"option {name}", end=end)
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"option {name}: {value!r} is neither milliseconds, an age such as -2h, nor ISO 8601"
        ) from None
    return time_bound(parsed, f"option {name}", end=end)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether the option is `true`."""
    return bool(one_of(options, name, ("true", "false"), str(default).lower()) == "true")


def access(options: Mapping[str, str]) -> Access:
    """Return the option `access`, by default `auto`."""
    return one_of(options, "access", get_args(Access), "auto")  # type: ignore[no-any-return]


def compat(options: Mapping[str, str]) -> Compat | None:
    """Return the option `compat`."""
    return one_of(options, "compat", get_args(Compat), "") if "compat" in options else None


def pushdown(options: Mapping[str, str]) -> bool:
    """Return whether ids, index and queues may choose what is read: the option `pushdown`, by default `auto`.

    The filters of queries never do, also with `true`. Spark (4.1 to 4.3) keeps the plan of a read with the table, not with the
    query (PythonScanBuilder#pushFilters calls PythonDataSourceV2#setReadInfo). The next query over the same DataFrame, and the
    other side of a union or join, would read what an earlier query's filters chose, and no call reports it to the source.
    """
    return bool(one_of(options, "pushdown", ("auto", "true", "false"), "auto") != "false")


def one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> Any:
    """Return the option in lower case, which must be one of the allowed words."""
    value = options.get(name, default).lower()
    if value not in allowed:
        raise ValueError(f"option {name}: {value!r} is not one of {', '.join(allowed)}")
    return value
