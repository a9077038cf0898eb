"""How fast Spark builds an index and looks keys up, on two cores. A program, not a test: no figure decides anything.

    python benches/python/spark_rates.py [--rows 5000000] [--keys 2000000] [--rounds 3]

Rows and keys are read from Parquet files, which is part of the time; reading alone is measured beside it. The index has the
broker's default geometry (420 MB a file). Everything lies in a temporary directory, warm in the page cache.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from logdex import spark as ls

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

T0 = 1_700_000_000_000
PARTITIONS = 2


def entries(spark: SparkSession, rows: int) -> DataFrame:
    """Make index rows: 24-character keys, offsets that grow, one row a millisecond."""
    return spark.range(0, rows, 1, PARTITIONS).select(
        sf.lit("TopicTest").alias("topic"),
        key("id").alias("key"),
        (sf.col("id") * 200).alias("phy_offset"),
        (sf.col("id") + T0).alias("store_timestamp"),
    )


def key(column: str | Column) -> Column:
    """Spread numbers over keys like those of clients: 24 upper-case hexadecimal digits."""
    return sf.concat(sf.lit("7F000001"), sf.lpad(sf.hex(sf.abs(sf.xxhash64(column))), 16, "0"))


def rate(what: str, rows: int, rounds: int, step: Callable[[], None]) -> None:
    """Print the best and the median rate of some rounds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    times.sort()
    median = times[len(times) // 2]
    print(
        f"{what:58} {rows / times[0] / 1e6:6.2f} {rows / median / 1e6:6.2f}  M rows/s (best, median of {rounds})",
        flush=True,
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .getOrCreate()
    )
    ls.register(spark)
    with tempfile.TemporaryDirectory(prefix="logdex-bench-") as scratch:
        index, rows, keys = (str(Path(scratch) / name) for name in ("index", "rows", "keys"))
        entries(spark, given.rows).write.parquet(rows)
        asked = spark.range(0, given.keys, 1, PARTITIONS).select(
            sf.lit("TopicTest").alias("topic"), key((sf.col("id") * 7919) % given.rows).alias("key")
        )
        asked.write.parquet(keys)

        def read(path: str) -> None:
            spark.read.parquet(path).write.format("noop").mode("overwrite").save()

        def write(df: DataFrame) -> None:
            df.write.format("rocketmq_index").mode("overwrite").save(index)

        def look_up() -> None:
            found = ls.lookup(spark.read.parquet(keys), index).agg(sf.count("phy_offset")).first()
            if found is None or found[0] < given.keys:
                raise RuntimeError(f"{given.keys} keys found {found}")

        rounds = given.rounds
        in_order = spark.read.parquet(rows).coalesce(1)
        rate("rows read alone", given.rows, rounds, lambda: read(rows))
        rate(
            "ls.arrange(df).write", given.rows, rounds, lambda: write(ls.arrange(spark.read.parquet(rows), PARTITIONS))
        )
        rate("df.write, rows in order, one task", given.rows, rounds, lambda: write(in_order))
        rate("keys read alone", given.keys, rounds, lambda: read(keys))
        rate(f"ls.lookup, {given.keys:,} keys in {given.rows:,}", given.keys, rounds, look_up)
    spark.stop()


if __name__ == "__main__":
    main()
