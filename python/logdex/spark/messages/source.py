"""Format `rocketmq`: the messages of a store as a table, read from its log, or found through ids, index and queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex import _core
from logdex._core import RemotePath
from logdex._types import MAX_INT64
from logdex.report import Finding
from logdex.rocketmq.layout import find_layout
from logdex.rocketmq.read import valid_messages
from logdex.source import is_topic_pattern, matching_topics
from logdex.spark import options as opt
from logdex.spark import workers
from logdex.spark.decoding import Decoding, declared_columns, first_rows
from logdex.spark.log_source import LOG_OPTIONS, LogReader, LogSource, LogStreamReader, SeveralReads, TaskSize
from logdex.spark.messages.filter import FILTER_OPTIONS, MessageFilter
from logdex.spark.messages.plan import MessagePlan, OffsetsPiece, QueuePiece
from logdex.spark.messages.sink import StoreSink, check_columns
from logdex.spark.schema import MESSAGE_COLUMNS, spark_batches, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.types import StructType

    from logdex._types import Access, Compat
    from logdex.report import Damage
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.spark.damage import DamageReports, SparkDamage
    from logdex.spark.log_source import Task
    from logdex.spark.messages.plan import Piece

logger = logging.getLogger("logdex.spark")

FORMAT = "rocketmq"
_POSITION = "phy_offset"
"""The offset of a stream is a position in the log: all messages that begin before it are done."""
_BATCH_ROWS = 8_192
WRITE_OPTIONS = ("fileSize", "hashSlots", "maxEntries", "zone", "compat")
_OPTIONS = (*LOG_OPTIONS, *FILTER_OPTIONS, "commitLog", "startingOffset", "maxBytesPerTrigger", "maxRowsPerTrigger")


class MessagesSource(LogSource):
    """The data source of `spark.read.format("rocketmq").load(store)`, and `readStream`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare all message columns, or those that the option `columns` names, with the types of decoded ones."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        decoding = Decoding.planned(self.options, MESSAGE_COLUMNS, self._sample)
        names = opt.names(self.options, "columns") or MESSAGE_COLUMNS
        return decoding.pinned(spark_schema(decoding.columns, decoding.names(names)))

    def reader(self, schema: StructType) -> LogReader:
        """Plan a read; a schema given by the user chooses columns as the option does."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        return LogReader(
            self._reads(*declared_columns(self.options, MESSAGE_COLUMNS, schema, self._sample)), self.reports
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Follow a log that grows."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        store = opt.path(self.options, f"a stream of format {FORMAT}")
        return MessagesStreamReader(
            self._read_options(*declared_columns(self.options, MESSAGE_COLUMNS, schema, self._sample), store),
            self.options,
            self.reports,
        )

    def writer(self, schema: StructType, overwrite: bool) -> StoreSink:  # noqa: ARG002, FBT001 - Spark's signature
        """Plan the write of a new store; what is there is never replaced."""
        opt.check_names(self.options, WRITE_OPTIONS, FORMAT)
        check_columns(schema)
        target = opt.path(self.options, f"a write of format {FORMAT}")
        if isinstance(target, RemotePath):
            what = "expected a local path: a store is written message by message"
            raise ValueError(f"{target}: {what}")  # noqa: TRY004 -- the text decides, not the type
        sink = StoreSink(
            target,
            {
                "file_size": opt.positive(self.options, "fileSize"),
                "hash_slots": opt.integer(self.options, "hashSlots"),
                "max_entries": opt.integer(self.options, "maxEntries"),
                "zone": self.options.get("zone"),
                "compat": opt.compat(self.options),
            },
        )
        sink.start()
        return sink

    def _sample(self, names: list[str]) -> Any:
        """Read the first rows of some columns."""
        return first_rows(self._reads(names, Decoding.none(MESSAGE_COLUMNS)))

    def _reads(self, names: list[str], decoding: Decoding) -> Any:
        stores = opt.paths(self.options, f"format {FORMAT}")
        if len(stores) > 1 and "commitLog" in self.options:
            raise ValueError("option commitLog: expected one store, or the directories of the logs as stores")
        return SeveralReads.of([self._read_options(names, decoding, store).with_topics_here() for store in stores])

    def _read_options(self, names: list[str], decoding: Decoding, root: Path) -> ReadOptions:
        workers.require_directory(root)
        compat = opt.compat(self.options)
        layout = find_layout(root, opt.directories(self.options, "commitLog"))
        return ReadOptions(
            layout,
            tuple(_core.commit_log_directories(layout.commit_log)),
            tuple(names),
            MessageFilter.of_options(self.options),
            TaskSize.of_options(self.options),
            # A broker's release has its own answers, which ids, index and queues do not give.
            pushdown=opt.pushdown(self.options) and compat is None,
            access=opt.access(self.options),
            compat=compat,
            decoding=decoding,
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read: of which store and messages, and how it is cut into tasks.

    If `pushdown` is set, ids, index and queues choose what is read, and not only ranges of the log. With `compat`, a broker's
    release, each piece ends at the first frame that the broker would refuse.
    """

    layout: StoreLayout
    directories: tuple[Path, ...]
    columns: tuple[str, ...]
    wanted: MessageFilter
    size: TaskSize
    pushdown: bool
    access: Access
    compat: Compat | None
    decoding: Decoding

    @property
    def directory(self) -> str:
        """The directories of the log for a message, with commas between."""
        return ",".join(map(str, self.directories))

    def open(self) -> CommitLog:
        """Open the log, or return the one that this process has open."""
        # In a worker they may have other paths than in the layout.
        return workers.commit_log(_core.join_directories(self.directories), access=self.access, compat=self.compat)

    def with_topics_here(self) -> ReadOptions:
        """Return the read of the topics that match the patterns among those that are wanted."""
        topics = self.wanted.topics
        if topics is None or not any(map(is_topic_pattern, topics)):
            return self
        plan = MessagePlan(self.layout, self.open(), self.wanted, pushdown=False)
        return replace(self, wanted=replace(self.wanted, topics=matching_topics(topics, plan.topics)))

    def tasks(self, damage: SparkDamage) -> list[Task]:
        """Split what is wanted into tasks."""
        # A broker's walk ends at damage, so a file must not be split after it.
        size = self.size if self.compat is None else TaskSize(MAX_INT64, self.size.min_tasks)
        plan = MessagePlan(self.layout, self.open(), self.wanted, pushdown=self.pushdown)
        damage.miss_topics(plan.unknown_topics())
        return plan.tasks(size, damage)

    def rows(self, pieces: Sequence[Piece], damage: SparkDamage) -> Iterator[Any]:
        """Read pieces as Arrow batches for Spark, in a worker."""
        batches = (self.wanted.apply(pa.record_batch(b)) for each in pieces for b in self._batches(each, damage))
        decoded = self.decoding.batches(batches)
        yield from spark_batches(decoded, self.decoding.columns, self.columns, self.directory)

    @property
    def _read_columns(self) -> list[str]:
        """The columns to read; a batch without columns would lose its number of rows."""
        return list(dict.fromkeys([*self.columns, *self.wanted.compared, "phy_offset"]))

    def _batches(self, piece: Piece, damage: SparkDamage) -> Iterator[Any]:
        with damage.losing("the file, as it was planned"):
            for directory in self.directories:
                workers.require_directory(directory)
            if isinstance(piece, QueuePiece):
                yield from self._queued(self.open(), piece, damage)
                return
            log = damage.open(piece.planned)
            if isinstance(piece, OffsetsPiece):
                selection = self.wanted.selection()
                reader = log.message_batches(piece.offsets, columns=self._read_columns, selection=selection)
                yield from reader
                damage.extend(reader.unsearched)
            else:
                yield from self._scanned(log, piece.begin, piece.end, self.wanted, damage)

    def _scanned(self, log: CommitLog, begin: int, end: int, wanted: MessageFilter, damage: Damage) -> Iterator[Any]:
        """Read a range of the log, also after damage unless `compat` names a broker's release."""
        if wanted.topics is not None:
            # A topic may be new in this range: its queues may not exist yet.
            wanted = replace(wanted, topics=matching_topics(wanted.topics, lambda: self._topics_of(log, begin, end)))
        columns, selection = self._read_columns, wanted.selection()

        def add(finding: Finding) -> None:
            # A walk begins with its file: damage before the range is a finding of another task.
            if int(Path(finding.path).name) + finding.offset >= begin:
                damage.add(finding)

        if self.compat is None:
            yield from valid_messages(
                log, columns, begin, end, salvage=True, on_damage=add, selection=selection, batch_size=_BATCH_ROWS
            )
            return
        reader = log.scan(
            begin_phy_offset=begin, end_phy_offset=end, columns=columns, selection=selection, batch_size=_BATCH_ROWS
        )
        yield from reader
        damage.extend(reader.unsearched)
        at = reader.end_offset
        # Damage, not the end of the log: a later file holds messages, or a walk still finds one from `end` on.
        if (
            at is not None
            and at < end
            and (
                end <= log.last_file
                or any(batch.num_rows for batch in log.scan(begin_phy_offset=end, columns=["phy_offset"], batch_size=1))
            )
        ):
            path, offset = log.place(at)
            found = "a frame that it refuses; a sequential scan would end here, Spark goes on at the next task"
            damage.add(Finding(path, offset, "log-frame", f"a message for a {self.compat} broker", found))

    def _topics_of(self, log: CommitLog, begin: int, end: int) -> set[str]:
        """Return the topics of the messages in a range of the log."""
        salvage = self.compat is None
        batches = valid_messages(log, ["topic"], begin, end, salvage=salvage, on_damage=lambda _: None)
        columns = (pc.unique(pa.array(batch.column("topic"))) for batch in batches)
        return {topic for column in columns for topic in column.to_pylist()}

    def _queued(self, log: CommitLog, piece: QueuePiece, damage: SparkDamage) -> Iterator[Any]:
        """Read the messages of a part of a queue; if the queue is damaged, the rest is read from the log."""
        log = log.pinned()
        for begin, end in set(log.missing(piece.begin, piece.end)).difference(piece.missing):
            damage.lose(self.directory, f"the files of offsets {begin} to {end}", "none")
        with _core.ConsumeQueue.open(piece.path) as queue:
            reader = _core.QueueReader(
                log,
                [(piece.topic, piece.queue_id, queue, piece.first, piece.last)],
                begin_phy_offset=piece.begin,
                end_phy_offset=piece.end,
                columns=self._read_columns,
                selection=self.wanted.selection(),
                batch_size=_BATCH_ROWS,
            )
            yield from reader
            damage.extend(reader.unsearched)
        if reader.fault is not None:
            at = reader.position
            logger.warning("%s; the log is read instead, from offset %d to %d", reader.fault, at, piece.end)
            mine = replace(self.wanted, topics=[piece.topic], queue_ids=[piece.queue_id])
            yield from self._scanned(log, at, piece.end, mine, damage)


class MessagesStreamReader(LogStreamReader):
    """Follows a log: a batch is a range of it, so that what is read again after a restart is the same."""

    options: ReadOptions

    def __init__(self, options: ReadOptions, given: Mapping[str, str], reports: DamageReports) -> None:
        """Read the options of the stream.

        Raises:
            ValueError: An option has no such value, or two of them limit a batch.
        """
        self.options = options
        self.starting = given.get("startingOffset", "earliest").lower()
        if self.starting not in ("earliest", "latest") and not self.starting.isdecimal():
            raise ValueError(
                f"option startingOffset: {self.starting!r} is neither earliest nor latest nor an offset in the log"
            )
        self.max_bytes = opt.positive(given, "maxBytesPerTrigger")
        self.max_rows = opt.positive(given, "maxRowsPerTrigger")
        if self.max_bytes is not None and self.max_rows is not None:
            raise ValueError("give one of the options maxBytesPerTrigger, maxRowsPerTrigger")
        self.reports = reports
        self.target: int | None = None
        self.missed: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return the position that `startingOffset` means."""
        log = self.options.open()
        if self.starting.isdecimal():
            return {_POSITION: int(self.starting)}
        return {_POSITION: log.min_offset if self.starting == "earliest" else log.max_offset}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the log, or less if a batch may not hold that much."""
        log = self.options.open()
        end = log.max_offset if self.target is None else self.target
        if start is None:
            return {_POSITION: end}
        begin = start[_POSITION]
        if log.max_offset < begin:
            self.report_loss(
                f"the log ends at offset {log.max_offset}, and was read up to {begin}: it was cut off since"
            )
        if end <= begin:
            return start
        max_bytes, max_rows = getattr(limit, "max_bytes", None), getattr(limit, "max_rows", None)
        return {_POSITION: log.batch_end(begin, end, max_bytes=max_bytes, max_num=max_rows)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Return the end of the log, for the progress of the query."""
        return {_POSITION: self.options.open().max_offset}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Return what a batch may hold at most."""
        from pyspark.sql.streaming import datasource as limits  # noqa: PLC0415 -- since pyspark 4.2

        if self.max_bytes is not None:
            return limits.ReadMaxBytes(self.max_bytes)
        return limits.ReadAllAvailable() if self.max_rows is None else limits.ReadMaxRows(self.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Store the current end of the log, where the query ends."""
        self.target = self.options.open().max_offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Split new messages into tasks."""
        begin, stop = start[_POSITION], end[_POSITION]
        log = self.options.open()
        if begin < log.min_offset and begin < stop:
            self.report_loss(
                f"messages from offset {begin} to {min(stop, log.min_offset)} are gone: the log was expired"
            )
        if begin >= stop:
            return []
        wanted = self.options.wanted.between(begin, stop)
        with self.reports.collect() as damage:
            tasks: list[InputPartition] = [*replace(self.options, wanted=wanted, pushdown=False).tasks(damage)]
            # Warn once per stream, not per batch.
            self.missed, damage.unknown_topics = damage.unknown_topics, None if self.missed else damage.unknown_topics
            return tasks
