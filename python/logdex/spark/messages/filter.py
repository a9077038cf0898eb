"""Which messages a read returns: by its options, and by the filters of a query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex import _core
from logdex._core import time_ms
from logdex._types import MAX_INT64, MIN_INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.datasource import Filter

_TIME = "store_timestamp"
_TEXTS = ("topic", "msg_id", "uniq_key", "keys")
_NUMBERS = ("queue_id", "queue_offset", "phy_offset")
_UNKNOWN_TO_SCAN = ("msg_id", "uniq_key", "keys", "queue_offset", "phy_offset")
_Range = tuple[int, int]


@dataclass(frozen=True)
class MessageFilter:
    """Conditions on messages; all of them must hold.

    Attributes:
        values: Wanted values of columns, compared as they are.
        bounds: Least and greatest value of columns of numbers; of `store_timestamp` in milliseconds.
        words: Keys to keep: a message has a key as its unique key or as one of its space-separated keys. None: any.
    """

    values: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    bounds: Mapping[str, _Range] = field(default_factory=dict)
    words: tuple[str, ...] | None = None

    @classmethod
    def of_options(
        cls, topics: Iterable[str] | None, words: tuple[str, ...] | None, begin_ms: int | None, end_ms: int | None
    ) -> MessageFilter:
        """Return the filter of options; None: no filter."""
        bounds = (
            MIN_INT64 if begin_ms is None else begin_ms,
            MAX_INT64 if end_ms is None else end_ms,
        )
        return cls(
            values={} if topics is None else {"topic": frozenset(topics)},
            bounds={} if bounds == (MIN_INT64, MAX_INT64) else {_TIME: bounds},
            words=words,
        )

    def narrowed(self, filters: Iterable[Filter]) -> MessageFilter:
        """Return a filter that every message passes that passes this one and all filters of a query."""
        found = self
        for each in filters:
            found = _narrow(found, each)
        return found

    def with_values(self, column: str, wanted: Iterable[Any]) -> MessageFilter:
        """Return a filter that also asks for one of these values."""
        known = self.values.get(column)
        both = frozenset(wanted) if known is None else known & frozenset(wanted)
        return replace(self, values={**self.values, column: both})

    def with_bounds(self, column: str, least: int, greatest: int) -> MessageFilter:
        """Return a filter that also asks for a value between these, both included."""
        low, high = self.bounds.get(column, (MIN_INT64, MAX_INT64))
        return replace(self, bounds={**self.bounds, column: (max(low, least), min(high, greatest))})

    @property
    def is_empty(self) -> bool:
        """Whether nothing can pass."""
        return (
            not all(self.values.values()) or any(low > high for low, high in self.bounds.values()) or self.words == ()
        )

    @property
    def times(self) -> _Range:
        """First and last store time in milliseconds."""
        return self.bounds.get(_TIME, (MIN_INT64, MAX_INT64))

    @property
    def carried(self) -> list[str] | None:
        """Keys of which every wanted message carries one; None if there is no such set."""
        if self.words is not None:
            return sorted(filter(None, self.words))
        unique = self.values.get("uniq_key")
        if unique is not None and all(unique):
            return sorted(unique)
        whole = self.values.get("keys")
        if whole is not None:
            # A message with these very keys carries each of them; one is enough.
            first = [next(filter(None, keys.split(" ")), None) for keys in whole]
            if None not in first:
                return sorted({word for word in first if word is not None})
        return None

    def selection(self) -> _core.MessageFilter:
        """Return the filter for the scan; `apply` then checks the values that it does not know."""
        begin, end = self.times
        numbers = self.values.get("queue_offset")
        low, high = self.bounds.get("queue_offset", (MIN_INT64, MAX_INT64))
        if numbers:
            low, high = max(low, min(numbers)), min(high, max(numbers))
        least, greatest = self.bounds.get("phy_offset", (0, MAX_INT64))
        return _core.MessageFilter(
            topics=self.values.get("topic"),
            queue_ids=list(self.values["queue_id"]) if "queue_id" in self.values else None,
            begin=begin,
            end=end,
            begin_phy_offset=least,
            end_phy_offset=None if greatest == MAX_INT64 else greatest + 1,
            begin_queue_offset=low,
            end_queue_offset=None if high == MAX_INT64 else high + 1,
            keys=self.carried,
        )

    @property
    def columns(self) -> list[str]:
        """The columns that `apply` looks at."""
        return [name for name in _UNKNOWN_TO_SCAN if name in self.values]

    def apply(self, batch: Any) -> Any:
        """Return the rows of a batch whose values are wanted, where the scan does not compare them itself."""
        for name in self.columns:
            column = batch.column(name)
            batch = batch.filter(pc.is_in(column, value_set=pa.array(sorted(self.values[name]), column.type)))
        return batch


def _narrow(found: MessageFilter, each: Filter) -> MessageFilter:
    """Narrow by one filter of a query; Spark applies those that are unknown here."""
    column: tuple[str, ...] = getattr(each, "attribute", ())
    name = column[0] if len(column) == 1 else ""
    # By name: the classes came with pyspark 4.1, and a filter that is not known must do no harm.
    kind, value = type(each).__name__, getattr(each, "value", None)
    if value is None:
        return found
    if name == _TIME:
        return _narrow_time(found, kind, value)
    if name in _TEXTS or name in _NUMBERS:
        if kind in ("EqualTo", "EqualNullSafe"):
            return found.with_values(name, [value])
        if kind == "In":
            return found.with_values(name, (item for item in value if item is not None))
    if name in _NUMBERS:
        low = {"GreaterThan": value + 1, "GreaterThanOrEqual": value} if kind.startswith("Greater") else {}
        high = {"LessThan": value - 1, "LessThanOrEqual": value} if kind.startswith("Less") else {}
        if low or high:
            return found.with_bounds(name, low.get(kind, MIN_INT64), high.get(kind, MAX_INT64))
    return found


def _narrow_time(found: MessageFilter, kind: str, value: Any) -> MessageFilter:
    """Narrow the store time: microseconds become the milliseconds inside of the bounds."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return found
    begin = time_ms(value) if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual") else None
    end = time_ms(value, end=True) if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual") else None
    if begin is None and end is None:
        return found
    return found.with_bounds(_TIME, MIN_INT64 if begin is None else begin, MAX_INT64 if end is None else end)
