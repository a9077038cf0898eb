"""What an index directory needs after a crash: the broker's rule, or ours, which keeps what can be kept.

Ours: every file is mended from its entries, files after a hole are taken away where the log can give their content again, and
what the log holds beyond the last entry is indexed again. Nothing is put twice, so the files become those that the broker
would have written without the crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import CommitLog, StoreCheckpoint
from logdex.arrow import INDEXED_COLUMNS, arrow_batches, take_rows
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import IndexFile
    from logdex.hash_index.file_set import FileSet

_log = logging.getLogger(__name__)

_DOUBTFUL_ENTRIES = 16
_MESSAGES_WITH_TAGS = 64
_BYTES_FOR_TAGS = 64 << 20


def drop_beyond_checkpoint(files: FileSet, checkpoint: Path | None, *, delete: bool) -> None:
    """Drop the files that end after the checkpoint's index time.

    COMPAT(rocketmq IndexService#load, B4): what those files hold is lost to the index, unless the log gives it again.

    Args:
        files: The files of the directory.
        checkpoint: The checkpoint file; without one every file that holds an entry goes.
        delete: Delete the files; otherwise they are only left out.
    """
    limit = 0
    if checkpoint is not None and checkpoint.exists():
        limit = StoreCheckpoint.open(checkpoint).index_msg_timestamp
    files.refresh()
    beyond = [(entry, file) for entry, file in files.items() if file.header.end_timestamp > limit]
    for _, file in beyond if delete else ():
        file.path.unlink(missing_ok=True)
    files.leave_out(frozenset(entry for entry, _ in beyond))


def mend_files(files: FileSet) -> None:
    """Link the slots of every file again from its entries and cut it at the first entry that cannot be true.

    Files of another size are left as they are, and those that cannot be true; they answer from what they hold.
    """
    for entry in files.list_entries():
        if files.is_whole(entry):
            try:
                with files.open_writer(files.directory / entry.name, last_exit_ok=False) as file:
                    file.flush()
            except CorruptFileError as error:
                _log.warning("%s is left as it is: %s", entry.name, error)
    files.set_mended()


def indexes_tags(files: FileSet, log: CommitLog) -> bool | None:
    """Say whether the index holds the tags of messages, as a 5.5.0 broker writes it; so that what is lost comes back."""
    return holds_tags(files.refresh(), log)


def holds_tags(files: Sequence[IndexFile], log: CommitLog) -> bool | None:
    """Say whether index files hold the tags of a log's messages; told from the newest file whose messages have some.

    Returns:
        None where nothing tells: no message that the files lead to has tags, as far as the log is read for this.
    """
    held = _by_offset(files)
    left = _BYTES_FOR_TAGS
    for file in reversed(held):
        begin, last = file.header.begin_phy_offset, file.header.end_phy_offset
        # The end counts: a file of one message begins and ends with it.
        for messages in _scan(log, begin, min(last, begin + left) + 1, batch_size=1_024):
            # Few: each of their keys costs some reads of a file that may be on a disk.
            rows = [row for row, tags in enumerate(messages.column("tags").to_pylist()) if tags][:_MESSAGES_WITH_TAGS]
            told = _hold_tags(take_rows(messages, rows), held)
            if told is not None:
                return told
        left -= max(0, last - begin)
        if left <= 0:
            break
    return None


def _hold_tags(messages: RecordBatch, files: list[IndexFile]) -> bool | None:
    """Say whether files hold the tags of most of some messages; None where no index has them, as of what was rolled back."""
    tagged = _core.index_entries(messages, end_phy_offset=0, tags=True)
    plain = _core.index_entries(messages, end_phy_offset=0)
    if tagged.num_rows == plain.num_rows:
        return None
    lost, lost_of_plain = (missing_rows(entries, files).num_rows for entries in (tagged, plain))
    # A few tags may be missing at the end of the index, or seem to be there because of a key with the same hash.
    return 2 * (lost - lost_of_plain) < tagged.num_rows - plain.num_rows


def drop_after_hole(files: FileSet, log: CommitLog) -> None:
    """Delete the files after a hole in the index, and files that hold nothing, where the log can give them again.

    Entries cannot be put in between later, because a broker's search relies on the order.
    """
    opened = files.refresh()
    held = _by_offset(opened)
    newest = opened[-1:] if files.whole_files()[-1:] == opened[-1:] else []
    # A file is followed by another only when it is full, so an empty one lost what it held. The newest may be new.
    lost = [file for file in files.whole_files() if not len(file) and not (file in newest and _follows(file, held))]
    after = _after_hole(held, log, may_begin_late=not lost)
    if after and max(file.header.end_phy_offset for file in after) >= log.max_offset:
        _log.warning("%s: the index has a hole that the log cannot fill", files.directory)
        after = []
    # The newest first: a crash in between leaves a directory without a hole.
    for file in reversed([*lost, *after]):
        _log.warning("%s: deleted, to be indexed again from the log", file.path)
        file.path.unlink(missing_ok=True)


def _after_hole(held: list[IndexFile], log: CommitLog, *, may_begin_late: bool) -> list[IndexFile]:
    """Give the files after the first hole, in the order of their offsets."""
    begin = log.min_offset
    for place, file in enumerate(held):
        first = file.header.begin_phy_offset
        # What an index never held is not lost: it may begin after the log does.
        if place or not may_begin_late:
            first = begin
        if _missing(log, first, file.header.begin_phy_offset + 1, held):
            return held[place:]
        begin = file.header.end_phy_offset
    return []


def index_again(
    files: FileSet,
    log: CommitLog,
    put: Callable[[RecordBatch], None],
    build: Callable[[Any], int],
    *,
    tags: bool,
) -> int:
    """Index what the log holds beyond the last entry; give the number of entries put.

    Args:
        files: The files of the directory.
        log: The log beside it.
        put: Puts a batch of index entries.
        build: Indexes messages.
        tags: The index holds tags, too.
    """
    held = _by_offset(files.refresh())
    begin = log.min_offset
    count = 0
    if held:
        newest = max(held, key=lambda file: file.header.end_phy_offset)
        last = newest.header.end_phy_offset
        # The last message may have been indexed in part, and a lost page may hold the end of an entry that seems whole.
        for messages in _scan(log, _doubtful_offset(newest), last + 1):
            lost = missing_rows(_core.index_entries(messages, end_phy_offset=0, tags=tags), held)
            put(lost)
            count += lost.num_rows
        begin = max(begin, last + 1)
    if begin < log.max_offset:
        count += build(log.scan(begin_phy_offset=begin, columns=INDEXED_COLUMNS))
    return count


def _doubtful_offset(file: IndexFile) -> int:
    """Give the smallest offset among the last entries of a file."""
    offsets: list[int] = []
    for batch in file.entries():
        count = min(_DOUBTFUL_ENTRIES, batch.num_rows)
        offsets = [*offsets, *batch.slice(batch.num_rows - count).column("phy_offset").to_pylist()][-_DOUBTFUL_ENTRIES:]
    return max(0, min(offsets))


def _by_offset(files: Sequence[IndexFile]) -> list[IndexFile]:
    return sorted((file for file in files if len(file)), key=lambda file: file.header.begin_phy_offset)


def _follows(file: IndexFile, held: list[IndexFile]) -> bool:
    """Say whether an empty file has the seeds that its predecessor gives it."""
    if not held:
        return True
    header, before = file.header, held[-1].header
    return (header.end_phy_offset, header.end_timestamp) == (before.end_phy_offset, before.end_timestamp)


def _missing(log: CommitLog, begin: int, end: int, files: list[IndexFile]) -> bool:
    """Say whether an entry of the log's messages from `begin` to before `end` is in none of the files."""
    batches = (_core.index_entries(messages, end_phy_offset=0) for messages in _scan(log, begin, end))
    return any(missing_rows(entries, files).num_rows for entries in batches)


def _scan(log: CommitLog, begin: int, end: int, *, batch_size: int = 8_192) -> Iterator[RecordBatch]:
    begin = max(begin, log.min_offset)
    if begin < min(end, log.max_offset):
        scan = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=INDEXED_COLUMNS, batch_size=batch_size)
        yield from arrow_batches(scan)


def missing_rows(entries: RecordBatch, files: list[IndexFile]) -> RecordBatch:
    """Choose the entries that are in none of the files; by hash, as the same offset may stand there for another key."""
    return take_rows(entries, missing_row_numbers(entries, files))


def missing_row_numbers(entries: RecordBatch, files: list[IndexFile]) -> list[int]:
    """Give the rows of `missing_rows`."""
    topics, keys, offsets = (entries.column(name).to_pylist() for name in ("topic", "key", "phy_offset"))
    candidates = _core.select_files(files, entries.column("key"), topics=entries.column("topic")).to_pylist()
    present: dict[tuple[int, int], int] = {}
    missing: list[int] = []
    for row, (topic, key, offset, found) in enumerate(zip(topics, keys, offsets, candidates, strict=True)):
        entry = (_core.key_hash(_core.index_key(topic, key)), offset)
        left = present.setdefault(entry, found.count(offset))
        present[entry] = left - 1
        if left <= 0:
            missing.append(row)
    return missing
