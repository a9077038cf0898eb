"""A broker's log directory: the partitions of all its topics."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logdex import _core
from logdex._files import Closing, existing_directory, locate_beside
from logdex._filesystem import in_filesystem
from logdex._types import check_int64
from logdex.errors import CorruptFileError
from logdex.hash_index.sealed import check_sealed
from logdex.kafka import checkpoint
from logdex.kafka.files import MAX_OFFSET, TopicPartition, parse_partition_directory
from logdex.kafka.groups import OFFSETS_TOPIC, group_offsets
from logdex.kafka.log import BATCH_ROWS, MAX_BATCH_BYTES, Log
from logdex.kafka.sealed import SealedKeys, seal
from logdex.kafka.tiered import join_log_dir
from logdex.kafka.usage import usage
from logdex.kafka.verify import verify_checkpoints
from logdex.report import merge, warn_of_topics
from logdex.usage import check_by, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike
    from pathlib import Path

    from logdex._core import LogSegment, SegmentReader
    from logdex._types import Access, Check, Isolation, OnError, Progress, Time
    from logdex.groups import GroupOffset
    from logdex.hash_index.sealed import Sealed
    from logdex.kafka.tiered import Keys
    from logdex.report import Report
    from logdex.usage import By, Usage

_Attached = TypeVar("_Attached", bound=Closing)


class LogDir(Closing):
    """A log directory (`log.dirs`) of a running or dead broker, or a backup of one; nothing in it is changed.

    Calls may come from many threads. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> from logdex.kafka import LogDir
        >>> with LogDir.open("/var/kafka-logs") as logs:  # doctest: +SKIP
        ...     print(logs.topics)
        ...     for batch in logs.records("orders", columns=["partition", "offset", "value"]):
        ...         print(batch.num_rows)
    """

    def __init__(self, directory: Path, options: dict[str, Any], sealed: Sealed) -> None:
        self._directory = directory
        self._options = options
        self._sealed = sealed
        self._logs: dict[TopicPartition, Log] = {}
        self._attached: dict[object, Closing] = {}
        self._lock = _core.ThreadLock()
        self._closed = False

    @classmethod
    def open(
        cls,
        log_dir: str | PathLike[str],
        *,
        check: Check | None = None,
        access: Access = "auto",
        compat: str | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        storage_options: Mapping[str, str] | None = None,
        tiered: str | PathLike[str] | None = None,
        tiered_keys: Keys | None = None,
        sealed: Sealed = "auto",
        filesystem: object | None = None,
    ) -> LogDir:
        """Open a log directory; the options that are not described here are those of `Log.open`.

        Args:
            log_dir: The log directory, or remote storage alone.
            check: See `Log.open`.
            access: See `Log.open`.
            compat: See `Log.open`.
            max_batch_bytes: See `Log.open`.
            storage_options: Options of the stores of URLs; see `MessageStore.open`.
            tiered: Where the broker's plugin for remote storage keeps segments, a path or URL: its bucket and the prefix of its
                keys. The segments of both are read as one log. Kafka's `LocalTieredStorage` and Aiven's plugin are known.
            tiered_keys: Private keys of encrypted segments, in PEM or as paths of files, by the name of their key pair; or one
                for all.
            sealed: "auto" searches with the sealed index in the log directory if there is one (see `seal`), "never" with none.
                Or the directory of one. It stands for the segments that are as they were; the others are read as before.
            filesystem: See `MessageStore.open`.

        Raises:
            OSError: The directory cannot be read; nor a sealed index at the path that `sealed` is.
            CorruptFileError: The catalog of the sealed index at the path that `sealed` is, is damaged.
            ValueError: It is a partition's directory, no known plugin wrote `tiered`, or a key is none. An encrypted segment
                without its key is an error when it is opened. Or a path as `sealed` with `compat`.
        """
        check_int64(max_batch_bytes=max_batch_bytes)
        check_sealed(sealed)
        if compat is not None and sealed not in ("auto", "never"):
            raise ValueError(f"sealed={os.fspath(sealed)!r}: a sealed index has no broker's answers; leave out compat")
        if filesystem is not None:
            log_dir = in_filesystem(log_dir, filesystem, storage_options)
        path = existing_directory(log_dir, "Kafka log directory", storage_options)
        if storage_options and sealed not in ("auto", "never"):
            sealed = _core.locate(sealed, storage_options)
        if Log.exists_at(path):
            raise ValueError(f"{path}: this is a partition's directory; its log directory is {path.absolute().parent}")
        if tiered is not None:
            path = join_log_dir(path, tiered, tiered_keys, storage_options)
        elif _core.holds_tiered(path):
            path = join_log_dir(None, path, tiered_keys, storage_options)
        options = {"check": check, "access": access, "compat": compat, "max_batch_bytes": max_batch_bytes}
        logs = cls(path, options, sealed if compat is None else "never")
        if sealed not in ("auto", "never"):
            logs.sealed_keys()
        return logs

    @staticmethod
    def exists_at(path: str | PathLike[str]) -> bool:
        """Return whether a path is a log directory: it holds a partition, or the files that only a log directory has.

        Remote storage is one, too.
        """
        place = _core.locate(path)
        if not place.is_dir():
            return False
        if _core.holds_tiered(place) or any(
            (place / name).exists() for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START)
        ):
            return True
        return any(parse_partition_directory(entry.name) and _core.is_partition(entry) for entry in place.iterdir())

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions by topic, without replicas that wait for deletion or are being moved."""
        found: dict[str, list[int]] = {}
        for partition in self.partitions():
            found.setdefault(partition.topic, []).append(partition.partition)
        return found

    def partitions(self, topic: str | Iterable[str] | None = None) -> list[TopicPartition]:
        """Return the partitions of one topic or several, sorted; None: all."""
        self._check_open()
        wanted = None if topic is None else {topic} if isinstance(topic, str) else set(topic)
        named = ((parse_partition_directory(entry.name), entry) for entry in self._directory.iterdir())
        return sorted(
            partition
            for partition, entry in named
            if partition is not None and (wanted is None or partition.topic in wanted) and _core.is_partition(entry)
        )

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition. It stays open with this directory, and is opened again if it was closed.

        Raises:
            FileNotFoundError: There is no such partition.
        """
        self._check_open()
        key = TopicPartition(topic, partition)
        with self._lock.hold():
            log = self._logs.get(key)
            if log is None or log.closed:
                log = Log.open(self._directory / str(key), topic=topic, partition=partition, **self._options)
                self._logs[key] = log
            return log

    def groups(self, group: str | None = None) -> list[GroupOffset]:
        """Return how far each consumer group has read, or one of them, as far as the records of `__consumer_offsets` here tell.

        Source: GroupMetadataManager, OffsetCommitKey, OffsetCommitValue.
        """
        logs = [self.log(each.topic, each.partition) for each in self.partitions(OFFSETS_TOPIC)]
        opened = (self.log(each.topic, each.partition) for each in self.partitions())
        ends = {(log.topic, log.partition): log.log_end_offset for log in opened}
        return group_offsets(logs, ends, group)

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return how many offsets and bytes of `.log` files each topic, partition or day (UTC, of the timestamps) has."""
        check_by(by)
        return grouped((part for log in self._all_logs() for part in usage(log, by_day=by == "day")), by)

    def attached(self, name: object, make: Callable[[], _Attached]) -> _Attached:
        """Return an object that is opened once for this directory, and closed with it."""
        self._check_open()
        with self._lock.hold():
            if name not in self._attached:
                self._attached[name] = make()
            return self._attached[name]  # type: ignore[return-value]  # what `make` of this name returned

    def sealed_keys(self) -> SealedKeys:
        """Return the sealed index that searches use. It is opened at the first call."""
        return self.attached(SealedKeys, partial(SealedKeys, self._sealed, self._directory))

    @property
    def sealed(self) -> str | None:
        """What a sealed index stands for, in words; None without one."""
        return self.sealed_keys().words(self._all_logs())

    def seal(
        self,
        out: str | PathLike[str] | None = None,
        *,
        header: str | None = None,
        progress: Progress | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Report:
        """Write a sealed index: the keys of all records, sorted by their hashes, and a catalog of the files.

        A later `open` finds it in the log directory, or takes its directory as `sealed`. A search then costs one read and the
        records, in place of a scan of the topic. Segments with damage are left out, and read as before. A sealed index that is
        there is replaced when the new one is complete.

        Args:
            out: The directory, local or a URL, in which `_logdex` is written; None: the log directory.
            header: The name of a header whose values are sealed beside the keys.
            progress: Called with the bytes of `.log` files that were read, and all of them.
            storage_options: Options of the store of a URL; None: those of this log directory.

        Returns:
            A report that counts segments, entries, and the bytes of the files of keys. Findings are damage, missing segments and
            segments that are not sealed.

        Raises:
            FileExistsError: `_logdex` would be in the local log directory of a broker, which would not start with it.
            ValueError: Remote storage (`tiered`) without `out`; or `compat`, with which damage may be passed over.
            OSError: The system refuses.
        """
        if self._options["compat"] is not None:
            raise ValueError("seal: a sealed index has no broker's answers; leave out compat")
        out = None if out is None else locate_beside(self._directory, out, storage_options)
        return seal(self._directory, self._all_logs(), out, header, progress)

    def _all_logs(self) -> list[Log]:
        return [self.log(each.topic, each.partition) for each in self.partitions()]

    def records(
        self,
        topic: str | Iterable[str] | None = None,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        *,
        columns: Iterable[str] | None = None,
        keys: Iterable[str | bytes] | None = None,
        header: str | None = None,
        batch_size: int = BATCH_ROWS,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        check_crc: bool = True,
        on_error: OnError = "raise",
    ) -> SegmentReader:
        """Read the records of several partitions, one partition after the other, each in the order of its offsets.

        `topic` is one topic or several; None: all. The other arguments are those of `Log.records`; the offsets are for every
        partition.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch.
            OSError: A directory or a file cannot be read.

        Warns:
            UnknownTopicWarning: The directory has no partition of a topic.
        """
        wanted = None if topic is None else {topic} if isinstance(topic, str) else set(topic)
        partitions = self.partitions(wanted)
        if wanted is not None and wanted.difference(each.topic for each in partitions):
            warn_of_topics(wanted, self.topics)
        parts = [
            part
            for partition in partitions
            for part in self.log(partition.topic, partition.partition).parts(
                begin_offset, end_offset, begin, isolation=isolation
            )
        ]
        return _core.read_records(
            parts,
            begin=begin,
            end=end,
            columns=columns,
            keys=keys,
            header=header,
            batch_size=batch_size,
            control=control,
            check_crc=check_crc,
            on_error=on_error,
        )

    def verify(self, *, deep: bool = True, progress: Callable[[LogSegment], None] | None = None) -> Report:
        """Check every partition, see `Log.verify`, the checkpoints beside them, and the sealed index."""
        logs = {each: self.log(each.topic, each.partition) for each in self.partitions()}
        reports = [log.verify(deep=deep, progress=progress) for log in logs.values()]
        ends = {partition: _end_of(log) for partition, log in logs.items()}
        sealed = self.sealed_keys().verify(logs.values())
        return merge([*reports, verify_checkpoints(self._directory, ends), sealed])

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._directory}: the log directory is closed")

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        self._closed = True
        with self._lock.hold():
            for each in (*self._logs.values(), *self._attached.values()):
                each.close()
            self._logs, self._attached = {}, {}

    def __repr__(self) -> str:
        return f"LogDir({str(self._directory)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LogDir.open, self._directory, **self._options, sealed=self._sealed), ()


def _end_of(log: Log) -> int:
    try:
        return log.log_end_offset
    except CorruptFileError:
        return MAX_OFFSET  # the check of the log names the damage
