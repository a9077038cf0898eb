"""Looking up keys from Spark: candidates of the index, and messages checked against the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from logdex._types import check_int64
from logdex.hash_index.query import check_max_num
from logdex.spark import workers
from logdex.spark.schema import require_columns
from logdex.spark.workers import check_worker_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from pyspark.sql import DataFrame
    from pyspark.sql.column import Column

_CANDIDATES = StructType(
    [StructField("topic", StringType()), StructField("key", StringType()), StructField("phy_offset", LongType())]
)


def lookup(
    keys_df: DataFrame,
    index_dir: str | PathLike[str],
    max_num: int | None = None,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
) -> DataFrame:
    """Look up every row's topic and key in the index, one row out for each candidate.

    Args:
        keys_df: A DataFrame with the texts `topic` and `key`; other columns are left out.
        index_dir: The index directory, as driver and workers see it.
        max_num: At most this many candidates a key, the newest; None is all.
        hash_slots: Slots of the index files; None finds them from the files, once, on the driver.
        max_entries: Entries of the index files; likewise.

    Returns:
        Rows of topic, key, phy_offset: the newest first within a key, candidates that the message itself may refute (another
        key of the same hash). A key without candidates has no row; a null topic or key gives one row with a null offset.

    Raises:
        ValueError: A column is missing, `max_num` is negative, or the files have other slots and entries than those given.
        FileNotFoundError: There is no such directory.
        LogdexError: The workers' Python cannot run logdex.
    """
    check_max_num(max_num)
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    check_worker_python(keys_df.sparkSession)
    require_columns(keys_df.columns, ("topic", "key"), "lookup")
    directory = str(Path(index_dir).absolute())
    slots, entries = workers.known_geometry(Path(directory), hash_slots, max_entries)

    def candidates(batches: Iterator[Any]) -> Iterator[Any]:
        service = workers.index_service(directory, hash_slots=slots, max_entries=entries)
        for batch in batches:
            topics, keys = batch.column(0), batch.column(1)
            yield _flat_rows(topics, keys, pa.array(service.query_batch(topics, keys, max_num=max_num)))

    columns = keys_df.select(sf.col("topic").cast("string"), sf.col("key").cast("string"))
    return columns.mapInArrow(candidates, _CANDIDATES)


def query_offset(
    index_dir: str | PathLike[str],
    max_num: int | None = None,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
) -> Callable[..., Column]:
    """Make a function of columns (topic, key) that gives array<bigint>: the candidates, newest first.

    It is declared non-deterministic on purpose: Spark evaluates a deterministic function twice where a filter or `inline`
    uses its result. A null topic or key gives null.

    Args:
        index_dir: The index directory, as driver and workers see it.
        max_num: At most this many candidates a key, the newest; None is all.
        hash_slots: Slots of the index files; None finds them from the files, once, on the driver.
        max_entries: Entries of the index files; likewise.

    Raises:
        ValueError: `max_num` is negative, or the files have other slots and entries than those given.
        FileNotFoundError: There is no such directory.

    Example:
        df.select("topic", "key", query_offset("/data/store/index")("topic", "key").alias("offsets"))
    """
    check_max_num(max_num)
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    directory = str(Path(index_dir).absolute())
    slots, entries = workers.known_geometry(Path(directory), hash_slots, max_entries)

    def offsets(topic: pa.Array, key: pa.Array) -> pa.Array:
        service = workers.index_service(directory, hash_slots=slots, max_entries=entries)
        return pa.array(service.query_batch(topic, key, max_num=max_num))

    # Its signature for mypy asks for a function type, which pyspark warns of at run time.
    make: Any = arrow_udf
    made: Callable[..., Column] = make(offsets, returnType=ArrayType(LongType())).asNondeterministic()
    return made


def _flat_rows(topics: Any, keys: Any, lists: Any) -> Any:
    rows, offsets = pc.list_parent_indices(lists), pc.list_flatten(lists)
    if lists.null_count:
        null_rows = pc.indices_nonzero(pc.is_null(lists)).cast(rows.type)
        rows = pa.concat_arrays([rows, null_rows])
        offsets = pa.concat_arrays([offsets, pa.nulls(len(null_rows), pa.int64())])
        order = pc.sort_indices(rows)
        rows, offsets = rows.take(order), offsets.take(order)
    return pa.RecordBatch.from_arrays(
        [topics.take(rows), keys.take(rows), offsets], names=["topic", "key", "phy_offset"]
    )
