"""Dispatch: what stands in the log is told to the queues and to the index.

Source: DefaultMessageStore.ReputMessageService, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from arro3.core import DataType

from logdex._core import ConsumeQueueWriter, index_entries
from logdex.arrow import INDEXED_COLUMNS
from logdex.errors import CorruptFileError
from logdex.rocketmq.read import read_ahead
from logdex.rocketmq.store_recovery import file_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex._core import CommitLog
    from logdex.rocketmq.index_service import IndexService

_COLUMNS = tuple(dict.fromkeys([*ConsumeQueueWriter.columns, *INDEXED_COLUMNS, "phy_offset", "store_timestamp"]))
_WORTH_A_THREAD_BYTES = 16 << 20


class Dispatcher:
    """Dispatches the messages of a log, in their order. Not for several threads at a time.

    Attributes:
        offset: What begins in the log before it has been dispatched.
        store_timestamp: When the last message that was dispatched was stored, in ms; 0 before the first.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueueWriter, index: IndexService, *, tags: bool) -> None:
        """Begin at the end of what was dispatched: set `offset`.

        Args:
            log: The log, for reading.
            queues: Where units go.
            index: Where index entries go.
            tags: Index tags, too.
        """
        self._log = log
        self._queues = queues
        self._index = index
        self._tags = tags
        self.offset = 0
        self.store_timestamp = 0

    def dispatch(self, end: int, *, index_from: int = 0) -> int:
        """Dispatch what begins before `end` and was not dispatched yet; give the number of messages.

        Queues come before the index, so that who finds a message by its key finds it in its queue.

        Args:
            end: Offset behind the last message.
            index_from: Messages before it are not indexed.

        Raises:
            CorruptFileError: The log ends before `end`: somebody else has changed it.
            OSError: The system refuses. What was dispatched stays; the rest is dispatched by the next call.
        """
        count = 0
        for batch in self._messages(self.offset, end):
            self._queues.append_batch(batch)
            end_row = batch.num_rows - 1
            first, last = (batch.column("phy_offset")[row].as_py() for row in (0, end_row))
            if first >= index_from:
                self._index.build_index(batch, tags=self._tags)
            elif last >= index_from:
                offsets = batch.column("phy_offset").to_pylist()
                at = next(row for row, offset in enumerate(offsets) if offset >= index_from)
                self._index.build_index(batch.slice(at), tags=self._tags)
            count += batch.num_rows
            self.offset = last + batch.column("store_size")[end_row].as_py()
            self.store_timestamp = batch.column("store_timestamp").cast(DataType.int64())[end_row].as_py()
        self.offset = max(self.offset, end)
        return count

    def index(self, begin: int, end: int) -> int:
        """Index what begins in a range of the log, and leave the queues alone; give the number of messages with a key."""
        count = 0
        for batch in self._messages(begin, end):
            if self._index.build_index(batch, tags=self._tags):
                count += len({*index_entries(batch, end_phy_offset=0, tags=self._tags).column("row").to_pylist()})
        return count

    def _messages(self, begin: int, end: int) -> Iterator[RecordBatch]:
        if begin >= end:
            return
        reader = self._log.scan(
            begin_phy_offset=begin, end_phy_offset=end, columns=_COLUMNS, body="stored", check_crc=False
        )
        if end - begin < _WORTH_A_THREAD_BYTES:
            yield from (batch for batch in reader if batch.num_rows)
        else:
            with closing(read_ahead(reader)) as batches:
                yield from batches
        for finding in reader.report.findings:
            raise CorruptFileError(finding.path, finding.offset, finding.expected, finding.found)
        if reader.end_offset is not None and reader.end_offset < end:
            path, first = file_at(self._log, reader.end_offset)
            raise CorruptFileError(
                path, reader.end_offset - first, f"messages up to offset {end}", "the end of the log"
            )
