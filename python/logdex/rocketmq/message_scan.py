"""Reading messages by topic, queue and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arro3.core import Array, DataType, RecordBatchReader

from logdex.hash_index.query import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arro3.core import RecordBatch

    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queue_set import QueueSet


class MessageScan:
    """Reads the messages of a store that filters let pass."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: QueueSet, clock_slack_ms: int) -> None:
        """Prepare; nothing is read."""
        self._layout = layout
        self._log = log
        self._queues = queues
        self._clock_slack_ms = clock_slack_ms

    def messages(
        self, topic: str | None, queue_id: int | None, times: TimeRange, columns: Iterable[str] | None
    ) -> RecordBatchReader:
        """Read messages in log order; see `MessageStore.messages`."""
        wanted = self._log.messages([], columns=columns).schema
        names = wanted.names
        filters = Filter(topic, queue_id, times)
        read = [*names, *(name for name in filters.columns if name not in names)]

        def batches() -> Iterator[RecordBatch]:
            for batch in RecordBatchReader.from_stream(self._log.scan(columns=read)):
                kept = filters.apply(batch)
                if kept.num_rows:
                    yield kept.select(names) if len(read) > len(names) else kept

        return RecordBatchReader.from_batches(wanted, batches())


class Filter:
    """Which messages pass: by topic, queue and store time."""

    def __init__(self, topic: str | None, queue_id: int | None, times: TimeRange) -> None:
        """Keep the wanted values; None does not filter."""
        self._topic = topic
        self._queue_id = queue_id
        self._times = times

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the filter looks at."""
        looked_at: list[str] = []
        if self._topic is not None:
            looked_at.append("topic")
        if self._queue_id is not None:
            looked_at.append("queue_id")
        if (self._times.begin, self._times.end) != (MIN_TIME, MAX_TIME):
            looked_at.append("store_timestamp")
        return tuple(looked_at)

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """Give the rows that pass."""
        names = self.columns
        if not names:
            return batch
        rows: Iterable[int] = range(batch.num_rows)
        if self._topic is not None:
            topics = batch.column("topic").to_pylist()
            rows = [row for row in rows if topics[row] == self._topic]
        if self._queue_id is not None:
            queues = batch.column("queue_id").to_pylist()
            rows = [row for row in rows if queues[row] == self._queue_id]
        if "store_timestamp" in names:
            times = batch.column("store_timestamp").cast(DataType.int64()).to_pylist()
            begin, end = self._times.begin, self._times.end
            rows = [row for row in rows if times[row] is not None and begin <= times[row] <= end]
        chosen = list(rows)
        if len(chosen) == batch.num_rows:
            return batch
        return batch.take(Array(chosen, type=DataType.uint64()))
