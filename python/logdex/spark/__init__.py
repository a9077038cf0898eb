"""logdex on Spark: read stores, look up keys, build indexes. Only this package of logdex needs pyspark.

    from logdex import spark as ls

    ls.register(spark)
    messages = spark.read.format("rocketmq").load("/data/store")
    report = ls.build_index(spark, "/data/store", "/data/new-index")
    found = ls.find(keys, "/data/store")

Driver and workers must see the same files under the same paths. The workers' Python must have logdex: set `PYSPARK_PYTHON`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.errors import PySparkException

    from logdex.spark.damage import driver_address
    from logdex.spark.find import find, lookup, query_offset
    from logdex.spark.index.build import build_index
    from logdex.spark.index.source import IndexSource, arrange
    from logdex.spark.kafka_index import build_key_index
    from logdex.spark.kafka_source import KafkaLogSource
    from logdex.spark.messages.source import MessagesSource
    from logdex.spark.seal import seal
    from logdex.spark.workers import check_worker_python, hide_storage_options
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package not in ("pyspark", "pyarrow"):
        raise
    needed = "pip install 'pyspark>=4.0' 'pyarrow>=18' 'pandas>=2.2'"
    raise ImportError(f"logdex.spark needs {package}, which this Python lacks: {needed}") from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["arrange", "build_index", "build_key_index", "find", "lookup", "query_offset", "register", "seal"]


def register(spark: SparkSession) -> None:
    """Register the formats `rocketmq`, `rocketmq_index` and `kafka_log` in a session and hide `storage.*` in its pages and logs.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
    """
    check_worker_python(spark)
    hide_storage_options(spark)
    driver = driver_address(spark)
    for source in (MessagesSource, IndexSource, KafkaLogSource):
        # Spark pickles a class that no module has with its attributes.
        registered = type(source.__name__, (source,), {"driver": driver})
        try:
            spark.dataSource.register(registered)
        except PySparkException as error:
            # Spark 4.0 keeps the format that it found by itself, whose damage is in the workers' logs only.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
