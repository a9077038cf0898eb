"""Columns of the formats, and the exact Arrow batches that Spark expects for them.

Since pyspark 4.2 the first batch of a source must match the declared schema exactly: utf8 and not large_utf8, every field
nullable, the declared order, timestamps in microseconds and UTC. So the schema is built once, here, and every batch is converted
to it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from logdex._core import entry_schema, message_schema, read_records
from logdex._types import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

logger = logging.getLogger("logdex.spark")

TIME = pa.timestamp("us", tz="UTC")


def _columns(schema: Any) -> dict[str, pa.DataType]:
    """Return the columns of the core's batches, with the times of Spark."""
    return {each.name: TIME if pa.types.is_timestamp(each.type) else each.type for each in pa.schema(schema)}


MESSAGE_COLUMNS = _columns(message_schema())
ENTRY_COLUMNS = _columns(entry_schema())
# The columns of Spark's own Kafka source.
RECORD_COLUMNS = _columns(read_records([]).schema)

# Entries have the column of their file only on request: positions count from 1 in every file.
FILE_COLUMN = "file"
ENTRY_COLUMNS_AND_FILE = {FILE_COLUMN: pa.utf8(), **ENTRY_COLUMNS}

_US_PER_MS = 1_000
# Milliseconds whose count of microseconds fits in 64 bits.
_MAX_MS = MAX_INT64 // _US_PER_MS
_MIN_MS = -_MAX_MS


def spark_schema(columns: dict[str, pa.DataType], names: Iterable[str] | None = None) -> StructType:
    """Declare the named columns (all if None) in the order given.

    Raises:
        ValueError: A name is unknown or comes twice.
    """
    chosen = list(columns) if names is None else list(names)
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise ValueError(f"unknown columns {', '.join(unknown)}; there are {', '.join(columns)}")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"a column is named twice in {', '.join(chosen)}")
    return StructType([StructField(name, from_arrow_type(columns[name])) for name in chosen])


def checked_schema(columns: dict[str, pa.DataType], schema: StructType) -> list[str]:
    """Return the names in a schema that the user declared, which Spark passes on unchecked.

    Raises:
        ValueError: There is no column (Spark cannot count the rows of a batch without columns), or a column is unknown, has
            another type than the source returns, or is declared NOT NULL.
    """
    if not schema.fieldNames():
        raise ValueError(f"the schema has no column; there are {', '.join(columns)}")
    for ours, theirs in zip(spark_schema(columns, schema.fieldNames()), schema, strict=True):
        if ours.dataType != theirs.dataType:
            raise ValueError(
                f"column {ours.name} is {ours.dataType.simpleString()}, not {theirs.dataType.simpleString()}"
            )
        if not theirs.nullable:
            raise ValueError(f"column {ours.name} may be null: declare it without NOT NULL")
    return list(schema.fieldNames())


def arrow_schema(columns: dict[str, pa.DataType], names: Iterable[str]) -> Any:
    """Return the Arrow schema that Spark expects for these columns."""
    return pa.schema([(name, columns[name]) for name in names])


def microseconds(times: Any) -> tuple[Any, int]:
    """Convert timestamp[ms] or int64 milliseconds to timestamp[us, UTC], and count the instants out of range, which are null."""
    ms = times.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(ms, _MIN_MS), pc.less_equal(ms, _MAX_MS))
    valid = pc.if_else(fits, ms, pa.scalar(None, pa.int64()))
    us = pc.multiply(valid, _US_PER_MS).cast(TIME)
    return us, valid.null_count - ms.null_count


def spark_batches(
    batches: Iterable[Any],
    columns: dict[str, pa.DataType],
    names: Iterable[str],
    where: str,
    constants: dict[str, Any] | None = None,
) -> Iterator[Any]:
    """Yield the batches that have rows with exactly the named columns, and log how many instants Spark cannot hold.

    Args:
        batches: Batches of any Arrow implementation, with all named columns that are not constants.
        columns: The columns of the format.
        names: The wanted columns.
        where: The place that the message in the log names.
        constants: Columns with one value for all batches.
    """
    schema = arrow_schema(columns, names)
    lost = 0
    for batch in map(pa.record_batch, batches):
        arrays: list[Any] = []
        for field in schema:
            if constants and field.name in constants:
                arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows))
                continue
            column = batch.column(field.name)
            if pa.types.is_timestamp(field.type):
                column, out_of_range = microseconds(column)
                lost += out_of_range
            arrays.append(column if column.type == field.type else column.cast(field.type))
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    if lost:
        logger.warning("%s: %d instants outside the range of Spark's timestamp are null", where, lost)


def require_columns(names: Sequence[str], required: Sequence[str], what: str) -> None:
    """Raise ValueError, in the name of `what`, if a required column is missing."""
    missing = [name for name in required if name not in names]
    if missing:
        raise ValueError(
            f"{what} needs the columns {', '.join(required)}; missing {', '.join(missing)}, found {', '.join(names)}"
        )
