"""What a start has to do with a store, found out before anything is changed.

Source: CommitLog#recoverNormally, #recoverAbnormally, DefaultMessageStore#recover. A broker that meets damage cuts its log there
and deletes every file behind, whatever they hold; here that is refused where sound messages would be lost, unless it is wanted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from logdex import _core
from logdex._core import CommitLog, StoreCheckpoint
from logdex.errors import CorruptFileError
from logdex.hash_index.directory import DirectoryLock, list_directory
from logdex.hash_index.geometry import check_geometry
from logdex.report import Finding
from logdex.rocketmq.index_service import IndexService
from logdex.rocketmq.layout import FRAME_MAGICS
from logdex.rocketmq.queues import QueueSet
from logdex.rocketmq.read import valid_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logdex.rocketmq.layout import StoreLayout

_BLANK_BYTES = 8
READING = {"access": "auto", "compat": None, "clock_slack_ms": 0}


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Where a log ends, and what its queues and index lack.

    Attributes:
        last_exit_ok: Who wrote last ended as it should.
        begin: From here on the log was walked.
        end: Where it ends; what lies behind is cut off.
        dispatch: From here on messages are dispatched again; what a queue or the index has is passed over.
        index_from: From here on the index lacks messages; None: it finds that out by itself, from its entries.
        index_beyond: Index files that lead behind the end, the oldest first.
        tags: The index holds tags, too (5.5.0); None: nothing tells, for no message in it has any.
        file_size: Bytes of a file of the log; 0 without files.
        messages_lost: Sound messages behind the end.
        findings: What was met there.
    """

    last_exit_ok: bool = True
    begin: int = 0
    end: int = 0
    dispatch: int = 0
    index_from: int | None = 0
    index_beyond: tuple[Path, ...] = ()
    tags: bool | None = None
    file_size: int = 0
    messages_lost: int = 0
    findings: list[Finding] = field(default_factory=list)


def plan_recovery(
    layout: StoreLayout,
    *,
    geometry: tuple[int | None, int | None],
    sizes: Mapping[str, int],
    file_size: int | None,
    last_exit_ok: bool | None,
    truncate: bool,
) -> RecoveryPlan:
    """Find out what a start has to do; nothing is changed.

    Args:
        layout: Where the parts of the store lie. Its log has files.
        geometry: Slots and entries of the index files, where they are known.
        sizes: Sizes of queue files that are asked for, by kind.
        file_size: Size of a file of the log that is asked for; None: that of the files there.
        last_exit_ok: How the last writer ended; None: `abort` says it.
        truncate: Sound messages behind damage may be lost.

    Raises:
        CorruptFileError: They would be lost, and may not.
        GeometryError: Slots and entries of the index were not given and cannot be told from its files.
        ValueError: The queues are no files; or sizes are not those of the files there, or cannot be told.
        BlockingIOError: Another index service writes to the index.
        OSError: The system refuses.
    """
    if last_exit_ok is None:
        last_exit_ok = not layout.abort.exists()
    if layout.index.is_dir():
        # Another index service may be at work there, without the store's lock.
        DirectoryLock(layout.index).release()
    with CommitLog.open(layout.commit_log) as log:
        queue_end = _queue_end(layout, log, sizes)
        begin, end, dispatch = log.recovery(
            StoreCheckpoint.open(layout.checkpoint) if layout.checkpoint.exists() else None,
            last_exit_ok=last_exit_ok,
            queue_end=queue_end,
        )
        findings = list(log.check_files().findings)
        _refuse_long_file(log, end)
        file_size = _file_size(log, end, file_size)
        lost = _count_behind(log, end, findings)
        # Restored messages go back in time, as those do that a broker cut off. A queue that leads to them, as to others, speaks
        # for them, but a broker leaves such units behind, too.
        doubtful = _count_behind(log, end, [], led_to=queue_end) - lost if queue_end > end else 0
        if lost + doubtful and not truncate:
            raise _would_be_lost(log, end, lost, doubtful, findings)
        if last_exit_ok and not lost + doubtful and queue_end > end:
            path, first = file_at(log, end)
            expected = f"messages up to offset {queue_end}, where queues lead"
            findings.append(Finding(path, end - first, "log-end", expected, "the end of the log"))
        index = _look_at_index(layout, log, geometry, end, last_exit_ok=last_exit_ok)
        if not index.files:
            index_from: int | None = log.min_offset
        elif last_exit_ok and not index.beyond:
            # Not from where the queues end: an index that lost its newest file ends before, and a later put would leave a hole.
            index_from = max(log.min_offset, index.end)
        else:
            index_from = None
        return RecoveryPlan(
            last_exit_ok=last_exit_ok,
            begin=begin,
            end=end,
            dispatch=dispatch,
            index_from=index_from,
            index_beyond=index.beyond,
            tags=index.tags,
            file_size=file_size,
            messages_lost=lost + doubtful,
            findings=findings,
        )


def _queue_end(layout: StoreLayout, log: CommitLog, sizes: Mapping[str, int]) -> int:
    """Give the offset in the log behind the last unit of any queue, -1 without units."""
    queues = QueueSet(layout, log, READING)
    try:
        if layout.queues.is_dir() and not queues.is_readable():
            raise ValueError(f"{layout.queues}: a database of a 5.x broker (RocksDB), which logdex does not write")
        for name, size in queues.file_sizes().items():
            if sizes.get(name, size) != size:
                raise ValueError(f"the queue files of this store have {size} bytes, not {sizes[name]}")
        paths = [path for paths in queues.directories().values() for path in paths]
        return max((queues.open(path).log_end for path in paths), default=-1)
    finally:
        queues.close()


def _file_size(log: CommitLog, end: int, wanted: int | None) -> int:
    """Give the size of a file of the log. The only file may have been cut short, and does not tell it then.

    Raises:
        ValueError: It is another one than the one that is wanted, or cannot be told.
    """
    size = log.file_size
    if len(log.files) == 1 and (size == 0 or _ends_with_messages(log, end)):
        if wanted is None:
            raise ValueError(f"{log.files[0]}: the only file of this log was cut short at {size} bytes; give file_size")
        if wanted >= size:
            return wanted
    if wanted not in (None, size):
        raise ValueError(f"the files of this log have {size} bytes, not {wanted}")
    return size


def _ends_with_messages(log: CommitLog, end: int) -> bool:
    """Say whether the only file of a log has no room for a BLANK frame, which no broker forgets, or ends in a message."""
    first, size = log.min_offset, log.file_size
    if first + size - end < _BLANK_BYTES:
        return True
    with log.files[0].open("rb") as file:
        file.seek(end - first)
        head = file.read(_BLANK_BYTES)
        return head[4:] in FRAME_MAGICS and end - first + int.from_bytes(head[:4], "big") > size


def _count_behind(log: CommitLog, end: int, findings: list[Finding], *, led_to: int = -1) -> int:
    """Count the messages behind the end of the log that no broker cut off before; see `valid_messages`."""
    messages = valid_messages(
        log, ("phy_offset",), end, None, salvage=True, on_damage=findings.append, queue_end=led_to
    )
    return sum(batch.num_rows for batch in messages)


def _would_be_lost(log: CommitLog, end: int, lost: int, doubtful: int, findings: list[Finding]) -> CorruptFileError:
    path, begin = file_at(log, end)
    why = next((finding for finding in findings if (finding.path, finding.offset) == (path, end - begin)), None)
    expected = f"{why.expected}, or the end of the log" if why else "the end of the log"
    found = f"{why.found}, and " if why else ""
    parts = []
    if lost:
        parts.append(f"{lost:,} sound messages" if lost > 1 else "one sound message")
    if doubtful:
        parts.append(f"{doubtful:,} that look as if a broker had cut them off, though queues lead to them,")
    kept = "a copy keeps them" if not doubtful else "a copy keeps the sound ones" if lost else "a copy leaves them out"
    return CorruptFileError(
        path, end - begin, expected, f"{found}{' and '.join(parts)} behind it; truncate=True would cut them off, {kept}"
    )


def _refuse_long_file(log: CommitLog, end: int) -> None:
    """Refuse a file that the log would go on in and that is longer than the others."""
    path, _ = file_at(log, end)
    size = Path(path).stat().st_size
    if size > log.file_size:
        raise CorruptFileError(path, log.file_size, f"{log.file_size} bytes, as most files here", f"{size} bytes")


def file_at(log: CommitLog, offset: int) -> tuple[str, int]:
    """Give the file of a log that holds an offset, or the one before it, and the offset of its first byte."""
    table = log.file_table()
    paths, begins = (table.column(name).to_pylist() for name in ("path", "begin_phy_offset"))
    return max(
        ((path, begin) for path, begin in zip(paths, begins, strict=True) if begin <= offset), key=lambda file: file[1]
    )


@dataclass(frozen=True, slots=True)
class _Index:
    """What an index holds: whether there are files, where they end in the log, which lead behind it, whether tags are in."""

    files: bool = False
    end: int = 0
    beyond: tuple[Path, ...] = ()
    tags: bool | None = None


def _look_at_index(
    layout: StoreLayout, log: CommitLog, geometry: tuple[int | None, int | None], end: int, *, last_exit_ok: bool
) -> _Index:
    if not layout.index.is_dir():
        return _Index()
    hash_slots, max_entries = geometry
    if hash_slots is not None and max_entries is not None:
        check_geometry(layout.index, list_directory(layout.index), (hash_slots, max_entries), "auto", for_puts=True)
    with IndexService.open(
        layout.index, hash_slots=hash_slots, max_entries=max_entries, last_exit_ok=last_exit_ok
    ) as index:
        files = index.files
        if not files:
            return _Index()
        ends = {file.path: file.header.end_phy_offset for file in files if len(file)}
        beyond = tuple(path for path, last in ends.items() if last >= end)
        # The last message that was indexed is not indexed again.
        return _Index(
            len(files) > len(beyond),
            max(ends.values(), default=-1) + 1,
            beyond,
            _core.index_holds_tags(log, files),
        )


def complete_last_file(layout: StoreLayout, file_size: int) -> None:
    """Give the last file of a log its whole length, if it was cut short: no broker starts with another."""
    with CommitLog.open(layout.commit_log) as log:
        last = log.files[-1]
    if last.stat().st_size < file_size:
        with last.open("r+b") as file:
            file.truncate(file_size)
            os.fsync(file.fileno())


def sync_files(layout: StoreLayout, begin: int) -> None:
    """Bring what the last writer wrote to the disk: the log from a file on, and all queues."""
    with CommitLog.open(layout.commit_log) as log:
        files = [path for path in log.files if int(path.name) >= begin]
    for folder in (layout.queues, layout.batch_queues, layout.queue_extensions):
        files += filter(Path.is_file, folder.glob("*/*/*"))
    for path in files:
        with path.open("r+b") as file:
            os.fsync(file.fileno())
