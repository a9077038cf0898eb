"""A file or directory that is a part of a store or a log: it tells something alone, but its rows need the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.source import Description, Filters, Listing, Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex.report import Report


class Part(Source):
    """What lies at a path, told and checked when it is asked for; nothing stays open."""

    def __init__(
        self,
        path: Path,
        kind: str,
        tell: Callable[[], tuple[dict[str, Any], list[Listing]]] | None = None,
        check: Callable[[], Report] | None = None,
    ) -> None:
        """Keep how it is told and checked.

        Args:
            path: The path.
            kind: What it is, in words.
            tell: Reads the facts and listings of a `Description`; None: its length is all there is.
            check: Checks it; None: there is nothing in it that could be checked without the whole.
        """
        self._path = path
        self._kind = kind
        self._tell = tell or (lambda: ({"file_bytes": path.stat().st_size}, []))
        self._check = check

    def describe(self) -> Description:
        """Say what lies there."""
        return Description(self._kind, *self._tell())

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401, ARG002 -- an Arrow stream
        """Refuse."""
        raise ValueError(f"{self._path}: {self._kind}; its rows are read from the whole that it belongs to")

    def as_text(self, row: dict[str, Any]) -> str:
        """Write a row, which there is none of."""
        return str(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Give a row, which there is none of."""
        return row

    def verify(self, progress: Callable[[int, int], None], *, deep: bool = True) -> Report:  # noqa: ARG002 -- small
        """Check what can be checked without the whole."""
        if self._check is None:
            raise ValueError(f"{self._path}: {self._kind}; it is checked with the whole that it belongs to")
        return self._check()

    def close(self) -> None:
        """Do nothing: nothing is open."""
