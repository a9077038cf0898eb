"""Which messages a read keeps: what the options say, and what the filters of a query say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex._core import time_ms
from logdex._types import MAX_INT64, MIN_INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.datasource import Filter

_TIME = "store_timestamp"
_TEXTS = ("topic", "msg_id", "uniq_key", "keys")
_NUMBERS = ("queue_id", "queue_offset", "phy_offset")
_Range = tuple[int, int]


@dataclass(frozen=True)
class MessageFilter:
    """A filter over batches of messages: all parts of it must hold.

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
        """Say it with the options' words; None does not filter."""
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
        """Give a filter that lets pass no less than what this one and all of a query's filters let pass."""
        found = self
        for each in filters:
            found = _narrow(found, each)
        return found

    def with_values(self, column: str, wanted: Iterable[Any]) -> MessageFilter:
        """Give a filter that also wants one of these values."""
        known = self.values.get(column)
        both = frozenset(wanted) if known is None else known & frozenset(wanted)
        return replace(self, values={**self.values, column: both})

    def with_bounds(self, column: str, least: int, greatest: int) -> MessageFilter:
        """Give a filter that also wants a value between these, both included."""
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
    def columns(self) -> tuple[str, ...]:
        """The columns that the filter looks at."""
        words = () if self.words is None else ("uniq_key", "keys")
        return tuple(dict.fromkeys([*self.values, *self.bounds, *words]))

    def apply(self, batch: Any) -> Any:
        """Give the rows of a batch that pass."""
        masks: list[Any] = []
        for name, wanted in self.values.items():
            column = batch.column(name)
            masks.append(pc.is_in(column, value_set=pa.array(sorted(wanted), column.type)))
        for name, (low, high) in self.bounds.items():
            numbers = batch.column(name).cast(pa.int64())
            masks += [
                pc.greater_equal(numbers, max(low, MIN_INT64)),
                pc.less_equal(numbers, min(high, MAX_INT64)),
            ]
        if self.words is not None:
            masks.append(_has_key(batch.column("uniq_key"), batch.column("keys"), self.words))
        if not masks:
            return batch
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return batch.filter(mask)


def _narrow(found: MessageFilter, each: Filter) -> MessageFilter:
    """Narrow by one filter of a query; what cannot be used here is left to Spark."""
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


def _has_key(uniq_keys: Any, keys: Any, wanted: tuple[str, ...]) -> Any:
    """Tell which rows carry one of the keys, by the broker's rule: pieces between single spaces, none of them empty."""
    wanted_set = pa.array([key for key in wanted if key], pa.utf8())
    pieces = pc.split_pattern(keys, pattern=" ")
    hit = pc.is_in(pc.list_flatten(pieces), value_set=wanted_set)
    rows_hit = pc.list_parent_indices(pieces).filter(hit)
    row_numbers = pa.array(range(len(keys)), rows_hit.type)
    return pc.or_(pc.is_in(uniq_keys, value_set=wanted_set), pc.is_in(row_numbers, value_set=rows_hit))
