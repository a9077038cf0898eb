"""The format `rocketmq_index` without `register`: Spark takes the `DefaultSource` of each module named pyspark_*."""

from contextlib import suppress

with suppress(ImportError):  # an error would hide the formats of all such modules
    from logdex.spark.index.source import IndexSource as DefaultSource  # noqa: F401
