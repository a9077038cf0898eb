"""The commit log of a store directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex import _core
from logdex._files import Closing
from logdex._types import MAX_INT64, MIN_INT64
from logdex.rocketmq.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import MessageReader, _Ints
    from logdex._types import Access, Body, Compat, Stop
    from logdex.report import Report


class CommitLog(Closing):
    """The commit log of a store, read only: nothing in its directory is created or changed.

    Every call lists the directory anew, because a running broker adds and deletes files. Calls may come from many threads
    and release the interpreter lock. A log pickles by its path and options. As a context manager it closes itself.

    Example:
        >>> with CommitLog.open("store/commitlog") as log:  # doctest: +SKIP
        ...     for batch in log.scan(columns=["topic", "keys", "body"]):
        ...         print(batch.num_rows)
    """

    __slots__ = ("_log",)

    def __init__(self, log: _core.CommitLog) -> None:
        """Wrap an open log; `CommitLog.open` is the way in."""
        self._log = log

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        *,
        access: Access = "auto",
        compat: Compat | None = None,
        max_body_bytes: int = 67_108_864,
    ) -> CommitLog:
        """Open the log of a directory, in a store named `commitlog`.

        Args:
            directory: The directory. Files whose names are not 20 digits are ignored.
            access: "auto" is "pread" here: everything is copied out in windows, and files that the broker deletes do no
                harm. "mmap" maps each file while it is read.
            compat: Nothing behind the end of the log is a message, as for a broker. With "4.9.3" a frame of version 2 (5.1.0
                and later) ends the log, as it does for that broker.
            max_body_bytes: A body that decompresses to more is null, with the reason in `body_error`.

        Raises:
            OSError: The directory cannot be read.
        """
        return cls(_core.CommitLog.open(directory, access=access, compat=compat, max_body_bytes=max_body_bytes))

    @property
    def core(self) -> _core.CommitLog:
        """The native log, for native classes that read beside it."""
        return self._log

    @property
    def path(self) -> Path:
        """The directory."""
        return self._log.path

    @property
    def files(self) -> list[Path]:
        """The log's files in the order of their offsets, without strays."""
        return self._log.files

    @property
    def file_size(self) -> int:
        """Length of the log's files in bytes: the commonest one, 0 without files."""
        return self._log.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the first file, 0 without files."""
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """Offset after the last good frame of the last file in which anything was written, 0 without files.

        Linear in that file at first, later in what was added since.
        """
        return self._log.max_offset

    def message(self, phy_offset: int) -> Message | None:
        """Read the message that begins at an offset.

        Args:
            phy_offset: Anything. A frame that only lies inside of a body is not taken for a message.

        Returns:
            The message; None where none begins, where the body has another checksum than its frame says, or where a broker
            cut it off and left it on the disk (see `is_cut_off`).

        Raises:
            OSError: The system refuses.
        """
        if not MIN_INT64 <= phy_offset <= MAX_INT64:
            return None
        columns = self._log.message(phy_offset)
        return None if columns is None else Message(**columns)

    def is_cut_off(self, phy_offset: int) -> bool:
        """Say whether what begins at an offset is a whole message that a broker cut off and left on the disk.

        A broker that cuts its log back erases nothing. Such a message lies behind the end of the log and steps back in time
        or in its queue; or in the filling at the end of a file. In compat all that lies behind the end counts as cut off.

        Args:
            phy_offset: Anything.

        Raises:
            OSError: The system refuses.
        """
        return MIN_INT64 <= phy_offset <= MAX_INT64 and self._log.is_cut_off(phy_offset)

    def messages(
        self,
        phy_offsets: _Ints,
        *,
        columns: Iterable[str] | None = None,
        body: Body = "decoded",
    ) -> RecordBatch:
        """Read the messages that begin at these offsets.

        Args:
            phy_offsets: An Arrow column or a sequence of integers.
            columns: Names of columns, in the order wanted; all where not given.
            body: "decoded", or "stored": as the log holds it, perhaps compressed.

        Returns:
            A record batch, one row an offset, in their order. Where no message begins (see `message`), all columns but
            `phy_offset` are null.

        Raises:
            OSError: The system refuses.
            ValueError: An unknown column or word, or messages of more than 2 GB.
        """
        return self._log.messages(phy_offsets, columns=columns, body=body)

    def message_batches(
        self,
        phy_offsets: Sequence[int],
        *,
        columns: Iterable[str] | None = None,
        body: Body = "decoded",
    ) -> Iterator[RecordBatch]:
        """Read the messages that begin at these offsets as `messages` does, in batches of 64 MiB at most.

        Raises:
            OSError: The system refuses.
            ValueError: An unknown column.
        """
        names = None if columns is None else list(columns)
        at = 0
        while at < len(phy_offsets):
            batch = self._log.first_messages(phy_offsets[at:], columns=names, body=body)
            at += batch.num_rows
            yield batch

    def scan(
        self,
        *,
        begin_phy_offset: int | None = None,
        end_phy_offset: int | None = None,
        columns: Iterable[str] | None = None,
        batch_size: int = 8_192,
        stop: Stop = "broker",
        body: Body = "decoded",
        threads: int = 1,
        check_crc: bool = True,
    ) -> MessageReader:
        """Read the messages in log order.

        Args:
            begin_phy_offset: No message begins before it. Where a message begins at it, the walk starts there; else at the
                beginning of the file that holds it, because frames are only known by walking.
            end_phy_offset: No message begins at or after it.
            columns: Names of columns, in the order wanted; all where not given. What is not asked for is not decoded.
            batch_size: Rows of a batch; it ends earlier at 64 MiB.
            stop: "broker": the scan ends where a broker's walk would end, at the first frame that is damaged or was never
                written. "salvage": it goes on behind damage at the next message; one more column, `suspect`, says of each
                message what speaks against it (docs/formats/rocketmq-store.md), null where nothing does.
            body: "decoded", or "stored": as the log holds it, perhaps compressed.
            threads: How many read; the order stays. Batches may end earlier.
            check_crc: Compare the bodies' checksums; without, a walk does not end at a damaged body.

        Returns:
            A reader of record batches, which is an Arrow stream as well.

        Raises:
            OSError: The system refuses; from the reader, too.
            ValueError: An unknown column or word.
        """
        return self._log.scan(
            begin_phy_offset=begin_phy_offset,
            end_phy_offset=end_phy_offset,
            columns=columns,
            batch_size=batch_size,
            stop=stop,
            body=body,
            threads=threads,
            check_crc=check_crc,
        )

    def check_files(self) -> Report:
        """Check names and lengths of the files: strays, gaps, overlaps, other lengths; nothing is read of them."""
        return self._log.check_files()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._log.closed

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")

    def close(self) -> None:
        """Let go of the files that are kept open for look-ups. Further calls raise ValueError; open readers go on."""
        self._log.close()

    def __reduce__(self) -> tuple[type[CommitLog], tuple[_core.CommitLog]]:
        return CommitLog, (self._log,)

    def __repr__(self) -> str:
        return repr(self._log)
