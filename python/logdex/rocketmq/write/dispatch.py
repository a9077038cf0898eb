"""Dispatch: replays the messages of the log into the queues and the index.

Source: DefaultMessageStore.ReputMessageService, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex._core import ConsumeQueueWriter, indexed_messages, last_message
from logdex.arrow import INDEXED_COLUMNS
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex._core import CommitLog
    from logdex.rocketmq.index_service import IndexService

_COLUMNS = tuple(dict.fromkeys([*ConsumeQueueWriter.columns, *INDEXED_COLUMNS]))
_WORTH_THREADS_BYTES = 16 << 20


@dataclass(slots=True)
class Dispatcher:
    """Dispatches the messages of a log, in their order. Not for several threads at a time."""

    _log: CommitLog
    _queues: ConsumeQueueWriter
    _index: IndexService
    _tags: bool
    offset: int
    """Messages before this offset of the log are dispatched."""
    store_timestamp: int = 0
    """Store time of the last message that was dispatched, in ms; 0 before the first."""

    def dispatch(self, end: int, *, index_from: int = 0) -> int:
        """Dispatch the messages before `end` that are not dispatched; return their number.

        The queues come before the index, so that a message that is found by its key is also in its queue. Messages before
        `index_from` are not indexed.

        Raises:
            CorruptFileError: The log ends before `end`: another process has changed it.
            OSError: An I/O error. What was dispatched stays; the next call dispatches the rest.
        """
        count = 0
        for begin, part_end in ((0, min(index_from, end)), (index_from, end)):
            for batch in self._messages(max(begin, self.offset), part_end):
                self._queues.append_batch(batch)
                if begin == index_from:
                    self._index.index_once(batch, tags=self._tags)
                count += batch.num_rows
                self.offset, self.store_timestamp = last_message(batch) or (self.offset, self.store_timestamp)
        self.offset = max(self.offset, end)
        return count

    def index(self, begin: int, end: int) -> int:
        """Index the messages in a range of the log, without the queues; return the number of messages with a key."""
        count = 0
        for batch in self._messages(begin, end):
            if self._index.index_once(batch, tags=self._tags):
                count += indexed_messages(batch, tags=self._tags)
        return count

    def _messages(self, begin: int, end: int) -> Iterator[RecordBatch]:
        if begin >= end:
            return
        reader = self._log.scan(
            begin_phy_offset=begin,
            end_phy_offset=end,
            columns=_COLUMNS,
            body="stored",
            threads=1 if end - begin < _WORTH_THREADS_BYTES else 2,
            check_crc=False,
        )
        yield from (batch for batch in reader if batch.num_rows)
        for finding in reader.report.findings:
            raise CorruptFileError(finding.path, finding.offset, finding.expected, finding.found)
        if reader.end_offset is not None and reader.end_offset < end:
            path, offset = self._log.place(reader.end_offset)
            raise CorruptFileError(path, offset, f"messages up to offset {end}", "the end of the log")
