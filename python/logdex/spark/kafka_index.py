"""Building the key index of Kafka partitions in parallel, a task for each partition."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from logdex._core import RemotePath, forget_lists
from logdex.hash_index.files import commit_copies, replace_object
from logdex.kafka import LogDir, TopicPartition
from logdex.kafka.key_index import (
    SETTINGS_FILE,
    KeySettings,
    check_max_entries,
    check_targets,
    index_partition,
    partitions_of,
)
from logdex.report import Report, merge
from logdex.spark.damage import SparkDamage
from logdex.spark.index.job import index_files
from logdex.spark.kafka_source import within
from logdex.spark.workers import call_beside, call_in_tasks, check_worker_python, driver_path, require_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from pyspark.sql import SparkSession

    from logdex.kafka import Log


def build_key_index(
    spark: SparkSession,
    log_dir: str | PathLike[str],
    directory: str | PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    header: str | None = None,
    max_entries: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Index the records of Kafka partitions by their keys in Spark's workers.

    Each partition has one task, which writes the files of a local build. A retried task continues an interrupted one. Arguments,
    result and errors are those of `logdex.kafka.build_key_index`; all workers must see the same files. Both directories may be
    URLs, with `storage_options` as in `MessageStore.open`. An index in an object store is written once, and not continued.

    Raises:
        LogdexError: The workers' Python cannot run logdex. Or a worker lacks records that the driver saw: then the job fails.
    """
    check_max_entries(max_entries)
    check_worker_python(spark)
    source, target = (driver_path(each, spark, storage_options) for each in (log_dir, directory))
    wanted = topics if topics is None or isinstance(topics, str) else list(topics)

    def plan() -> list[tuple[TopicPartition, int, int]]:
        require_directory(source)
        with LogDir.open(source) as logs:
            found = partitions_of(logs, wanted)
            check_targets(found, target, header)
            # The largest first, so that none of them begins when all others are done.
            planned = sorted((logs.log(each.topic, each.partition) for each in found), key=lambda log: -log.size)
            return [
                (TopicPartition(log.topic, log.partition), log.log_start_offset, log.log_end_offset) for log in planned
            ]

    partitions = call_beside(spark, source, plan)
    if not partitions:
        return Report([], {"partitions": 0, "records": 0, "entries": 0})

    def index(planned: tuple[TopicPartition, int, int]) -> Report:
        partition, begin, end = planned
        damage = SparkDamage()
        require_directory(source)
        with LogDir.open(source) as logs:
            with damage.losing("the partition as it was planned"):
                log = logs.log(partition.topic, partition.partition)
            within(log, begin, end, damage)
            build = _index_objects if isinstance(target, RemotePath) else index_partition
            return build(log, target / str(partition), header=header, max_entries=max_entries)

    reports = call_in_tasks(spark, index, partitions)
    # The plan listed the target before the workers wrote there.
    forget_lists(target)
    return merge(reports)


def _index_objects(log: Log, target: Path, *, header: str | None, max_entries: int | None) -> Report:
    """Index a partition on this machine, and upload the files. The settings come last: without them there is no index."""
    with tempfile.TemporaryDirectory(prefix="logdex-") as temporary:
        built = Path(temporary) / target.name
        report = index_partition(log, built, header=header, max_entries=max_entries)
        settings = KeySettings.read(built)
        commit_copies(index_files(built), target)
    if settings is not None:
        replace_object(target / SETTINGS_FILE, settings.content)
    return report
