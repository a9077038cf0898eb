"""Format `kafka_log`: the records of a Kafka log directory as a table, with the columns of Spark's own Kafka source.

Several log directories are read as one: the disks of a broker (`log.dirs`), or brokers with replicas of the same partitions.
The options for the start and the end of a read are those of Spark's own Kafka source.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from logdex._core import RemotePath, plan_files, planned_file_faults, read_records
from logdex._types import Isolation, OnError
from logdex.errors import CorruptFileError
from logdex.kafka import Log, LogDir, TopicPartition
from logdex.kafka.checkpoint import LOG_START
from logdex.kafka.files import MAX_OFFSET
from logdex.kafka.log import opened_files
from logdex.source import Kind, detect, matching_topics
from logdex.spark import options as opt
from logdex.spark.decoding import Decoding, declared_columns, first_rows
from logdex.spark.kafka_sink import RecordSink, record_sink
from logdex.spark.log_source import LOG_OPTIONS, LogReader, LogSource, LogStreamReader, Task, TaskSize, pack
from logdex.spark.schema import RECORD_COLUMNS, spark_batches, spark_schema
from logdex.spark.workers import require_directory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.types import StructType

    from logdex._core import Pattern
    from logdex._types import Access
    from logdex.spark.damage import DamageReports, SparkDamage


_SETTLED_SECONDS = 2
"""After this time, a change of a file gives it another time stamp on every file system that keeps seconds or better."""


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

    def __contains__(self, partition: object) -> bool:
        """Return whether a directory holds a partition."""
        return partition in self._replicas

    def has_replicas(self, partition: TopicPartition) -> bool:
        """Return whether several directories hold a partition."""
        return len(self._replicas[partition]) > 1

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition as it was at the first call.

        Of replicas it is the one that ends last, and of these the one that begins first.
        """
        if partition not in self._logs:
            # Each partition is listed once, for any number of calls.
            logs = [each.log(partition.topic, partition.partition).pinned() for each in self._replicas[partition]]
            ends = [(0, 0)] if len(logs) == 1 else [(log.log_end_offset, -log.log_start_offset) for log in logs]
            self._logs[partition] = logs[ends.index(max(ends))]
        return self._logs[partition]


class Bounds(NamedTuple):
    """The first offset of a log, its end, and the end for this reader: read-committed, it is the last stable offset."""

    first: int
    end: int
    latest: int


def latest(log: Log, *, committed: bool) -> int:
    """Return the end of a log; for a read-committed consumer its last stable offset."""
    return log.last_stable_offset if committed else log.log_end_offset


def within(log: Log, begin: int, end: int, damage: SparkDamage) -> tuple[int, int]:
    """Return the offsets of [begin, end) that a log has, and lose the others: an error unless failOnDataLoss is false."""
    start, stop = log.log_start_offset, log.log_end_offset
    if begin > end or begin < start or end > stop:
        there = f"the offsets {start} to {stop}" if begin <= end else "a start after the end"
        damage.lose(log.path, f"the offsets {begin} to {end} (not included)", there)
    return max(begin, start), min(end, stop)


class KnownBounds:
    """Bounds of partitions, which are read again only if their files changed."""

    def __init__(self, *, committed: bool) -> None:
        self._committed = committed
        self._known: dict[TopicPartition, tuple[list[Path], object, Bounds]] = {}

    def of(self, logs: LogDirs, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the bounds of those partitions that are there."""
        return {each: self._of(logs, each) for each in partitions if each in logs}

    def _of(self, logs: LogDirs, partition: TopicPartition) -> Bounds:
        files, stamp, bounds = self._known.get(partition, ([], None, None))
        if bounds is not None and stamp is not None and stamp == _stamp(files):
            return bounds
        log = logs.log(partition)
        files = [log.path.parent / LOG_START, log.path, *(segment.path for segment in log.segments[-1:])]
        # A change after the listing is too recent for a stamp.
        stamp = _stamp(files)
        bounds = Bounds(log.log_start_offset, log.log_end_offset, latest(log, committed=self._committed))
        # Of several replicas, the one to read may be another next time.
        self._known[partition] = files, None if logs.has_replicas(partition) else stamp, bounds
        return bounds


def _stamp(files: Iterable[Path]) -> object:
    """Return a stamp of files and directories; None if one may change again without another time."""
    stats = [path.stat() if path.exists() else None for path in files]
    newest = max((stat.st_mtime for stat in stats if stat), default=0)
    if time.time() - newest <= _SETTLED_SECONDS:
        return None
    return [stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


_EARLIEST = -2
_LATEST = -1
_WORDS = {"earliest": _EARLIEST, "latest": _LATEST}
_WHOLE = re.compile("-?[0-9]+")
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
"""Topics that a pattern of Spark's own source does not match."""
_SAME_ESCAPE = re.compile(r"\\[dDwWsSbB.\-_^$|?*+()\[\]{}/\\nrt]")
_NOT_THE_SAME = re.compile(r"\\|&&|\[\^?\]|\[[^\]]*\[|[*+?}]\+|\(\?(?![:=!]|<[=!]|[ims]+[:)])|\{(?![0-9])")
"""Syntax that Java's and Python's regular expressions do not have in common."""

_ByPartition: TypeAlias = dict[TopicPartition, int]

TOPIC_OPTIONS = ("topic", "subscribe", "subscribePattern", "assign")
OFFSET_OPTIONS = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read. As in Spark, one timestamp counts before timestamps, and these before offsets.

    `word` is the offset of each partition without one in `offsets`: -2 the earliest, -1 the latest. Timestamps are milliseconds,
    of every partition or of single ones. `missing` is "error" or "latest": a start by time without a record at or after it.
    """

    word: int
    offsets: _ByPartition | None = None
    timestamp: int | None = None
    timestamps: _ByPartition | None = None
    missing: str = "latest"

    def check_names(self, chosen: Collection[TopicPartition]) -> None:
        """Raise ValueError if a named partition is not read: a mistyped name must not read everything."""
        named = {*(self.offsets or ()), *(self.timestamps or ())}
        unread = sorted(each for each in named if each not in chosen)
        if unread:
            there = ", ".join(map(str, chosen)) or "nothing"
            raise ValueError(f"offsets are given for {', '.join(map(str, unread))}, which is not read; read is {there}")

    def resolve(self, log: Log, *, committed: bool = False) -> int:
        """Return the offset that this means in a log; `committed`: the latest one is that of a read-committed consumer.

        Raises:
            ValueError: A start by time has no record at or after it, and `missing` is "error".
        """
        partition = TopicPartition(log.topic, log.partition)
        time = (self.timestamps or {}).get(partition) if self.timestamp is None else self.timestamp
        if time is not None:
            found = log.offset_for_timestamp(time, special=False)
            if found is not None:
                return found[1]
            if self.missing == "error":
                raise ValueError(
                    f"{partition}: no record at or after {time}; startingOffsetsByTimestampStrategy=latest begins at the end"
                )
            return latest(log, committed=committed)
        offset = (self.offsets or {}).get(partition, self.word)
        if offset == _EARLIEST:
            return log.log_start_offset
        return latest(log, committed=committed) if offset == _LATEST else offset


def starting(options: Mapping[str, str], *, stream: bool = False) -> Bound:
    """Return where to begin, by default at the start of the log. Only a stream may begin at the latest offset."""
    strategy = opt.one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    bound = _bound(options, "starting", "earliest", strategy)
    if not stream:
        _refuse(bound, _LATEST, "startingOffsets", "begins at the latest")
    return bound


def ending(options: Mapping[str, str]) -> Bound:
    """Return where to end, by default at the end of the log."""
    bound = _bound(options, "ending", "latest", "latest")
    _refuse(bound, _EARLIEST, "endingOffsets", "ends at the earliest")
    return bound


def _refuse(bound: Bound, offset: int, name: str, does: str) -> None:
    """Raise ValueError for a batch that can only be empty, as Spark's own source does.

    Source: KafkaSourceProvider#validateBatchOptions.
    """
    if bound.timestamp is not None or bound.timestamps is not None:
        return
    empty = [f", {partition}" for partition, each in sorted((bound.offsets or {}).items()) if each == offset]
    if empty or (bound.offsets is None and bound.word == offset):
        raise ValueError(f"option {name}{''.join(empty)}: a batch that {does} offset reads nothing")


def refuse_ending(options: Mapping[str, str]) -> None:
    """Raise ValueError if an option sets the end of a stream, as Spark's own source does."""
    given = [name for name in OFFSET_OPTIONS if name.startswith("ending") and options.get(name) is not None]
    if given:
        raise ValueError(
            f"option {given[0]}: a stream has no end; trigger(availableNow=True) ends where the logs end now"
        )


def _bound(options: Mapping[str, str], which: Literal["starting", "ending"], word: str, missing: str) -> Bound:
    name = f"{which}Offsets"
    given = options.get(name, word).strip()
    offsets = None if given.lower() in _WORDS else _by_partition(given, name)
    timestamps = options.get(f"{name}ByTimestamp")
    return Bound(
        word=_WORDS[given.lower()] if offsets is None else _WORDS[word],
        offsets=offsets,
        timestamp=opt.instant(options, f"{which}Timestamp", end=False),
        timestamps=None if timestamps is None else _by_partition(timestamps, f"{name}ByTimestamp"),
        missing=missing,
    )


def _by_partition(text: str, name: str) -> _ByPartition:
    """Read JSON of topic, partition and a number: {"orders": {"0": 23, "1": -2}}."""
    with _expected(name, text, '{"orders": {"0": 23, "1": -2}}'):
        return {
            TopicPartition(topic, _whole(partition, 0)): _whole(number, _EARLIEST)
            for topic, numbers in json.loads(text).items()
            for partition, number in numbers.items()
        }


@contextmanager
def _expected(name: str, text: str, example: str) -> Iterator[None]:
    """Raise ValueError that names an option and an example if the option is not JSON of this form."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"option {name}: expected JSON such as {example}, got {text!r}") from error


def _whole(value: Any, least: int) -> int:
    """Return a whole number, or the value of its digits; not 1.5, and not true, which Python takes as 1."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True)
class Topics:
    """The wanted partitions: topics by names or patterns, by a pattern for part of the name, or single partitions; None: any."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def choose(self, logs: LogDirs) -> list[TopicPartition]:
        """Return the wanted partitions of a directory.

        Raises:
            ValueError: A named topic or partition is missing: a mistyped name must not read as empty.
        """
        known = dict.fromkeys(each.topic for each in logs.partitions())
        names = None if self.names is None else matching_topics(self.names, lambda: known)
        found = logs.partitions(names)
        missing = sorted(set(names or ()) - {partition.topic for partition in found})
        missing += [str(partition) for partition in sorted(self.partitions or ()) if partition not in found]
        if missing:
            raise ValueError(
                f"{logs.path} does not hold {', '.join(missing)}; it holds {', '.join(known) or 'nothing'}"
            )
        if self.pattern is not None:
            matches = re.compile(self.pattern, re.ASCII).search
            found = [each for each in found if matches(each.topic) and each.topic not in _INTERNAL]
        return [partition for partition in found if self.partitions is None or partition in self.partitions]


def topics(options: Mapping[str, str]) -> Topics:
    """Return which topics are wanted, by default all.

    Raises:
        ValueError: Several options choose topics, or one is invalid.
    """
    given = [name for name in TOPIC_OPTIONS if options.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"give one of the options {', '.join(TOPIC_OPTIONS)}, not {' and '.join(given)}")
    if options.get("assign") is not None:
        return Topics(partitions=_assigned(options["assign"]))
    if options.get("subscribePattern") is not None:
        pattern = options["subscribePattern"]
        other = _NOT_THE_SAME.search(_SAME_ESCAPE.sub("a", pattern))
        if other is not None:
            raise ValueError(
                f"option subscribePattern: {pattern!r}: {other[0]!r} is not the same in Java and Python; write it another "
                "way, or name the topics with subscribe"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"option subscribePattern: {pattern!r} is not a regular expression: {error}") from error
        return Topics(pattern=pattern)
    names = opt.names(options, "subscribe")
    return Topics(names=opt.texts(options, "topic") if names is None else names)


def _assigned(text: str) -> frozenset[TopicPartition]:
    """Read JSON of topics and partitions: {"orders": [0, 1]}."""
    with _expected("assign", text, '{"orders": [0, 1]}'):
        wanted = json.loads(text).items()
        chosen = frozenset(TopicPartition(topic, _whole(n, 0)) for topic, numbers in wanted for n in _listed(numbers))
    if not chosen:
        raise ValueError(f"option assign: {text!r} names nothing")
    return chosen


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


_BATCH_ROWS = 16_384
_Offsets = dict[TopicPartition, int]

FORMAT = "kafka_log"

_OPTIONS = (
    *LOG_OPTIONS,
    *TOPIC_OPTIONS,
    *OFFSET_OPTIONS,
    "includeHeaders",
    "isolation",
    "kafka.isolation.level",
    "onError",
    "maxOffsetsPerTrigger",
)
_REFUSED = {
    "minOffsetsPerTrigger": "a batch has what is there; choose how often with trigger(processingTime=...)",
    "maxTriggerDelay": "a batch does not wait; choose how often with trigger(processingTime=...)",
    "maxRecordsPerPartition": "tasks are cut by bytes of the log; use maxPartitionBytes or minPartitions",
}
"""Options of Spark's own source that are not taken, and why."""
# Options of a job over a live broker for its connections; only kafka.isolation.level chooses records.
_OF_BROKERS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")


class KafkaLogSource(LogSource):
    """The data source of `spark.read.format("kafka_log").load(log_dir)`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or those of the option `columns`, with the types of decoded ones."""
        decoding = Decoding.planned(self.options, RECORD_COLUMNS, self._sample)
        names = opt.names(self.options, "columns")
        if names is None:
            headers = opt.flag(self.options, "includeHeaders", default=False)
            names = tuple(name for name in RECORD_COLUMNS if headers or name != "headers")
        return decoding.pinned(spark_schema(decoding.columns, decoding.names(names)))

    def reader(self, schema: StructType) -> LogReader:
        """Plan a read; a schema of the user chooses columns as the option does."""
        options = self._read_options(
            *declared_columns(self.options, RECORD_COLUMNS, schema, self._sample), stream=False
        )
        # A stream may wait for the first topic. A batch over another directory would silently be empty.
        for each in options.directories:
            if detect(each, sealed="never") is not Kind.LOG_DIR:
                raise ValueError(f"{each}: no Kafka log directory, it holds no <topic>-<partition>")
        return LogReader(options, self.reports)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Follow growing logs."""
        refuse_ending(self.options)
        options = self._read_options(*declared_columns(self.options, RECORD_COLUMNS, schema, self._sample), stream=True)
        return RecordStreamReader(options, self.options, self.reports)

    def writer(self, schema: StructType, overwrite: bool) -> RecordSink:  # noqa: FBT001 - Spark's signature
        """Plan a write, which appends."""
        return record_sink(self.options, schema, overwrite=overwrite)

    def _sample(self, names: list[str]) -> Any:
        """Read the first rows of some columns."""
        return first_rows(self._read_options(names, Decoding.none(RECORD_COLUMNS), stream=True))

    def _read_options(self, names: list[str], decoding: Decoding, *, stream: bool) -> ReadOptions:
        for name in (name for name in _REFUSED if name in self.options):
            raise ValueError(f"option {name}: {_REFUSED[name]}")
        opt.check_names(self.options, _OPTIONS, FORMAT, ignored_prefixes=_OF_BROKERS)
        opt.pushdown(self.options)  # for its check
        directories = opt.paths(self.options, f"format {FORMAT}")
        for each in directories:
            require_directory(each)
        # Spark's own source has the first name.
        isolation = "kafka.isolation.level" if "kafka.isolation.level" in self.options else "isolation"
        begin, end = opt.instant(self.options, "begin", end=False), opt.instant(self.options, "end", end=True)
        return ReadOptions(
            tuple(directories),
            tuple(names),
            (begin, end),
            topics(self.options),
            starting(self.options, stream=stream),
            ending(self.options),
            TaskSize.of_options(self.options),
            matches=opt.pattern(self.options),
            isolation=opt.one_of(self.options, isolation, get_args(Isolation), "read_uncommitted"),
            on_error=opt.one_of(self.options, "onError", get_args(OnError), "raise"),
            access=opt.access(self.options),
            compat=self.options.get("compat"),
            decoding=decoding,
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition: from `begin` on, before `end`, in about `size` bytes of the log in the directory `path`."""

    topic: str
    partition: int
    begin: int
    end: int
    size: int
    path: Path
    base: int | None = None
    """The base offset of its segment."""
    planned: tuple[Path, int, str | None] | None = None
    """The object of its segment, as `plan_files` saw it; None: a file, to which a broker may append."""

    def check(self, log: Log, damage: SparkDamage) -> bool:
        """Lose what a worker's log does not have of these offsets. Return whether its segment is the planned one."""
        if self.planned is not None and damage.lose_all(planned_file_faults([self.planned])):
            return False
        within(log, self.begin, self.end, damage)
        segment = next((each for each in reversed(log.segments) if each.base_offset <= self.begin), None)
        # Compaction may have joined it with the segment before, which then continues after it.
        if segment is not None and self.base not in (None, segment.base_offset) and segment.next_offset() <= self.begin:
            damage.lose(log.path, f"{self}", f"a segment that ends at {segment.next_offset()}")
        return True

    def __str__(self) -> str:
        """Return the text for a log message."""
        return f"{self.path} offsets {self.begin}..{self.end}"


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read: of which log directories and partitions, from where, to where, and how it is cut into tasks.

    `compat` is a Kafka release whose answers are wanted.
    """

    directories: tuple[Path, ...]
    columns: tuple[str, ...]
    times: tuple[int | None, int | None]
    topics: Topics
    first: Bound
    last: Bound
    size: TaskSize
    isolation: Isolation
    matches: Pattern | None
    on_error: OnError
    access: Access
    compat: Any
    decoding: Decoding

    @property
    def directory(self) -> str:
        """The directories, for a message."""
        return ", ".join(map(str, self.directories))

    @property
    def committed(self) -> bool:
        """True if only committed records are read."""
        return self.isolation == "read_committed"

    def open(self) -> LogDirs:
        """Open the directories."""
        return LogDirs([LogDir.open(each, access=self.access, compat=self.compat) for each in self.directories])

    def tasks(self, damage: SparkDamage) -> list[Task]:
        """Cut the wanted offsets of a batch into tasks of about as many bytes each."""
        with self.open() as logs:
            chosen = self.topics.choose(logs)
            for bound in (self.first, self.last):
                bound.check_names(chosen)
            bounds = [self._offsets(logs.log(each), damage) for each in chosen]
            return cut_tasks(bounds, self.size)

    def _offsets(self, log: Log, damage: SparkDamage) -> tuple[Log, int, int]:
        begin = self.first.resolve(log, committed=self.committed)
        begin, end = within(log, begin, self.last.resolve(log, committed=self.committed), damage)
        if end == log.log_end_offset:
            # No task reads after the last segment.
            for finding in log.missing_segments(end):
                if self.on_error == "raise":
                    raise CorruptFileError(finding.path, finding.offset, finding.expected, finding.found)
                damage.add(finding)
        since, _ = self.times
        if since is not None and begin < end:
            # The time indexes give the first record of that time.
            first = next(iter(opened_files(log).parts(begin, end, since, most=1)), None)
            # A missing segment is reported by the task that reads there.
            begin = end if first is None else first[1] or begin if isinstance(first, tuple) else begin
        return log, begin, end

    def rows(self, pieces: Sequence[OffsetRange], damage: SparkDamage) -> Iterator[Any]:
        """Read the records of some ranges as Arrow batches for Spark, in a worker."""
        for each in {piece.path.parent for piece in pieces}:
            require_directory(each)
        where = ", ".join(map(str, pieces))
        decoded = self.decoding.batches(self._batches(pieces, damage))
        yield from spark_batches(decoded, self.decoding.columns, self.columns, where)

    def _batches(self, pieces: Sequence[OffsetRange], damage: SparkDamage) -> Iterator[Any]:
        begin, end = self.times
        for each in pieces:
            with damage.losing(str(each)), Log.open(each.path, access=self.access, compat=self.compat) as opened:
                # A file that is deleted from now on is an error of the stream.
                log = opened.pinned()
                if not each.check(log, damage):
                    continue
                parts = log.parts(each.begin, each.end, begin, isolation=self.isolation)
                stream = read_records(
                    parts,
                    begin=begin,
                    end=end,
                    matches=self.matches,
                    columns=[name for name in self.columns if name in RECORD_COLUMNS],
                    batch_size=_BATCH_ROWS,
                    on_error=self.on_error,
                    warn=False,
                    threads=1,
                )
                # Not as an Arrow stream, so that errors keep their class and findings can be read.
                yield from stream
                for finding in stream.damage:
                    damage.add(finding)


def cut_tasks(bounds: Iterable[tuple[Log, int, int]], size: TaskSize) -> list[Task]:
    """Cut the wanted offsets of several logs, each with its first offset and the offset after its last one, into tasks."""
    asked = [(log, begin, end) for log, begin, end in bounds if begin < end]
    whole = (each for log, begin, end in asked for each in opened_files(log).cut(begin, end, MAX_OFFSET))
    total = sum(piece_bytes for _, _, piece_bytes, _ in whole) if size.min_tasks else 0
    most = size.task_bytes(total)
    return [Task(ranges) for ranges in pack((each for part in asked for each in _cut(*part, most)), most)]


def _cut(log: Log, begin: int, end: int, piece_bytes: int) -> Iterator[OffsetRange]:
    """Cut the offsets [begin, end) of a log at its segments, and large segments at entries of their indexes."""
    paths = {segment.base_offset: segment.path for segment in log.segments if isinstance(log.path, RemotePath)}
    planned = dict(zip(paths, plan_files([*paths.values()]), strict=True))
    for low, high, size, base in opened_files(log).cut(begin, end, piece_bytes):
        yield OffsetRange(log.topic, log.partition, low, high, size, log.path, base, planned.get(base))


class RecordStreamReader(LogStreamReader):
    """Follows the partitions of a log directory. The offsets of a batch have the form of Spark's own Kafka source."""

    options: ReadOptions

    def __init__(self, options: ReadOptions, given: Mapping[str, str], reports: DamageReports) -> None:
        self.options = options
        self.reports = reports
        self.max_offsets = opt.positive(given, "maxOffsetsPerTrigger")
        self.target: _Offsets | None = None
        self.bounds = KnownBounds(committed=options.committed)
        self._seen: tuple[dict[str, Any], LogDirs] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the offsets that the starting options mean."""
        with self.options.open() as logs:
            wanted = self.options.topics.choose(logs)
            first, committed = self.options.first, self.options.committed
            first.check_names(wanted)
            return _to_json({each: first.resolve(logs.log(each), committed=committed) for each in wanted})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the ends of the logs, or lower offsets if a batch has a limit."""
        begins = _from_json(start or {})
        logs = self._logs_at(None)
        wanted = self.options.topics.choose(logs) if self.target is None else self.target
        bounds = self.bounds.of(logs, {*wanted, *begins})
        for each, offset in begins.items():
            if each not in bounds:
                self.report_loss(f"{each} is gone, it was read up to offset {offset}")
            elif bounds[each].end < offset:
                self.report_loss(
                    f"{each} ends at offset {bounds[each].end}, and was read up to {offset}: it was cut off since"
                )
        ends = {each: bounds[each].latest for each in wanted} if self.target is None else self.target
        # A new partition is read from its start.
        new = {each: bounds[each].first for each in ends if each in bounds and each not in begins}
        # A deleted or truncated partition ends where it was read to.
        ends = {**begins, **{each: max(end, begins.get(each, end)) for each, end in ends.items()}}
        # The engine's limit, or else the option.
        most = self.max_offsets if limit is None else getattr(limit, "max_rows", None)
        if most is not None and start is not None:
            ends = _limit({**new, **begins}, ends, most)
        found = _to_json(ends)
        self._seen = found, logs
        return found

    def _logs_at(self, end: dict[str, Any] | None) -> LogDirs:
        """Return the directories as `latestOffset` just saw them if these are its offsets, and otherwise as they are now."""
        seen, self._seen = self._seen, None
        if seen is not None:
            if seen[0] == end:
                return seen[1]
            seen[1].close()
        return self.options.open()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Return the limit of the option `maxOffsetsPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415 -- since pyspark 4.2

        return ReadAllAvailable() if self.max_offsets is None else ReadMaxRows(self.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Store the current ends of the logs, where the query ends."""
        with self.options.open() as logs:
            bounds = self.bounds.of(logs, self.options.topics.choose(logs))
        self.target = {each: found.latest for each, found in bounds.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the new offsets into tasks."""
        begins, ends = _from_json(start), _from_json(end)
        parts = []
        with self._logs_at(end) as logs:
            bounds = self.bounds.of(logs, ends)
            for each, stop in sorted(ends.items()):
                if each not in bounds:
                    if begins.get(each, 0) < stop:
                        self.report_loss(f"{each} is gone, with the records up to offset {stop}")
                    continue
                first, log_end, _ = bounds[each]
                begin = begins.get(each, first)
                if begin < min(first, stop):
                    self.report_loss(
                        f"{each}: the records from offset {begin} to {min(first, stop)} are gone, they were deleted"
                    )
                if log_end < stop and begin < stop:
                    self.report_loss(f"{each} ends at offset {log_end}, not at {stop}: it was cut off since")
                if max(begin, first) < stop:
                    parts.append((logs.log(each), max(begin, first), stop))
            return [*cut_tasks(parts, self.options.size)]


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


def _limit(begins: _Offsets, ends: _Offsets, most: int) -> _Offsets:
    """Share the rows of a batch among partitions in proportion to what each has; each gets at least one."""
    waiting = {each: max(0, end - begins.get(each, 0)) for each, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return ends
    shares = {each: min(count, max(1, count * most // total)) if count else 0 for each, count in waiting.items()}
    return {each: min(end, begins.get(each, 0) + shares[each]) for each, end in ends.items()}
