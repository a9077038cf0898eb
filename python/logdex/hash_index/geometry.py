"""Slots and entries of the files in an index directory. No index file stores them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from logdex import _core
from logdex.errors import GeometryError

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._types import Access
    from logdex.hash_index.directory import Entry

DEFAULT_HASH_SLOTS = 5_000_000
DEFAULT_MAX_ENTRIES = 20_000_000

_PUT_SECONDS = 0.001
"""More than a writer takes between the entries of a block and their slots."""

_HEADER_SIZE = 40
_SLOT_SIZE = 4
_ENTRY_SIZE = 20


class NothingIndexedError(GeometryError):
    """No file holds an entry yet, so slots and entries are unknown; there are no answers either."""


def file_size(geometry: tuple[int, int]) -> int:
    """Return the size in bytes of an index file of (hash_slots, max_entries)."""
    return entry_offset(*geometry)


def entry_offset(hash_slots: int, position: int) -> int:
    """Return the byte of an index file at which the entry of a position begins (docs/formats/rocketmq-index.md)."""
    return _HEADER_SIZE + _SLOT_SIZE * hash_slots + _ENTRY_SIZE * position


def find_geometry(directory: Path, entries: list[Entry], access: Access) -> tuple[int, int] | None:
    """Find (hash_slots, max_entries) of a directory from its fullest file.

    Files of the most common size come first, because the size of a damaged file proves nothing. If the content of a file fits
    no geometry, the next fullest is tried. Without a file that holds a byte there is no geometry.

    Raises:
        NothingIndexedError: No file holds an entry, and none has the broker's default size.
        GeometryError: No geometry fits any of the files, or several fit the fullest.
    """
    files = _fullest_first(directory, entries)
    refused: GeometryError | None = None
    for entry, held in files:
        try:
            if held > 1:
                return _infer(entry.path(directory), access)
        except FileNotFoundError:
            continue
        except GeometryError as error:
            if error.count:
                raise
            refused = refused or error
    if refused:
        raise refused
    if not files:
        return None
    # Nothing is indexed yet, so only the size is known. A file of the broker's default size has the default geometry.
    default = (DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES)
    first, _ = files[0]
    if first.size == file_size(default):
        return default
    raise NothingIndexedError(str(directory / first.name), [], 0, first.size)


def _fullest_first(directory: Path, entries: list[Entry]) -> list[tuple[Entry, int]]:
    """Return the index files that hold a byte, and their counts: those of the most common size first, of these the fullest."""
    files = [entry for entry in entries if entry.is_numeric and entry.is_file and entry.size]
    _core.expect_heads([entry.path(directory) for entry in files])
    sizes = Counter(entry.size for entry in files)
    if sizes:
        # The oldest file of the usual size is mostly full: its newest entries, which show the geometry, are at its end.
        ((usual, _),) = sizes.most_common(1)
        _core.expect_ends([next(directory / entry.name for entry in files if entry.size == usual)])
    # The counts are checked when a file is opened.
    counts = {entry: _core.index_count(entry.path(directory)) for entry in files}
    files.sort(key=lambda entry: (sizes[entry.size], counts[entry]), reverse=True)
    return [(entry, counts[entry]) for entry in files]


def check_geometry(
    directory: Path, entries: list[Entry], geometry: tuple[int, int], access: Access, *, for_puts: bool
) -> None:
    """Check that the files of a directory have (hash_slots, max_entries): for puts all files, for questions the fullest.

    The content of a file decides. A file without an entry only counts for puts, if it is too long. A damaged file does not
    count: its content fits nothing, or it has the right slots and became longer or shorter.

    Raises:
        ValueError: A file has other slots and entries.
    """
    files = _fullest_first(directory, entries)
    expected = file_size(geometry)
    some_right = any(entry.size == expected for entry, _ in files)
    for entry, held in files if for_puts else files[:1]:
        path = entry.path(directory)
        fits, count = _fits(path, held, geometry, access)
        slots_fit = any(slots == geometry[0] for slots, _ in fits)
        if not for_puts:
            is_other = bool(fits) and len(fits) == count and not (held <= geometry[1] and slots_fit)
        elif fits:
            is_other = geometry not in fits and not (some_right and slots_fit)
        else:
            is_other = not some_right and entry.size > expected
        if is_other:
            content = " or ".join(f"{slots} slots and {most} entries" for slots, most in fits) or "others"
            raise ValueError(
                f"{path}: {geometry[0]} slots and {geometry[1]} entries make {expected} bytes, "
                f"but the file has {content} in {entry.size} bytes"
            )


def _fits(path: Path, held: int, given: tuple[int, int], access: Access) -> tuple[list[tuple[int, int]], int]:
    """Return the first few geometries that fit a file, the given one alone if it does, and how many fit."""
    if held <= 1:
        return [], 0
    try:
        return [_core.infer_geometry(path, given=given, access=access)], 1
    except FileNotFoundError:
        return [], 0
    except GeometryError as error:
        return error.fits, error.count


def _infer(path: Path, access: Access) -> tuple[int, int]:
    """Infer the geometry of a file. If none fits, try once more: a writer may be between an entry and its slot."""
    try:
        return _core.infer_geometry(path, access=access)
    except GeometryError as error:
        if error.count:
            raise
    time.sleep(_PUT_SECONDS)
    return _core.infer_geometry(path, access=access)
