"""logdex on Spark: read stores, look up keys, build indexes. The only part of logdex that needs pyspark.

    from logdex import spark as ls

    ls.register(spark)
    messages = spark.read.format("rocketmq").load("/data/store")
    report = ls.build_index(spark, "/data/store", "/data/new-index")
    found = ls.find(keys, "/data/store")

Driver and workers must see the same files under the same paths, and run a Python that has logdex: set `PYSPARK_PYTHON`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from logdex.spark.arrange import arrange
    from logdex.spark.build import build_index
    from logdex.spark.checks import check_worker_python
    from logdex.spark.find import find
    from logdex.spark.index_source import IndexSource
    from logdex.spark.kafka_source import KafkaLogSource
    from logdex.spark.lookup import lookup, query_offset
    from logdex.spark.messages_source import MessagesSource
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package not in ("pyspark", "pyarrow"):
        raise
    raise ImportError(f"logdex.spark needs {package}, which this Python lacks: pip install 'logdex[spark]'") from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["arrange", "build_index", "find", "lookup", "query_offset", "register"]


def register(spark: SparkSession) -> None:
    """Make the formats `rocketmq`, `rocketmq_index` and `kafka_log` known to a session.

    Raises:
        LogdexError: The workers' Python cannot run logdex.
    """
    check_worker_python(spark)
    for source in (MessagesSource, IndexSource, KafkaLogSource):
        spark.dataSource.register(source)
