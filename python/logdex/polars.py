"""Lazy frames of polars over the messages of a store, or the records of a Kafka log directory or partition."""

from __future__ import annotations

import io
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ImportError as error:
    raise ImportError("logdex.polars needs polars: pip install 'logdex[polars]'", name=error.name) from error

from logdex.pushdown import MIRRORED, Condition, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from logdex.source import Source

__all__ = ["scan"]

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
    rows = Rows.open(source, filters, storage_options=storage_options, filesystem=filesystem).settled()
    return register_io_source(_Reader(rows), schema=pl.DataFrame(rows.schema().empty_table()).schema)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The source of a lazy frame: polars calls it for each execution of a plan."""

    rows: Rows

    def __call__(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        options = {} if predicate is None else self.rows.options(conditions(predicate))
        if with_columns is not None:
            used = () if predicate is None else predicate.meta.root_names()
            options["columns"] = self.rows.columns([*with_columns, *used])
        if n_rows is not None and n_rows < _ROWS_OF_A_BATCH:
            # Do not read ahead of the few rows that are wanted.
            options |= {"threads": 1} if self.rows.name == "messages" else {"threads": 1, "batch_size": max(n_rows, 1)}
        left = n_rows
        with closing(self.rows.read(options)) as stream:
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


def conditions(predicate: pl.Expr) -> Iterator[Condition]:
    """Return the comparisons of a predicate that must all hold.

    polars does not promise the form of a serialized expression. A form that is not known here is no condition.
    """
    return _conditions(json.loads(predicate.meta.serialize(format="json")))


def _conditions(node: Any) -> Iterator[Condition]:  # noqa: ANN401 -- JSON
    match node:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            yield from _conditions(left)
            yield from _conditions(right)
        case {"BinaryExpr": {"op": op, "left": {"Column": str(name)}, "right": right}} if op in MIRRORED:
            yield from _compared(name, op, right)
        case {"BinaryExpr": {"op": op, "left": left, "right": {"Column": str(name)}}} if op in MIRRORED:
            yield from _compared(name, MIRRORED[op], left)
        case {"Function": {"input": [{"Column": str(name)}, listed], "function": {"Boolean": {"IsIn": _}}}}:
            yield from _compared(name, "In", listed)
        case {
            "Function": {"input": [{"Column": str(name)}, least, greatest], "function": {"Boolean": {"IsBetween": _}}}
        }:
            yield from _compared(name, "GtEq", least)
            yield from _compared(name, "LtEq", greatest)


def _compared(name: str, comparison: str, node: Any) -> Iterator[Condition]:  # noqa: ANN401 -- JSON
    """Yield a comparison with constants."""
    try:
        constant = pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")
        if constant.meta.root_names():
            return
        column = pl.select(constant).to_series()
        values = (column.explode() if column.dtype == pl.List else column).to_list()
    except (pl.exceptions.PolarsError, ValueError, OverflowError):
        return
    yield Condition(name, comparison, values)
