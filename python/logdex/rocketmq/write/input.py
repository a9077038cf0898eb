"""Turns messages that a caller hands over into record batches that a log takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Array, DataType, RecordBatch, Table

from logdex._core import property_column, time_ms
from logdex._types import check_int64
from logdex.arrow import arrow_batches, is_arrow

if TYPE_CHECKING:
    from logdex._types import Time

_UTC_MS = DataType.timestamp("ms", tz="UTC")
_TYPES = {
    "topic": DataType.utf8(),
    "queue_id": DataType.int32(),
    "store_timestamp": _UTC_MS,
    "born_timestamp": _UTC_MS,
    "uniq_key": DataType.utf8(),
    "tags": DataType.utf8(),
    "keys": DataType.utf8(),
    "body": DataType.binary(),
    "flag": DataType.int32(),
    "sys_flag": DataType.int32(),
    "reconsume_times": DataType.int32(),
    "prepared_transaction_offset": DataType.int64(),
    "born_host": DataType.utf8(),
    "store_host": DataType.utf8(),
}
_INTEGERS = (DataType.int32(), DataType.int64())
_PROPERTIES = "properties"


class PutResult(NamedTuple):
    """Where a message was put.

    Attributes:
        topic: The topic it lies under: a delayed message's is `SCHEDULE_TOPIC_XXXX` until its time has come.
        queue_id: The queue of that topic.
        queue_offset: Index of the message in its queue.
        phy_offset: Offset in the log at which it begins.
        store_timestamp: When it was stored, ms since the epoch.
        msg_id: The broker's id: store host and `phy_offset` in upper-case hex.
        store_size: Bytes of it in the log.
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
    """Give the properties of a message, with those that have arguments of their own.

    Raises:
        ValueError: A delay level below 0.
    """
    given = dict(properties) if properties else {}
    if keys is not None and not isinstance(keys, str):
        keys = " ".join(keys)
    if keys:
        given["KEYS"] = keys
    if tags:
        given["TAGS"] = tags
    if uniq_key:
        given["UNIQ_KEY"] = uniq_key
    if delay_level:
        check_int64(delay_level=delay_level)
        if delay_level < 0:
            raise ValueError(f"a delay level is 0 or more, not {delay_level}")
        # True is the level 1.
        given["DELAY"] = str(operator.index(delay_level))
    return list(given.items())


def no_messages() -> RecordBatch:
    """Make a batch of no messages."""
    return RecordBatch.from_pydict({"topic": _array([], "topic")})


def optional_ms(value: Time | None, name: str) -> int | None:
    """Give a time in ms; None stays None. Errors call it by its name."""
    return None if value is None else time_ms(value, name=name)


def put_batches(messages: Any) -> list[RecordBatch]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Read messages as record batches: Arrow data, or a mapping of columns.

    Raises:
        TypeError: Neither, or a column of another type.
        ValueError: No column, one that messages do not have, or columns of different lengths.
    """
    if isinstance(messages, Mapping):
        if not messages:
            raise ValueError("messages: there is no column topic")
        columns: dict[str, Any] = {name: _column(name, column) for name, column in messages.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns differ in length: {lengths}")
        return [RecordBatch.from_pydict(columns)]
    if hasattr(messages, "__arrow_c_array__"):
        # One batch: as it is. To read it as a stream would take longer than to put it.
        return [messages]
    if is_arrow(messages):
        return list(arrow_batches(messages))
    raise TypeError(f"expected Arrow data or a mapping of columns, not {type(messages).__name__}")


def joined(batches: list[RecordBatch]) -> RecordBatch:
    """Put batches of one schema into one."""
    if len(batches) == 1:
        return batches[0]
    return Table.from_batches(batches).combine_chunks().to_batches()[0]


def _column(name: str, column: Any) -> Array:  # noqa: ANN401 -- Arrow or a sequence
    if is_arrow(column):
        return Array.from_arrow(column)
    values = list(column)
    if name == _PROPERTIES:
        return property_column(values)
    if name not in _TYPES:
        raise ValueError(f"no column of a message that is put: {name!r}")
    return _array([optional_ms(value, name) for value in values] if _TYPES[name] is _UTC_MS else values, name)


def _array(values: list[Any], name: str) -> Array:
    kind = _TYPES[name]
    if kind in _INTEGERS:
        values = [None if value is None else _integer(value, name) for value in values]
    try:
        plain = Array(values, type=DataType.int64() if kind is _UTC_MS else kind)
    except OverflowError as error:
        raise ValueError(f"the column {name} holds a number that has no room in it: {error}") from error
    return plain.cast(kind) if kind is _UTC_MS else plain


def _integer(value: Any, name: str) -> int:  # noqa: ANN401 -- of a sequence
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"the column {name} holds integers, not {value!r}") from error
