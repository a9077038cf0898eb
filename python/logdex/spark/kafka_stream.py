"""Streaming over Kafka logs that grow: `spark.readStream.format("kafka_log")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from logdex.kafka import TopicPartition
from logdex.spark.kafka_offsets import latest
from logdex.spark.kafka_plan import plan
from logdex.spark.kafka_source import LogTask, ReadOptions, read_ranges
from logdex.spark.streams import SupportsTriggerAvailableNow, report_loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from logdex.kafka import Log, LogDir
    from logdex.spark.kafka_offsets import Bound, Topics

_Offsets = dict[TopicPartition, int]


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the partitions of a log directory; the offsets of a batch look like those of Spark's own Kafka source."""

    def __init__(
        self,
        options: ReadOptions,
        wanted: Topics,
        first: Bound,
        *,
        piece_bytes: int,
        min_tasks: int | None,
        max_offsets: int | None,
        fail_on_data_loss: bool,
    ) -> None:
        self.options = options
        self.topics = wanted
        self.first = first
        self.piece_bytes = piece_bytes
        self.min_tasks = min_tasks
        self.max_offsets = max_offsets
        self.fail_on_data_loss = fail_on_data_loss
        self.target: _Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Give the offsets that `startingOffsets` and its relatives mean."""
        with self.options.open() as logs:
            wanted = self.topics.choose(logs)
            self.first.check_names(wanted)
            committed = self.options.committed
            return _to_json({each: self.first.resolve(_log(logs, each), committed=committed) for each in wanted})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Give the ends of the logs, or less where a batch may not hold that many offsets."""
        begins = _from_json(start or {})
        with self.options.open() as logs:
            self._check_ends(logs, begins)
            ends = self._ends(logs) if self.target is None else self.target
            # A partition that appeared since is read from its start.
            new = {each: _log(logs, each).log_start_offset for each in ends if start is not None and each not in begins}
        # What is gone, or was cut off, ends where it was read to.
        ends = {**begins, **{each: max(end, begins.get(each, end)) for each, end in ends.items()}}
        most = _rows_of(limit, self.max_offsets)
        if most is not None and start is not None:
            ends = _limit({**new, **begins}, ends, most)
        return _to_json(ends)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Say that a batch holds no more than `maxOffsetsPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415 -- since pyspark 4.2

        return ReadAllAvailable() if self.max_offsets is None else ReadMaxRows(self.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Remember where the logs end now: the query ends there."""
        with self.options.open() as logs:
            self.target = self._ends(logs)

    def _ends(self, logs: LogDir) -> _Offsets:
        committed = self.options.committed
        return {each: latest(_log(logs, each), committed=committed) for each in self.topics.choose(logs)}

    def _check_ends(self, logs: LogDir, read: Mapping[TopicPartition, int]) -> None:
        """Tell of partitions that are gone, or end before what was read."""
        there = set(logs.partitions())
        for each, offset in read.items():
            if each not in there:
                self._lost(f"{each} is gone, it was read up to offset {offset}")
            elif (end := _log(logs, each).log_end_offset) < offset:
                self._lost(f"{each} ends at offset {end}, and was read up to {offset}: it was cut off since")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut what came into tasks."""
        begins, ends = _from_json(start), _from_json(end)
        bounds = []
        with self.options.open() as logs:
            there = set(logs.partitions())
            for each, stop in sorted(ends.items()):
                if each not in there:
                    if begins.get(each, 0) < stop:
                        self._lost(f"{each} is gone, with the records up to offset {stop}")
                    continue
                log = _log(logs, each)
                first = log.log_start_offset
                begin = begins.get(each, first)
                if begin < min(first, stop):
                    self._lost(
                        f"{each}: the records from offset {begin} to {min(first, stop)} are gone, they were deleted"
                    )
                if log.log_end_offset < stop and begin < stop:
                    self._lost(f"{each} ends at offset {log.log_end_offset}, not at {stop}: it was cut off since")
                bounds.append((log, max(begin, first), stop))
            return [LogTask(ranges) for ranges in plan(bounds, self.piece_bytes, self.min_tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's records, in a worker."""
        if isinstance(partition, LogTask):
            yield from read_ranges(self.options, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the logs are a broker's."""

    def _lost(self, what: str) -> None:
        report_loss(f"{self.options.directory}: {what}", fail=self.fail_on_data_loss)


def _log(logs: LogDir, partition: TopicPartition) -> Log:
    return logs.log(partition.topic, partition.partition)


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
