"""Record batches that Python makes one by one, as an Arrow stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from arro3.core import Table

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch, Schema


@final
class BatchStream:
    """A stream of record batches, each made when it is asked for: iterate over it, or hand it to what takes Arrow streams.

    An exception comes as it was raised where the stream is iterated over; where it was handed over, with its text.
    """

    __slots__ = ("_batches", "_schema")

    def __init__(self, schema: Schema, batches: Iterator[RecordBatch]) -> None:
        """Take an iterator of batches that have this schema."""
        self._schema = schema
        self._batches: Iterator[RecordBatch] | None = batches

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._schema

    @property
    def closed(self) -> bool:
        """Whether it was closed, read to a table or handed over."""
        return self._batches is None

    def close(self) -> None:
        """Give no more batches. A second time does nothing."""
        self._batches = None

    def _take(self) -> Iterator[RecordBatch]:
        batches, self._batches = self._open(), None
        return batches

    def _open(self) -> Iterator[RecordBatch]:
        if self._batches is None:
            raise ValueError("the reader was closed, read to a table or handed over as a stream")
        return self._batches

    def __iter__(self) -> BatchStream:
        """Give itself."""
        return self

    def __next__(self) -> RecordBatch:
        """Give the next batch."""
        return next(self._open())

    def read_next_batch(self) -> RecordBatch:
        """Give the next batch.

        Raises:
            StopIteration: There is none.
        """
        return next(self)

    def read_all(self) -> Table:
        """Give what is left as a table."""
        return Table.from_batches(list(self._take()), schema=self._schema)

    def __arrow_c_schema__(self) -> object:
        """Export the schema."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export what is left."""
        return _core.stream_capsule(self._schema, self._take(), requested_schema)
