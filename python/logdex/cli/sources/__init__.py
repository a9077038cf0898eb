"""A path that commands read: described, read row by row, verified.

A new format subclasses `Source` and adds a function that opens its paths to `KINDS` of `logdex.cli.sources.registry`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logdex._files import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex._types import Progress
    from logdex.report import Finding, Report


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows to read; None: no filter. Times in ms, both ends included.

    `skip_damaged`: continue after a damaged region where reading would otherwise end.
    """

    topic: str | None = None
    queue: int | None = None
    begin: int | None = None
    end: int | None = None
    skip_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of a description: the same rows for people and for programs.

    Attributes:
        title: What the rows are, in the plural; in JSON the name of the list.
        heads: Names of the columns.
        rows: The values.
    """

    title: str
    heads: Sequence[str]
    rows: list[Sequence[Any]]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict from column name to value."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Description:
    """What `info` prints.

    Attributes:
        kind: What is at the path, in words.
        facts: Names and values in display order. A name that ends in `_timestamp` is a time in ms, one that ends in
            `_bytes` a size.
        listings: Tables after the facts.
    """

    kind: str
    facts: dict[str, Any]
    listings: list[Listing] = field(default_factory=list)


class Source(Closing):
    """One opened path. A source without rows leaves out `rows`, `as_text` and `as_json`."""

    @abstractmethod
    def describe(self) -> Description:
        """Return the description that `info` prints."""

    @abstractmethod
    def verify(self, progress: Progress) -> Report:
        """Check everything."""

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401, ARG002 -- an Arrow stream
        """Return the rows that pass the filters, in log order; without bodies unless `body`.

        Raises:
            ValueError: This source has no rows.
        """
        raise ValueError(f"{self.describe().kind}: it has no messages; expected a store, or its commit log")

    def passed_over(self) -> list[Finding]:
        """Return the damage that the rows read so far leave out."""
        return []

    def as_text(self, row: dict[str, Any]) -> str:
        """Return one row as text for people."""
        return str(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return one row as JSON values."""
        return row


class Part(Source):
    """A file or directory that belongs to a store or a log directory. It is read on demand; nothing stays open."""

    def __init__(
        self,
        path: Path,
        kind: str,
        describe: Callable[[], tuple[dict[str, Any], list[Listing]]] | None = None,
        check: Callable[[], Report] | None = None,
    ) -> None:
        """Keep how to describe and check the path.

        Args:
            path: The path.
            kind: What it is, in words.
            describe: Returns facts and listings; None: only its size is known.
            check: Checks it; None: it can be checked only with the whole store.
        """
        self._path = path
        self._kind = kind
        self._describe = describe or (lambda: ({"file_bytes": path.stat().st_size}, []))
        self._check = check

    def describe(self) -> Description:
        """Return kind, facts and listings."""
        return Description(self._kind, *self._describe())

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:  # noqa: ARG002 -- small
        """Check what can be checked without the whole store."""
        if self._check is None:
            raise ValueError(f"{self._path}: {self._kind}; it is checked with the whole that it belongs to")
        return self._check()

    def close(self) -> None:
        """Do nothing: no file is open."""
