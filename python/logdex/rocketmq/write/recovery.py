"""The steps of a start, planned before anything is changed.

Source: CommitLog#recoverNormally, #recoverAbnormally, DefaultMessageStore#recover. A broker that finds damage truncates its log
there and deletes every later file, whatever they hold. Here that is an error if valid messages would be lost, unless the caller
allows it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from logdex._core import (
    CommitLog,
    DirectoryLock,
    IndexFiles,
    StoreCheckpoint,
    index_holds_tags,
    is_index_file_name,
    truncate_log,
)
from logdex.errors import CorruptFileError
from logdex.report import Finding, Report
from logdex.rocketmq.index_service import IndexService
from logdex.rocketmq.read import valid_messages
from logdex.source import OFFSET_NAME

if TYPE_CHECKING:
    from logdex._types import Compat
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.write.options import StoreOptions

READING: dict[str, Any] = {"access": "auto", "compat": None, "clock_slack_ms": 0}

_STOPS = ("file-name", "not-a-file", "file-size", "file-empty")
"""Kinds of findings in a log that prevent a broker from starting."""

_EMPTY_STORE = {"abort", "abort.bak", "checkpoint", "config", "lock", "lost+found"}
"""Names in the root of a store in which no message was stored yet."""


def holds_log(root: Path) -> bool:
    """Return whether there is a store at a root; if not, a new one can begin there.

    Raises:
        FileExistsError: Neither: other files, a log without a store, or parts of a store whose log is elsewhere.
    """
    try:
        names = set(os.listdir(root))  # noqa: PTH208 -- names are wanted
    except FileNotFoundError:
        return False
    if "commitlog" in names and any(map(OFFSET_NAME.fullmatch, os.listdir(root / "commitlog"))):  # noqa: PTH208 -- as above
        return True
    others = sorted(name for name in names - _EMPTY_STORE if not _is_empty_tree(root / name))
    if others:
        found = ", ".join(others[:3])
        raise FileExistsError(
            errno.EEXIST, f"expected a store with a commitlog or an empty directory, found {found}", str(root)
        )
    return False


def _is_empty_tree(path: Path) -> bool:
    """Return whether a path is a directory that holds at most directories."""
    return path.is_dir() and all(map(_is_empty_tree, path.iterdir()))


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The end of a log, and what its queues and index lack.

    Attributes:
        begin: The log was walked from here on.
        end: The end of the log; all after it is truncated.
        dispatch: Messages are dispatched again from here on; queues and index skip what they have.
        index_from: The index lacks messages from here on; None: it finds that out itself, from its entries.
        index_beyond: Index files with messages after the end, the oldest first.
        tags: The index also holds tags (5.5.0); None: unknown, because no message in it has any.
        file_size: Bytes of a file of the log; 0 without files.
        messages_lost: Valid messages after the end.
        bytes_missing: Bytes that are missing at the end of the last file.
        left: Findings that a start does not repair.
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
    bytes_missing: int = 0
    findings: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)

    def truncate(self, commit_log: Path, *, dry_run: bool = False) -> dict[str, int]:
        """Truncate the log at its end; return the counts of removed data."""
        counts = {"log_bytes": self.end - self.begin, "messages_cut_off": self.messages_lost}
        if self.file_size:
            removed = truncate_log(commit_log, self.end, dry_run=dry_run).checked
            counts |= {"bytes_cut": removed["bytes_cut"], "log_files_deleted": removed["files_deleted"]}
            counts["log_bytes_added"] = self.bytes_missing
        return counts


def plan_recovery(layout: StoreLayout, options: StoreOptions, queue_end: int) -> RecoveryPlan:
    """Find out what a start must do to a store whose log has files; nothing is changed. Queues lead up to `queue_end`.

    Raises:
        CorruptFileError: Valid messages after damage would be lost, which was not allowed.
        GeometryError: Slots and entries of the index were not given and cannot be inferred from its files.
        ValueError: The sizes are not those of the existing files, or cannot be inferred from them.
        LockedError: Another index service writes to the index.
        OSError: An I/O error.
    """
    last_exit_ok = not layout.abort.exists() if options.last_exit_ok is None else options.last_exit_ok
    if layout.index.is_dir():
        # Another index service may write there without the store's lock.
        DirectoryLock(layout.index).release()
    with CommitLog.open(layout.commit_log) as log:
        begin, end, dispatch = log.recovery(
            StoreCheckpoint.open(layout.checkpoint) if layout.checkpoint.exists() else None,
            last_exit_ok=last_exit_ok,
            queue_end=queue_end,
            settle=True,
        )
        findings = list(log.check_files().findings)
        _refuse_long_file(log, end)
        file_size = _file_size(log, end, options.file_size)
        behind: list[Finding] = []
        lost = _count_behind(log, end, behind)
        # A batch that was refused is not damage.
        refused = log.place(end) if not lost and log.is_uncommitted(end) else None
        findings += [finding for finding in behind if (finding.path, finding.offset) != refused]
        # Restored messages go back in time like truncated ones. A queue that leads to a message shows that it is restored; but a
        # broker that truncates its log leaves such units, too.
        doubtful = _count_behind(log, end, [], led_to=queue_end) - lost if queue_end > end else 0
        if lost + doubtful and not options.truncate:
            raise _would_be_lost(log, end, lost, doubtful, findings)
        if last_exit_ok and not lost + doubtful and queue_end > end:
            path, offset = log.place(end)
            expected = f"messages up to offset {queue_end}, where queues lead"
            findings.append(Finding(path, offset, "log-end", expected, "the end of the log"))
        index_from, beyond, tags = _inspect_index(layout, log, options, end, last_exit_ok=last_exit_ok)
        last = max((file for file in log.files if int(file.name) <= end), key=lambda file: int(file.name), default=None)
        bytes_missing = 0 if last is None else max(0, file_size - last.stat().st_size)
        return RecoveryPlan(
            last_exit_ok=last_exit_ok,
            begin=begin,
            end=end,
            dispatch=dispatch,
            index_from=index_from,
            index_beyond=beyond,
            tags=tags,
            file_size=file_size,
            messages_lost=lost + doubtful,
            bytes_missing=bytes_missing,
            findings=findings,
            left=[finding for finding in findings if last is None or not _is_repaired(finding, int(last.name), end)],
        )


def _is_repaired(finding: Finding, last: int, end: int) -> bool:
    """Return whether truncating a log removes a finding. The last file, which starts at `last`, gets its full length."""
    name = Path(finding.path).name
    if finding.kind == "not-a-file" or not OFFSET_NAME.fullmatch(name):
        return False
    whole = finding.kind in ("file-size", "file-empty") or last + finding.offset >= end
    return int(name) > last or (int(name) == last and whole and finding.kind not in ("file-gap", "file-overlap"))


@dataclass(frozen=True, slots=True, repr=False)
class RecoveryReport(Report):
    """Findings and changes of opening a store for writing.

    Attributes:
        left: Findings that are not repaired.
        begin: Offset from which the log was read.
    """

    left: list[Finding] = field(default_factory=list)
    begin: int = 0


def find_start_blockers(layout: StoreLayout, recovered: RecoveryReport, compat: Compat | None) -> list[Finding]:
    """Return the findings that prevent a broker of a release (None: 4.9.3) from starting after a recovery or dry run.

    Source: MappedFileQueue#load, IndexService#load. A broker starts only if each entry of the log and of a queue is a file of the
    right length, with the offset of its first byte as its name. 5.x passes over directories, except in `index` one with the name
    of a file.
    """
    repaired = {*recovered.findings} - {*recovered.left}
    with CommitLog.open(layout.commit_log) as log:
        found = [each for each in log.check_files().findings if each.kind in _STOPS and each not in repaired]
    folders = [layout.batch_queues, layout.queue_extensions]
    # A RocksDB has other files.
    folders += [] if (layout.queues / "CURRENT").exists() else [layout.queues]
    for folder in folders:
        for queue in (path for path in folder.glob("*/*") if path.name.isdecimal() and path.is_dir()):
            found += [_stray(path) for path in queue.iterdir() if not OFFSET_NAME.fullmatch(path.name) or path.is_dir()]
    if compat in (None, "4.9.3"):
        return found
    index = layout.index.iterdir() if layout.index.is_dir() else ()
    found = [each for each in found if not Path(each.path).is_dir()]
    return found + [_stray(path) for path in index if is_index_file_name(path.name) and not path.is_file()]


def _stray(path: Path) -> Finding:
    if path.is_dir():
        return Finding(str(path), 0, "not-a-file", "a file", "a directory")
    return Finding(str(path), 0, "file-name", "20 decimal digits", path.name)


def _file_size(log: CommitLog, end: int, wanted: int | None) -> int:
    """Return the size of a file of the log; raise an error if it is not the requested one, or if it cannot be determined."""
    size = log.file_size
    if len(log.files) == 1 and log.is_cut_short(end):
        if wanted is None:
            raise ValueError(f"{log.files[0]}: the only file of this log was cut short at {size} bytes; give file_size")
        if wanted >= size:
            return wanted
    if wanted not in (None, size):
        raise ValueError(f"file_size={wanted}: the files of this log have {size} bytes")
    return size


def _count_behind(log: CommitLog, end: int, findings: list[Finding], *, led_to: int = -1) -> int:
    """Return the number of messages after the end of the log that no broker truncated; see `valid_messages`."""
    messages = valid_messages(
        log, ("phy_offset",), end, None, salvage=True, on_damage=findings.append, queue_end=led_to
    )
    return sum(batch.num_rows for batch in messages)


def _would_be_lost(log: CommitLog, end: int, lost: int, doubtful: int, findings: list[Finding]) -> CorruptFileError:
    path, offset = log.place(end)
    why = next((finding for finding in findings if (finding.path, finding.offset) == (path, offset)), None)
    expected = f"{why.expected}, or the end of the log" if why else "the end of the log"
    found = f"{why.found}, and " if why else ""
    parts = []
    if lost:
        parts.append(f"{lost:,} valid messages" if lost > 1 else "one valid message")
    if doubtful:
        parts.append(f"{doubtful:,} that look as if a broker had truncated them, though queues lead to them,")
    kept = "a copy keeps them" if not doubtful else "a copy keeps the valid ones" if lost else "a copy leaves them out"
    return CorruptFileError(
        path, offset, expected, f"{found}{' and '.join(parts)} after it; truncate=True would remove them, {kept}"
    )


def _refuse_long_file(log: CommitLog, end: int) -> None:
    """Raise if the file at the end of the log is longer than the others."""
    path, _ = log.place(end)
    # The path of a finding is a text for users, which may differ from the file's bytes.
    file = next((each for each in log.files if each.name == PurePath(path).name), None)
    size = 0 if file is None else file.stat().st_size
    if size > log.file_size:
        raise CorruptFileError(path, log.file_size, f"{log.file_size} bytes, as most files here", f"{size} bytes")


def _inspect_index(
    layout: StoreLayout, log: CommitLog, options: StoreOptions, end: int, *, last_exit_ok: bool
) -> tuple[int | None, tuple[Path, ...], bool | None]:
    """Return `index_from`, `index_beyond` and `tags` of the plan."""
    if not layout.index.is_dir():
        return log.min_offset, (), None
    hash_slots, max_entries = options.hash_slots, options.max_entries
    if hash_slots is not None and max_entries is not None:
        IndexFiles(layout.index, hash_slots=hash_slots, max_entries=max_entries).check_geometry(for_puts=True)
    with IndexService.open(
        layout.index, hash_slots=hash_slots, max_entries=max_entries, last_exit_ok=last_exit_ok
    ) as index:
        files = index.files
        ends = {file.path: file.header.end_phy_offset for file in files if len(file)}
        beyond = tuple(path for path, last in ends.items() if last >= end)
        tags = index_holds_tags(log, files) if files else None
    if len(files) == len(beyond):
        return log.min_offset, beyond, tags
    if beyond or not last_exit_ok:
        return None, beyond, tags
    # Not from the end of the queues: if the index lost its newest file, it ends earlier, and a put would leave a hole. The last
    # indexed message is not indexed again.
    return max(log.min_offset, max(ends.values(), default=-1) + 1), beyond, tags
