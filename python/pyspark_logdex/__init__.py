"""The format `rocketmq` without `register`: Spark takes the `DefaultSource` of each module named pyspark_*."""

from contextlib import suppress

with suppress(ImportError):  # an error would hide the formats of all such modules
    from logdex.spark.messages.source import MessagesSource as DefaultSource  # noqa: F401
