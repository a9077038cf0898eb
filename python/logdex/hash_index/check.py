"""Checks an index directory: every file by itself, and what lies beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex._core import IndexFile
from logdex.errors import CorruptFileError
from logdex.hash_index.directory import list_directory
from logdex.hash_index.geometry import file_size
from logdex.report import Finding, Report, merge

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.hash_index.file_set import FileSet


def verify_directory(directory: Path, files: FileSet) -> Report:
    """Check all that a directory holds, whatever a load would have left out."""
    files.refresh()
    reports = []
    for entry in list_directory(directory) if directory.is_dir() else []:
        path = directory / entry.name
        if not entry.is_numeric:
            reports.append(_report(path, 0, "file-name", "a decimal number", entry.name))
        elif not entry.is_file:
            reports.append(_report(path, 0, "not-a-file", "an index file", "something else than a regular file"))
        elif files.geometry is None:
            reports.append(_report(path, 0, "file-size", "an index file", f"{entry.size} bytes"))
        else:
            reports.append(_verify_file(path, files))
    return merge(reports)


def _verify_file(path: Path, files: FileSet) -> Report:
    try:
        hash_slots, max_entries = files.geometry or (None, None)
        with IndexFile.open(path, hash_slots=hash_slots, max_entries=max_entries, access=files.access) as file:
            return file.verify()
    except FileNotFoundError:
        return Report()
    except CorruptFileError as error:
        return _report(path, error.offset, "file-size", error.expected, error.found)
    except OSError as error:
        expected = file_size(files.geometry or (0, 0))
        return _report(path, 0, "unreadable", f"{expected} bytes", str(error.strerror))


def _report(path: Path, offset: int, kind: str, expected: str, found: str) -> Report:
    return Report([Finding(str(path), offset, kind, expected, found)])
