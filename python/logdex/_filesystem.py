"""File systems that callers bring: those of fsspec, `pyarrow.fs` and obstore, each through three calls.

A path in one is shown as `filesystem://NUMBER/PATH`, and has the object.
"""

from __future__ import annotations

import os
import posixpath
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Entry: TypeAlias = "tuple[str, int | None, int | None, str | None]"
"""Name, length (None: a directory), time of the last change in ns, `ETag`."""

_NS = 1_000_000_000
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_ETAGS = ("ETag", "etag", "e_tag")


class Adapter(Protocol):
    """The calls of the core to a file system. Paths have no leading slash; calls come from several threads."""

    def entries(self, directory: str) -> list[Entry]:
        """Return the entries of a directory."""

    def status(self, path: str) -> Entry:
        """Return the entry at a path, or raise `FileNotFoundError`."""

    def read(self, path: str, begin: int, length: int) -> bytes:
        """Return bytes of a file."""


class _PyArrow:
    def __init__(self, filesystem: Any, prefix: str) -> None:  # noqa: ANN401 -- as the others
        self._files = filesystem
        self._prefix = prefix

    def entries(self, directory: str) -> list[Entry]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 -- the caller has it

        return [_of_pyarrow(info) for info in self._files.get_file_info(FileSelector(self._prefix + directory))]

    def status(self, path: str) -> Entry:
        (info,) = self._files.get_file_info([self._prefix + path])
        if info.type.name == "NotFound":
            raise FileNotFoundError(path)
        return _of_pyarrow(info)

    def read(self, path: str, begin: int, length: int) -> bytes:
        with self._files.open_input_file(self._prefix + path) as file:
            content: bytes = file.read_at(length, begin)
            return content


def _of_pyarrow(info: Any) -> Entry:  # noqa: ANN401 -- pyarrow.fs.FileInfo
    return info.base_name, info.size if info.is_file else None, info.mtime_ns, None


class _Fsspec:
    def __init__(self, filesystem: Any, prefix: str) -> None:  # noqa: ANN401 -- without an import of it
        self._files = filesystem
        self._prefix = prefix

    def entries(self, directory: str) -> list[Entry]:
        path = self._prefix + directory
        # It caches listings, some without a time limit.
        self._files.invalidate_cache(path)
        found = self._files.ls(path, detail=True)
        own = path.strip("/")
        # Some list a file as itself, or a directory in itself.
        return [_of_fsspec(info) for info in found if info["name"].strip("/") != own]

    def status(self, path: str) -> Entry:
        return _of_fsspec(self._files.info(self._prefix + path))

    def read(self, path: str, begin: int, length: int) -> bytes:
        content: bytes = self._files.cat_file(self._prefix + path, start=begin, end=begin + length)
        return content


def _of_fsspec(info: Mapping[str, Any]) -> Entry:
    time = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    etag = next((str(info[name]) for name in _ETAGS if info.get(name)), None)
    size = None if info["type"] == "directory" else info["size"]
    return posixpath.basename(info["name"].rstrip("/")), size, _time_ns(time), etag


class _Obstore:
    def __init__(self, filesystem: Any, prefix: str) -> None:  # noqa: ANN401 -- as the others
        self._files = filesystem
        self._prefix = prefix

    def entries(self, directory: str) -> list[Entry]:
        found = self._files.list_with_delimiter(directory or None)
        directories = [
            (posixpath.basename(prefix.rstrip("/")), None, None, None) for prefix in found["common_prefixes"]
        ]
        return [*directories, *map(_of_obstore, found["objects"])]

    def status(self, path: str) -> Entry:
        return _of_obstore(self._files.head(path))

    def read(self, path: str, begin: int, length: int) -> bytes:
        return bytes(self._files.get_range(path, start=begin, length=length))


def _of_obstore(meta: Mapping[str, Any]) -> Entry:
    return posixpath.basename(meta["path"]), meta["size"], _time_ns(meta["last_modified"]), meta["e_tag"]


def _time_ns(time: object) -> int | None:
    """Return a time in ns; None for a value that is not a time."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.replace("Z", "+00:00"))
        except ValueError:
            return None
    seconds = time.timestamp() if isinstance(time, datetime) else time
    return max(0, int(seconds * _NS)) if isinstance(seconds, int | float) else None


_ADAPTERS = (
    (("get_file_info", "open_input_file"), _PyArrow),
    (("ls", "info", "cat_file", "invalidate_cache"), _Fsspec),
    (("list_with_delimiter", "head", "get_range"), _Obstore),
)


def _adapter(filesystem: object, prefix: str) -> Adapter:
    for names, adapter in _ADAPTERS:
        if all(callable(getattr(filesystem, name, None)) for name in names):
            return adapter(filesystem, prefix)
    raise TypeError(
        f"filesystem={type(filesystem).__name__}: expected a file system of fsspec or pyarrow.fs, or a store of obstore"
    )


def in_filesystem(
    path: str | os.PathLike[str], filesystem: object, storage_options: Mapping[str, str] | None = None
) -> Path:
    """Return the path that a path in a file system has here.

    Raises:
        TypeError: The object is not a file system of a known kind.
        ValueError: The path is a URL, or there are options of a store.
    """
    if storage_options:
        raise ValueError("storage_options: expected none with filesystem=, which has its own")
    text = os.fspath(path)
    if "://" in text:
        raise ValueError(f"{_core.without_secrets(text)}: expected a path in the file system, found a URL")
    root = _core.file_system_root(_adapter(filesystem, "/" if text.startswith("/") else ""))
    name = posixpath.normpath(text).lstrip("/")
    return root if name in ("", ".") else root / name


def all_in_filesystem(paths: str | os.PathLike[str], filesystem: object) -> Path:
    """Return the path of several paths with commas between; see `in_filesystem`."""
    return _core.join_directories([in_filesystem(path.strip(), filesystem) for path in os.fspath(paths).split(",")])
