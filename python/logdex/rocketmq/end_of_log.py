"""Finding the end of a log without reading up to 1 GiB of it first."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from logdex.errors import LogdexError
from logdex.hash_index.query import newest_first

if TYPE_CHECKING:
    from logdex.rocketmq.commit_log import CommitLog
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout


def expect_end(layout: StoreLayout, log: CommitLog, index: IndexService) -> None:
    """Let the search for the end of a log begin at the last message of the index, if a consume queue has it, too.

    Not if the broker was not stopped (the file `abort` exists): a broker that truncates its log erases nothing in the log, the
    queues and the index until it writes again, and a broker that was killed may not have come so far. A part that cannot be
    read is not an error here: the search then begins at the beginning of the last file.
    """
    if layout.abort.exists():
        return
    files = index.whole_files()
    last = newest_first(files)[0].header.end_phy_offset if files else -1
    if last >= 0:
        with suppress(OSError, ValueError, LogdexError):
            log.core.expect_dispatched(last, layout.root)
