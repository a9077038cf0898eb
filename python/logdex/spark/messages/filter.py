"""Which messages a read returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex import _core
from logdex._types import MAX_INT64, MIN_INT64, check_queue_id
from logdex.spark import options as opt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILTER_OPTIONS = ("topic", "keys", "tags", "msg_id", "queue_id", "queue_offset", "phy_offset", "begin", "end")


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions that must all hold; None: no condition. `keys` are compared with the unique key and with each of the keys.

    Topics are names; those of a stream may be patterns, which a task replaces by the topics of its messages. Offsets are a range
    or single numbers. Times are milliseconds, both included.
    """

    topics: Sequence[str] | None = None
    keys: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    msg_ids: Sequence[str] | None = None
    queue_ids: Sequence[int] | None = None
    queue_offsets: Sequence[int] | None = None
    phy_offsets: Sequence[int] | None = None
    times: tuple[int, int] = (MIN_INT64, MAX_INT64)
    matches: _core.Pattern | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> MessageFilter:
        """Return the conditions of a source's options: those named like columns, `keys`, `begin` and `end`."""
        begin, end = opt.instant(options, "begin", end=False), opt.instant(options, "end", end=True)
        queue_ids = opt.integers(options, "queue_id")
        for queue_id in queue_ids or ():
            check_queue_id(queue_id)
        return cls(
            topics=opt.texts(options, "topic"),
            keys=opt.texts(options, "keys"),
            tags=opt.texts(options, "tags"),
            msg_ids=opt.texts(options, "msg_id"),
            queue_ids=queue_ids,
            queue_offsets=opt.integers(options, "queue_offset", ranges=True),
            phy_offsets=opt.integers(options, "phy_offset", ranges=True),
            times=(MIN_INT64 if begin is None else begin, MAX_INT64 if end is None else end),
            matches=opt.pattern(options),
        )

    def between(self, begin: int, end: int) -> MessageFilter:
        """Return the conditions, and that a message begins in [begin, end)."""
        if self.is_empty:
            return self
        low, high = extent(self.phy_offsets)
        inside: Sequence[int] = range(max(low, begin), min(high + 1, end))
        if "phy_offset" in self.compared:
            inside = [each for each in self.compared["phy_offset"] if each in inside]
        return replace(self, phy_offsets=inside)

    @property
    def is_empty(self) -> bool:
        """True if no message can pass."""
        lists = (self.topics, self.keys, self.tags, self.msg_ids, self.queue_ids, self.queue_offsets, self.phy_offsets)
        return any(wanted is not None and not wanted for wanted in lists) or self.times[0] > self.times[1]

    @property
    def carried(self) -> list[str] | None:
        """Keys of which every wanted message carries one; None if there is no such set."""
        return None if self.keys is None else sorted(filter(None, self.keys))

    def selection(self) -> _core.MessageFilter:
        """Return the filter for the scan; `apply` then checks the values that it does not cover."""
        low, high = extent(self.queue_offsets)
        least, greatest = extent(self.phy_offsets)
        return _core.MessageFilter(
            topics=self.topics,
            queue_ids=self.queue_ids,
            begin=self.times[0],
            end=self.times[1],
            begin_phy_offset=max(0, least),
            end_phy_offset=None if greatest == MAX_INT64 else greatest + 1,
            begin_queue_offset=low,
            end_queue_offset=None if high == MAX_INT64 else high + 1,
            keys=self.carried,
            tags=self.tags,
            matches=self.matches,
        )

    @property
    def compared(self) -> dict[str, Sequence[Any]]:
        """The wanted values of each column that the scan does not compare itself."""
        listed = {"msg_id": self.msg_ids, "queue_offset": self.queue_offsets, "phy_offset": self.phy_offsets}
        return {name: each for name, each in listed.items() if each is not None and not isinstance(each, range)}

    def apply(self, batch: Any) -> Any:
        """Return the rows of a batch whose values are wanted, where the scan does not compare them itself."""
        for name, wanted in self.compared.items():
            column = batch.column(name)
            batch = batch.filter(pc.is_in(column, value_set=pa.array(wanted, column.type)))
        return batch


def extent(numbers: Sequence[int] | None) -> tuple[int, int]:
    """Return the least and the greatest of wanted numbers; None: any."""
    if numbers is None:
        return MIN_INT64, MAX_INT64
    return (numbers[0], numbers[-1]) if isinstance(numbers, range) else (min(numbers), max(numbers))
