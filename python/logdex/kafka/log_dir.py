"""A broker's log directory: the partitions of all its topics."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._files import Closing
from logdex._types import check_int64
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.check import verify_checkpoints
from logdex.kafka.file_name import LOG, MAX_OFFSET, TopicPartition, parse_partition_directory
from logdex.kafka.log import Log
from logdex.kafka.segment import BATCH_ROWS
from logdex.report import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from logdex._core import SegmentReader
    from logdex._types import Access, Check, Isolation, OnError, Time
    from logdex.kafka.segment import LogSegment
    from logdex.report import Report

_METADATA = "partition.metadata"


class LogDir(Closing):
    """A log directory (`log.dirs`) of a broker, a backup of it, or what a dead broker left; nothing in it is changed.

    Calls may come from many threads. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> from logdex.kafka import LogDir
        >>> with LogDir.open("/var/kafka-logs") as logs:  # doctest: +SKIP
        ...     print(logs.topics)
        ...     for batch in logs.records("orders", columns=["partition", "offset", "value"]):
        ...         print(batch.num_rows)
    """

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        """Set up the state; `open` is the way in."""
        self._directory = directory
        self._options = options
        self._logs: dict[TopicPartition, Log] = {}
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        log_dir: str | PathLike[str],
        *,
        check: Check | None = None,
        access: Access = "auto",
        compat: str | None = None,
        max_batch_bytes: int = 67_108_864,
    ) -> LogDir:
        """Open a log directory; the options are those of `Log.open`.

        Raises:
            OSError: The directory cannot be read.
            ValueError: It is that of a partition, which would read as a log directory without any.
        """
        check_int64(max_batch_bytes=max_batch_bytes)
        path = Path(log_dir)
        if not path.is_dir():
            code = errno.ENOTDIR if path.exists() else errno.ENOENT
            raise OSError(code, "no Kafka log directory", str(path))
        if Log.lies_at(path):
            raise ValueError(f"{path}: a partition's directory; its log directory is {path.absolute().parent}")
        return cls(path, {"check": check, "access": access, "compat": compat, "max_batch_bytes": max_batch_bytes})

    @staticmethod
    def lies_at(path: str | PathLike[str]) -> bool:
        """Say whether a path is a log directory: it holds a partition, or the files that only a log directory has."""
        place = Path(path)
        if not place.is_dir():
            return False
        if any((place / name).exists() for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START)):
            return True
        return any(parse_partition_directory(entry.name) and is_partition(entry) for entry in place.iterdir())

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory

    @property
    def topics(self) -> dict[str, list[int]]:
        """The partitions that lie here, by topic. Replicas that wait for deletion or are being moved do not count."""
        found: dict[str, list[int]] = {}
        for partition in self.partitions():
            found.setdefault(partition.topic, []).append(partition.partition)
        return found

    def partitions(self, topic: str | Iterable[str] | None = None) -> list[TopicPartition]:
        """Give the partitions that lie here, sorted.

        Args:
            topic: One topic, or several; None: all.
        """
        self._check_open()
        wanted = None if topic is None else {topic} if isinstance(topic, str) else set(topic)
        found = []
        for entry in self._directory.iterdir():
            partition = parse_partition_directory(entry.name)
            if partition is not None and (wanted is None or partition.topic in wanted) and is_partition(entry):
                found.append(partition)
        return sorted(found)

    def log(self, topic: str, partition: int) -> Log:
        """Give the log of a partition; it stays open with this directory, and is opened again where it was closed.

        Raises:
            FileNotFoundError: The partition does not lie here.
        """
        self._check_open()
        key = TopicPartition(topic, partition)
        with self._lock:
            log = self._logs.get(key)
            if log is None or log.closed:
                log = Log.open(self._directory / str(key), topic=topic, partition=partition, **self._options)
                self._logs[key] = log
            return log

    def records(
        self,
        topic: str | Iterable[str] | None = None,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        *,
        columns: Iterable[str] | None = None,
        batch_size: int = BATCH_ROWS,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        check_crc: bool = True,
        on_error: OnError = "raise",
    ) -> SegmentReader:
        """Read the records of several partitions, one partition after the other, each in the order of its offsets.

        Args:
            topic: One topic, or several; None: all.
            begin_offset: First offset in every partition; None: the start of its log.
            end_offset: First offset that is not wanted of any partition; None: the end of its log.
            begin: First timestamp, ms or an aware datetime; None: no bound.
            end: Last timestamp, included.
            columns: Names of columns, in the order wanted; see `Log.records`.
            batch_size: The most rows of an Arrow batch.
            isolation: "read_committed" leaves out aborted transactions, and ends before the first one that is open.
            control: Give control records, too; a consumer never sees them.
            check_crc: Refuse a batch whose checksum is wrong.
            on_error: What a damaged batch does: "raise", be passed over ("skip"), or end its segment ("stop"). What was
                passed over stands in `findings` of the stream.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch.
            OSError: A directory or a file cannot be read.
        """
        parts = [
            part
            for partition in self.partitions(topic)
            for part in self.log(partition.topic, partition.partition).parts(
                begin_offset, end_offset, begin, isolation=isolation
            )
        ]
        return _core.read_records(
            parts,
            begin=begin,
            end=end,
            columns=columns,
            batch_size=batch_size,
            control=control,
            check_crc=check_crc,
            on_error=on_error,
        )

    def verify(self, *, deep: bool = True, progress: Callable[[LogSegment], None] | None = None) -> Report:
        """Check every partition, see `Log.verify`, and the checkpoints beside them."""
        logs = {each: self.log(each.topic, each.partition) for each in self.partitions()}
        reports = [log.verify(deep=deep, progress=progress) for log in logs.values()]
        ends = {partition: _end_of(log) for partition, log in logs.items()}
        return merge([*reports, verify_checkpoints(self._directory, ends)])

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the log directory is closed")

    def close(self) -> None:
        """Let the files go; a second call does nothing."""
        self._closed = True
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs = {}

    def __repr__(self) -> str:
        """Name the directory."""
        return f"LogDir({str(self._directory)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return _reopen, (self._directory, self._options)


def _reopen(directory: Path, options: dict[str, Any]) -> LogDir:
    return LogDir.open(directory, **options)


def _end_of(log: Log) -> int:
    try:
        return log.log_end_offset
    except CorruptFileError:
        return MAX_OFFSET  # named where the log is checked


def is_partition(directory: Path) -> bool:
    """Tell a partition from a directory that only has a name like one."""
    return directory.is_dir() and ((directory / _METADATA).exists() or any(directory.glob(f"*{LOG}")))
