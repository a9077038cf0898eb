"""Ordering rows for index files that a broker searches to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.spark.schema import require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arrange(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """Order rows by offset, so that every task writes a range of its own and every file is in offset order.

    Args:
        df: Rows with a column `phy_offset`.
        partitions: How many tasks; None leaves it to Spark. Each task makes at least one file, which reserves its full size.

    Raises:
        ValueError: There is no such column.
    """
    require_columns(df.columns, ("phy_offset",), "arrange")
    by_offset = (
        df.repartitionByRange("phy_offset") if partitions is None else df.repartitionByRange(partitions, "phy_offset")
    )
    return by_offset.sortWithinPartitions("phy_offset")
