"""A broker's log directory: the partitions of all its topics."""

from __future__ import annotations

import contextlib
import os
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import KeyIndex, locate_beside
from logdex._files import existing_directory
from logdex._filesystem import in_filesystem
from logdex._types import check_int64
from logdex.errors import CorruptFileError
from logdex.hash_index.sealed import check_sealed
from logdex.kafka.files import MAX_OFFSET, TopicPartition, join_log_dir
from logdex.kafka.find import explanation, key_bytes, search
from logdex.kafka.groups import OFFSETS_TOPIC, group_offsets, group_offsets_at
from logdex.kafka.key_index import check_max_entries, check_targets, index_partition, partitions_of
from logdex.kafka.log import MAX_BATCH_BYTES, Log, opened_files, warn_of_missing_segments
from logdex.kafka.overview import TIMES, broker_state, times_and_size, usage
from logdex.kafka.sealed import open_sealed_logs, seal
from logdex.kafka.verify import verify_checkpoints
from logdex.report import Report, merge, warn_of_topics
from logdex.source import Info, Kind, Source, Table, check_by, detect, grouped, is_topic_pattern, matching_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from os import PathLike
    from pathlib import Path

    from logdex._core import LogSegment, Pattern, SealedLogs, SegmentReader
    from logdex._types import Access, Check, Isolation, OnError, Progress, Sealed, Time
    from logdex.kafka.files import Keys
    from logdex.kafka.find import FindResult, KeyExplanation, PartitionStep
    from logdex.source import By, GroupOffset, Usage


class LogDir(Source):
    """A log directory (`log.dirs`) of a running or dead broker, or a backup of one; nothing in it is changed.

    Calls may come from many threads. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> from logdex.kafka import LogDir
        >>> with LogDir.open("/var/kafka-logs") as logs:  # doctest: +SKIP
        ...     print(logs.topics)
        ...     for batch in logs.records("orders", columns=["partition", "offset", "value"]):
        ...         print(batch.num_rows)
    """

    kind = Kind.LOG_DIR.value

    def __init__(self, directory: Path, options: dict[str, Any], sealed: Sealed) -> None:
        self._directory = directory
        self._options = options
        self._sealed = sealed
        self._logs: dict[TopicPartition, Log] = {}
        self._key_indexes: dict[Path, KeyIndex] = {}
        self._sealed_logs: SealedLogs | None = None
        self._is_sealed_open = False
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
            CorruptFileError: `sealed` is a path, and the catalog of the sealed index there is damaged.
            ValueError: It is a partition's directory, no known plugin wrote `tiered`, or a key is invalid. An encrypted segment
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
        if _core.has_segments(path):
            raise ValueError(f"{path}: this is a partition's directory; its log directory is {path.absolute().parent}")
        if tiered is not None:
            path = join_log_dir(path, tiered, tiered_keys, storage_options)
        elif _core.holds_tiered(path):
            path = join_log_dir(None, path, tiered_keys, storage_options)
        options = {"check": check, "access": access, "compat": compat, "max_batch_bytes": max_batch_bytes}
        logs = cls(path, options, sealed if compat is None else "never")
        if sealed not in ("auto", "never"):
            logs._sealed_index()
        return logs

    @staticmethod
    def exists_at(path: str | PathLike[str]) -> bool:
        """Return whether a path is a log directory: it holds a partition, or the files that only a log directory has.

        Remote storage is one, too.
        """
        return detect(_core.locate(path), sealed="never") is Kind.LOG_DIR

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
        """Return the partitions of one topic or several, sorted; None: all. A topic may be a pattern: see `named_topics`."""
        self._check_open()
        return [TopicPartition(*each) for each in _core.list_partitions(self._directory, self.named_topics(topic))]

    def named_topics(self, topic: str | Iterable[str] | None) -> set[str] | None:
        """Return topics by their names, or by patterns: `order*`, or a regular expression between slashes; None: all."""
        names = [topic] if isinstance(topic, str) else topic
        return None if names is None else {*matching_topics(names, lambda: self.topics)}

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

    def info(self) -> Info:
        """Return the partitions with their offsets and times, and the state of the broker. Few batches are read."""
        logs = self._all_logs()
        warn_of_missing_segments(logs)
        rows = []
        for log in logs:
            offsets = (log.log_start_offset, log.log_end_offset)
            rows.append((log.topic, log.partition, len(log.segments), *offsets, *times_and_size(log.segments).values()))
        facts = {
            "broker": broker_state(self.path),
            "topics": len({row[0] for row in rows}),
            "partitions": len(rows),
            "log_bytes": sum(row[-1] for row in rows),
            "sealed_index": self.sealed,
        }
        heads = ("topic", "partition", "segments", "begin_offset", "end_offset", *TIMES)
        return Info(self.kind, facts, [Table("partitions", heads, rows)])

    def groups(self, group: str | None = None, *, as_of: Time | None = None) -> list[GroupOffset]:
        """Return how far each consumer group has read, or one of them, by the records of `__consumer_offsets` here.

        Source: GroupMetadataManager, OffsetCommitKey, OffsetCommitValue.

        Args:
            group: Only this group; None: all.
            as_of: The offsets and ends as they were at this moment, ms or an aware datetime; None: now. A partition ends before
                its first record with a later timestamp. Damaged parts of `__consumer_offsets` are skipped with a warning.
        """
        logs = [self.log(each.topic, each.partition) for each in self.partitions(OFFSETS_TOPIC)]
        opened = {(each.topic, each.partition): self.log(each.topic, each.partition) for each in self.partitions()}
        if as_of is not None:
            return group_offsets_at(logs, opened, _core.bound_ms(as_of, end=True, name="as_of"), group)
        return group_offsets(logs, {place: log.log_end_offset for place, log in opened.items()}, group)

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return how many offsets and bytes of `.log` files each topic, partition or day (UTC, of the timestamps) has."""
        check_by(by)
        return grouped((part for log in self._all_logs() for part in usage(log, by_day=by == "day")), by)

    def find(
        self,
        topic: str,
        key: str | bytes,
        *,
        index: str | PathLike[str] | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        header: str | None = None,
        max_num: int | None = None,
    ) -> FindResult:
        """Find the records of a topic that carry a key, newest first.

        Candidates of the index are compared with the records. What no index covers, because there is none or because records were
        added after it was built, is scanned. A sealed index of the log directory is used, too; see `seal`. Open indexes stay open
        for the next call.

        Args:
            topic: The topic's name, or the topics that match a pattern: see `named_topics`.
            key: A `str` stands for its UTF-8 bytes.
            index: The directory that `build_key_index` wrote; None: what is not sealed of the topic is scanned.
            begin: First timestamp, ms or an aware datetime; None: no bound.
            end: Last timestamp, included.
            header: Compare the values of the header of this name, not the record's key. If the index was built without it, the
                topic is scanned.
            max_num: The most records to return; None: all.

        Raises:
            TypeError: The key is neither `str` nor `bytes`.
            ValueError: `max_num` is negative.
            CorruptFileError: An index file is incomplete.
            FileNotFoundError: The topic or the index does not exist.

        Warns:
            DamageWarning: A segment is missing, or a batch that has to be read is damaged. The search continues after it; the
                result is not `complete`, and `unscanned` has the offsets.
        """
        result, _ = self._search(topic, key, index, begin=begin, end=end, header=header, max_num=max_num)
        return result

    def explain(
        self,
        topic: str,
        key: str | bytes,
        *,
        index: str | PathLike[str] | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        header: str | None = None,
    ) -> KeyExplanation:
        """Search as `find` does, and return what was done in each partition. The arguments are those of `find`.

        Raises:
            ValueError: The topic is a pattern: the partition that producers choose for a key is that of one topic.
        """
        if is_topic_pattern(topic):
            raise ValueError(f"topic={topic!r}: expected one topic; find takes a pattern")
        _, steps = self._search(topic, key, index, begin=begin, end=end, header=header)
        return explanation(topic, key_bytes(key), header, steps)

    def _search(
        self,
        topic: str,
        key: str | bytes,
        index: str | PathLike[str] | None,
        **options: Any,  # noqa: ANN401 -- those of `search`
    ) -> tuple[FindResult, tuple[PartitionStep, ...]]:
        self._check_open()
        value = key_bytes(key)
        keys = None if index is None else self._key_index(_core.locate(index))
        logs = [opened_files(self.log(each.topic, each.partition)) for each in partitions_of(self, topic)]
        return search(logs, value, sealed=self._sealed_index(), index=keys, **options)

    def _key_index(self, place: Path) -> KeyIndex:
        """Return a key index. It is opened at the first call, and closed with this directory."""
        with self._lock.hold():
            if place not in self._key_indexes:
                self._key_indexes[place] = KeyIndex(existing_directory(place, "key index"))
            return self._key_indexes[place]

    def _sealed_index(self) -> SealedLogs | None:
        """Return the sealed index that searches use. It is opened at the first call."""
        self._check_open()
        with self._lock.hold():
            if not self._is_sealed_open:
                self._sealed_logs = open_sealed_logs(self._sealed, self._directory)
                self._is_sealed_open = True
            return self._sealed_logs

    @property
    def sealed(self) -> str | None:
        """The segments that a sealed index replaces, in words; None without one."""
        sealed = self._sealed_index()
        return None if sealed is None else sealed.words(list(map(opened_files, self._all_logs())))

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
        records, instead of a scan of the topic. Segments with damage are left out, and read as before. A sealed index that is
        there is replaced when the new one is complete.

        Args:
            out: The directory, local or a URL, in which `_logdex` is written; None: the log directory.
            header: The name of a header whose values are sealed besides the keys.
            progress: Called with the bytes of `.log` files that were read, and all of them.
            storage_options: Options of the store of a URL; None: those of this log directory.

        Returns:
            A report that counts segments, entries, and the bytes of the files of keys. Findings are damage, missing segments and
            segments that are not sealed.

        Raises:
            FileExistsError: `_logdex` would be in the local log directory of a broker, which would not start with it.
            ValueError: Remote storage (`tiered`) without `out`; or `compat`, with which damage may be passed over.
            OSError: An I/O error.
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
        partitions: int | Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        keys: Iterable[str | bytes] | None = None,
        header: str | None = None,
        matches: str | bytes | Pattern | None = None,
        batch_size: int | None = None,
        views: bool = False,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        check_crc: bool = True,
        on_error: OnError = "raise",
        threads: int | None = None,
        decode: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> SegmentReader:
        """Read the records of several partitions, one partition after the other, each in the order of its offsets.

        `topic` is one topic or several, or patterns (see `named_topics`); None: all. `partitions` is one number or several, of
        each topic. The other arguments are those of `Log.records`; the offsets are for every partition.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch.
            OSError: A directory or a file cannot be read.

        Warns:
            UnknownTopicWarning: The directory has no partition of a topic.
        """
        wanted = self.named_topics(topic)
        chosen = self.partitions(wanted)
        if wanted is not None and wanted.difference(each.topic for each in chosen):
            warn_of_topics(wanted, self.topics)
        if partitions is not None:
            numbers = {partitions} if isinstance(partitions, int) else set(partitions)
            chosen = [each for each in chosen if each.partition in numbers]
        parts = [
            part
            for partition in chosen
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
            matches=matches,
            batch_size=batch_size,
            views=views,
            control=control,
            check_crc=check_crc,
            on_error=on_error,
            threads=threads,
            decode=decode,
            progress=progress,
        )

    def verify(self, *, deep: bool = True, progress: Callable[[LogSegment], None] | None = None) -> Report:
        """Check every partition, see `Log.verify`, the checkpoints next to them, and the sealed index."""
        logs = {each: self.log(each.topic, each.partition) for each in self.partitions()}
        reports = [log.verify(deep=deep, progress=progress) for log in logs.values()]
        ends = {partition: _end_of(log) for partition, log in logs.items()}
        sealed = self._sealed_index()
        rows = [] if sealed is None else [sealed.verify(list(map(opened_files, logs.values())))]
        return merge([*reports, verify_checkpoints(self._directory, ends), *rows])

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._directory}: the log directory is closed")

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        self._closed = True
        with self._lock.hold():
            for log in self._logs.values():
                log.close()
            self._logs, self._key_indexes, self._sealed_logs = {}, {}, None

    def __repr__(self) -> str:
        return f"LogDir({str(self._directory)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LogDir.open, self._directory, **self._options, sealed=self._sealed), ()


def _end_of(log: Log) -> int:
    try:
        return log.log_end_offset
    except CorruptFileError:
        return MAX_OFFSET  # the check of the log names the damage


def build_key_index(
    log_dir: str | PathLike[str] | LogDir,
    directory: str | PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    header: str | None = None,
    max_entries: int | None = None,
    progress: Callable[[TopicPartition, int], None] | None = None,
) -> Report:
    """Index the records of partitions by their keys, or continue an index that an earlier call began.

    Args:
        log_dir: The log directory, or its path. It is only read.
        directory: Where the index goes: `<directory>/<topic>-<partition>/`.
        topics: One topic, or several; None: all.
        header: The name of a header whose values are indexed besides the keys.
        max_entries: Entries of an index file, plus one; None: as many as the partition needs, at most 20,000,000. An existing
            index keeps its own.
        progress: Called with the partition and the number of records read, after each batch.

    Returns:
        The damaged batches that were skipped, and `checked`: partitions, records and entries.

    Raises:
        CorruptFileError: The settings of an existing index are damaged, or its files are not whole.
        ValueError: An existing index has another header; or `max_entries` is below 2 or above 100,000,000.
        FileNotFoundError: A topic has no partition here.
        FileExistsError: The directory for an index is a partition of Kafka.
        ValueError: The directory is in a directory of a broker.
        OSError: A file cannot be read or written.
    """
    check_max_entries(max_entries)
    reports = []
    root = _core.local_path(directory)
    with opened_log_dir(log_dir) as logs:
        partitions = partitions_of(logs, topics)
        check_targets(partitions, root, header)
        for each in partitions:
            log = logs.log(each.topic, each.partition)
            show = None if progress is None else partial(progress, each)
            target = root / str(each)
            reports.append(index_partition(log, target, header=header, max_entries=max_entries, progress=show))
    return merge([Report([], {"partitions": 0, "records": 0, "entries": 0}), *reports])


def find(
    log_dir: str | PathLike[str] | LogDir,
    topic: str,
    key: str | bytes,
    **options: Any,  # noqa: ANN401 -- those of `LogDir.find`
) -> FindResult:
    """Call `LogDir.find`. This function is deprecated and will be removed in the next release."""
    _warn_of_function("find")
    with opened_log_dir(log_dir) as logs:
        return logs.find(topic, key, **options)


def explain(
    log_dir: str | PathLike[str] | LogDir,
    topic: str,
    key: str | bytes,
    **options: Any,  # noqa: ANN401 -- those of `LogDir.explain`
) -> KeyExplanation:
    """Call `LogDir.explain`. This function is deprecated and will be removed in the next release."""
    _warn_of_function("explain")
    with opened_log_dir(log_dir) as logs:
        return logs.explain(topic, key, **options)


def _warn_of_function(name: str) -> None:
    text = f"logdex.kafka.{name}(log_dir, ...) is deprecated: call LogDir.{name}, or Log.{name} for one partition"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def opened_log_dir(log_dir: str | PathLike[str] | LogDir) -> AbstractContextManager[LogDir]:
    """Use an open log directory, or open one for the block."""
    return contextlib.nullcontext(log_dir) if isinstance(log_dir, LogDir) else LogDir.open(log_dir)
