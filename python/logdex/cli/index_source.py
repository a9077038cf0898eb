"""A directory of index files, or one index file, for the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.source import Description, Filters, Listing, Source
from logdex.hash_index import IndexFile, IndexService
from logdex.hash_index.file_name import is_index_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex.report import Report

_LOG_NAME_DIGITS = 20


class IndexSource(Source):
    """Index files without their log."""

    def __init__(self, index: IndexService | IndexFile) -> None:
        self.index = index

    @property
    def files(self) -> list[IndexFile]:
        """The files, in the order a broker loads them."""
        return self.index.files if isinstance(self.index, IndexService) else [self.index]

    def describe(self) -> Description:
        """Give geometry and headers."""
        files = self.files
        headers = [file.header for file in files if len(file)]
        facts = {
            "files": len(files),
            "entries": sum(map(len, files)),
            "hash_slots": files[0].hash_slots if files else None,
            "max_entries": files[0].max_entries if files else None,
            "begin_timestamp": min((header.begin_timestamp for header in headers), default=None),
            "end_timestamp": max((header.end_timestamp for header in headers), default=None),
            "begin_phy_offset": min((header.begin_phy_offset for header in headers), default=None),
            "end_phy_offset": max((header.end_phy_offset for header in headers), default=None),
        }
        heads = ("name", "entries", "begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset")
        rows: list[Sequence[Any]] = [
            (file.path.name, len(file), *(getattr(file.header, name) for name in heads[2:])) for file in files
        ]
        kind = "RocketMQ index directory" if isinstance(self.index, IndexService) else "RocketMQ index file"
        return Description(kind, facts, [Listing("index files", heads, rows)])

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401, ARG002 -- an Arrow stream
        """Refuse: an index holds hashes."""
        raise ValueError("an index holds no messages; give the store, or its commit log")

    def as_text(self, row: dict[str, Any]) -> str:
        """Write a row, which there is none of."""
        return str(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Give a row, which there is none of."""
        return row

    def verify(self, progress: Callable[[int, int], None]) -> Report:  # noqa: ARG002 -- one file after another, quickly
        """Check every file."""
        return self.index.verify()

    def close(self) -> None:
        """Let the files go."""
        self.index.close()


def recognise(path: Path, **options: Any) -> IndexSource | None:  # noqa: ANN401 -- those of IndexService.open
    """Open a path that is an index directory or an index file."""
    options.pop("commit_log", None)
    if path.is_dir():
        if any(is_index_name(entry.name) for entry in path.iterdir() if entry.is_file()):
            return IndexSource(IndexService.open(path, **options))
    elif path.is_file() and is_index_name(path.name):
        return IndexSource(IndexFile.open(path, **options))
    return None


def is_index_name(name: str) -> bool:
    """Say whether a name is an index file's and not one of the commit log's or a queue's, which are numbers too."""
    return is_index_file_name(name) and len(name) != _LOG_NAME_DIGITS
