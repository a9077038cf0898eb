"""Conditions on the columns of messages or records, as options of the read: what engines of queries push into a scan."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from logdex import _core
from logdex import open as open_source
from logdex._types import MAX_INT32, MAX_INT64, MIN_INT64
from logdex.hash_index.query import Milliseconds
from logdex.source import NO_MESSAGES, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from arro3.core import RecordBatch, Schema

    from logdex._core import BatchStream, SegmentReader

MIRRORED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
"""Comparisons of two values, with those that mean the same if the operands change places."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
_SAMPLED_ROWS = 8_192


class Condition(NamedTuple):
    """A condition that each row passes: a comparison of `MIRRORED`, or "In", of a column with constants."""

    column: str
    comparison: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source that pass filters.

    Attributes:
        source: A store, a Kafka log directory or a partition.
        filters: Options of `MessageStore.messages`, `LogDir.records` or `Log.records`.
    """

    source: Source
    filters: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        source: str | PathLike[str] | Source,
        filters: Mapping[str, Any],
        *,
        storage_options: Mapping[str, str] | None = None,
        filesystem: object | None = None,
    ) -> Rows:
        """Open a path or a URL; see `logdex.open`.

        Raises:
            OSError: The path does not exist or cannot be read.
            ValueError: Nothing can be opened there.
            TypeError: The filters name columns, which queries choose.
        """
        if "columns" in filters:
            raise TypeError("columns: expected no such option; the query selects columns")
        if not isinstance(source, Source):
            source = open_source(source, storage_options=storage_options, filesystem=filesystem)
        return cls(source, filters)

    @property
    def name(self) -> str:
        """The word for the rows: messages or records."""
        return "messages" if hasattr(self.source, "messages") else "records"

    @property
    def exist(self) -> bool:
        """True if the source has messages or records; an index directory has none."""
        return hasattr(self.source, self.name)

    def schema(self) -> Schema:
        """Return the schema of all columns."""
        with closing(self.read({})) as stream:
            return stream.schema

    def settled(self) -> Rows:
        """Return the rows so that decoded objects have the fields of the first ones in each read, whatever its conditions are."""
        formats = self.filters.get("decode") or {}
        sampled = _core.sampled_columns(formats)
        if not sampled:
            return self
        settled = _core.Decoder({name: formats[name] for name in sampled}, self._first(sampled)).settled
        fixed = {name: (formats[name], *rest) for name, rest in settled.items()}
        return replace(self, filters={**self.filters, "decode": {**formats, **fixed}})

    def _first(self, columns: list[str]) -> RecordBatch | None:
        """Return columns of the first rows as they are stored, or None without rows."""
        stored = {name: value for name, value in self.filters.items() if name != "decode"}
        with closing(replace(self, filters=stored).read({"columns": columns, "batch_size": _SAMPLED_ROWS})) as stream:
            return next((batch for batch in stream if batch.num_rows), None)

    def read(self, options: Mapping[str, Any]) -> BatchStream | SegmentReader:
        """Begin a read with these options and the filters, which come first.

        Raises:
            ValueError: The source has no messages; an invalid option.
            TypeError: An option that the call does not have.
        """
        read = getattr(self.source, self.name, None)
        if read is None:
            raise ValueError(f"{self.source.kind}: {NO_MESSAGES}")
        asked = {**options, **self.filters}
        if "columns" in asked and (formats := asked.get("decode")):
            # Only columns that are read can be decoded; the errors are those of decoded columns.
            if "body_error" in asked["columns"]:
                asked["columns"] = list(dict.fromkeys([*asked["columns"], *formats]))
            asked["decode"] = {name: form for name, form in formats.items() if name in asked["columns"]}
        stream: BatchStream | SegmentReader = read(**asked)
        return stream

    def options(self, conditions: Iterable[Condition]) -> dict[str, Any]:
        """Return the options of a read that drop only rows that do not pass all conditions."""
        return pushed_options(self._pushed(), conditions)

    def columns(self, wanted: Iterable[str]) -> list[str]:
        """Return the columns to read for a query; one if it needs the number of rows only."""
        names = list(dict.fromkeys(wanted))
        return names or [next(each for each in _SMALLEST if each in self._pushed())]

    def _pushed(self) -> Mapping[str, str | Bounds]:
        if self.name == "messages":
            return OF_MESSAGES
        return OF_LOG_DIR if hasattr(self.source, "topics") else OF_LOG


class Bounds(NamedTuple):
    """The options of a read that bound a column; `end` is exclusive for offsets."""

    begin: str
    end: str


OF_MESSAGES: dict[str, str | Bounds] = {
    "topic": "topics",
    "queue_id": "queue_id",
    "store_timestamp": Bounds("begin", "end"),
    "phy_offset": Bounds("begin_phy_offset", "end_phy_offset"),
    "uniq_key": "keys",
    "keys": "keys",
    "tags": "tags",
}
OF_LOG: dict[str, str | Bounds] = {
    "offset": Bounds("begin_offset", "end_offset"),
    "timestamp": Bounds("begin", "end"),
    "key": "keys",
}
OF_LOG_DIR = {"topic": "topic", "partition": "partitions", **OF_LOG}
_SMALLEST = ("phy_offset", "offset")


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


def pushed_options(pushed: Mapping[str, str | Bounds], conditions: Iterable[Condition]) -> dict[str, Any]:
    """Return options by the columns that they are about; see `Rows.options`."""
    wanted: defaultdict[str, _Wanted] = defaultdict(_Wanted)
    for name, comparison, values in conditions:
        if name in pushed and values and None not in values:
            # Constants of several types have no order. What was not narrowed is filtered later.
            with suppress(TypeError):
                wanted[name].narrow(comparison, values)
    options: dict[str, Any] = {}
    for name, option in pushed.items():
        if name in wanted:
            found = _bounds(option, wanted[name]) if isinstance(option, Bounds) else _values(name, option, wanted[name])
            # One option may be about two columns.
            options = {**found, **options}
    return options


def _bounds(option: Bounds, wanted: _Wanted) -> dict[str, Any]:
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
