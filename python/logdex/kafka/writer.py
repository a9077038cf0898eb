"""Writing Kafka's logs without a broker."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from logdex._core import (
    LogWriter,
    PutCounter,
    StoreLock,
    checkpoint_text,
    fork_generation,
    local_path,
    make_directory,
    replace_file,
    sync_directory,
)
from logdex._files import Closing
from logdex._types import check_int64
from logdex.kafka import checkpoint
from logdex.kafka.files import META_PROPERTIES, METADATA_TOPIC, TopicPartition, parse_partition_directory
from logdex.statistics import WriterStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from os import PathLike
    from pathlib import Path

    from typing_extensions import Self

LOCK = ".lock"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CHECKPOINT_SECONDS = 60.0
"""log.flush.offset.checkpoint.interval.ms."""


class AppendResult(NamedTuple):
    """The place of records that were appended, by the names of the broker's `LogAppendInfo`."""

    first_offset: int
    """Offset of the first record; -1 if nothing was appended."""
    last_offset: int
    """Offset of the last record; -1 if nothing was appended."""
    max_timestamp: int
    """The largest timestamp in ms; -1: none."""
    log_append_time: int
    """The time of the append in ms, for a topic of LogAppendTime; else -1."""


class LogDirState(NamedTuple):
    """State of a log directory that is being written, and the error that ended the writing."""

    status: Literal["open", "failed", "closed"]
    error: Exception | None = None


class LogDirWriter(Closing):
    """Writes a log directory as a broker that is the only replica of all partitions; a broker can load it after `close`.

    Open it with `LogDirWriter.open`. Any thread may append. While it is open, it holds the lock `.lock`, so no broker and no
    other writer can open the directory; readers (`LogDir`) can. It works only in the process that opened it, and does not
    pickle. If it is not closed, the directory stays as a killed broker leaves it. Source: `LogManager`, `ReplicaManager`.

    Example:
        >>> import tempfile
        >>> from logdex.kafka import LogDir, LogDirWriter
        >>> directory = tempfile.mkdtemp()
        >>> with LogDirWriter.open(directory) as writer:
        ...     _ = writer.create_topic("orders", 2, config={"compression.type": "zstd"})
        ...     writer.append("orders", 1, {"key": [b"k"], "value": [b"one"]}).last_offset
        0
        >>> LogDir.open(directory).log("orders", 1).log_end_offset
        1
    """

    def __init__(self, directory: Path, options: dict[str, Any], *, broker_epoch: int | None) -> None:
        self._directory = directory
        self._options = options
        self._process = fork_generation()
        self._closed = False
        self._logs: dict[TopicPartition, LogWriter] = {}
        self._settings: dict[str, dict[str, object]] = {}
        self._opening = threading.Lock()
        self._counter = PutCounter()
        self._last_checkpoint = time.monotonic()
        self._lock = StoreLock.take(directory / LOCK)
        marker = directory / checkpoint.CLEAN_SHUTDOWN
        try:
            self._clean = marker.exists() or not partition_dirs(directory)
            self._broker_epoch = read_broker_epoch(marker) if broker_epoch is None else broker_epoch
            self._points = checkpoint.read_offsets(directory, checkpoint.RECOVERY_POINT)
            self._starts = checkpoint.read_offsets(directory, checkpoint.LOG_START)
            marker.unlink(missing_ok=True)
            for name in (META_PROPERTIES, *checkpoint.LOG_DIR_FILES, checkpoint.CLEAN_SHUTDOWN):
                # A process that was killed while it replaced the file.
                for path in directory.glob(f".{name}.*.*"):
                    path.unlink()
            sync_directory(directory)
            if not self._clean:
                # The marker at the end covers every log, so each is recovered now.
                for partition in partition_dirs(directory):
                    self.log(partition.topic, partition.partition)
        except BaseException:
            self.abandon()
            raise

    @classmethod
    def open(
        cls,
        log_dir: str | PathLike[str],
        *,
        cluster_id: str | None = None,
        node_id: int = 1,
        config: Mapping[str, object] | None = None,
        flush: Literal["none", "sync"] = "none",
        compat: str = "3.9.2",
        clock: Callable[[], int] | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        broker_epoch: int | None = None,
        truncate: bool = False,
    ) -> Self:
        """Open a log directory for writing, or begin one.

        Without `.kafka_cleanshutdown` every log is recovered from its recovery point on, as by a broker that starts.

        Args:
            log_dir: The directory (log.dirs). It is made if it is missing.
            cluster_id: Id of the cluster for `meta.properties` of a new directory, 22 letters of URL-safe base64; None: new.
            node_id: For `meta.properties` of a new directory: number of the broker (node.id).
            config: Settings of topics that have no settings of their own, by Kafka's names.
            flush: As for `LogWriter.open`.
            compat: The Kafka release whose rules count, where they differ.
            clock: As for `LogWriter.open`.
            producer_id_expiration_ms: As for `LogWriter.open`.
            truncate: Whether a recovery may cut valid batches after damage, as a broker's does. False: that is an error.
            broker_epoch: The epoch in `.kafka_cleanshutdown`; -2 for a broker that the cluster does not know. None: that of the
                broker that stopped last, else -1. With another epoch, a broker of 4.x counts as one that crashed.

        Raises:
            LockedError: A running broker or another writer holds the directory; it has the process id.
            CorruptFileError: A checkpoint is damaged; or there are valid batches after damage, and `truncate` is false.
            ValueError: An unknown setting, or a value that it does not take.
            OSError: An I/O error.
        """
        check_int64(node_id=node_id, producer_id_expiration_ms=producer_id_expiration_ms, broker_epoch=broker_epoch)
        options = {
            "config": dict(config or {}),
            "flush": flush,
            "compat": compat,
            "clock": clock,
            "producer_id_expiration_ms": producer_id_expiration_ms,
            "truncate": truncate,
        }
        directory = local_path(log_dir).absolute()
        make_directory(directory)
        writer = cls(directory, options, broker_epoch=broker_epoch)
        properties = directory / META_PROPERTIES
        if not properties.exists():
            ids = {"cluster.id": cluster_id or new_id(), "node.id": node_id, "directory.id": new_id()}
            lines = ["version=1", *(f"{name}={value}" for name, value in ids.items()), ""]
            replace_file(properties, "\n".join(lines).encode())
        return writer

    @property
    def path(self) -> Path:
        """The log directory."""
        return self._directory

    @property
    def topics(self) -> dict[str, list[int]]:
        """The partitions of each topic in the directory."""
        topics: dict[str, list[int]] = {}
        for partition in sorted(partition_dirs(self._directory)):
            topics.setdefault(partition.topic, []).append(partition.partition)
        return topics

    def create_topic(
        self,
        topic: str,
        partitions: int,
        *,
        topic_id: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create the partitions of a topic that are missing, and return the topic's id.

        Args:
            topic: Name of the topic: letters, digits, `.`, `_` and `-`, at most 249.
            partitions: Number of partitions, 1 or more.
            topic_id: 22 letters of URL-safe base64, which the metadata of the cluster must have too; None: that of the existing
                partitions, else a new one.
            config: Settings of the topic, by Kafka's names, as long as this writer is open; None: those of the directory.

        Raises:
            KafkaError: A partition has another topic id.
            ValueError: An invalid name or number, or an unknown setting.
        """
        self._check_open()
        check_int64(partitions=partitions)
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ValueError(f"topic={topic!r}: expected 1 to 249 letters, digits, '.', '_' or '-'")
        if partitions < 1:
            raise ValueError(f"partitions={partitions}: expected 1 or more")
        if config is not None:
            self._settings[topic] = dict(config)
        known = [read_topic_id(self._directory / f"{topic}-{number}") for number in range(partitions)]
        topic_id = topic_id or next(filter(None, known), None) or new_id()
        for number in range(partitions):
            # A crash may have left a partition without its id.
            self.log(topic, number, topic_id=topic_id).assign_topic_id(topic_id)
        return topic_id

    def log(
        self, topic: str, partition: int, *, topic_id: str | None = None, log_start_offset: int | None = None
    ) -> LogWriter:
        """Return the writer of a partition. The first call opens the log, or begins one, and becomes its leader.

        Its high watermark is moved by `append` and `append_batches` of this object, not by those of the returned writer.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            topic_id: As for `create_topic`.
            log_start_offset: Offset of the first record of a new log; None: that of the checkpoint, else 0.

        Raises:
            KafkaError: The partition has another topic id.
            CorruptFileError: A file of the partition is damaged.
        """
        self._check_open()
        check_int64(partition=partition, log_start_offset=log_start_offset)
        if partition < 0:
            raise ValueError(f"partition={partition}: expected 0 or more")
        key = TopicPartition(topic, partition)
        with self._opening:
            writer = self._logs.get(key)
            if writer is None:
                directory = self._directory / str(key)
                options = {**self._options, "config": self._settings.get(topic, self._options["config"])}
                writer = LogWriter.open(
                    directory,
                    topic_id=topic_id,
                    clean=self._clean,
                    recovery_point=self._points.get(key, 0),
                    log_start_offset=self._starts.get(key, 0) if log_start_offset is None else log_start_offset,
                    counter=self._counter,
                    **options,
                )
                epochs = checkpoint.read_leader_epochs(directory)
                writer.become_leader(max((epoch.epoch for epoch in epochs), default=0))
                writer.advance_high_watermark()
                # Writes `partition.metadata`.
                writer.run_due_tasks()
                self._logs[key] = writer
        return writer

    def append(
        self,
        topic: str,
        partition: int,
        records: object,
        *,
        codec: str = "none",
        level: int | None = None,
        batch_bytes: int = 16_384,
    ) -> AppendResult:
        """Append records to a partition; see `LogWriter.append`."""
        return self._put(
            self.log(topic, partition),
            lambda log: log.append(records, codec=codec, level=level, batch_bytes=batch_bytes),
        )

    def append_batches(
        self,
        topic: str,
        partition: int,
        data: bytes,
        *,
        leader_epoch: int,
        origin: Literal["client", "coordinator", "replication"] = "client",
        transaction_version: int = 1,
    ) -> AppendResult:
        """Append record batches to a partition; see `LogWriter.append_batches`."""
        return self._put(
            self.log(topic, partition),
            lambda log: log.append_batches(
                data, leader_epoch=leader_epoch, origin=origin, transaction_version=transaction_version
            ),
        )

    def _put(self, log: LogWriter, put: Callable[[LogWriter], AppendResult]) -> AppendResult:
        result = put(log)
        # The only replica has all that its leader has.
        log.advance_high_watermark()
        if time.monotonic() - self._last_checkpoint > _CHECKPOINT_SECONDS:
            self.checkpoint()
        return result

    def delete_expired(self) -> int:
        """Delete the segments that the settings of their topics do not keep, and return their number."""
        self._check_open()
        return sum(log.delete_expired() for log in list(self._logs.values()))

    def checkpoint(self) -> None:
        """Write the checkpoints of the directory: recovery points, log starts, high watermarks.

        Appends do it every minute, and `close`.
        """
        self._check_open()
        self._last_checkpoint = time.monotonic()
        logs = dict(self._logs)
        self._write(checkpoint.RECOVERY_POINT, {key: log.recovery_point for key, log in logs.items()}, set())
        starts = {key: log.log_start_offset for key, log in logs.items() if log.log_start_offset > log.segments[0]}
        self._write(checkpoint.LOG_START, starts, logs.keys() - starts.keys())
        self._write(checkpoint.HIGH_WATERMARK, {key: log.high_watermark for key, log in logs.items()}, set())

    def _write(self, name: str, offsets: dict[TopicPartition, int], dropped: AbstractSet[TopicPartition]) -> None:
        """Replace lines of a checkpoint; those of logs that are not open stay."""
        lines = {**checkpoint.read_offsets(self._directory, name), **offsets}
        kept = [(key.topic, key.partition, offset) for key, offset in sorted(lines.items()) if key not in dropped]
        replace_file(self._directory / name, checkpoint_text(kept).encode())
        sync_directory(self._directory)

    @property
    def state(self) -> LogDirState:
        """State of the writer, and the error that ended it."""
        failure = next((error for log in list(self._logs.values()) if (error := log.failure) is not None), None)
        if failure is not None:
            return LogDirState("failed", failure)
        return LogDirState("closed" if self._closed else "open")

    def statistics(self) -> WriterStatistics:
        """Return what the writer did since it was opened.

        Raises:
            OSError: The use of the disk cannot be read.
        """
        self._check_open()
        return WriterStatistics.of(self._counter, self._directory)

    def _check_open(self) -> None:
        if self._process != fork_generation():
            raise ValueError("a log directory opened for writing belongs to the process that opened it")
        if self._closed:
            raise ValueError(f"{self._directory} is closed for writing")

    def close(self) -> None:
        """Close all logs as a broker that is shut down: checkpoints, then `.kafka_cleanshutdown`. A second call does nothing.

        Raises:
            WriteFailedError: A write or an fsync failed, now or before. The marker is not written, and the next start recovers.
        """
        if self._closed:
            return
        self._check_open()
        try:
            for log in self._logs.values():
                log.close()
            self.checkpoint()
            marker = json.dumps({"version": 0, "brokerEpoch": self._broker_epoch}, separators=(",", ":"))
            replace_file(self._directory / checkpoint.CLEAN_SHUTDOWN, marker.encode())
            sync_directory(self._directory)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release all logs as a kill does: nothing is flushed or trimmed. The next start recovers."""
        if self._process == fork_generation() and not self._closed:
            self._closed = True
            for log in self._logs.values():
                log.abandon()
            self._lock.release()

    def __repr__(self) -> str:
        """Return the directory and whether it is closed."""
        return f"LogDirWriter({str(self._directory)!r}{', closed' if self._closed else ''})"


def read_broker_epoch(marker: Path) -> int:
    """Return the broker's epoch in a marker; -1 without one, as a broker does. Source: CleanShutdownFileHandler#read."""
    try:
        epoch = json.loads(marker.read_bytes())["brokerEpoch"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def partition_dirs(log_dir: Path) -> list[TopicPartition]:
    """Return the partitions that have a directory, without that of the cluster's metadata.

    Source: LogManager#loadLogs.
    """
    found = (parse_partition_directory(entry.name) for entry in log_dir.iterdir() if entry.is_dir())
    return [partition for partition in found if partition is not None and partition.topic != METADATA_TOPIC]


def read_topic_id(partition_dir: Path) -> str | None:
    """Return the topic id in `partition.metadata`; None without one."""
    with contextlib.suppress(FileNotFoundError):
        lines = (partition_dir / "partition.metadata").read_text(errors="replace").splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("topic_id: ")), None)
    return None


def new_id() -> str:
    """Return a random id as Kafka's `Uuid` writes it."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()).startswith("-"):
        pass
    return text
