"""What the options of the data sources say. Spark hands all of them over as text, with lower-cased names."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from logdex._core import time_ms
from logdex._types import check_int64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logdex._types import Access, Compat


def check_names(
    options: Mapping[str, str], known: tuple[str, ...], what: str, passed_over: tuple[str, ...] = ()
) -> None:
    """Refuse an option that the source does not know: a mistyped filter must not read everything.

    Args:
        options: What was given.
        known: The options that there are.
        what: The format, for the message.
        passed_over: How, in small letters, the names of options begin that mean nothing here and do no harm.

    Raises:
        ValueError: An option is unknown.
    """
    lowered = {name.lower() for name in known}
    unknown = sorted(
        name for name in options if name.lower() not in lowered and not name.lower().startswith(passed_over)
    )
    if unknown:
        msg = f"format {what} has no option {', '.join(unknown)}; it has {', '.join(known)}"
        raise ValueError(msg)


def path(options: Mapping[str, str], what: str) -> Path:
    """Give the directory that `load` or `save` was called with, as an absolute path.

    Raises:
        ValueError: There is none, or there are several.
    """
    if options.get("paths"):
        msg = f"format {what} takes one directory, not {options['paths']}"
        raise ValueError(msg)
    given = options.get("path")
    if not given:
        msg = f"format {what} needs a directory, as in load(directory)"
        raise ValueError(msg)
    return _local(given)


def _local(given: str) -> Path:
    return Path(re.sub("^file:(//)?", "", given)).absolute()


def directories(options: Mapping[str, str], name: str) -> str | None:
    """Give a directory, or several with commas between them, as absolute paths; None when the option is not set.

    Raises:
        ValueError: It is set, and there is no directory in it.
    """
    given = names(options, name)
    return None if given is None else ",".join(str(_local(each)) for each in given)


def texts(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Give one text, or the texts of a JSON array; None when the option is not set.

    Raises:
        ValueError: The JSON is not an array of texts.
    """
    value = options.get(name)
    if value is None:
        return None
    if not value.lstrip().startswith("["):
        return (value,)
    try:
        items = json.loads(value)
    except json.JSONDecodeError as error:
        msg = f"option {name}: not a JSON array: {error}"
        raise ValueError(msg) from error
    if not all(isinstance(item, str) for item in items):
        msg = f"option {name}: every item of the JSON array must be a text"
        raise ValueError(msg)
    return tuple(items)


def names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Give the names of a comma-separated list; None when the option is not set.

    Raises:
        ValueError: It is set, and there is no name in it.
    """
    value = options.get(name)
    if value is None:
        return None
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        msg = f"option {name}: {value!r} names nothing"
        raise ValueError(msg)
    return found


def integer(options: Mapping[str, str], name: str) -> int | None:
    """Give a whole number; None when the option is not set.

    Raises:
        ValueError: It is not a whole number of 64 bits at most.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        msg = f"option {name}: {value!r} is not a whole number"
        raise ValueError(msg) from None
    check_int64(**{f"option {name}": number})
    return number


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Give a whole number above 0; None when the option is not set.

    Raises:
        ValueError: It is not one.
    """
    value = integer(options, name)
    if value is not None and value < 1:
        msg = f"option {name}: {value} is not above 0"
        raise ValueError(msg)
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Give a yes or no.

    Raises:
        ValueError: It is neither `true` nor `false`.
    """
    return _one_of(options, name, ("true", "false"), str(default).lower()) == "true"


def instant(options: Mapping[str, str], name: str, *, end: bool) -> int | None:
    """Give an instant in milliseconds, from milliseconds or from ISO 8601 with a zone; None when not set.

    Raises:
        ValueError: It is neither.
        TypeError: It is ISO 8601 without a zone.
    """
    value = options.get(name)
    if value is None:
        return None
    if value.lstrip("+-").isdecimal():
        return integer(options, name)
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        msg = f"option {name}: {value!r} is neither milliseconds nor ISO 8601"
        raise ValueError(msg) from None
    return time_ms(parsed, end=end)


def access(options: Mapping[str, str]) -> Access:
    """Give the option `access`, `auto` when it is not set."""
    return cast("Access", _one_of(options, "access", ("auto", "mmap", "pread"), "auto"))


def compat(options: Mapping[str, str]) -> Compat | None:
    """Give the option `compat`, None when it is not set."""
    if "compat" not in options:
        return None
    return cast("Compat", _one_of(options, "compat", ("4.9.3", "5.3.3", "5.5.0"), ""))


def pushdown(options: Mapping[str, str]) -> str:
    """Give the option `pushdown`, `auto` when it is not set."""
    return _one_of(options, "pushdown", ("auto", "true", "false"), "auto")


def takes_filters(options: Mapping[str, str]) -> bool:
    """Say whether the filters of queries may choose what is read: only where the option `pushdown` is `true`.

    Spark (4.1 to 4.3) keeps the plan of a read with the table, not with the query (PythonScanBuilder#pushFilters calls
    PythonDataSourceV2#setReadInfo). The next query over the same DataFrame without a filter that Spark hands over, and the
    other side of a union or join, then read what an earlier query's filters chose: rows are missing, and nothing says so.
    """
    return pushdown(options) == "true"


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = options.get(name, default).lower()
    if value not in allowed:
        msg = f"option {name}: {value!r} is not one of {', '.join(allowed)}"
        raise ValueError(msg)
    return value
