"""One segment of a partition: the `.log` file and the indexes beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._files import Closing
from logdex.kafka.index_files import write_rebuilt
from logdex.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from typing import TypeAlias

    from logdex._core import ProducerState, SegmentReader
    from logdex._types import Access, Check, OnError, Time

    Aborted: TypeAlias = tuple[int, int, int]

INDEX_INTERVAL_BYTES = 4_096
"""Log bytes between two index entries, index.interval.bytes."""

MAX_INDEX_BYTES = 10_485_760
"""The most bytes of one index, segment.index.bytes."""

BATCH_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a segment that begins with a batch, as a fetch gives it; it may end inside of one.

    Attributes:
        segment: The segment.
        position: Its first byte in the `.log` file.
        size: Its length in bytes.
        first_entry_incomplete: The first batch does not fit into `size`.
    """

    segment: LogSegment
    position: int
    size: int
    first_entry_incomplete: bool

    def batches(self) -> SegmentReader:
        """Read the headers of its whole batches; see `LogSegment.batches`."""
        return self.segment.batches(begin_position=self.position, end_position=self.position + self.size)

    def __bytes__(self) -> bytes:
        """Read the bytes."""
        return self.segment.slice_bytes(self.position, self.size)


class LogSegment(Closing):
    """A segment, read only: nothing is created or changed, and its indexes need not be there.

    Answers follow Kafka's LogSegment. By default an index is verified against the log before it is followed, and control
    records are nobody's answer; `compat` trusts and answers as the broker of that release. Calls may come from many threads
    and release the interpreter lock. It pickles by path and options. As a context manager it closes itself.

    Example:
        >>> with LogSegment.open("orders-0/00000000000000000000.log") as segment:  # doctest: +SKIP
        ...     for batch in segment.records(columns=["offset", "key"]):
        ...         print(batch.num_rows)
    """

    __slots__ = ("_segment",)

    def __init__(self, segment: _core.LogSegment) -> None:
        """Wrap an open segment; `LogSegment.open` is the way in."""
        self._segment = segment

    @classmethod
    def open(
        cls,
        log_file: str | PathLike[str],
        *,
        topic: str | None = None,
        partition: int | None = None,
        check: Check | None = None,
        access: Access = "auto",
        compat: str | None = None,
        max_batch_bytes: int = 67_108_864,
    ) -> LogSegment:
        """Open a segment by its `.log` file.

        Args:
            log_file: The file, named by the base offset; `.index` and `.timeindex` are looked for beside it.
            topic: The topic of its records; None: from the name of the directory.
            partition: The partition of its records; None: as above.
            check: "verify" the indexes against the log before they are followed, or "trust" them; None: "verify", and "trust"
                where `compat` is given.
            access: "auto" is "pread" here: a running broker may cut the file. "mmap" maps it.
            compat: A Kafka release, to answer as it does; None answers right.
            max_batch_bytes: A batch whose records decompress to more is refused.

        Raises:
            OSError: The file cannot be read.
            ValueError: Its name is no base offset.
        """
        options: dict[str, Any] = {
            "check": check,
            "access": access,
            "compat": compat,
            "max_batch_bytes": max_batch_bytes,
        }
        return cls(_core.LogSegment.open(log_file, topic=topic, partition=partition, **options))

    @property
    def core(self) -> _core.LogSegment:
        """The open segment of the extension, for `read_records`."""
        return self._segment

    @property
    def path(self) -> Path:
        """The `.log` file."""
        return self._segment.path

    @property
    def topic(self) -> str | None:
        """The topic of its records."""
        return self._segment.topic

    @property
    def partition(self) -> int | None:
        """The partition of its records."""
        return self._segment.partition

    @property
    def base_offset(self) -> int:
        """The offset in its name: none of its records has a lower one."""
        return self._segment.base_offset

    @property
    def size(self) -> int:
        """Length of the `.log` file in bytes."""
        return self._segment.size

    def batches(
        self,
        *,
        begin_position: int = 0,
        end_position: int | None = None,
        columns: Iterable[str] | None = None,
        batch_size: int = BATCH_ROWS,
        check_crc: bool = True,
        on_error: OnError = "raise",
    ) -> SegmentReader:
        """Read the headers of the batches, one row each; nothing is decompressed.

        Args:
            begin_position: Byte where a batch begins.
            end_position: A batch that goes beyond is not read; None: the end of the file.
            columns: Names of columns, in the order wanted; all where not given: position, size, magic, baseOffset, lastOffset,
                count, crc, isValid, compression, compressionId, timestampType, baseTimestamp, maxTimestamp, producerId,
                producerEpoch, baseSequence, lastSequence, partitionLeaderEpoch, isTransactional, isControl,
                deleteHorizonMs, controlTypes.
            batch_size: The most rows of an Arrow batch.
            check_crc: Compute checksums (isValid); null without.
            on_error: What bytes that are no batch do: "raise", or end the scan ("stop"); `findings` of the stream names them.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`.
        """
        return self._segment.batches(
            begin_position=begin_position,
            end_position=end_position,
            columns=columns,
            batch_size=batch_size,
            check_crc=check_crc,
            on_error=on_error,
        )

    def records(
        self,
        *,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        columns: Iterable[str] | None = None,
        batch_size: int = BATCH_ROWS,
        control: bool = False,
        aborted: Iterable[Aborted] | None = None,
        check_crc: bool = True,
        on_error: OnError = "raise",
    ) -> SegmentReader:
        """Read records.

        Args:
            begin_offset: First offset; None: no bound.
            end_offset: First offset that is not wanted; None: no bound.
            begin: First timestamp, ms or an aware datetime; None: no bound.
            end: Last timestamp, included.
            columns: Names of columns, in the order wanted. Where not given: key, value, topic, partition, offset, timestamp,
                timestampType, headers. There are also partitionLeaderEpoch, producerId, producerEpoch, sequence,
                isTransactional, isControl, magic, batchPosition.
            batch_size: The most rows of an Arrow batch.
            control: Give control records, too; a consumer never sees them.
            aborted: Transactions to leave out, as (producer id, first offset, last offset).
            check_crc: Refuse a batch whose checksum is wrong.
            on_error: What a damaged batch does: "raise", be passed over ("skip"), or end the scan ("stop"); `findings` of
                the stream names what was passed over.

        Raises:
            CorruptFileError: While reading, with `on_error="raise"`: path and byte offset of a damaged batch.
        """
        return self._segment.records(
            begin_offset=begin_offset,
            end_offset=end_offset,
            begin=begin,
            end=end,
            columns=columns,
            batch_size=batch_size,
            control=control,
            aborted=aborted,
            check_crc=check_crc,
            on_error=on_error,
        )

    def translate_offset(self, offset: int, starting_position: int = 0) -> tuple[int, int, int] | None:
        """Find the batch that holds an offset, or the first one after it, as (offset, position, size).

        The offset is the batch's base offset; with `compat` below 4.0 its last one. None: all batches end before it.
        Source: LogSegment#translateOffset.
        """
        return self._segment.translate_offset(offset, starting_position)

    def read(
        self, offset: int, max_bytes: int, *, max_position: int | None = None, min_one_message: bool = True
    ) -> Slice | None:
        """Find the bytes that a fetch gives; None where nothing lies at or after the offset. Source: LogSegment#read.

        Args:
            offset: The offset to read from; the slice begins with the batch that holds it.
            max_bytes: The most bytes.
            max_position: The first byte of the file that may not be read; None: its end.
            min_one_message: Give the first batch even if it is longer than `max_bytes`.
        """
        found = self._segment.read(offset, max_bytes, max_position=max_position, min_one_message=min_one_message)
        return None if found is None else Slice(self, *found)

    def slice_bytes(self, position: int, size: int) -> bytes:
        """Read bytes of the `.log` file."""
        return self._segment.slice_bytes(position, size)

    def offset_for_timestamp(self, t: Time, starting_offset: int | None = None) -> tuple[int, int] | None:
        """Find the first record with a timestamp at or after `t`, as (timestamp, offset); None where there is none.

        Args:
            t: The time, ms or an aware datetime.
            starting_offset: Records below it do not count; None: the base offset.

        Source: LogSegment#findOffsetByTimestamp.
        """
        found = self._segment.offset_for_timestamp(_core.time_ms(t, name="t"), starting_offset)
        return None if found is None else found[:2]

    def next_offset(self) -> int:
        """Give the offset after the last batch, the base offset where there is none. Source: LogSegment#readNextOffset."""
        return self._segment.next_offset()

    def max_timestamp(self) -> tuple[int, int]:
        """Give the largest timestamp and an offset that belongs to it; (-1, base offset) without any."""
        return self._segment.max_timestamp()

    def rebuild_indexes(
        self,
        directory: str | PathLike[str],
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_bytes: int = MAX_INDEX_BYTES,
        producers: ProducerState | None = None,
        overwrite: bool = False,
    ) -> Report:
        """Write the index files that a broker's recovery would make of this segment; the `.log` file is not cut.

        Args:
            directory: Where `.index`, `.timeindex` and, where a transaction was aborted, `.txnindex` are written.
            index_interval_bytes: index.interval.bytes of the topic.
            max_index_bytes: segment.index.bytes of the topic.
            producers: Open transactions from the segments before this one, carried on; None: none are open.
            overwrite: Replace files that are there.

        Returns:
            What is wrong with the log: where it ends early, and why.

        Raises:
            FileExistsError: A file is there.
            LockedError: A running broker holds the log directory that would be written to.
        """
        recovered = self._segment.recover(
            index_interval_bytes=index_interval_bytes, max_index_bytes=max_index_bytes, producers=producers
        )
        files = write_rebuilt(Path(directory), self.base_offset, recovered, overwrite=overwrite)
        checked = {"batches": recovered.batches, "bytes": recovered.valid_bytes, "files": len(files)}
        return Report(list(recovered.findings), checked)

    def verify(self, *, deep: bool = True) -> Report:
        """Check the batches and the indexes beside them; never raises for what it finds.

        Args:
            deep: Decode every record, too.
        """
        return self._segment.verify(deep=deep)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._segment.closed

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")

    def close(self) -> None:
        """Let the files go; a second call does nothing."""
        self._segment.close()

    def __repr__(self) -> str:
        """Name the file."""
        return f"LogSegment({str(self.path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return LogSegment, (self._segment,)
