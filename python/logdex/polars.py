"""Lazy frames of polars over the messages of a store, or the records of a Kafka log directory or partition."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ImportError as error:
    raise ImportError("logdex.polars needs polars: pip install 'logdex[polars]'", name=error.name) from error

from logdex import open as open_source
from logdex._types import MAX_INT32, MAX_INT64, MIN_INT64
from logdex.hash_index.query import Milliseconds
from logdex.source import NO_MESSAGES, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from logdex._core import BatchStream, SegmentReader

__all__ = ["scan"]

_MIRRORED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
"""Comparisons that are translated, with those that mean the same if the operands change places."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
_ROWS_OF_A_BATCH = 8_192


def scan(
    source: str | PathLike[str] | Source,
    *,
    storage_options: Mapping[str, str] | None = None,
    filesystem: object | None = None,
    **filters: Any,  # noqa: ANN401 -- those of `messages` or `records`
) -> pl.LazyFrame:
    """Return the messages of a store, or the records of a Kafka log directory or partition, as a lazy frame.

    A query reads only the columns that it uses. Conditions that compare a column with constants reach the read: `==`, `is_in`,
    `<`, `<=`, `>`, `>=` and `is_between`, joined by `&`. The columns are `topic`, `queue_id`, `store_timestamp`, `phy_offset`,
    `keys`, `uniq_key` and `tags` of messages, and `topic`, `partition`, `offset`, `timestamp` and `key` of records. polars checks
    all conditions on the rows that were read. A row limit without a condition ends the read.

    Conditions on topics, keys and tags are read as by `messages`, by queues and index: see `scan` there.

    Args:
        source: A path, a URL, or what `logdex.open` returned.
        storage_options: See `logdex.open`.
        filesystem: See `logdex.open`.
        filters: Options of `MessageStore.messages`, `LogDir.records` or `Log.records`, except `columns`. A condition of a query
            on the same option does not reach the read.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The source has no messages; an invalid option.
        TypeError: `columns`, or an option that the call does not have.

    Example:
        >>> import logdex.polars
        >>> import polars as pl
        >>> messages = logdex.polars.scan("/var/lib/rocketmq/store")  # doctest: +SKIP
        >>> messages.filter(pl.col("topic") == "Orders").group_by("tags").len().collect()  # doctest: +SKIP
    """
    opened = (
        source
        if isinstance(source, Source)
        else open_source(source, storage_options=storage_options, filesystem=filesystem)
    )
    if "columns" in filters:
        raise TypeError("columns: expected no such option; select the columns of the frame")
    reader = _Reader(opened, filters)
    with closing(reader.stream(filters)) as stream:
        schema = pl.DataFrame(stream.schema.empty_table()).schema
    return register_io_source(reader, schema=schema)


class _Bounds(NamedTuple):
    """The options of a read that bound a column; `end` is exclusive for offsets."""

    begin: str
    end: str


_OF_MESSAGES: dict[str, str | _Bounds] = {
    "topic": "topics",
    "queue_id": "queue_id",
    "store_timestamp": _Bounds("begin", "end"),
    "phy_offset": _Bounds("begin_phy_offset", "end_phy_offset"),
    "uniq_key": "keys",
    "keys": "keys",
    "tags": "tags",
}
_OF_LOG: dict[str, str | _Bounds] = {
    "offset": _Bounds("begin_offset", "end_offset"),
    "timestamp": _Bounds("begin", "end"),
    "key": "keys",
}
_OF_LOG_DIR = {"topic": "topic", "partition": "partitions", **_OF_LOG}
_SMALLEST = ("phy_offset", "offset")
"""Columns that are read if a query needs rows only."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """The source of a lazy frame: polars calls it for each execution of a plan."""

    source: Source
    filters: dict[str, Any]

    def __call__(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        options = dict(self.filters)
        if predicate is not None:
            options = {**_options(predicate, self._pushed()), **options}
        if with_columns is not None:
            used = dict.fromkeys([*with_columns, *(() if predicate is None else predicate.meta.root_names())])
            options["columns"] = list(used) or [next(each for each in _SMALLEST if each in self._pushed())]
        if n_rows is not None and n_rows < _ROWS_OF_A_BATCH:
            # Do not read ahead of the few rows that are wanted.
            small = {"threads": 1} if hasattr(self.source, "messages") else {"batch_size": max(n_rows, 1)}
            options = {**small, **options}
        left = n_rows
        with closing(self.stream(options)) as stream:
            while left != 0 and (batch := next(stream, None)) is not None:
                frame = pl.DataFrame(batch)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if with_columns is not None:
                    frame = frame.select(with_columns)
                if left is not None:
                    frame = frame.head(left)
                    left -= frame.height
                yield frame

    def stream(self, options: Mapping[str, Any]) -> BatchStream | SegmentReader:
        """Begin a read with options of `messages` or `records`."""
        read = getattr(self.source, "messages", None) or getattr(self.source, "records", None)
        if read is None:
            raise ValueError(f"{self.source.kind}: {NO_MESSAGES}")
        stream: BatchStream | SegmentReader = read(**options)
        return stream

    def _pushed(self) -> dict[str, str | _Bounds]:
        """Return the options of the read by the columns that they are about."""
        if hasattr(self.source, "messages"):
            return _OF_MESSAGES
        return _OF_LOG_DIR if hasattr(self.source, "topics") else _OF_LOG


@dataclass(slots=True)
class _Wanted:
    """The values of a column that may pass: all from the least to the greatest, or only some of them."""

    least: Any = None
    greatest: Any = None
    values: list[Any] | None = None

    def narrow(self, comparison: str, values: list[Any]) -> None:
        """Add a condition. Bounds are included, so that all numbers are kept that may pass."""
        if comparison in ("Eq", "In"):
            self.values = values if self.values is None else [each for each in self.values if each in values]
        if comparison in ("Gt", "GtEq", "Eq", "In"):
            least = min(values)
            self.least = least if self.least is None else max(self.least, least)
        if comparison in ("Lt", "LtEq", "Eq", "In"):
            greatest = max(values)
            self.greatest = greatest if self.greatest is None else min(self.greatest, greatest)


def _options(predicate: pl.Expr, pushed: Mapping[str, str | _Bounds]) -> dict[str, Any]:
    """Return the options of a read that drop only rows that a predicate drops, too."""
    wanted: defaultdict[str, _Wanted] = defaultdict(_Wanted)
    for name, comparison, values in _conditions(json.loads(predicate.meta.serialize(format="json"))):
        if name in pushed:
            # Constants of several types have no order. What was not narrowed is filtered later.
            with suppress(TypeError):
                wanted[name].narrow(comparison, values)
    options: dict[str, Any] = {}
    for name, option in pushed.items():
        if name in wanted:
            found = (
                _bounds(option, wanted[name]) if isinstance(option, _Bounds) else _values(name, option, wanted[name])
            )
            # One option may be about two columns.
            options = {**found, **options}
    return options


def _conditions(node: Any) -> Iterator[tuple[str, str, list[Any]]]:  # noqa: ANN401 -- JSON
    """Iterate over the comparisons that must all hold: column, operator, constants.

    polars does not promise the form of a serialized expression. A form that is not known here is no condition.
    """
    match node:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            yield from _conditions(left)
            yield from _conditions(right)
        case {"BinaryExpr": {"op": op, "left": {"Column": str(name)}, "right": right}} if op in _MIRRORED:
            yield from _compared(name, op, right)
        case {"BinaryExpr": {"op": op, "left": left, "right": {"Column": str(name)}}} if op in _MIRRORED:
            yield from _compared(name, _MIRRORED[op], left)
        case {"Function": {"input": [{"Column": str(name)}, listed], "function": {"Boolean": {"IsIn": _}}}}:
            yield from _compared(name, "In", listed)
        case {
            "Function": {"input": [{"Column": str(name)}, least, greatest], "function": {"Boolean": {"IsBetween": _}}}
        }:
            yield from _compared(name, "GtEq", least)
            yield from _compared(name, "LtEq", greatest)


def _compared(name: str, comparison: str, node: Any) -> Iterator[tuple[str, str, list[Any]]]:  # noqa: ANN401 -- JSON
    """Yield a comparison with constants, none of which is null."""
    try:
        constant = pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")
        if constant.meta.root_names():
            return
        column = pl.select(constant).to_series()
        values = (column.explode() if column.dtype == pl.List else column).to_list()
    except (pl.exceptions.PolarsError, ValueError, OverflowError):
        return
    if values and None not in values:
        yield name, comparison, values


def _bounds(option: _Bounds, wanted: _Wanted) -> dict[str, Any]:
    """Return the bounds of a range of offsets, or of times."""
    is_time, found = option.begin == "begin", {}
    if (least := _number(wanted.least, is_time=is_time)) is not None:
        found[option.begin] = Milliseconds(least) if is_time else max(least, 0)
    if (greatest := _number(wanted.greatest, is_time=is_time)) is not None and greatest < MAX_INT64:
        # The column has milliseconds: a finer constant is rounded up. The end of a range of offsets is exclusive.
        found[option.end] = Milliseconds(greatest + 1) if is_time else max(greatest + 1, 0)
    return found


def _number(bound: Any, *, is_time: bool) -> int | None:  # noqa: ANN401 -- a constant of any type
    """Return a bound as an integer, a time in ms rounded down; None if it is of another type, such as a time without a zone."""
    if is_time:
        return (bound - _EPOCH) // _MS if isinstance(bound, datetime) and bound.tzinfo is not None else None
    return bound if type(bound) is int and MIN_INT64 <= bound <= MAX_INT64 else None


def _values(name: str, option: str, wanted: _Wanted) -> dict[str, Any]:
    """Return the values of a column as an option."""
    values = wanted.values
    if values is None:
        return {}
    if name == "keys":
        # The option is a set of words, of which the whole text holds several.
        values = [next(filter(None, str(each).split(" ")), "") for each in values]
    if name in ("queue_id", "partition"):
        numbers = [each for each in values if type(each) is int and 0 <= each <= MAX_INT32]
        if option == "queue_id":
            return {option: numbers[0]} if len(numbers) == len(values) == 1 else {}
        return {option: numbers}
    kind = bytes if name == "key" else str
    return {option: values} if all(isinstance(each, kind) and each for each in values) else {}
