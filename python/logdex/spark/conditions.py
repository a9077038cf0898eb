"""Conditions on columns: those of a source's options, and those that the filters of a query add."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from logdex._core import time_ms
from logdex._types import MAX_INT64, MIN_INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.datasource import Filter
    from typing_extensions import Self

_EQUAL = ("EqualTo", "EqualNullSafe")
_AT_LEAST = (*_EQUAL, "GreaterThan", "GreaterThanOrEqual")
_AT_MOST = (*_EQUAL, "LessThan", "LessThanOrEqual")


@dataclass(frozen=True)
class Conditions:
    """Conditions that must all hold: wanted values of columns, and bounds, both included, of numbers and of times in ms."""

    values: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    TEXTS: ClassVar[tuple[str, ...]]
    NUMBERS: ClassVar[tuple[str, ...]]
    TIME: ClassVar[str]

    def with_values(self, column: str, wanted: Iterable[Any]) -> Self:
        """Return the conditions, and that the column has one of these values."""
        both = frozenset(wanted) & self.values[column] if column in self.values else frozenset(wanted)
        return replace(self, values={**self.values, column: both})

    def with_bounds(self, column: str, least: int | None, greatest: int | None) -> Self:
        """Return the conditions, and that the column is between these values, both included; None: no bound."""
        low, high = self.bounds.get(column, (MIN_INT64, MAX_INT64))
        low, high = (
            max(low, MIN_INT64 if least is None else least),
            min(high, MAX_INT64 if greatest is None else greatest),
        )
        return replace(self, bounds={**self.bounds, column: (low, high)})

    def extent(self, column: str) -> tuple[int, int]:
        """Return the least and the greatest number that a column may have, by its bounds and its values."""
        low, high = self.bounds.get(column, (MIN_INT64, MAX_INT64))
        wanted = self.values.get(column)
        return (max(low, min(wanted)), min(high, max(wanted))) if wanted else (low, high)

    @property
    def is_empty(self) -> bool:
        """Whether no row can pass."""
        return not all(self.values.values()) or any(low > high for low, high in self.bounds.values())

    def narrowed(self, filters: Iterable[Filter]) -> Self:
        """Return the conditions, and the filters of a query as far as they are known here; Spark applies all of them."""
        found = self
        for each in filters:
            column: tuple[str, ...] = getattr(each, "attribute", ())
            value = getattr(each, "value", None)
            if len(column) == 1 and value is not None:
                # By name: an unknown filter of another release of pyspark is ignored.
                found = found._narrowed(column[0], type(each).__name__, value)
        return found

    def _narrowed(self, name: str, kind: str, value: Any) -> Self:
        if name == self.TIME and isinstance(value, datetime) and value.tzinfo is not None:
            # Microseconds become the milliseconds inside of the bounds.
            begin = time_ms(value) if kind in _AT_LEAST else None
            return self.with_bounds(name, begin, time_ms(value, end=True) if kind in _AT_MOST else None)
        if name in (*self.TEXTS, *self.NUMBERS):
            if kind in _EQUAL:
                return self.with_values(name, [value])
            if kind == "In":
                return self.with_values(name, (item for item in value if item is not None))
        if name in self.NUMBERS and kind in (*_AT_LEAST, *_AT_MOST):
            least = value + (kind == "GreaterThan") if kind in _AT_LEAST else None
            return self.with_bounds(name, least, value - (kind == "LessThan") if kind in _AT_MOST else None)
        return self
