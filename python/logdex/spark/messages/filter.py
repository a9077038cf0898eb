"""Which messages a read returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex import _core
from logdex._types import MAX_INT64
from logdex.spark.conditions import Conditions

_UNKNOWN_TO_SCAN = ("msg_id", "uniq_key", "keys", "queue_offset", "phy_offset")


@dataclass(frozen=True)
class MessageFilter(Conditions):
    """Conditions on messages, also on `words`: keys that a message has as its unique key or as one of its keys; None: any."""

    words: tuple[str, ...] | None = None

    TEXTS = ("topic", "msg_id", "uniq_key", "keys")
    NUMBERS = ("queue_id", "queue_offset", "phy_offset")
    TIME = "store_timestamp"

    @property
    def is_empty(self) -> bool:
        """Whether no message can pass."""
        return self.words == () or super().is_empty

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
