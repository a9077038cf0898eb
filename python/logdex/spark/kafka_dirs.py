"""Several Kafka log directories as one: the disks of a broker (`log.dirs`), or brokers with replicas of the same partitions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from logdex.kafka import Log, LogDir, TopicPartition


class LogDirs(ExitStack):
    """Open log directories, which it closes at the end; of the replicas of a partition one is taken."""

    def __init__(self, members: Sequence[LogDir]) -> None:
        super().__init__()
        self.path = ", ".join(str(self.enter_context(each).path) for each in members)
        self._logs: dict[TopicPartition, Log] = {}
        self._replicas: dict[TopicPartition, list[LogDir]] = {}
        for each in members:
            for partition in each.partitions():
                self._replicas.setdefault(partition, []).append(each)

    def partitions(self, topics: Collection[str] | None = None) -> list[TopicPartition]:
        """Return the partitions of some topics, sorted; None: all."""
        return sorted(each for each in self._replicas if topics is None or each.topic in topics)

    def has_replicas(self, partition: TopicPartition) -> bool:
        """Return whether several directories hold a partition."""
        return len(self._replicas[partition]) > 1

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition: of replicas the one that ends last, and of these the one that begins first."""
        if partition not in self._logs:
            logs = [each.log(partition.topic, partition.partition) for each in self._replicas[partition]]
            ends = [(0, 0)] if len(logs) == 1 else [(log.log_end_offset, -log.log_start_offset) for log in logs]
            self._logs[partition] = logs[ends.index(max(ends))]
        return self._logs[partition]
