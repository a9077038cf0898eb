"""Repair of a broker's log directory in place, without the losses of a broker's own recovery."""

from __future__ import annotations

import errno
import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import PurePath
from typing import TYPE_CHECKING

from logdex._core import (
    LogWriter,
    StoreLock,
    broker_lock_holder,
    checkpoint_text,
    is_log_dir,
    list_partition,
    local_path,
    read_file,
    repair_log,
    replace_file,
    sync_directory,
    topic_ids,
)
from logdex.errors import CorruptFileError, LockedError
from logdex.kafka import checkpoint
from logdex.kafka.files import (
    LOG,
    META_PROPERTIES,
    METADATA_TOPIC,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    Listing,
    TopicPartition,
    parse_partition_directory,
    renamed_partition,
)
from logdex.kafka.log import Log
from logdex.kafka.verify import content_findings, verify_checkpoints
from logdex.kafka.writer import LOCK, partition_dirs, read_broker_epoch
from logdex.report import Finding, Report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from pathlib import Path

    from logdex._types import Progress

_METADATA = "partition.metadata"
_READ_AT_START = {checkpoint.LEADER_EPOCHS, checkpoint.LOG_START, checkpoint.RECOVERY_POINT, checkpoint.HIGH_WATERMARK}
"""Files that a broker must be able to read when it starts."""
_OTHER_DIRECTORIES = frozenset({"remote-log-index-cache"})
_TOPIC_ID = re.compile(r"version: 0\ntopic_id: ([a-zA-Z0-9_-]{22})\s*")
_LINE = re.compile(r"([^ \n]+) ([0-9]{1,10}) ([0-9]{1,18})\n")
_COUNTS = (
    "partitions",
    "segments",
    "replaced_segments",
    "batches",
    "records",
    "restored_batches",
    "truncated_batches",
    "left_out_bytes",
    "unfinished_bytes",
)
_OVERLAP = "segment-overlap"
_GAP = "file-gap"
_FINAL_KINDS = frozenset({_GAP, "file-name", _OVERLAP})
"""Kinds of findings in a partition that are left: files of other names, a segment that is gone without one before it."""


@dataclass(frozen=True, slots=True, repr=False)
class LogDirRecovery(Report):
    """Damage of a log directory and the changes that repaired it.

    Attributes:
        left: Findings that are not repaired, each with what to do.
    """

    left: list[Finding] = field(default_factory=list)


def recover(
    log_dir: str | PathLike[str],
    *,
    dry_run: bool = False,
    truncate: bool = False,
    progress: Progress | None = None,
) -> LogDirRecovery:
    """Repair a log directory, so that a broker starts with it and serves every valid record.

    Damaged batches are left out of new segments; all others stay at their offsets. A size, magic, base offset or leader epoch
    that no checksum covers is restored from the batches around it. A segment that was replaced stays as `<name>.log.damaged`.
    Checkpoints that a broker cannot read are written anew, indexes and snapshots are rebuilt, and the directory is left as after
    a clean stop. An end that was being written when the broker stopped is cut. A lost topic id comes from another partition of
    the topic, or from the cluster's metadata (`__cluster_metadata-0`), which are only checked.

    Args:
        log_dir: The directory (log.dirs), on this machine; its broker must be stopped.
        dry_run: Change nothing, and report what would be repaired.
        truncate: End each log at its first damage, as a broker does after a crash. The valid batches after it are removed.
        progress: Called with the bytes of `.log` files that were checked, and all of them.

    Returns:
        A report of what was damaged, with counts of what stays and what was restored or left out.

    Raises:
        LockedError: A running broker or another writer holds the directory; it has the process id.
        FileNotFoundError: This is no log directory.
        OSError: An I/O error. A later call finishes the repair.
    """
    directory = local_path(log_dir)
    if not is_log_dir(directory):
        raise FileNotFoundError(errno.ENOENT, "expected a log directory with partitions", str(directory))
    with ExitStack() as stack:
        if not dry_run:
            stack.callback(StoreLock.take(directory / LOCK).release)
        elif (holder := broker_lock_holder(directory / LOCK)) is not None:
            raise LockedError(str(directory / LOCK), holder)
        plan = _Plan(directory, progress, truncate=truncate)
        if not dry_run and (plan.repairs or not plan.clean):
            plan.apply()
    return plan.report()


@dataclass(slots=True)
class _Repair:
    """The repair of a partition.

    Attributes:
        rebuild: Indexes and snapshots are rebuilt from the first segment on.
        changed: Base offsets of the segments that change.
        gaps: Offsets at which segments are missing.
        epochs: The leader epochs that stay; None: they are rebuilt.
        metadata: The content of `partition.metadata` that is written; empty: the file is removed. None: it stays.
    """

    rebuild: bool = False
    changed: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    epochs: list[checkpoint.LeaderEpoch] | None = None
    metadata: str | None = None


class _Plan:
    """The damage of a log directory and its repair; nothing is changed before `apply`."""

    def __init__(self, directory: Path, progress: Progress | None, *, truncate: bool) -> None:
        self._directory = directory
        self._truncate = truncate
        self._progress = progress
        self._done = 0
        self._found: list[Finding] = []
        self._left: list[Finding] = []
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._repairs: dict[TopicPartition, _Repair] = {}
        self.clean = (directory / checkpoint.CLEAN_SHUTDOWN).exists()
        self._check_names()
        self._lines = {name: self._read_lines(name) for name in checkpoint.LOG_DIR_FILES}
        places = sorted(partition_dirs(directory))
        sizes = (path.stat().st_size for place in places for path in (directory / str(place)).glob(f"*{LOG}"))
        self._size = sum(sizes)
        self._topic_ids = self._read_topic_ids(places)
        self._metadata = directory / f"{METADATA_TOPIC}-0"
        if self._metadata.is_dir():
            self._left += _verified(self._metadata)
        ends = {place: self._check(place) for place in places}
        for finding in verify_checkpoints(directory, ends).findings:
            if finding.path.endswith(checkpoint.LOG_START) and finding not in self._found:
                self._found.append(finding)
        for place, end in ends.items():
            if self._lines[checkpoint.LOG_START].get(place, 0) > end:
                del self._lines[checkpoint.LOG_START][place]

    @property
    def repairs(self) -> bool:
        """True if there is something to repair."""
        return bool(self._found) or any(repair.metadata is not None for repair in self._repairs.values())

    def report(self) -> LogDirRecovery:
        findings = sorted([*self._found, *self._left], key=lambda each: (each.path, each.offset))
        return LogDirRecovery(findings, self._counts, left=self._left)

    def _check_names(self) -> None:
        self._left += _other_directories(self._directory)
        path = self._directory / META_PROPERTIES
        if path.exists():
            names = {line.partition("=")[0] for line in path.read_text(errors="replace").splitlines()}
            if missing := {"version", "cluster.id", "node.id"} - names:
                what = "cluster.id and node.id of this broker: write them as in its other log directories"
                self._left.append(Finding(str(path), 0, "file-content", what, f"no {min(missing)}"))

    def _read_lines(self, name: str) -> dict[TopicPartition, int]:
        """Read a checkpoint; of a damaged one the lines that are whole."""
        try:
            return checkpoint.read_offsets(self._directory, name)
        except CorruptFileError as error:
            self._found.append(Finding(error.path, error.offset, "file-content", error.expected, error.found))
        path = self._directory / name
        text = path.read_text(errors="replace") if path.is_file() else ""
        return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in _LINE.findall(text)}

    def _read_topic_ids(self, places: list[TopicPartition]) -> dict[str, set[str]]:
        ids: dict[str, set[str]] = {}
        for place in places:
            found = _topic_id(self._directory / str(place) / _METADATA)
            ids.setdefault(place.topic, set()).update([found] if found else [])
        return ids

    def _check(self, place: TopicPartition) -> int:
        """Plan the repair of a partition, and return where its log will end."""
        directory = self._directory / str(place)
        repair = _Repair()
        verified = _verified(directory)
        with content_findings([]):
            repair.epochs = checkpoint.read_leader_epochs(directory)
        first = min(Listing(*list_partition(directory)).segments, default=0)
        filled = [each for each in verified if each.kind == _GAP and not self._truncate and _is_gone(each, first)]
        repair.gaps = [int(PurePath(each.path).stem) for each in filled]
        done, show = self._done, self._progress
        counts, found, end, repair.changed = repair_log(
            directory,
            epochs=list(repair.epochs or ()),
            gaps=repair.gaps,
            truncate=self._truncate,
            dry_run=True,
            progress=None if show is None else lambda read: show(min(done + read, self._size), self._size),
        )
        self._done += sum(path.stat().st_size for path in directory.glob(f"*{LOG}"))
        self._left += [each for each in found if each.kind == _OVERLAP]
        found = [*(each for each in found if each.kind != _OVERLAP), *filled]
        places, repaired = {(each.path, each.offset) for each in found}, {each.path for each in found}
        for each in verified:
            is_log = each.path.endswith(LOG)
            if each.kind == "leader-epoch" and (each.path, each.offset) not in places:
                repair.epochs = None
                found.append(each)
            elif not is_log and each.kind not in _FINAL_KINDS:
                found.append(each)
            elif (
                each.kind != _OVERLAP
                and each not in filled
                and (each.kind in _FINAL_KINDS or each.path not in repaired)
            ):
                self._left.append(each)
        repair.rebuild = bool(found)
        self._found += found
        self._check_topic_id(place, repair)
        self._repairs[place] = repair
        self._counts["partitions"] += 1
        self._counts["segments"] += len(Listing(*list_partition(directory)).segments)
        self._counts["replaced_segments"] += len(repair.changed)
        for name, count in counts.items():
            self._counts[name] += count
        return end

    @cached_property
    def _ids_of_cluster(self) -> dict[str, str]:
        return topic_ids(self._metadata)

    def _check_topic_id(self, place: TopicPartition, repair: _Repair) -> None:
        path = self._directory / str(place) / _METADATA
        if _topic_id(path):
            return
        found = repr(path.read_text(errors="replace")[:60]) if path.exists() else "none"
        kind = "file-content" if path.exists() else "file-missing"
        ids = self._topic_ids[place.topic]
        topic_id = min(ids) if len(ids) == 1 else self._ids_of_cluster.get(place.topic)
        if topic_id is not None:
            repair.metadata = f"version: 0\ntopic_id: {topic_id}"
            self._found.append(Finding(str(path), 0, kind, "version 0 and the id of the topic", found))
            return
        what = (
            "version 0 and the id of the topic: write the one that `kafka-topics.sh --describe` shows; without it a broker sets "
            "the partition aside as a stray one"
        )
        self._left.append(Finding(str(path), 0, kind, what, found))
        if path.exists():
            # A broker does not start with it.
            repair.metadata = ""

    def apply(self) -> None:
        """Repair. If this is killed, the marker of a clean stop is missing, so the next call or start goes on."""
        marker = self._directory / checkpoint.CLEAN_SHUTDOWN
        epoch = read_broker_epoch(marker) if self.clean else -1
        marker.unlink(missing_ok=True)
        points = self._lines[checkpoint.RECOVERY_POINT]
        for place, repair in self._repairs.items():
            if repair.rebuild:
                points.pop(place, None)
        self._write_lines()
        for place, repair in self._repairs.items():
            if not self.clean or repair.rebuild or repair.metadata is not None:
                self._repair(place, repair)
        self._write_lines()
        replace_file(marker, json.dumps({"version": 0, "brokerEpoch": epoch}, separators=(",", ":")).encode())
        sync_directory(self._directory)

    def _write_lines(self) -> None:
        for name, lines in self._lines.items():
            if lines or (self._directory / name).exists():
                rows = [(place.topic, place.partition, offset) for place, offset in sorted(lines.items())]
                replace_file(self._directory / name, checkpoint_text(rows).encode())
        sync_directory(self._directory)

    def _repair(self, place: TopicPartition, repair: _Repair) -> None:
        directory = self._directory / str(place)
        if repair.metadata:
            replace_file(directory / _METADATA, repair.metadata.encode())
        elif repair.metadata is not None:
            (directory / _METADATA).unlink()
        if repair.changed:
            repair_log(
                directory,
                epochs=list(repair.epochs or ()),
                gaps=repair.gaps,
                truncate=self._truncate,
                dry_run=False,
            )
        if repair.rebuild:
            _reset(directory, min(repair.changed, default=None))
            if repair.epochs is None:
                replace_file(directory / checkpoint.LEADER_EPOCHS, b"")
        points, starts = (self._lines[name] for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START))
        writer = LogWriter.open(
            directory,
            clean=False,
            truncate=False,
            recovery_point=points.get(place, 0),
            log_start_offset=starts.get(place, 0),
        )
        writer.run_due_tasks()
        writer.close()
        points[place] = writer.recovery_point
        marks = self._lines[checkpoint.HIGH_WATERMARK]
        if place in marks:
            marks[place] = min(marks[place], writer.end_offset)


def _verified(partition_dir: Path) -> list[Finding]:
    with Log.open(partition_dir) as log:
        return log.verify(deep=False).findings


def find_start_blockers(log_dir: Path, findings: Iterable[Finding]) -> list[Finding]:
    """Return what keeps a broker from starting with a log directory: some of the findings of `verify`, and odd entries.

    Source: LogManager#loadLogs, CheckpointFile#read, PartitionMetadataFile#read.
    """
    is_clean = (log_dir / checkpoint.CLEAN_SHUTDOWN).exists()
    stops = [
        each
        for each in findings
        if (each.kind == "file-content" and PurePath(each.path).name in _READ_AT_START)
        or (each.kind == "zero-tail" and is_clean)
    ]
    for entry in sorted(log_dir.iterdir(), key=attrgetter("name")):
        path = entry / _METADATA
        if parse_partition_directory(entry.name) and path.exists() and _topic_id(path) is None:
            found = repr(read_file(path).decode(errors="replace")[:60])
            stops.append(Finding(str(path), 0, "file-content", "version 0 and the id of the topic", found))
    return [*stops, *_other_directories(log_dir)]


def _other_directories(log_dir: Path) -> list[Finding]:
    """Return the directories that are no partition's."""
    what = "a directory <topic>-<partition>: move it out of the log directory, a broker does not start with it"
    return [
        Finding(str(entry), 0, "file-name", what, entry.name)
        for entry in sorted(log_dir.iterdir(), key=attrgetter("name"))
        if entry.is_dir()
        and not (parse_partition_directory(entry.name) or renamed_partition(entry.name))
        and entry.name not in _OTHER_DIRECTORIES
    ]


def _is_gone(finding: Finding, first: int) -> bool:
    """Return whether the offsets of a missing segment are in no other file, and follow a segment."""
    return int(PurePath(finding.path).stem) >= first and not finding.found.endswith("which is not read")


def _topic_id(path: Path) -> str | None:
    """Return the topic id of `partition.metadata`; None without a valid one."""
    match = _TOPIC_ID.fullmatch(read_file(path).decode(errors="replace")) if path.is_file() else None
    return None if match is None else match[1]


def _reset(directory: Path, first_change: int | None) -> None:
    """Empty the indexes of all segments, and remove the snapshots that a change of the log makes wrong."""
    listing = Listing(*list_partition(directory))
    for files in listing.segments.values():
        log = files[LOG]
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            log.with_suffix(suffix).write_bytes(b"")
        log.with_suffix(TXN_INDEX).unlink(missing_ok=True)
    for offset, snapshot in listing.snapshots.items():
        if first_change is not None and offset > first_change:
            snapshot.unlink()
