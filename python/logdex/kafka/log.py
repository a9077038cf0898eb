"""The log of one partition: its segments as one sequence of records."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._files import Closing
from logdex._types import check_int64
from logdex.kafka import checkpoint, time_search
from logdex.kafka.aborted import aborted_between, last_stable_offset
from logdex.kafka.check import verify_log
from logdex.kafka.file_name import LOG, MAX_OFFSET, TopicPartition, parse_segment_file, partition_of
from logdex.kafka.plan import plan_read
from logdex.kafka.segment import BATCH_ROWS, INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES
from logdex.kafka.segments import SegmentMap, Segments
from logdex.report import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from logdex._core import SegmentReader
    from logdex._types import Access, Check, Isolation, OnError, Time
    from logdex.kafka.plan import Part
    from logdex.kafka.segment import LogSegment, Slice
    from logdex.kafka.transactions import AbortedTransaction
    from logdex.report import Report


ISOLATION = ("read_uncommitted", "read_committed")


class Log(Closing):
    """A partition's log, read only: whatever stop left the directory behind, nothing in it is created or changed.

    Every call lists the directory anew, because a running broker rolls and deletes segments. Calls may come from many
    threads and release the interpreter lock. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> from logdex.kafka import Log
        >>> with Log.open("/var/kafka-logs/orders-0") as log:  # doctest: +SKIP
        ...     print(log.log_start_offset, log.log_end_offset, log.offset_for_timestamp(1700000000000))
    """

    def __init__(self, directory: Path, partition: TopicPartition, options: dict[str, Any]) -> None:
        """Set up the state; `open` is the way in."""
        self._directory = directory
        self._partition = partition
        self._options = options
        self._map = SegmentMap(directory, partition, options)
        self._closed = False

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
        max_batch_bytes: int = 67_108_864,
    ) -> Log:
        """Open a partition by its directory.

        Args:
            partition_dir: The directory, `<topic>-<partition>` in a log directory.
            topic: The topic of its records; None: from the name of the directory.
            partition: The partition of its records; None: as above.
            check: "verify" the indexes against the log before they are followed, or "trust" them; None: "verify", and "trust"
                where `compat` is given.
            access: "auto" is "pread" here: a running broker may cut the files. "mmap" maps them.
            compat: A Kafka release, to answer as its broker does; None answers right.
            max_batch_bytes: A batch whose records decompress to more is refused.

        Raises:
            OSError: The directory or a segment cannot be read.
            ValueError: An option has no such value.
        """
        path = Path(partition_dir)
        if not path.is_dir():
            code = errno.ENOTDIR if path.exists() else errno.ENOENT
            raise OSError(code, "no partition directory", str(path))
        named = partition_of(path)
        of = TopicPartition(
            named.topic if topic is None else topic, named.partition if partition is None else partition
        )
        options = {"check": check, "access": access, "compat": compat, "max_batch_bytes": max_batch_bytes}
        log = cls(path, of, options)
        log._current()
        return log

    @staticmethod
    def lies_at(path: str | PathLike[str]) -> bool:
        """Say whether a path is a partition's directory: it holds a `.log` file."""
        place = Path(path)
        return place.is_dir() and any(
            (parsed := parse_segment_file(entry.name)) is not None and parsed[1] == LOG for entry in place.iterdir()
        )

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
        """The segments in the order of their base offsets."""
        return self._current().segments

    @property
    def size(self) -> int:
        """Length of all `.log` files in bytes."""
        return sum(segment.size for segment in self._current().segments)

    @property
    def log_start_offset(self) -> int:
        """The first offset that is there: the first segment's base, or later where records were deleted (DeleteRecords)."""
        return self._log_start(self._current())

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return self._current().log_end()

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended: how far a read-committed consumer gets."""
        return last_stable_offset(self._current())

    def read(self, offset: int, max_bytes: int, *, min_one_message: bool = True) -> Slice | None:
        """Find the bytes that a fetch gives: of one segment, beginning with the batch that holds the offset.

        Args:
            offset: The offset to read from. Where compaction left a gap, the slice begins after it.
            max_bytes: The most bytes.
            min_one_message: Give the first batch even if it is longer.

        Returns:
            The slice; None at the end of the log.

        Raises:
            ValueError: The offset lies before the start or after the end of the log.

        Source: LocalLog#read.
        """
        segments = self._current()
        start, end = self._log_start(segments), segments.log_end()
        if not start <= offset <= end:
            raise ValueError(f"offset {offset} is out of range: {self._directory} holds {start} to {end}")
        if offset == end:
            return None
        for segment in segments.segments[segments.floor(offset) :]:
            found = segment.read(offset, max_bytes, min_one_message=min_one_message)
            if found is not None:
                return found
        return None

    def offset_for_timestamp(self, t: Time, *, special: bool | None = None) -> tuple[int, int] | None:
        """Find the first record, by offset, with a timestamp at or after `t`, as (timestamp, offset); None without any.

        Args:
            t: The time, ms or an aware datetime. Special, with the timestamp -1 in the answer: -1 the end of the log, -2 its
                start, -4 the start of what is on this disk, -5 the end of what is in remote storage (-1: nothing is known
                of it). -3 gives the record with the largest timestamp; that reads the headers of all batches.
            special: Whether these numbers are special, or times before 1970 like any other; None: those of an int are, a
                datetime is a time.

        By default a transaction marker is no record, and a segment that compaction emptied hides nothing; with `compat` as
        the broker answers. Source: UnifiedLog#fetchOffsetByTimestamp.
        """
        segments = self._current()
        search = time_search.TimeSearch(segments, self._log_start(segments), broker=self._options["compat"] is not None)
        return search.find(t, special=special)

    def aborted_transactions(
        self, begin_offset: int | None = None, end_offset: int | None = None
    ) -> list[AbortedTransaction]:
        """Give the aborted transactions with records at or after one offset and before another, by their markers' offsets.

        Source: TransactionIndex#collectAbortedTxns.
        """
        check_int64(begin_offset=begin_offset, end_offset=end_offset)
        segments = self._current()
        begin = self._log_start(segments) if begin_offset is None else begin_offset
        return aborted_between(segments, begin, MAX_OFFSET if end_offset is None else end_offset)

    def records(
        self,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        columns: Iterable[str] | None = None,
        *,
        batch_size: int = BATCH_ROWS,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        check_crc: bool = True,
        on_error: OnError = "raise",
    ) -> SegmentReader:
        """Read records in the order of their offsets; the indexes tell where to begin.

        Args:
            begin_offset: First offset; None: the start of the log.
            end_offset: First offset that is not wanted; None: the end of the log.
            begin: First timestamp, ms or an aware datetime; None: no bound. Timestamps need not rise with the offsets: every
                record in the range is given, so what follows the first one is read to the end.
            end: Last timestamp, included.
            columns: Names of columns, in the order wanted. Where not given: key, value, topic, partition, offset, timestamp,
                timestampType, headers. There are also partitionLeaderEpoch, producerId, producerEpoch, sequence,
                isTransactional, isControl, magic, batchPosition.
            batch_size: The most rows of an Arrow batch.
            isolation: "read_committed" leaves out aborted transactions, and ends before the first one that is open.
            control: Give control records, too; a consumer never sees them.
            check_crc: Refuse a batch whose checksum is wrong.
            on_error: What a damaged batch does: "raise", be passed over ("skip"), or end its segment ("stop"). What was
                passed over stands in `findings` of the stream.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch.
        """
        return _core.read_records(
            list(self.parts(begin_offset, end_offset, begin, isolation=isolation)),
            begin=begin,
            end=end,
            columns=columns,
            batch_size=batch_size,
            control=control,
            check_crc=check_crc,
            on_error=on_error,
        )

    def records_in(self, ranges: Iterable[tuple[int, int]], columns: Iterable[str]) -> SegmentReader:
        """Read the records of several ranges of offsets, each from its first one up to another, as one stream."""
        start = self._log_start(segments := self._current())
        plans = (plan_read(segments, max(first, start), end, None, committed=False) for first, end in ranges)
        return _core.read_records([part for plan in plans for part in plan], columns=columns)

    def parts(
        self,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[Part]:
        """Plan a read: the segments that it needs, with the offsets to read of each and the transactions to leave out."""
        if isolation not in ISOLATION:
            raise ValueError(f"isolation must be one of {', '.join(ISOLATION)}, not {isolation!r}")
        check_int64(begin_offset=begin_offset, end_offset=end_offset)
        begin = None if begin is None else _core.time_ms(begin, name="begin")
        segments = self._current()
        first = max(self._log_start(segments), begin_offset or 0)
        last = MAX_OFFSET if end_offset is None else end_offset
        committed = isolation == "read_committed"
        if committed:
            last = min(last, last_stable_offset(segments))
        return plan_read(segments, first, last, begin, committed=committed)

    def rebuild_indexes(
        self,
        directory: str | PathLike[str],
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_bytes: int = MAX_INDEX_BYTES,
        overwrite: bool = False,
        progress: Callable[[LogSegment], None] | None = None,
    ) -> Report:
        """Write the index files that a broker's recovery would make of all segments; see `LogSegment.rebuild_indexes`.

        Args:
            directory: Where to: the partition's own directory, with `overwrite`, mends it in place.
            index_interval_bytes: index.interval.bytes of the topic.
            max_index_bytes: segment.index.bytes of the topic.
            overwrite: Replace files that are there.
            progress: Called after each segment.

        Raises:
            FileExistsError: A file is there.
            LockedError: A running broker holds the log directory that would be written to.
        """
        producers = _core.ProducerState()
        reports = []
        for segment in self._current().segments:
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

    def verify(self, *, deep: bool = True, progress: Callable[[LogSegment], None] | None = None) -> Report:
        """Check batches, records, indexes and the files beside them; never raises for what it finds.

        Args:
            deep: Decode every record, too.
            progress: Called after each segment.
        """
        return verify_log(self._current(), self._directory, deep=deep, progress=progress)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _current(self) -> Segments:
        self._check_open()
        return self._map.refresh()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the log is closed")

    def _log_start(self, segments: Segments) -> int:
        if not segments.segments:
            return 0
        recorded = checkpoint.log_start(self._directory.absolute().parent, self._partition)
        return max(segments.segments[0].base_offset, recorded)

    def close(self) -> None:
        """Let the files go; a second call does nothing."""
        self._closed = True
        self._map.close()

    def __repr__(self) -> str:
        """Name the directory."""
        return f"Log({str(self._directory)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return _reopen, (self._directory, self._partition, self._options)


def _reopen(directory: Path, partition: TopicPartition, options: dict[str, Any]) -> Log:
    return Log.open(directory, topic=partition.topic, partition=partition.partition, **options)
