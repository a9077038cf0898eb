"""Arrow data at the boundary: a stream of batches that Python makes, and the input columns of an index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from arro3.core import Array, DataType, RecordBatch, RecordBatchReader, Table

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arro3.core import Schema

ENTRY_COLUMNS = ("topic", "key", "phy_offset", "store_timestamp")
"""The columns of `IndexService.put_batch`."""

_UTC_MS = DataType.timestamp("ms", tz="UTC")
_MESSAGE_COLUMNS = {
    "topic": DataType.utf8(),
    "phy_offset": DataType.int64(),
    "store_timestamp": _UTC_MS,
    "uniq_key": DataType.utf8(),
    "keys": DataType.utf8(),
    "tags": DataType.utf8(),
    "sys_flag": DataType.int32(),
}
INDEXED_COLUMNS = tuple(_MESSAGE_COLUMNS)
"""The message columns that an index needs (IndexService#buildIndex)."""

_MESSAGES_A_BATCH = 8_192
_INTEGER_KINDS = (DataType.is_integer, DataType.is_null)
_NO_TEXT_KINDS = (DataType.is_primitive, DataType.is_boolean, DataType.is_nested)


@final
class BatchStream:
    """A stream of record batches that are made on demand: iterate over it, or pass it to a consumer of Arrow streams.

    Iteration raises the original exception; an Arrow consumer gets its text.
    """

    __slots__ = ("_batches", "_schema")

    def __init__(self, schema: Schema, batches: Iterator[RecordBatch]) -> None:
        """Keep the iterator; its batches must have this schema."""
        self._schema = schema
        self._batches: Iterator[RecordBatch] | None = batches

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._schema

    @property
    def closed(self) -> bool:
        """Whether it was closed, read to a table or passed to a consumer."""
        return self._batches is None

    def close(self) -> None:
        """Release the batches. A second call does nothing."""
        self._batches = None

    def _take(self) -> Iterator[RecordBatch]:
        batches, self._batches = self._open(), None
        return batches

    def _open(self) -> Iterator[RecordBatch]:
        if self._batches is None:
            raise ValueError("the reader was closed, read to a table or handed over as a stream")
        return self._batches

    def __iter__(self) -> BatchStream:
        """Return the stream itself."""
        return self

    def __next__(self) -> RecordBatch:
        """Return the next batch."""
        return next(self._open())

    def read_next_batch(self) -> RecordBatch:
        """Return the next batch.

        Raises:
            StopIteration: There is none.
        """
        return next(self)

    def read_all(self) -> Table:
        """Return the remaining batches as a table."""
        return Table.from_batches(list(self._take()), schema=self._schema)

    def __arrow_c_schema__(self) -> object:
        """Export the schema."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the remaining batches."""
        return _core.stream_capsule(self._schema, self._take(), requested_schema)


def entry_batches(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Return the columns of index entries, one dict a batch. All batches are checked first.

    Args:
        batch: An Arrow batch, table or stream, or a mapping, with the columns topic, key, phy_offset and store_timestamp.

    Raises:
        ValueError: A column is missing, the columns differ in length, or a value is null.
        TypeError: Neither Arrow data nor a mapping; or a column of another type than text, integers or times.
    """
    if isinstance(batch, Mapping):
        parts = [_columns(list(batch), batch.__getitem__)]
    elif is_arrow(batch):
        parts = [_columns(part.column_names, part.column) for part in arrow_batches(batch)]
    else:
        raise TypeError(f"expected Arrow data or a mapping of columns, not {type(batch).__name__}")
    for part in parts:
        lengths = {name: len(column) for name, column in part.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns differ in length: {lengths}")
        for name, column in part.items():
            if column.null_count:
                raise ValueError(
                    f"the column {name} holds {column.null_count} null values; an index entry needs all four"
                )
    return parts


def _columns(names: Sequence[str], column: Callable[[str], Any]) -> dict[str, Array]:
    """Convert the columns to the types of a put, so that a wrong type is refused before a file is created."""
    missing = [name for name in ENTRY_COLUMNS if name not in names]
    if missing:
        raise ValueError(f"the column {missing[0]} is missing; there are {', '.join(names)}")
    return dict(zip(ENTRY_COLUMNS, _core.entry_columns(*map(column, ENTRY_COLUMNS)), strict=True))


def is_arrow(value: object) -> bool:
    """Return whether a value has the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def arrow_batches(value: Any) -> Iterator[RecordBatch]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Iterate over the batches of a batch, a table or a stream."""
    if hasattr(value, "__arrow_c_stream__"):
        yield from RecordBatchReader.from_stream(value)
    else:
        yield RecordBatch.from_arrow(value)


def take_rows(batch: RecordBatch, rows: list[int]) -> RecordBatch:
    """Return the given rows of a batch."""
    return batch.take(Array(rows, type=DataType.uint64()))


def message_batches(messages: Any) -> Iterator[RecordBatch]:  # noqa: ANN401 -- Arrow data or messages
    """Iterate over messages (Arrow data or `Message` objects) as batches of the columns that an index needs."""
    if is_arrow(messages):
        for batch in arrow_batches(messages):
            names = [name for name in _MESSAGE_COLUMNS if name in batch.column_names]
            yield RecordBatch.from_pydict({name: _message_column(batch, name) for name in names})
        return
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"expected Arrow data or messages, not {type(messages).__name__}")
    rest = iter(messages)
    while part := list(islice(rest, _MESSAGES_A_BATCH)):
        try:
            columns = {name: [getattr(message, name) for message in part] for name in _MESSAGE_COLUMNS}
        except AttributeError as error:
            raise TypeError(f"expected Arrow data or messages: {error}") from error
        yield RecordBatch.from_pydict(
            {name: _array(values, _MESSAGE_COLUMNS[name]) for name, values in columns.items()}
        )


def _message_column(batch: RecordBatch, name: str) -> Array:
    """Convert a column to its type in a scan.

    Raises:
        TypeError: The conversion would change values, such as fractions of numbers.
    """
    column, kind = batch.column(name), _MESSAGE_COLUMNS[name]
    given = _type_of_values(column.type)
    if bool(DataType.is_string(kind)):
        wanted = "text"
        fits = not any(bool(is_kind(given)) for is_kind in _NO_TEXT_KINDS)
    else:
        wanted = "times or integers" if kind is _UTC_MS else "integers"
        is_time = kind is _UTC_MS and bool(DataType.is_timestamp(given))
        fits = is_time or any(bool(is_kind(given)) for is_kind in _INTEGER_KINDS)
    if not fits:
        raise TypeError(f"column {name}: expected {wanted}, found {str(given).strip()}")
    return _cast(column, kind)


def _type_of_values(kind: DataType) -> DataType:
    """Return the type of the values of a dictionary or of runs, or the type itself."""
    while not bool(DataType.is_nested(kind)) and kind.value_type is not None:
        kind = kind.value_type
    return kind


def _cast(column: Array, kind: DataType) -> Array:
    """Convert text of another layout, or times of another unit."""
    return column if column.type.equals(kind) else column.cast(kind)


def _array(values: list[Any], kind: DataType) -> Array:
    plain = DataType.int64() if kind is _UTC_MS else kind
    return _cast(Array(values, type=plain), kind)
