"""Rows of Arrow batches as plain Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arro3.core import DataType, RecordBatchReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arro3.core import RecordBatch

# Typed as it is, its checks would narrow an unknown type to nothing.
_TYPES: Any = DataType


def limited_batches(stream: Any, limit: int | None) -> Iterator[RecordBatch]:  # noqa: ANN401 -- PyCapsule
    """Give the batches of a stream, no more rows than the limit in all."""
    left = limit
    if left == 0:
        return
    # A reader of our own is read as it is: through the Arrow interface an error would lose its class.
    for batch in stream if hasattr(stream, "__next__") else RecordBatchReader.from_stream(stream):
        part = batch if left is None else batch.slice(0, min(left, batch.num_rows))
        if part.num_rows:
            yield part
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                return


def limited_rows(stream: Any, limit: int | None) -> Iterator[dict[str, Any]]:  # noqa: ANN401 -- PyCapsule
    """Give the rows of a stream as dicts: times in ms, maps as dicts."""
    return plain_rows(limited_batches(stream, limit))


def plain_rows(batches: Iterable[RecordBatch]) -> Iterator[dict[str, Any]]:
    """Give the rows of batches as dicts: times in ms, maps as dicts."""
    for batch in batches:
        names = batch.column_names
        columns = [plain_values(batch.column(name)) for name in names]
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))


def plain_values(column: Any) -> list[Any]:  # noqa: ANN401 -- an Arrow column
    """Give the values of a column: times in ms, maps as dicts."""
    plain = column.cast(DataType.int64()) if _TYPES.is_timestamp(column.type) else column
    values: list[Any] = plain.to_pylist()
    return [None if value is None else dict(value) for value in values] if _TYPES.is_map(column.type) else values
