"""Streams of batches that Python makes: one at a time, with the exceptions as they were raised, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from arro3.core import Array, DataType, Field, RecordBatch, Schema

from logdex.arrow import BatchStream
from logdex.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = Schema([Field("number", DataType.int64())])


def batch(*numbers: int) -> RecordBatch:
    return RecordBatch.from_arrays([Array(numbers, DataType.int64())], schema=SCHEMA)


class Numbers:
    """Makes batches and counts them."""

    def __init__(self, last: int, error: Exception | None = None) -> None:
        self.made, self.last, self.error = 0, last, error

    def __iter__(self) -> Iterator[RecordBatch]:
        while self.made < self.last:
            self.made += 1
            yield batch(self.made, -self.made)
        if self.error is not None:
            raise self.error


def test_batches_are_made_when_they_are_asked_for() -> None:
    numbers = Numbers(3)
    stream = BatchStream(SCHEMA, iter(numbers))
    assert (stream.schema, stream.closed, numbers.made) == (SCHEMA, False, 0)
    assert next(stream)["number"].to_pylist() == [1, -1]
    assert numbers.made == 1
    assert stream.read_next_batch()["number"].to_pylist() == [2, -2]
    assert [rows["number"].to_pylist() for rows in stream] == [[3, -3]]
    with pytest.raises(StopIteration):
        stream.read_next_batch()


def test_a_consumer_of_the_arrow_stream_gets_batches_one_by_one() -> None:
    numbers = Numbers(3)
    stream = BatchStream(SCHEMA, iter(numbers))
    assert pa.schema(stream) == pa.schema([("number", pa.int64())])
    next(stream)
    taken = pa.RecordBatchReader.from_stream(stream)
    assert (stream.closed, numbers.made) == (True, 1)
    assert taken.read_next_batch().to_pydict() == {"number": [2, -2]}
    assert numbers.made == 2
    assert taken.read_all().to_pydict() == {"number": [3, -3]}


def test_findings_are_filled_while_any_consumer_reads() -> None:
    finding = Finding("/a/log", 7, "file-gap", "a file", "none")
    findings: list[Finding] = []

    def damaged() -> Iterator[RecordBatch]:
        yield batch(1)
        findings.append(finding)
        yield batch(2)

    stream = BatchStream(SCHEMA, damaged(), findings)
    assert stream.findings == []
    assert pa.table(stream).num_rows == 2
    assert stream.findings == [finding]
    assert BatchStream(SCHEMA, iter(Numbers(1))).findings == []


def test_a_stream_is_given_once() -> None:
    stream = BatchStream(SCHEMA, iter(Numbers(2)))
    assert stream.read_all()["number"].to_pylist() == [1, -1, 2, -2]
    assert stream.closed
    closed = BatchStream(SCHEMA, iter(Numbers(2)))
    closed.close()
    closed.close()
    for gone in (stream, closed):
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            next(gone)
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            gone.read_all()
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            pa.table(gone)


def test_an_exception_comes_as_it_was_raised_and_ends_the_stream() -> None:
    error = OSError(5, "cannot be read", "/a/file")
    stream = BatchStream(SCHEMA, iter(Numbers(1, error)))
    next(stream)
    with pytest.raises(OSError, match="cannot be read") as raised:
        next(stream)
    assert raised.value is error
    assert list(stream) == []


def test_an_exception_in_a_stream_that_was_handed_over_comes_with_its_text() -> None:
    error = OSError(5, "cannot be read", "/a/file")
    taken = pa.RecordBatchReader.from_stream(BatchStream(SCHEMA, iter(Numbers(1, error))))
    assert taken.read_next_batch().num_rows == 2
    with pytest.raises(pa.ArrowException, match="cannot be read: '/a/file'"):
        taken.read_next_batch()


def test_a_batch_of_other_columns_is_refused() -> None:
    other = Schema([Field("number", DataType.int32())])
    taken = pa.RecordBatchReader.from_stream(BatchStream(other, iter(Numbers(1))))
    with pytest.raises(pa.ArrowException, match="was given a batch of"):
        taken.read_next_batch()
