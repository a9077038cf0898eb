"""The messages that a caller puts, as record batches, and the place of a message that was put."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Table

from logdex._core import message_batch, time_ms
from logdex._types import check_int64
from logdex.arrow import arrow_batches, is_arrow

if TYPE_CHECKING:
    from arro3.core import RecordBatch

    from logdex._types import Time


class PutResult(NamedTuple):
    """The place of a message that was put, by the names of the message columns.

    A delayed message waits under the topic `SCHEDULE_TOPIC_XXXX`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    msg_id: str
    store_size: int


def all_properties(
    properties: Mapping[str, str] | None,
    *,
    keys: str | Iterable[str] | None,
    tags: str | None,
    uniq_key: str | None,
    delay_level: int,
) -> list[tuple[str, str]]:
    """Return the properties of a message, including those that have their own arguments."""
    given = dict(properties) if properties else {}
    if keys is not None and not isinstance(keys, str):
        keys = " ".join(keys)
    given |= {name: text for name, text in (("KEYS", keys), ("TAGS", tags), ("UNIQ_KEY", uniq_key)) if text}
    if delay_level:
        check_int64(delay_level=delay_level)
        if delay_level < 0:
            raise ValueError(f"delay_level={delay_level}: expected 0 or more")
        # True is level 1.
        given["DELAY"] = str(operator.index(delay_level))
    return list(given.items())


def optional_ms(value: Time | None, name: str) -> int | None:
    """Return a time in ms; None stays None. `name` is the argument in errors."""
    return None if value is None else time_ms(value, name=name)


def put_batches(messages: Any) -> list[RecordBatch]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Read messages, Arrow data or a mapping of columns, as record batches, at least one."""
    if isinstance(messages, Mapping):
        if not messages:
            raise ValueError("messages: expected a column topic, found no column")
        return [message_batch(messages)]
    if hasattr(messages, "__arrow_c_array__"):
        # One batch, as it is: to read it as a stream takes longer than to put it.
        return [messages]
    if is_arrow(messages):
        return list(arrow_batches(messages)) or [message_batch({"topic": []})]
    raise TypeError(f"messages: expected Arrow data or a mapping of columns, found {type(messages).__name__}")


def joined(batches: list[RecordBatch]) -> RecordBatch:
    """Return one batch with the rows of several batches of one schema."""
    if len(batches) == 1:
        return batches[0]
    return Table.from_batches(batches).combine_chunks().to_batches()[0]
