"""The files of an index directory: sizes, names, the next file, and the objects of an index in an object store.

A name is the time of the file's creation as `yyyyMMddHHmmssSSS` in the broker's time zone. Names decide only the order in which
a broker loads its files, so a new name must sort after all existing ones.
Source: IndexService#getAndCreateLastIndexFile, UtilAll#timeMillisToHumanString, MappedFile#init.

In an object store nothing can be renamed. Objects stay below the prefix of the job that wrote them. The last write of a job is
one small object that names them. Without it the objects are ignored; with it they are the index, all of them and no others. See
docs/formats/rocketmq-index.md, "An index in an object store".
"""

from __future__ import annotations

import errno
import json
import os
import unicodedata
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from logdex import _core
from logdex._core import is_index_file_name, list_index_directory
from logdex.source import names_index_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


DEFAULT_HASH_SLOTS = 5_000_000
DEFAULT_MAX_ENTRIES = 20_000_000

_HEADER_SIZE = 40
_SLOT_SIZE = 4
_ENTRY_SIZE = 20


def file_size(geometry: tuple[int, int]) -> int:
    """Return the size in bytes of an index file of (hash_slots, max_entries)."""
    return entry_offset(*geometry)


def entry_offset(hash_slots: int, position: int) -> int:
    """Return the byte of an index file at which the entry of a position begins (docs/formats/rocketmq-index.md)."""
    return _HEADER_SIZE + _SLOT_SIZE * hash_slots + _ENTRY_SIZE * position


_LENGTH = 17
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_File = TypeVar("_File")


def sort_key(name: str) -> bytes:
    """Return the key by which a broker sorts names: UTF-16 code units (File#compareTo)."""
    return name.encode("utf-16-be", "surrogatepass")


def resolve_zone(zone: str | tzinfo | None) -> tzinfo | None:
    """Return the time zone of a name; None stays None, the machine's own."""
    if isinstance(zone, str):
        from zoneinfo import ZoneInfo  # noqa: PLC0415 -- few runs need it

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


COMMIT_PATTERN = "_temporary/*/commit"
"""The file of a Spark job from the start of its commit to the end: only a part of the index files may have their names."""


class Entry(NamedTuple):
    """One name in an index directory: its path, its size in bytes, and True for a regular file, also through links."""

    name: str
    path: Path
    size: int
    is_file: bool

    @property
    def is_numeric(self) -> bool:
        """True if a broker takes the name for an index file's."""
        return is_index_file_name(self.name)


def list_directory(directory: Path) -> list[Entry]:
    """List a directory in the broker's load order; see `_core.list_index_directory`."""
    return list(map(Entry._make, list_index_directory(directory)))


def refuse_copy(directory: Path) -> None:
    """Raise `FileExistsError` if a directory is a copy of an index in an object store: no broker would load its files."""
    if (directory / COMMITTED).exists():
        text = f"a copy of an index in an object store: first give its files the names in {COMMITTED}"
        raise FileExistsError(errno.EEXIST, text, str(directory))


def refuse_other_directory(directory: Path, *, for_puts: bool) -> None:
    """Raise `FileNotFoundError` if a directory is a store, or for reading holds names but no index file.

    The directory `index` of a store is an index directory, whatever it holds.
    """
    if for_puts:
        refuse_copy(directory)
    held = list_directory(directory) if directory.is_dir() else []
    is_store = any(entry.name == "commitlog" and not entry.is_file for entry in held)
    is_index = any(names_index_file(entry.name) and entry.is_file for entry in held)
    if is_store or not (for_puts or is_index or not held or _is_of_store(directory)):
        hint = f"; this is a store, its index is {directory / 'index'}" if is_store else ""
        text = f"expected an index directory (files named by 17 digits), found no index file{hint}"
        raise FileNotFoundError(errno.ENOENT, text, str(directory))


def _is_of_store(directory: Path) -> bool:
    return directory.name == "index" and (directory.absolute().parent / "commitlog").is_dir()


COMMITTED = "_committed.json"
"""The name of the object."""
JOBS = "_jobs"
"""The directory of the objects of jobs."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Committed:
    """One index file: where it is below the directory, and its bytes."""

    object: str
    size: int


def read_committed(directory: Path) -> dict[str, Committed]:
    """Return the files of an index by their names; see `_core.read_committed`."""
    return {name: Committed(*file) for name, file in _core.read_committed(directory).items()}


def committed_content(files: dict[str, Committed]) -> bytes:
    """Return the content of the object that names these files."""
    named = {name: asdict(file) for name, file in sorted(files.items())}
    return json.dumps({"version": _VERSION, "files": named}, indent=1).encode("ascii")


def commit_copies(files: Iterable[Path], target: Path) -> None:
    """Upload local index files into a directory of an object store, and commit them instead of the present files."""
    placed: dict[str, Committed] = {}
    for path in files:
        place = f"{JOBS}/{os.urandom(16).hex()}/{path.name}"
        _core.upload_file(path, target / place)
        placed[path.name] = Committed(place, path.stat().st_size)
    replace_object(target / COMMITTED, committed_content(placed))


def replace_object(path: Path, content: bytes) -> None:
    """Write a small object, and replace the present one.

    Raises:
        FileExistsError: Another process writes it, too.
    """
    try:
        ((_, _, etag),) = _core.plan_files([path])
        _core.put_remote(path, content, replaces=etag or "")
    except FileNotFoundError:
        _core.put_remote(path, content)
