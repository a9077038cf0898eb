"""What may lie at a path, as the commands see it: described, read row by row, verified.

A format adds itself with a subclass of `Source` and a function that recognises its paths, named in `KINDS` of
`logdex.cli.kinds`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logdex._files import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logdex.report import Finding, Report


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows are wanted; None does not filter. Times in ms, both ends included.

    `skip_damaged`: pass over what is damaged where reading would end there.
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
        """Give each row by the names of its columns."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Description:
    """What `info` says.

    Attributes:
        kind: What lies at the path, in words.
        facts: Names and values in the order to show them; a name that ends in `_timestamp` is a time in ms, one that ends in
            `_bytes` a size.
        listings: What follows the facts.
    """

    kind: str
    facts: dict[str, Any]
    listings: list[Listing] = field(default_factory=list)


class Source(Closing):
    """One opened path."""

    @abstractmethod
    def describe(self) -> Description:
        """Say what lies there."""

    @abstractmethod
    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401 -- an Arrow stream
        """Read what the filters let pass, in the order of the log; without bodies where they are not wanted."""

    def passed_over(self) -> list[Finding]:
        """Name what the rows that were read leave out because it is damaged."""
        return []

    @abstractmethod
    def as_text(self, row: dict[str, Any]) -> str:
        """Write one row for people."""

    @abstractmethod
    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Turn one row into what JSON holds."""

    @abstractmethod
    def verify(self, progress: Callable[[int, int], None]) -> Report:
        """Check everything; tells the progress in bytes: done, and in all."""
