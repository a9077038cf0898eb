"""Streaming over a commit log that grows: `spark.readStream.format("rocketmq")`.

The offset of a stream is a position in the log: all messages that begin before it are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from logdex.rocketmq.read import valid_messages
from logdex.spark import options as opt
from logdex.spark.message_work import Work
from logdex.spark.streams import SupportsTriggerAvailableNow, report_loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from logdex.rocketmq import CommitLog
    from logdex.spark.messages_source import ReadOptions

_POSITION = "phy_offset"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the options say of a stream.

    Attributes:
        starting: Position to start at: "earliest", "latest", or an offset in the log.
        max_bytes: The most bytes of log of a batch; None: all.
        max_rows: The most messages of a batch, before filters; None: all.
        fail_on_data_loss: Whether it is an error that messages are gone before they were read.
    """

    starting: str | int
    max_bytes: int | None
    max_rows: int | None
    fail_on_data_loss: bool


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Read what the options say.

    Raises:
        ValueError: An option has no such value, or two of them limit a batch.
    """
    starting = options.get("startingOffset", "earliest").lower()
    if starting not in ("earliest", "latest") and not starting.isdecimal():
        msg = f"option startingOffset: {starting!r} is neither earliest nor latest nor an offset in the log"
        raise ValueError(msg)
    limits = {name: opt.positive(options, name) for name in ("maxBytesPerTrigger", "maxRowsPerTrigger")}
    if None not in limits.values():
        msg = f"give one of the options {', '.join(limits)}"
        raise ValueError(msg)
    return StreamOptions(
        int(starting) if starting.isdecimal() else starting,
        limits["maxBytesPerTrigger"],
        limits["maxRowsPerTrigger"],
        opt.flag(options, "failOnDataLoss", default=True),
    )


class MessagesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log: a batch is a range of it, so that what is read again after a restart is the same."""

    def __init__(self, options: ReadOptions, stream: StreamOptions) -> None:
        self.options = options
        self.stream = stream
        self.target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Give the position that `startingOffset` means."""
        log = self.options.reading.open()
        starting = self.stream.starting
        if isinstance(starting, int):
            return {_POSITION: starting}
        return {_POSITION: log.min_offset if starting == "earliest" else log.max_offset}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Give the end of the log, or less where a batch may not hold that much."""
        log = self.options.reading.open()
        end = log.max_offset if self.target is None else self.target
        if start is None:
            return {_POSITION: end}
        begin = start[_POSITION]
        if log.max_offset < begin:
            self._lost(f"the log ends at offset {log.max_offset}, and was read up to {begin}: it was cut off since")
        if end <= begin:
            return start
        return {_POSITION: _limited(log, begin, end, *_most(limit))}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Give the end of the log, for the query's progress."""
        return {_POSITION: self.options.reading.open().max_offset}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Say what a batch may hold at most."""
        from pyspark.sql.streaming import datasource as limits  # noqa: PLC0415 -- since pyspark 4.2

        if self.stream.max_bytes is not None:
            return limits.ReadMaxBytes(self.stream.max_bytes)
        return limits.ReadAllAvailable() if self.stream.max_rows is None else limits.ReadMaxRows(self.stream.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Remember where the log ends now: the query ends there."""
        self.target = self.options.reading.open().max_offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut what came into tasks."""
        begin, stop = start[_POSITION], end[_POSITION]
        log = self.options.reading.open()
        if begin < log.min_offset and begin < stop:
            self._lost(f"messages from offset {begin} to {min(stop, log.min_offset)} are gone: the log was expired")
        if begin >= stop:
            return []
        wanted = self.options.filter.with_bounds(_POSITION, begin, stop - 1)
        return [*self.options.tasks(wanted, pushdown=False)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's messages, in a worker."""
        if isinstance(partition, Work):
            yield from self.options.reading.rows(partition.pieces, self.options.filter)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the log is a broker's."""

    def _lost(self, what: str) -> None:
        report_loss(f"{self.options.reading.directory}: {what}", fail=self.stream.fail_on_data_loss)


def _most(limit: Any) -> tuple[int | None, int | None]:
    """Give the most bytes and rows of a batch; what the engine says counts, not the option."""
    return getattr(limit, "max_bytes", None), getattr(limit, "max_rows", None)


def _limited(log: CommitLog, begin: int, end: int, max_bytes: int | None, max_rows: int | None) -> int:
    """Give the offset of the first message that a batch cannot take any more; one it takes in any case."""
    if max_rows is None and (max_bytes is None or end - begin <= max_bytes):
        return end
    rows = 0
    for batch in valid_messages(log, ["phy_offset", "store_size"], begin, end, salvage=True, on_damage=lambda _: None):
        places: list[Any] = [batch.column(name).to_pylist() for name in ("phy_offset", "store_size")]
        for offset, size in zip(*places, strict=True):
            full = (max_rows is not None and rows >= max_rows) or (
                max_bytes is not None and offset + size - begin > max_bytes
            )
            if rows and full:
                return int(offset)
            rows += 1
    return end
