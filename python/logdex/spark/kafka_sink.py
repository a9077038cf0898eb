"""Write records into a Kafka log directory: `df.write.format("kafka_log").mode("append").save(log_dir)`.

    <log_dir>/.logdex-<job>.<attempt>    batches of all partitions, by one attempt of a task, without offsets
    <log_dir>/.logdex-<job>.commit       empty; during the commit the partitions with their ends before and after it

Each task puts its rows into batches by partition. The commit appends them to the logs with their offsets, in the order of the
tasks and their rows. Brokers ignore files in a log directory. A failed commit truncates the logs to their former ends. If the
driver is killed in the middle of a commit, the file of the job stays, and later writes are refused until the user decides.

Nothing can be appended to an object, so there a directory must be new:

    <log_dir>/_jobs/<job>/<attempt>      the same batches
    <log_dir>/meta.properties            written first by the commit, which fails if it is there
    <log_dir>/.kafka_cleanshutdown       written last
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logdex._core import (
    BatchSpool,
    RemotePath,
    StoreLock,
    delete_remote,
    make_directory,
    put_remote,
    read_file,
    replace_file,
    sync_directory,
    upload_file,
)
from logdex.hash_index.files import JOBS
from logdex.kafka import LogDirWriter, LogWriter, TopicPartition
from logdex.kafka.checkpoint import CLEAN_SHUTDOWN
from logdex.kafka.files import META_PROPERTIES, parse_partition_directory
from logdex.kafka.writer import LOCK, new_id, partition_dirs
from logdex.source import Kind, detect
from logdex.spark import options as opt
from logdex.spark.index.job import attempt_name
from logdex.spark.schema import require_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql.types import StructType

logger = logging.getLogger("logdex.spark")

# The columns of Spark's own Kafka sink with their types, and the time.
_COLUMNS = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
# Columns of Spark's own Kafka source that a record gets anew.
_IGNORED = ("offset", "timestampType")
_CONFIG = "config."
"""Options of this prefix are settings of the topics, by Kafka's names."""
_OPTIONS = ("topic", "partitions", "compat", "clusterId", "nodeId", "interruptedCommit")
_OF_PARTITIONERS = ("kafka.partitioner.class", "kafka.partitioner.ignore.keys")
_PREFIX = ".logdex-"
_COMMIT = ".commit"

_Chunk: TypeAlias = tuple[int, int, int]
"""Position, length and number of records."""
_Chunks: TypeAlias = dict[TopicPartition, list[tuple[Path, int, int, int]]]
_Topics: TypeAlias = dict[str, list[int]]


@dataclass(frozen=True)
class WrittenBatches(WriterCommitMessage):
    """Commit message of a task that had rows: its file, and the chunks of each partition in it."""

    file: Path
    spooled: list[tuple[str, int, list[_Chunk]]]


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write. `partitions` is the number of those of a new topic; None: each row has its partition."""

    topic: str | None
    partitions: int | None
    codec: str
    batch_bytes: int
    config: dict[str, str]
    compat: str
    cluster_id: str | None
    node_id: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return the options that a user gave."""
        for name in (name for name in _OF_PARTITIONERS if name in options):
            raise ValueError(f"option {name}: expected a column partition; keys are hashed as by default")
        opt.check_names(options, _OPTIONS, "kafka_log", ignored_prefixes=("kafka.", _CONFIG))
        given = {name.lower(): value for name, value in options.items()}
        node_id = opt.integer(options, "nodeId")
        return cls(
            options.get("topic"),
            opt.positive(options, "partitions"),
            options.get("kafka.compression.type", "none"),
            opt.positive(options, "kafka.batch.size") or 16_384,
            {name.removeprefix(_CONFIG): value for name, value in given.items() if name.startswith(_CONFIG)},
            options.get("compat", "3.9.2"),
            options.get("clusterId"),
            1 if node_id is None else node_id,
        )

    def spool(self, path: Path, topics: _Topics, task: int = 0) -> BatchSpool:
        """Begin a file of batches."""
        return BatchSpool.create(
            path,
            topics=topics,
            partitions=self.partitions,
            topic=self.topic,
            task=task,
            config=self.config,
            codec=self.codec,
            batch_bytes=self.batch_bytes,
            compat=self.compat,
        )

    def open(self, log_dir: Path) -> LogDirWriter:
        """Open a log directory, or begin one."""
        return LogDirWriter.open(
            log_dir, cluster_id=self.cluster_id, node_id=self.node_id, config=self.config, compat=self.compat
        )


@dataclass
class RecordSink(DataSourceArrowWriter):
    """Writes records into a log directory. `topics` has the partitions that were there at the start."""

    target: LocalTarget | ObjectTarget
    options: WriteOptions
    columns: list[str]
    topics: _Topics = field(default_factory=dict)

    def start(self, *, undo: bool) -> None:
        """Begin the job, on the driver; `undo`: remove the rows of interrupted commits.

        Raises:
            ValueError: An option is invalid, the target is no log directory, or a commit was interrupted.
            LockedError: A broker or another writer holds the directory.
        """
        self.topics = self.target.start(self.options, undo=undo)
        try:
            # It checks all settings, and that files can be created.
            with self.target.attempt(lambda path: self.options.spool(path, self.topics)) as (spool, _):
                spool.discard()
        except BaseException:
            self.target.abort()
            raise

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Put the rows of a task into batches, in a worker.

        Raises:
            ValueError: A row is no record, or has no partition.
            KafkaError: A broker would refuse a batch.
        """
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return WriterCommitMessage()
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        with self.target.attempt(lambda path: self.options.spool(path, self.topics, task)) as (spool, keep):
            spool.append(first.select(self.columns))
            for batch in batches:
                spool.append(batch.select(self.columns))
            spooled = spool.finish()
            return WrittenBatches(keep(), spooled)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append all batches to the logs, in the order of the tasks: all of them or none.

        Raises:
            LockedError: A broker or another writer holds the directory.
            ValueError: Another job has changed it so that the batches have no place.
        """
        chunks: _Chunks = {}
        for message in messages:
            if isinstance(message, WrittenBatches):
                for topic, number, spooled in message.spooled:
                    parts = chunks.setdefault(TopicPartition(topic, number), [])
                    parts.extend((message.file, *chunk) for chunk in spooled)
        self.target.commit(dict(sorted(chunks.items())), self.options, self.topics)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what attempts wrote."""
        del messages
        self.target.abort()


_Attempt: TypeAlias = "Iterator[tuple[BatchSpool, Callable[[], Path]]]"


@dataclass
class LocalTarget:
    """A log directory on a file system that driver and workers share."""

    directory: Path
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_new: bool = False

    @property
    def job_file(self) -> Path:
        """The file of the job, which is there until the job ends."""
        return self.directory / f"{_PREFIX}{self.job_id}{_COMMIT}"

    def start(self, options: WriteOptions, *, undo: bool) -> _Topics:
        """Create the file of the job, and return the topics that are there."""
        self.is_new = not self.directory.exists()
        make_directory(self.directory)
        if not self.is_new:
            self._check()
            # A commit that runs now is not interrupted.
            StoreLock.take(self.directory / LOCK).release()
            if undo:
                for path in _interrupted(self.directory):
                    _undo(path, options)
            _refuse_interrupted(self.directory)
        self.job_file.touch()
        return _topics(self.directory)

    def _check(self) -> None:
        found = [each.name for each in self.directory.iterdir() if not each.name.startswith(".")]
        if found and META_PROPERTIES not in found and detect(self.directory, sealed="never") is not Kind.LOG_DIR:
            raise ValueError(f"{self.directory}: expected a Kafka log directory or an empty one, found {min(found)}")

    def _check_job(self) -> None:
        if not self.job_file.exists():
            text = "the job has ended, or this worker does not see the driver's files"
            raise FileNotFoundError(errno.ENOENT, text, str(self.job_file))

    @contextlib.contextmanager
    def attempt(self, create: Callable[[Path], BatchSpool]) -> _Attempt:
        """Create the file of an attempt of a task, and remove it if the attempt fails."""
        path = self.directory / f"{_PREFIX}{self.job_id}.{attempt_name()}"
        spool = create(path)
        try:
            # Checked once the file is there: the end of the job removes its own file first, then those of its attempts.
            self._check_job()
            yield spool, lambda: path
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def commit(self, chunks: _Chunks, options: WriteOptions, topics: _Topics) -> None:
        """Append all chunks."""
        if chunks or self.is_new:
            writer = options.open(self.directory)
            try:
                self._append(writer, chunks, options, topics)
                writer.close()
            except BaseException:
                writer.abandon()
                if self.job_file.exists() and self.job_file.stat().st_size:
                    self._undo(options)
                raise
        self._clean_up()

    def _append(self, writer: LogDirWriter, chunks: _Chunks, options: WriteOptions, topics: _Topics) -> None:
        _refuse_interrupted(self.directory)
        _check_topics(writer, chunks, topics)
        ends: dict[TopicPartition, tuple[int | None, int]] = {}
        for place in _places(chunks, topics, options.partitions):
            before = writer.log(place.topic, place.partition).end_offset if place.topic in topics else None
            ends[place] = before, (before or 0) + sum(records for *_, records in chunks.get(place, ()))
        replace_file(self.job_file, json.dumps({str(place): each for place, each in ends.items()}).encode())
        sync_directory(self.directory)
        # The logs are closed here, because a close waits for the disk.
        _append_all(writer, chunks, options, topics, LogWriter.close)

    def _undo(self, options: WriteOptions) -> None:
        try:
            _undo(self.job_file, options)
        except Exception:
            logger.exception("%s: the commit failed, and could not be undone", self.directory)

    def _clean_up(self) -> None:
        self.job_file.unlink(missing_ok=True)
        sync_directory(self.directory)
        self._remove_attempts()

    def _remove_attempts(self) -> None:
        for path in self.directory.glob(f"{_PREFIX}{self.job_id}.*"):
            if path != self.job_file:
                path.unlink(missing_ok=True)

    def abort(self) -> None:
        """Remove the files of the job; its own stays if its commit was interrupted."""
        if self.job_file in _interrupted(self.directory):
            self._remove_attempts()
            return
        self._clean_up()
        if self.is_new:
            with contextlib.suppress(OSError):
                self.directory.rmdir()


_MARK = "job"
"""The object of a job that has not ended."""


@dataclass
class ObjectTarget:
    """A new log directory in an object store."""

    directory: Path
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def _job(self) -> Path:
        return self.directory / JOBS / self.job_id

    def start(self, options: WriteOptions, *, undo: bool) -> _Topics:
        """Check that there is nothing, and that objects can be written."""
        del options, undo
        self._refuse_others()
        put_remote(self._job / _MARK, b"")
        return {}

    def _refuse_others(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            others = sorted(each.name for each in self.directory.iterdir() if each.name != JOBS)
            if others:
                text = f"expected nothing, found {others[0]}; nothing can be appended to the objects of a log directory"
                raise FileExistsError(errno.EEXIST, text, str(self.directory))

    @contextlib.contextmanager
    def attempt(self, create: Callable[[Path], BatchSpool]) -> _Attempt:
        """Create the file of an attempt of a task on this machine, to upload it as a whole."""
        # Spark gives its workers directories with room, and removes them.
        place = next(filter(os.path.isdir, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")), None)
        with tempfile.TemporaryDirectory(prefix="logdex-", dir=place) as directory:
            path = Path(directory) / attempt_name()

            def keep() -> Path:
                kept = self._job / path.name
                upload_file(path, kept)
                # Checked once the object is there: the end of the job deletes all that it finds.
                try:
                    read_file(self._job / _MARK)
                except FileNotFoundError as error:
                    delete_remote(kept)
                    raise FileNotFoundError(errno.ENOENT, "the job has ended", str(self._job)) from error
                return kept

            yield create(path), keep

    def commit(self, chunks: _Chunks, options: WriteOptions, topics: _Topics) -> None:
        """Write all logs here, each as a whole, and upload them."""
        with tempfile.TemporaryDirectory(prefix="logdex-") as directory:
            local = Path(directory) / "logs"
            writer = options.open(local)
            try:
                # If another job was faster, its object is there.
                put_remote(self.directory / META_PROPERTIES, read_file(local / META_PROPERTIES))
                try:
                    self._upload(writer, chunks, options, topics)
                except BaseException:
                    for name in {META_PROPERTIES, *map(str, _places(chunks, topics, options.partitions))}:
                        delete_remote(self.directory / name)
                    raise
            finally:
                writer.abandon()
        self.abort()

    def _upload(self, writer: LogDirWriter, chunks: _Chunks, options: WriteOptions, topics: _Topics) -> None:
        def upload(log: LogWriter) -> None:
            log.close()
            for path in sorted(log.path.iterdir()):
                upload_file(path, self.directory / log.path.name / path.name)
                # Room for the other logs.
                path.unlink()

        _append_all(writer, chunks, options, topics, upload)
        writer.close()
        names = sorted(path.name for path in writer.path.iterdir() if path.is_file())
        for name in (name for name in names if name not in (META_PROPERTIES, LOCK, CLEAN_SHUTDOWN)):
            upload_file(writer.path / name, self.directory / name)
        upload_file(writer.path / CLEAN_SHUTDOWN, self.directory / CLEAN_SHUTDOWN)

    def abort(self) -> None:
        """Delete all objects of the attempts."""
        delete_remote(self._job)


def _topics(directory: Path) -> _Topics:
    topics: _Topics = {}
    for place in partition_dirs(directory):
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


def _places(chunks: _Chunks, topics: _Topics, partitions: int | None) -> list[TopicPartition]:
    """Return the partitions that a commit changes or creates: all of a new topic."""
    new = dict.fromkeys(place.topic for place in chunks if place.topic not in topics)
    whole = [TopicPartition(topic, number) for topic in new for number in range(partitions or 0)]
    return sorted({*chunks, *whole})


def _check_topics(writer: LogDirWriter, chunks: _Chunks, topics: _Topics) -> None:
    """Raise `ValueError` if another job has created a topic meanwhile: it may have another number of partitions."""
    there = writer.topics
    for topic in sorted({place.topic for place in chunks if (place.topic in topics) != (place.topic in there)}):
        raise ValueError(f"{writer.path}: topic {topic} was created or deleted while the job ran")


def _append_all(
    writer: LogDirWriter,
    chunks: _Chunks,
    options: WriteOptions,
    topics: _Topics,
    end: Callable[[LogWriter], None],
) -> None:
    """Append the chunks to all logs, several at the same time, and call `end` with each log."""
    ids = {place.topic: new_id() for place in chunks if place.topic not in topics}
    logs = {
        place: writer.log(place.topic, place.partition, topic_id=ids.get(place.topic))
        for place in _places(chunks, topics, options.partitions)
    }

    def append(place: TopicPartition) -> None:
        logs[place].append_chunks(chunks.get(place, []))
        end(logs[place])

    with ThreadPoolExecutor(min(len(logs), os.cpu_count() or 1) or 1) as pool:
        list(pool.map(append, logs))


def _interrupted(directory: Path) -> list[Path]:
    """Return the files of jobs whose commit has begun and not ended."""
    return sorted(path for path in directory.glob(f"{_PREFIX}*{_COMMIT}") if path.stat().st_size)


def _refuse_interrupted(directory: Path) -> None:
    for path in _interrupted(directory):
        ends = json.loads(path.read_bytes())
        parts = [f"{name} from offset {before or 0} to {after}" for name, (before, after) in ends.items()]
        more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""  # noqa: PLR2004 -- enough to show
        raise ValueError(
            f"{path}: a commit was interrupted, its rows may be in {', '.join(parts[:3])}{more}; if no broker has run since, "
            "the option interruptedCommit=undo removes them; to keep them, remove this file"
        )


def _undo(path: Path, options: WriteOptions) -> None:
    """Bring the logs back to their ends before an interrupted commit, and remove the file of its job.

    Raises:
        ValueError: A log ends after the end of the commit: a broker or another writer has appended to it.
    """
    directory = path.parent
    ends: dict[str, tuple[int | None, int]] = json.loads(path.read_bytes())
    places = {name: place for name in ends if (place := parse_partition_directory(name)) is not None}
    with options.open(directory) as writer:
        logs = {
            name: writer.log(place.topic, place.partition)
            for name, place in places.items()
            if (directory / name).exists()
        }
        for name, log in logs.items():
            if log.end_offset > ends[name][1]:
                raise ValueError(f"{log.path}: expected an end of at most {ends[name][1]}, found {log.end_offset}")
        for name, log in logs.items():
            log.truncate_to(ends[name][0] or 0)
    lock = StoreLock.take(directory / LOCK)
    try:
        for name in (name for name in logs if ends[name][0] is None):
            shutil.rmtree(directory / name)
        path.unlink()
        sync_directory(directory)
    finally:
        lock.release()


def record_sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> RecordSink:
    """Plan a write and begin its job; all that can be known is checked before any task.

    Raises:
        ValueError: An option or a column is invalid; or the mode is `overwrite`.
    """
    if overwrite:
        raise ValueError('a write of format kafka_log appends: use mode("append")')
    given = WriteOptions.of(options)
    columns = _checked_columns(schema, given.topic)
    undo = opt.one_of(options, "interruptedCommit", ("refuse", "undo"), "refuse") == "undo"
    directory = opt.path(options, "a write of format kafka_log")
    target = ObjectTarget(directory) if isinstance(directory, RemotePath) else LocalTarget(directory)
    sink = RecordSink(target, given, columns)
    sink.start(undo=undo)
    return sink


def _checked_columns(schema: StructType, topic: str | None) -> list[str]:
    """Return the columns of records.

    Raises:
        ValueError: A column is missing, unknown, or has another type.
    """
    names = schema.fieldNames()
    require_columns(names, ("value",) if topic is not None else ("value", "topic"), "a write of format kafka_log")
    unknown = [name for name in names if name not in (*_COLUMNS, *_IGNORED)]
    if unknown:
        raise ValueError(f"no record columns: {', '.join(unknown)}; there are {', '.join(_COLUMNS)}")
    for each in schema:
        expected = _COLUMNS.get(each.name)
        found = each.dataType.simpleString()
        if expected is not None and found not in expected:
            raise ValueError(f"column {each.name}: expected {' or '.join(expected)}, found {found}")
    return [name for name in names if name in _COLUMNS]
