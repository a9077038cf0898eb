"""The names of index files, and the creation of the next one.

A name is the time of the file's creation as `yyyyMMddHHmmssSSS` in the broker's time zone. Names decide only the order in which
a broker loads its files, so a new name must sort after all existing ones.
Source: IndexService#getAndCreateLastIndexFile, UtilAll#timeMillisToHumanString, MappedFile#init.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from logdex._core import is_index_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LENGTH = 17
_LOG_NAME_DIGITS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_File = TypeVar("_File")


def names_index_file(name: str) -> bool:
    """Return whether a name is an index file's, and not that of a file of a log or queue, which has 20 digits."""
    return is_index_file_name(name) and len(name) != _LOG_NAME_DIGITS


def sort_key(name: str) -> bytes:
    """Return the key by which a broker sorts names: UTF-16 code units (File#compareTo)."""
    return name.encode("utf-16-be", "surrogatepass")


def resolve_zone(zone: str | tzinfo | None) -> tzinfo | None:
    """Return the time zone of a name; None stays None, the machine's own."""
    if isinstance(zone, str):
        try:
            return ZoneInfo(zone)
        except (KeyError, OSError, ValueError):
            # KeyError: no such zone; the others: a name that leads to a directory or out of the zones.
            raise ValueError(f"no time zone is called {zone!r}") from None
    if zone is None or isinstance(zone, tzinfo):
        return zone
    raise TypeError(f"zone must be a time zone's name, a datetime.tzinfo or None, not {type(zone).__name__}")


def format_name(time_ms: int, zone: str | tzinfo | None = None) -> str:
    """Return the name that a broker in a time zone gives to a file created at a time, in ms since the epoch.

    Example:
        >>> format_name(1738983140772, "Asia/Shanghai")
        '20250208105220772'
    """
    instant = _EPOCH + timedelta(milliseconds=time_ms)
    return _digits(instant.astimezone(resolve_zone(zone)))


def next_name(names: Iterable[str], now_ms: int, zone: str | tzinfo | None = None) -> str:
    """Return the name of a new index file: the later of now and the newest existing name plus 1 ms.

    Local time steps back at the end of summer time and when a clock is set, so now may sort before an existing name.
    Names that are no index file's are ignored.
    """
    now = format_name(now_ms, zone)
    newest = max(filter(is_index_file_name, names), key=sort_key, default="")
    return now if sort_key(now) > sort_key(newest) else successor(newest)


def successor(name: str) -> str:
    """Return the name 1 ms later; if the name is no date, the next number that sorts after it.

    The digits stay those of the name's script: a broker continues in the digits of its locale.
    """
    if not is_index_file_name(name):
        raise ValueError(f"not the name of an index file: {name!r}")
    if name[0] in "+-":
        # Signs sort before all digits, so any date sorts after this name.
        return _digits(_EPOCH)
    zero = ord(name[0]) - unicodedata.decimal(name[0])
    for plain in _later("".join(str(unicodedata.decimal(c)) for c in name)):
        later = "".join(chr(zero + int(c)) for c in plain)
        if is_index_file_name(later) and sort_key(later) > sort_key(name):
            return later
    raise ValueError(f"no index file name sorts after {name!r}")


def _later(digits: str) -> Iterable[str]:
    """Yield names that may sort after one of ASCII digits, the most natural one first."""
    time = _parse(digits)
    if time is not None and time <= datetime.max - _MILLISECOND:  # noqa: DTZ901 -- local time, as in the name
        yield _digits(time + _MILLISECOND)
    yield digits.ljust(_LENGTH, "0")
    yield str(int(digits) + 1).zfill(len(digits))
    yield digits + "0"
    yield str(int(digits[:_LENGTH]) + 1)


def create_next(
    names: Iterable[str],
    directory: Path,
    now_ms: int,
    zone: str | tzinfo | None,
    create: Callable[[Path], _File],
) -> _File:
    """Create the next index file under the first free name, so that two files never share one.

    A broker would open the same file twice (IndexService#getAndCreateLastIndexFile has no exclusive creation). `create` must
    raise FileExistsError if the name exists.
    """
    name = next_name(names, now_ms, zone)
    while True:
        try:
            return create(directory / name)
        except FileExistsError:
            name = successor(name)


def _digits(time: datetime) -> str:
    return f"{time:%Y}".zfill(4) + f"{time:%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _parse(digits: str) -> datetime | None:
    """Return the local time of a name; None if it is no date."""
    if len(digits) != _LENGTH:
        return None
    try:
        seconds = datetime.strptime(digits[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007 -- names are local time
    except ValueError:
        return None
    return seconds.replace(microsecond=int(digits[14:]) * 1000)
