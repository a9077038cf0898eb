"""The log of one partition: its segments as one sequence of records."""

from __future__ import annotations

import errno
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from logdex import _core
from logdex._files import existing_directory, refuse_broker_directory
from logdex._filesystem import in_filesystem
from logdex._types import Isolation
from logdex.hash_index.query import time_bound
from logdex.kafka.files import MAX_OFFSET, TopicPartition, join_partition, partition_of
from logdex.kafka.find import explanation, key_bytes, search
from logdex.kafka.overview import TIMES, times_and_size, usage
from logdex.kafka.verify import verify_log
from logdex.report import Damage, merge
from logdex.source import Info, Kind, Source, Table, check_by, detect, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path
    from typing import TypeAlias

    from logdex._core import LogSegment, PartitionLog, Pattern, SegmentReader, Slice
    from logdex._types import Access, Check, OnError, Progress, Time
    from logdex.kafka.files import Keys
    from logdex.kafka.find import FindResult, KeyExplanation, PartitionStep
    from logdex.report import Finding, Report
    from logdex.source import By, Usage

    Part: TypeAlias = tuple[LogSegment, int | None, int | None, Sequence[tuple[int, int, int]] | None]
    """A segment, its first offset, the offset after its last one, and the transactions to leave out."""

INDEX_INTERVAL_BYTES = 4_096
"""Log bytes between two index entries, index.interval.bytes."""
MAX_INDEX_BYTES = 10_485_760
"""The most bytes of one index, segment.index.bytes."""
MAX_BATCH_BYTES = 67_108_864


class TimedOffset(NamedTuple):
    """A record by its offset, and its timestamp in ms; -1 for a special value of `Log.offset_for_timestamp`."""

    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: from its first record in this partition to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Log(Source):
    """A partition's log, read only: nothing in the directory is created or changed.

    Every call lists the directory again, because a running broker rolls and deletes segments. Calls may come from many
    threads and release the interpreter lock. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> from logdex.kafka import Log
        >>> with Log.open("/var/kafka-logs/orders-0") as log:  # doctest: +SKIP
        ...     print(log.log_start_offset, log.log_end_offset, log.offset_for_timestamp(1700000000000))
    """

    kind = Kind.PARTITION.value

    def __init__(self, directory: Path, options: dict[str, Any], opened: PartitionLog | None = None) -> None:
        self._directory = directory
        self._partition = TopicPartition(options["topic"], options["partition"])
        self._options = options
        self._opened = _core.PartitionLog.open(directory, **options) if opened is None else opened
        self._closed = False
        self._parent: Log | None = None

    @classmethod
    def open(
        cls,
        partition_dir: str | PathLike[str],
        *,
        topic: str | None = None,
        partition: int | None = None,
        check: Check | None = None,
        access: Access = "auto",
        compat: str | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        storage_options: Mapping[str, str] | None = None,
        tiered: str | PathLike[str] | None = None,
        tiered_keys: Keys | None = None,
        filesystem: object | None = None,
    ) -> Log:
        """Open a partition by its directory.

        Args:
            partition_dir: `<topic>-<partition>` in a log directory.
            topic: The topic of its records; None: from the name of the directory.
            partition: The partition of its records; None: as above.
            check: "verify": follow an index entry only if the log agrees with it. "trust": take the indexes as they are. None:
                "verify", or "trust" if `compat` is given.
            access: "pread", "mmap", or "auto", which is "pread": a running broker may truncate the files.
            compat: A Kafka release whose broker's answers are wanted; None: the right answers.
            max_batch_bytes: A batch of more bytes, stored or decompressed, is an error.
            storage_options: Options of the store of a URL; see `MessageStore.open`.
            tiered: Where the broker's plugin for remote storage keeps the segments of the log directory; see `LogDir.open`.
            tiered_keys: Private keys of encrypted segments; see `LogDir.open`.
            filesystem: See `MessageStore.open`.

        Raises:
            OSError: The directory or a segment cannot be read.
            ValueError: An option has another value.
        """
        if filesystem is not None:
            partition_dir = in_filesystem(partition_dir, filesystem, storage_options)
        path = existing_directory(partition_dir, "partition directory", storage_options)
        if tiered is not None:
            path = join_partition(path, tiered, tiered_keys, storage_options)
        named = partition_of(path)
        options = {
            "topic": named.topic if topic is None else topic,
            "partition": named.partition if partition is None else partition,
            "check": check,
            "access": access,
            "compat": compat,
            "max_batch_bytes": max_batch_bytes,
        }
        log = cls(path, options)
        _ = log.segments
        return log

    @staticmethod
    def exists_at(path: str | PathLike[str]) -> bool:
        """Return whether a path is a partition's directory: it holds a `.log` file."""
        return detect(_core.locate(path), sealed="never") is Kind.PARTITION

    def pinned(self) -> Log:
        """Return the log with the segments that it has now: no call lists the directory again. It closes with this log."""
        log = Log(self._directory, self._options, self._files().pinned())
        log._parent = self
        return log

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self._directory}: the log is closed")

    def _files(self) -> PartitionLog:
        self._check_open()
        return self._opened

    @property
    def path(self) -> Path:
        """The partition's directory."""
        return self._directory

    @property
    def topic(self) -> str:
        """The topic of its records."""
        return self._partition.topic

    @property
    def partition(self) -> int:
        """The partition of its records."""
        return self._partition.partition

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, by ascending base offset."""
        return tuple(self._files().segments)

    @property
    def size(self) -> int:
        """Length of all `.log` files in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def log_start_offset(self) -> int:
        """The first offset: the base of the first segment, or a later one if records were deleted (DeleteRecords)."""
        return self._files().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return self._files().log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended: how far a read-committed consumer gets."""
        return self._files().last_stable_offset

    def read(self, offset: int, max_bytes: int, *, min_one_message: bool = True) -> Slice | None:
        """Find the bytes that a fetch returns: of one segment, from the batch of the offset on.

        In a gap that compaction left, the slice begins after the gap. With `min_one_message` the first batch is returned even if
        it is longer than `max_bytes`. None: the end of the log. Source: LocalLog#read.

        Raises:
            ValueError: The offset is before the start or after the end of the log.
        """
        found = self._files().read(offset, max_bytes, min_one_message)
        if found is None:
            return None
        fetched, passed_over = found
        Damage.of(passed_over).warn()
        return fetched

    def offset_for_timestamp(self, t: Time, *, special: bool | None = None) -> TimedOffset | None:
        """Find the first record, by offset, with a timestamp at or after `t`; None without any.

        By default a transaction marker is not a record, and a segment that compaction emptied hides nothing; with `compat` the
        answer is the broker's. Source: UnifiedLog#fetchOffsetByTimestamp.

        Args:
            t: The time, ms or an aware datetime. Special values, with the timestamp -1 in the answer: -1 the end of the log, -2
                its start, -4 the start on this disk, -5 the end in remote storage (-1: unknown). -3 is the record with the
                largest timestamp; it reads the headers of all batches.
            special: Whether these values are special, or times before 1970; None: special for an int, not for a datetime.
        """
        is_special = not isinstance(t, datetime | str) if special is None else special
        found, passed_over = self._files().offset_for_timestamp(_core.time_ms(t, name="t"), is_special)
        Damage.of(passed_over).warn()
        return None if found is None else TimedOffset(*found)

    def aborted_transactions(
        self, begin_offset: int | None = None, end_offset: int | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [begin_offset, end_offset), by the offsets of their markers.

        Source: TransactionIndex#collectAbortedTxns.
        """
        aborted = self._files().aborted_transactions(begin_offset, end_offset)
        return [AbortedTransaction(*each) for each in aborted]

    def records(
        self,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        columns: Iterable[str] | None = None,
        *,
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
        """Read records in the order of their offsets, from a place that the indexes give.

        Args:
            begin_offset: First offset; None: the start of the log.
            end_offset: The offset after the last one; None: the end of the log.
            begin: First timestamp, ms or an aware datetime; None: no bound. Timestamps need not ascend, so the log is read to its
                end after the first record in the range.
            end: Last timestamp, included.
            columns: Names of columns, in the order wanted. By default: key, value, topic, partition, offset, timestamp,
                timestampType, headers. There are also partitionLeaderEpoch, producerId, producerEpoch, sequence,
                isTransactional, isControl, magic, batchPosition.
            keys: Only records whose key is one of these; a `str` stands for its UTF-8 bytes. Others are dropped before their
                columns are built.
            header: Compare the values of the header of this name with `keys`, not the record's key.
            matches: Only records in whose value this regular expression is found: a `str`, a `bytes`, or a `Pattern` with fields
                and options.
            batch_size: The most rows of an Arrow batch, which ends earlier at 64 MiB. None: 8,192 rows, or fewer in 3 MiB, which
                stay in the processor's cache.
            views: Return keys and values as Arrow's `BinaryView`. They are not copied then, if their batch is not compressed, and
                `keys` and `matches` are not given. Columns of views cannot be decoded.
            isolation: "read_committed" leaves out aborted transactions, and ends before the first open one.
            control: Read control records, too, which a consumer never sees.
            check_crc: Compare the checksums of batches.
            on_error: At a damaged batch: "raise", "skip" the batch, or "stop" at the end of its segment. `findings` of the
                stream names what was skipped. A missing segment is damage, too, unless the partition is compacted.
            threads: Threads that read and decode, of segments on this machine; None: as many as there are processors, at most 4.
                A stream with several cannot go on in a forked process.
            decode: The formats of columns of bytes, such as `{"value": "json"}`: see `MessageStore.messages`.
            progress: Called during the read, also while no record passes, with the bytes of segments that were read,
                and how many there are at most.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch, or the path of
                a missing segment.
        """
        return _core.read_records(
            self.parts(begin_offset, end_offset, begin, isolation=isolation),
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
        """Find the records of this partition that carry a key; see `LogDir.find`. A sealed index is not used.

        Raises:
            FileNotFoundError: The partition is of another topic, or the index does not exist.
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
        """Search as `find` does, and return what was done. The arguments are those of `find`."""
        _, steps = self._search(topic, key, index, begin=begin, end=end, header=header)
        return explanation(topic, key_bytes(key), header, steps)

    def _search(
        self,
        topic: str,
        key: str | bytes,
        index: str | PathLike[str] | None,
        **options: Any,  # noqa: ANN401 -- those of `search`
    ) -> tuple[FindResult, tuple[PartitionStep, ...]]:
        value = key_bytes(key)
        if topic != self.topic:
            what = f"no partition of this topic; it is of {self.topic!r}"
            raise FileNotFoundError(errno.ENOENT, what, str(self._directory.parent / f"{topic}-{self.partition}"))
        keys = None if index is None else _core.KeyIndex(existing_directory(index, "key index"))
        return search([self._files()], value, sealed=None, index=keys, **options)

    def parts(
        self,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> list[Part | Finding]:
        """Plan a read: the segments that it needs, the offsets to read of each, and the transactions to leave out.

        A segment that is missing is a `Finding` at its place.
        """
        if isolation not in get_args(Isolation):
            raise ValueError(f"isolation={isolation!r}: expected one of {', '.join(get_args(Isolation))}")
        begin = None if begin is None else time_bound(begin, "begin")
        return self._files().parts(begin_offset, end_offset, begin, committed=isolation == "read_committed")

    def missing_segments(self, begin_offset: int = 0, end_offset: int = MAX_OFFSET) -> list[Finding]:
        """Return the segments that are missing in a range of offsets, between two others or with a file that is not read.

        Gaps that compaction left do not count.
        """
        found, _ = self._files().missing(begin_offset, end_offset)
        return [finding for *_, finding in found]

    def readable_end(self) -> int:
        """Return `log_end_offset`, or an offset before it if damage at the end of the log hides the rest."""
        return self._files().readable_end()

    def rebuild_indexes(
        self,
        directory: str | PathLike[str],
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_bytes: int = MAX_INDEX_BYTES,
        overwrite: bool = False,
        progress: Callable[[LogSegment], None] | None = None,
    ) -> Report:
        """Write the index files that a broker's recovery would write for all segments; see `LogSegment.rebuild_indexes`.

        Args:
            directory: Where to write. The partition's own directory, with `overwrite`, is repaired in place.
            index_interval_bytes: index.interval.bytes of the topic.
            max_index_bytes: segment.index.bytes of the topic.
            overwrite: Replace existing files.
            progress: Called after each segment.

        Raises:
            FileExistsError: A file exists.
            ValueError: The directory is another directory of a broker.
            LockedError: A running broker holds the log directory.
        """
        refuse_rebuild_into(directory, self._directory)
        producers = _core.ProducerState()
        reports = []
        for segment in self.segments:
            report = segment.rebuild_indexes(
                directory,
                index_interval_bytes=index_interval_bytes,
                max_index_bytes=max_index_bytes,
                producers=producers,
                overwrite=overwrite,
            )
            reports.append(report)
            if progress is not None:
                progress(segment)
        return merge(reports)

    def info(self) -> Info:
        """Return the offsets, the times and the segments. Few batches are read."""
        warn_of_missing_segments([self])
        facts = {
            "topic": self.topic,
            "partition": self.partition,
            "segments": len(self.segments),
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "last_stable_offset": self.last_stable_offset,
            **times_and_size(self.segments),
        }
        rows = [(each.path.name, each.base_offset, *times_and_size([each]).values()) for each in self.segments]
        return Info(self.kind, facts, [Table("segments", ("name", "base_offset", *TIMES), rows)])

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return how many offsets and bytes of `.log` files the partition has, or each day (UTC, of the timestamps)."""
        check_by(by)
        return grouped(usage(self, by_day=by == "day"), by)

    def verify(self, *, deep: bool = True, progress: Callable[[LogSegment], None] | None = None) -> Report:
        """Check batches, records (if `deep`), indexes and the files next to them; never raises for what it finds.

        `progress` is called after each segment.
        """
        return verify_log(self._files().pinned(), self._directory, deep=deep, progress=progress)

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return self._closed or (self._parent is not None and self._parent.closed)

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        self._closed = True
        self._opened.close()

    def __repr__(self) -> str:
        return f"Log({str(self._directory)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Log.open, self._directory, **self._options), ()


def opened_files(log: Log) -> PartitionLog:
    """Return the open files of a log.

    Raises:
        ValueError: The log is closed.
    """
    return log._files()  # noqa: SLF001 -- of this module, and not for users


def warn_of_missing_segments(logs: Iterable[Log]) -> None:
    """Issue one `DamageWarning` for the segments that are missing from some logs."""
    damage = Damage()
    for finding in (finding for log in logs for finding in log.missing_segments()):
        damage.add(finding)
    damage.warn(stacklevel=3)


def refuse_rebuild_into(directory: str | PathLike[str], partition_dir: Path) -> None:
    """Raise `ValueError` if index files would be written into a broker's directory that is not the partition's own."""
    target = _core.local_path(directory)
    is_own = target.resolve() == partition_dir.resolve()
    refuse_broker_directory(target, own=[partition_dir, partition_dir.absolute().parent] if is_own else [])
