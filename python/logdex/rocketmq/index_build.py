"""Building a key index from the log of a store, into a directory of its own."""

from __future__ import annotations

import errno
import queue
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.hash_index import IndexService
from logdex.hash_index.directory import list_directory
from logdex.report import Report

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from datetime import tzinfo

    from arro3.core import RecordBatch

    from logdex._core import MessageReader
    from logdex.rocketmq.commit_log import CommitLog

_COLUMNS = ("topic", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags", "sys_flag", "store_size")
_BATCHES_AHEAD = 4
_SECONDS_TO_LOOK_UP = 0.1


def build_index(
    log: CommitLog,
    directory: str | os.PathLike[str],
    *,
    geometry: tuple[int, int] | None,
    zone: str | tzinfo | None,
    tags: bool,
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> Report:
    """Index the messages of a log by the broker's rules; see `MessageStore.build_index`."""
    target = Path(directory)
    if target.is_dir() and any(entry.is_numeric for entry in list_directory(target)):
        raise FileExistsError(errno.EEXIST, "there are index files already", str(target))
    hash_slots, max_entries = geometry or (None, None)
    first = log.min_offset
    total = log.max_offset - first
    messages = entries = 0
    reader = log.scan(columns=_COLUMNS, threads=threads)
    with (
        IndexService.open(
            target,
            mode="a",
            hash_slots=hash_slots,
            max_entries=max_entries,
            zone=zone,
            # What is written is the same in every release but for the tags.
            compat="5.5.0" if tags else None,
        ) as index,
        closing(_ahead(reader)) as batches,
    ):
        for batch in batches:
            entries += index.build_index(batch)
            messages += batch.num_rows
            if progress is not None:
                last = batch.num_rows - 1
                end = batch.column("phy_offset")[last].as_py() + batch.column("store_size")[last].as_py()
                progress(end - first, total)
        index.flush()
        files = len(index.files)
    return Report(
        list(reader.report.findings),
        {"log_bytes": total, "messages": messages, "entries": entries, "index_files": files},
    )


def _ahead(reader: MessageReader) -> Iterator[RecordBatch]:
    """Read batches in a thread of their own, a few ahead of who takes them."""
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
