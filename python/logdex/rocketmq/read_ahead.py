"""Reading a log in a thread beside the one that works on what was read."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from arro3.core import RecordBatch

    from logdex._core import MessageReader

_BATCHES_AHEAD = 4
_SECONDS_TO_LOOK_UP = 0.1


def read_ahead(reader: MessageReader) -> Generator[RecordBatch, None, None]:
    """Give the batches of a reader, read in a thread of their own, a few ahead; close the generator to stop it."""
    ready: queue.Queue[Any] = queue.Queue(_BATCHES_AHEAD)
    stopped = threading.Event()

    def read() -> None:
        last: BaseException | None = None
        try:
            for batch in reader:
                if batch.num_rows and not _put(ready, batch, stopped):
                    return
        except BaseException as error:  # noqa: BLE001 -- raised where the batches are taken
            last = error
        _put(ready, last, stopped)

    thread = threading.Thread(target=read, name="logdex-scan", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


def _put(ready: queue.Queue[Any], item: Any, stopped: threading.Event) -> bool:  # noqa: ANN401 -- a batch, an error or the end
    """Put an item as soon as there is room; False where nobody wants it any more."""
    while not stopped.is_set():
        try:
            ready.put(item, timeout=_SECONDS_TO_LOOK_UP)
        except queue.Full:
            continue
        return True
    return False


def bytes_read(reader: MessageReader, first: int, total: int) -> dict[str, int]:
    """Count for a report how much of a log was read, and what lies behind the damage that ended the walk.

    Args:
        reader: The reader, which has ended.
        first: The log's first offset.
        total: The log's length in bytes.
    """
    if not reader.report.findings or reader.end_offset is None:
        return {"log_bytes": total}
    read = reader.end_offset - first
    return {"log_bytes": read, "log_bytes_behind_damage": total - read}
