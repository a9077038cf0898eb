"""Building the key index of Kafka partitions in parallel, a task for each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.kafka import LogDir, TopicPartition
from logdex.kafka.key_index import check_max_entries, check_targets, index_partition, partitions_of
from logdex.report import Finding, Report, merge
from logdex.spark.damage import SparkDamage
from logdex.spark.kafka_offsets import within
from logdex.spark.workers import call_beside, call_in_tasks, check_worker_python, driver_path, require_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from pyspark.sql import SparkSession


def build_key_index(
    spark: SparkSession,
    log_dir: str | PathLike[str],
    directory: str | PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    header: str | None = None,
    max_entries: int | None = None,
) -> Report:
    """Index the records of Kafka partitions by their keys in Spark's workers.

    Each partition has one task, which writes the files of a local build. A retried task continues an interrupted one. Arguments,
    result and errors are those of `logdex.kafka.build_key_index`; all workers must see the same files.

    Raises:
        LogdexError: The workers' Python cannot run logdex. Or a worker lacks records that the driver saw: then the job fails.
    """
    check_max_entries(max_entries)
    check_worker_python(spark)
    source, target = driver_path(log_dir, spark), driver_path(directory, spark)
    wanted = topics if topics is None or isinstance(topics, str) else list(topics)

    def plan() -> list[tuple[str, int, int, int]]:
        require_directory(source)
        with LogDir.open(source) as logs:
            found = partitions_of(logs, wanted)
            check_targets(found, target, header)
            # The largest first, so that none of them begins when all others are done.
            planned = sorted((logs.log(each.topic, each.partition) for each in found), key=lambda log: -log.size)
            return [(log.topic, log.partition, log.log_start_offset, log.log_end_offset) for log in planned]

    partitions = call_beside(spark, source, plan)
    if not partitions:
        return Report([], {"partitions": 0, "records": 0, "entries": 0})

    def index(planned: tuple[str, int, int, int]) -> dict[str, Any]:
        topic, number, begin, end = planned
        partition, damage = TopicPartition(topic, number), SparkDamage()
        require_directory(source)
        with LogDir.open(source) as logs:
            with damage.losing("the partition as it was planned"):
                log = logs.log(partition.topic, partition.partition)
            within(log, begin, end, damage)
            return index_partition(log, target / str(partition), header=header, max_entries=max_entries).to_dict()

    reports = call_in_tasks(spark, index, partitions)
    return merge([Report([Finding(**each) for each in one["findings"]], one["checked"]) for one in reports])
