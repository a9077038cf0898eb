"""Streaming over Kafka logs that grow: `spark.readStream.format("kafka_log")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from logdex.kafka import TopicPartition
from logdex.spark.kafka_plan import plan
from logdex.spark.kafka_source import LogTask, ReadOptions, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.kafka import LogDir
    from logdex.spark.kafka_offsets import Bound, Topics

_Offsets = dict[TopicPartition, int]


class RecordStreamReader(DataSourceStreamReader):
    """Follows the partitions of a log directory; the offsets of a batch look like those of Spark's own Kafka source."""

    def __init__(
        self, options: ReadOptions, wanted: Topics, first: Bound, *, piece_bytes: int, max_offsets: int | None
    ) -> None:
        self.options = options
        self.topics = wanted
        self.first = first
        self.piece_bytes = piece_bytes
        self.max_offsets = max_offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Give the offsets that `startingOffsets` and its relatives mean."""
        with self.options.open() as logs:
            return _to_json({each: self.first.resolve(logs.log(*_pair(each))) for each in self.topics.choose(logs)})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Give the ends of the logs, or less where a batch may not hold that many offsets."""
        with self.options.open() as logs:
            ends = {each: self._end(logs, each) for each in self.topics.choose(logs)}
        begins = _from_json(start or {})
        # What was there and is gone ends where it was read to.
        ends = {**begins, **ends}
        most = _rows_of(limit, self.max_offsets)
        if most is not None and start is not None:
            ends = _limit(begins, ends, most)
        return _to_json(ends)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Say that a batch holds no more than `maxOffsetsPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415 -- since pyspark 4.2

        return ReadAllAvailable() if self.max_offsets is None else ReadMaxRows(self.max_offsets)

    def _end(self, logs: LogDir, partition: TopicPartition) -> int:
        log = logs.log(*_pair(partition))
        return log.last_stable_offset if self.options.isolation == "read_committed" else log.log_end_offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut what came into tasks."""
        begins, ends = _from_json(start), _from_json(end)
        with self.options.open() as logs:
            there = set(logs.partitions())
            bounds = [
                # A partition that appeared since is read from its start.
                (logs.log(*_pair(each)), begins.get(each, logs.log(*_pair(each)).log_start_offset), stop)
                for each, stop in sorted(ends.items())
                if each in there
            ]
            return [LogTask(ranges) for ranges in plan(bounds, self.piece_bytes, None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's records, in a worker."""
        if isinstance(partition, LogTask):
            yield from read_ranges(self.options, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the logs are a broker's."""


def _pair(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _to_json(offsets: _Offsets) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def _from_json(offsets: dict[str, Any]) -> _Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _rows_of(limit: Any, given: int | None) -> int | None:
    """Give the most rows of a batch; what the engine says counts before the option."""
    if limit is None:
        return given
    rows: int | None = getattr(limit, "max_rows", None)
    return rows


def _limit(begins: _Offsets, ends: _Offsets, most: int) -> _Offsets:
    """Share the most rows of a batch among partitions, in proportion to what each has; everyone gets at least one."""
    waiting = {each: max(0, end - begins.get(each, 0)) for each, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return ends
    shares = {each: min(count, max(1, count * most // total)) if count else 0 for each, count in waiting.items()}
    return {each: min(end, begins.get(each, 0) + shares[each]) for each, end in ends.items()}
