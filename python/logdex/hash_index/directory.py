"""The names in an index directory."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from logdex._core import is_index_file_name, list_index_directory
from logdex.hash_index.committed import COMMITTED
from logdex.hash_index.rolling import names_index_file

if TYPE_CHECKING:
    from pathlib import Path

COMMIT_PATTERN = "_temporary/*/commit"
"""The file of a Spark job from the begin of its commit to the end: only a part of the index files may have their names."""


class Entry(NamedTuple):
    """One name in an index directory: its path, its size in bytes, and True for a regular file, also through links."""

    name: str
    path: Path
    size: int
    is_file: bool

    @property
    def is_numeric(self) -> bool:
        """Whether a broker takes the name for an index file's."""
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
