"""The base class of everything that can be opened: stores, log directories, partitions and index directories."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from logdex._files import Closing
from logdex.notebook import SHOWN_ROWS, html_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._types import Time
    from logdex.groups import GroupOffset
    from logdex.report import Report
    from logdex.usage import By, Usage


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a description. The title is a plural noun for the rows."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Info:
    """The description of a source, as `logdex info` prints it.

    Attributes:
        kind: What the source is, such as "Kafka partition".
        facts: Facts by name, in display order. A name that ends in `_timestamp` is a time in ms, in `_bytes` a size.
        tables: Tables of the parts of the source, such as its topics.
    """

    kind: str
    facts: dict[str, Any]
    tables: Sequence[Table] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the facts and the rows of each table under its title, as JSON values."""
        tables = {
            table.title.replace(" ", "_"): [dict(zip(table.heads, row, strict=True)) for row in table.rows]
            for table in self.tables
        }
        return {"kind": self.kind, **self.facts, **tables}

    def __repr__(self) -> str:
        """Return kind and facts, and the length of each table."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items() if value is not None)
        counts = "".join(f", {len(table.rows)} {table.title}" for table in self.tables)
        return f"Info({self.kind!r}, {facts}{counts})"

    def _repr_html_(self) -> str:
        """Return the facts as a table, and the first rows of each table."""
        facts = Table(self.kind, ("fact", "value"), list(self.facts.items()))
        return "".join(
            html_table(table.title, table.heads, table.rows[:SHOWN_ROWS], len(table.rows) - SHOWN_ROWS)
            for table in (facts, *self.tables)
        )


class Source(Closing):
    """A path that `logdex.open` opened: `MessageStore`, `kafka.LogDir`, `kafka.Log` or `IndexService`.

    All of them can be described, verified and closed, and are context managers. A RocketMQ source reads `messages`, a Kafka
    source `records`. A call that makes no sense for a kind of source is a `ValueError` that names the expected kind: an index
    directory has no messages to find, and only a store and a log directory have consumer groups and can be sealed.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The kind of source, in words."""

    @abstractmethod
    def info(self) -> Info:
        """Return a description: files, ranges of offsets and times. This is fast."""

    @abstractmethod
    def verify(self) -> Report:
        """Check everything; linear in the size of the source. Findings are never raised."""

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        max_num: int | None = None,
    ) -> Sequence[Any]:
        """Find the messages or records that carry a key, the newest first."""
        del topic, key, begin, end, max_num
        raise self._refusal(NO_MESSAGES)

    def explain(self, topic: str, key: str, *, begin: Time | None = None, end: Time | None = None) -> Any:  # noqa: ANN401 -- each broker has its own steps
        """Explain why a key is found or not."""
        del topic, key, begin, end
        raise self._refusal(NO_MESSAGES)

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return messages and bytes by topic, queue or day."""
        del by
        raise self._refusal(EXPECTED_WHOLE)

    def groups(self, group: str | None = None) -> list[GroupOffset]:
        """Return how far consumer groups, or one of them, have read."""
        del group
        raise self._refusal(EXPECTED_WHOLE)

    def seal(self) -> Report:
        """Write a sealed index."""
        raise self._refusal(EXPECTED_WHOLE)

    def _refusal(self, text: str) -> ValueError:
        return ValueError(f"{self.kind}: {text}")


NO_MESSAGES = "it has no messages; expected a store, or its commit log"
EXPECTED_WHOLE = "expected a store, or a Kafka log directory"
