"""Which messages a read keeps: by topic, by key, by store time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter over batches of messages; what is None does not filter.

    Attributes:
        topics: Topics to keep.
        keys: Keys to keep: a message has a key as its unique key or as one of its space-separated keys.
        begin_ms: Earliest store time, inclusive.
        end_ms: Latest store time, inclusive.
    """

    topics: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the filter looks at."""
        looked_at: list[str] = []
        if self.topics is not None:
            looked_at.append("topic")
        if self.keys is not None:
            looked_at += ["uniq_key", "keys"]
        if self.begin_ms is not None or self.end_ms is not None:
            looked_at.append("store_timestamp")
        return tuple(looked_at)

    def apply(self, batch: Any) -> Any:
        """Give the rows of a batch that pass."""
        masks: list[Any] = []
        if self.topics is not None:
            masks.append(pc.is_in(batch.column("topic"), value_set=pa.array(self.topics, pa.utf8())))
        if self.keys is not None:
            masks.append(_has_key(batch.column("uniq_key"), batch.column("keys"), self.keys))
        if self.begin_ms is not None or self.end_ms is not None:
            times = batch.column("store_timestamp").cast(pa.int64())
            if self.begin_ms is not None:
                masks.append(pc.greater_equal(times, self.begin_ms))
            if self.end_ms is not None:
                masks.append(pc.less_equal(times, self.end_ms))
        if not masks:
            return batch
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return batch.filter(mask)


def _has_key(uniq_keys: Any, keys: Any, wanted: tuple[str, ...]) -> Any:
    """Tell which rows carry one of the keys, by the broker's rule: pieces between single spaces, none of them empty."""
    wanted_set = pa.array([key for key in wanted if key], pa.utf8())
    pieces = pc.split_pattern(keys, pattern=" ")
    hit = pc.is_in(pc.list_flatten(pieces), value_set=wanted_set)
    rows_hit = pc.list_parent_indices(pieces).filter(hit)
    row_numbers = pa.array(range(len(keys)), rows_hit.type)
    return pc.or_(pc.is_in(uniq_keys, value_set=wanted_set), pc.is_in(row_numbers, value_set=rows_hit))
