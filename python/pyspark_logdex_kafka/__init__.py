"""The format `kafka_log` without `register`: Spark takes the `DefaultSource` of each module named pyspark_*."""

from contextlib import suppress

with suppress(ImportError):  # an error would hide the formats of all such modules
    from logdex.spark.kafka_source import KafkaLogSource as DefaultSource  # noqa: F401
