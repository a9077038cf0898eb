"""Arrow data at the boundary: streams of batches, frames of other packages, and the input of an index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from arro3.core import RecordBatch, RecordBatchReader

from logdex import _core
from logdex._core import INDEXED_COLUMNS, BatchStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    from arro3.core import Table

__all__ = ["ENTRY_COLUMNS", "INDEXED_COLUMNS", "BatchStream"]

ENTRY_COLUMNS = ("topic", "key", "phy_offset", "store_timestamp")
"""The columns of `IndexService.put_batch`."""

_MESSAGES_A_BATCH = 8_192


def to_pandas(table: Table) -> pd.DataFrame:
    """Return a table as a `pandas.DataFrame`; see `BatchStream.to_pandas`."""
    try:
        import pandas as pd  # noqa: PLC0415 -- optional
        import pyarrow as pa  # noqa: PLC0415 -- optional
    except ImportError as error:
        raise _missing("to_pandas", "pandas pyarrow", error) from error
    return pa.table(table).to_pandas(types_mapper=pd.ArrowDtype)


def to_polars(table: Table) -> pl.DataFrame:
    """Return a table as a `polars.DataFrame`."""
    try:
        import polars as pl  # noqa: PLC0415 -- optional
    except ImportError as error:
        raise _missing("to_polars", "polars", error) from error
    return pl.DataFrame(table)


def _missing(call: str, packages: str, error: ImportError) -> ImportError:
    return ImportError(f"{call} needs {packages.replace(' ', ' and ')}: pip install {packages}", name=error.name)


def is_arrow(value: object) -> bool:
    """Return whether a value has the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def arrow_batches(value: Any) -> Iterator[RecordBatch]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Iterate over the batches of a batch, a table or a stream."""
    if hasattr(value, "__arrow_c_stream__"):
        yield from RecordBatchReader.from_stream(value)
    else:
        yield RecordBatch.from_arrow(value)


def entry_batches(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- anything with the PyCapsule interface
    """Return the columns of index entries, one dict a batch. All batches are checked first; see `IndexDirectory.put_batch`."""
    if isinstance(batch, Mapping):
        return [_entries(batch)]
    if not is_arrow(batch):
        raise TypeError(f"expected Arrow data or a mapping of columns, not {type(batch).__name__}")
    return [_entries({name: part.column(name) for name in part.column_names}) for part in arrow_batches(batch)]


def _entries(columns: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in ENTRY_COLUMNS if name not in columns]
    if missing:
        raise ValueError(f"the column {missing[0]} is missing; there are {', '.join(columns)}")
    return dict(zip(ENTRY_COLUMNS, _core.entry_columns(*(columns[name] for name in ENTRY_COLUMNS)), strict=True))


def message_batches(messages: Any) -> Iterator[RecordBatch]:  # noqa: ANN401 -- Arrow data or messages
    """Iterate over messages (Arrow data or `Message` objects) as batches of the columns that an index needs."""
    if is_arrow(messages):
        yield from map(_core.message_columns, arrow_batches(messages))
        return
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"expected Arrow data or messages, not {type(messages).__name__}")
    rest = iter(messages)
    while part := list(islice(rest, _MESSAGES_A_BATCH)):
        try:
            values = {name: [getattr(message, name) for message in part] for name in INDEXED_COLUMNS}
        except AttributeError as error:
            raise TypeError(f"expected Arrow data or messages: {error}") from error
        yield _core.message_columns(_core.message_batch(values))
