"""Which messages a read returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from logdex import _core
from logdex._types import MAX_INT64, MIN_INT64
from logdex.spark import options as opt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILTER_OPTIONS = ("topic", "keys", "msg_id", "queue_id", "queue_offset", "phy_offset", "begin", "end")
_UNKNOWN_TO_SCAN = ("msg_id", "queue_offset", "phy_offset")


@dataclass(frozen=True)
class MessageFilter:
    """Conditions that must all hold: wanted values of columns, and bounds, both included, of numbers and of times in ms.

    `words` are keys that a message has as its unique key or as one of its keys; None: any.
    """

    values: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    words: tuple[str, ...] | None = None

    TIME: ClassVar[str] = "store_timestamp"

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> MessageFilter:
        """Return the conditions of a source's options: those named like columns, `keys`, `begin` and `end`."""
        found = cls(words=opt.texts(options, "keys"))
        for name in ("topic", "msg_id"):
            if (texts := opt.texts(options, name)) is not None:
                found = found.with_values(name, texts)
        for name in ("queue_id", "queue_offset", "phy_offset"):
            numbers = opt.integers(options, name, ranges=name != "queue_id")
            if isinstance(numbers, range):
                found = found.with_bounds(name, numbers.start, numbers.stop - 1)
            elif numbers is not None:
                found = found.with_values(name, numbers)
        begin, end = opt.instant(options, "begin", end=False), opt.instant(options, "end", end=True)
        return found.with_bounds(cls.TIME, begin, end)

    def with_values(self, column: str, wanted: Iterable[Any]) -> MessageFilter:
        """Return the conditions, and that the column has one of these values."""
        both = frozenset(wanted) & self.values[column] if column in self.values else frozenset(wanted)
        return replace(self, values={**self.values, column: both})

    def with_bounds(self, column: str, least: int | None, greatest: int | None) -> MessageFilter:
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
        """Whether no message can pass."""
        return (
            self.words == () or not all(self.values.values()) or any(low > high for low, high in self.bounds.values())
        )

    @property
    def carried(self) -> list[str] | None:
        """Keys of which every wanted message carries one; None if there is no such set."""
        return None if self.words is None else sorted(filter(None, self.words))

    def selection(self) -> _core.MessageFilter:
        """Return the filter for the scan; `apply` then checks the values that it does not know."""
        begin, end = self.extent(self.TIME)
        low, high = self.extent("queue_offset")
        least, greatest = self.extent("phy_offset")
        return _core.MessageFilter(
            topics=self.values.get("topic"),
            queue_ids=list(self.values["queue_id"]) if "queue_id" in self.values else None,
            begin=begin,
            end=end,
            begin_phy_offset=max(0, least),
            end_phy_offset=None if greatest == MAX_INT64 else greatest + 1,
            begin_queue_offset=low,
            end_queue_offset=None if high == MAX_INT64 else high + 1,
            keys=self.carried,
        )

    @property
    def columns(self) -> list[str]:
        """The columns that `apply` needs."""
        return [name for name in _UNKNOWN_TO_SCAN if name in self.values]

    def apply(self, batch: Any) -> Any:
        """Return the rows of a batch whose values are wanted, where the scan does not compare them itself."""
        for name in self.columns:
            column = batch.column(name)
            batch = batch.filter(pc.is_in(column, value_set=pa.array(sorted(self.values[name]), column.type)))
        return batch
