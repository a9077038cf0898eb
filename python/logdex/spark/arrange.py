"""Dividing rows among tasks so that each makes index files that a broker searches to the end."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from logdex._types import check_int64
from logdex.spark.schema import require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE = 0.01
_SAMPLES_A_TASK = 100


def arrange(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """Divide rows by offset, so that every task writes a range of its own; the writer sorts the rows of a task.

    With `partitions` given, a job samples the offsets first, and only them, to make the tasks alike in size.

    Args:
        df: Rows with a column `phy_offset`.
        partitions: How many tasks; None leaves it to Spark. Each task makes at least one file, which reserves its full size.

    Raises:
        ValueError: There is no such column, or fewer than one task.
    """
    require_columns(df.columns, ("phy_offset",), "arrange")
    if partitions is None:
        return df.repartitionByRange("phy_offset")
    check_int64(partitions=partitions)
    if partitions < 1:
        raise ValueError(f"partitions must be 1 or more, not {partitions}")
    # Spark's own repartitionByRange would read all columns for its sample, and search the bounds for every row.
    at_or_above = [(sf.col("phy_offset") >= bound).cast("int") for bound in _bounds(df, partitions)]
    return df.repartitionById(partitions, sf.coalesce(reduce(add, at_or_above, sf.lit(0)), sf.lit(0)))


def _bounds(df: DataFrame, parts: int) -> list[int]:
    """Find the offsets that divide the rows into parts, about; none where there are no rows."""
    if parts == 1:
        return []
    offsets = df.select("phy_offset").where("phy_offset is not null")
    shares = [part / parts for part in range(1, parts)]
    columns = sf.count("*").alias("rows"), sf.percentile_approx("phy_offset", shares).alias("bounds")
    found = offsets.sample(_SAMPLE).agg(*columns).collect()[0]
    if found.rows < _SAMPLES_A_TASK * parts:
        found = offsets.agg(*columns).collect()[0]
    return list(found.bounds or [])
