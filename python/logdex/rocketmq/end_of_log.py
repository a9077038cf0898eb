"""Where to begin to look for the end of a log, so that nobody reads up to 1 GiB of it before the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arro3.core import RecordBatchReader

from logdex.errors import LogdexError
from logdex.hash_index.query import newest_first

if TYPE_CHECKING:
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.queue_set import QueueSet


def expect_end(layout: StoreLayout, log: CommitLog, index: IndexService, queues: QueueSet) -> None:
    """Tell a log that it reaches as far as the index's last message, where a consume queue says so, too.

    Nothing is told of a store whose broker was not stopped (its file `abort` is there): one that cuts its log back erases
    nothing there, nor in its queues and its index, until it has written on; and one that was killed may not have come so far.
    What cannot be read now is no fault here; the log's end is then looked for in its last file, from the beginning.
    """
    if layout.abort.exists():
        return
    files = index.whole_files()
    last = newest_first(files)[0].header.end_phy_offset if files else -1
    if last < 0:
        return
    try:
        scan = log.scan(begin_phy_offset=last, end_phy_offset=last + 1, columns=("topic", "queue_id", "queue_offset"))
        for batch in RecordBatchReader.from_stream(scan):
            topic, queue_id, queue_offset = (column[0].as_py() for column in batch.columns)
            units = queues.queue(topic, queue_id).units(queue_offset, queue_offset + 1)
            if last in units.column("phy_offset").to_pylist():
                log.core.expect_message(last)
    except (OSError, ValueError, LogdexError):
        return
