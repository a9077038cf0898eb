"""Checks a whole partition: its segments, and what they, their indexes and the files beside them say about each other."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from logdex import _core
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.aborted import unlisted
from logdex.kafka.file_name import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from logdex.kafka.time_search import timestamps
from logdex.report import Finding, Report, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from logdex.kafka.file_name import TopicPartition
    from logdex.kafka.segment import LogSegment
    from logdex.kafka.segments import Segments

_LEADER_EPOCH_AT = 12
_ENTRY_BYTES = {OFFSET_INDEX: 8, TIME_INDEX: 12}
_HEADER = ("position", "baseOffset", "lastOffset", "maxTimestamp", "partitionLeaderEpoch")


def verify_log(
    segments: Segments, directory: Path, *, deep: bool, progress: Callable[[LogSegment], None] | None
) -> Report:
    """Check a partition; never raises for what it finds. See `Log.verify`."""
    epochs, findings = _leader_epochs(directory)
    reports = []
    end = None
    for number, segment in enumerate(segments.segments):
        found = segment.verify(deep=deep)
        reports.append(found)
        findings += _missing_indexes(segments, number)
        if number + 1 < len(segments.segments):
            findings += _untrimmed(segments, number)
        beside, end = _headers(segments, number, epochs, end)
        findings += beside
        if progress is not None:
            progress(segment)
    findings += _unlisted_transactions(segments)
    for path in segments.listing.snapshots.values():
        findings += _snapshot(path)
    findings += [Finding(str(p), 0, "orphan-index", "a .log file beside it", "none") for p in segments.listing.orphans]
    findings += [Finding(str(p), 0, "file-name", "a file of a segment", p.name) for p in segments.listing.strays]
    checked = {"snapshots": len(segments.listing.snapshots), "segments": len(segments.segments)}
    report = merge([*reports, Report(findings, checked)])
    return replace(report, findings=sorted(report.findings, key=lambda finding: (finding.path, finding.offset)))


def verify_checkpoints(log_dir: Path, log_ends: Mapping[TopicPartition, int]) -> Report:
    """Check the text files of a log directory, and that no log begins behind its end: a broker would delete it when it starts.

    Args:
        log_dir: The log directory.
        log_ends: The offset after the last whole batch of each partition in it.
    """
    findings = []
    for name in checkpoint.LOG_DIR_FILES:
        try:
            offsets = checkpoint.read_offsets(log_dir, name)
        except CorruptFileError as error:
            findings.append(content_finding(error))
            continue
        if name == checkpoint.LOG_START:
            for partition, end in log_ends.items():
                if partition in offsets and offsets[partition] > end:
                    what = f"a start of {partition} of at most {end}, where its log ends"
                    findings.append(Finding(str(log_dir / name), 0, "file-content", what, str(offsets[partition])))
    return Report(findings, {})


def _leader_epochs(directory: Path) -> tuple[list[tuple[int, int]], list[Finding]]:
    try:
        return checkpoint.read_leader_epochs(directory), []
    except CorruptFileError as error:
        return [], [content_finding(error)]


def content_finding(error: CorruptFileError) -> Finding:
    """Say of a small file what the error says that reading it ended with."""
    return Finding(error.path, error.offset, "file-content", error.expected, error.found)


def _missing_indexes(segments: Segments, number: int) -> Iterator[Finding]:
    segment = segments.segments[number]
    if not segment.size:
        return
    for suffix, what in ((OFFSET_INDEX, "an offset index"), (TIME_INDEX, "a time index")):
        # A broker rebuilds a segment without .index when it starts; one without .timeindex gets an empty one.
        if segments.file(number, suffix) is None:
            yield Finding(str(segment.path.with_suffix(suffix)), 0, "file-missing", what, "none")


def _unlisted_transactions(segments: Segments) -> Iterator[Finding]:
    """Name what a lost or shortened file of aborted transactions hides, once a file."""
    named = set()
    for number, transaction in unlisted(segments):
        path = segments.segments[number].path.with_suffix(TXN_INDEX)
        if path in named:
            continue
        named.add(path)
        what = f"the transaction of producer {transaction.producer_id} that was aborted at offset {transaction.last_offset}"
        if path.exists():
            yield Finding(str(path), path.stat().st_size, "index-entry", what, "no entry")
        else:
            yield Finding(str(path), 0, "file-missing", f"an index with {what}", "none")


def _untrimmed(segments: Segments, number: int) -> Iterator[Finding]:
    """Name what only the last segment's indexes may have: slots that are not used."""
    for suffix, entry_bytes in _ENTRY_BYTES.items():
        path = segments.file(number, suffix)
        if path is None:
            continue
        whole = path.stat().st_size // entry_bytes
        # One slot of zeros is an entry of the time index: timestamp 0 at the first offset.
        if whole < (2 if suffix == TIME_INDEX else 1):
            continue
        with path.open("rb") as file:
            file.seek((whole - 1) * entry_bytes)
            if file.read(entry_bytes).strip(b"\0"):
                continue
        at = (whole - 1) * entry_bytes
        yield Finding(
            str(path), at, "index-tail", "an index cut to its entries, as of any but the last segment", "zeros"
        )


def _headers(
    segments: Segments, number: int, epochs: list[tuple[int, int]], end: int | None
) -> tuple[list[Finding], int | None]:
    """Compare the headers of a segment's batches with the segment before, the leader epochs and the time index.

    Args:
        segments: The log.
        number: Which segment.
        epochs: Leader epochs as (epoch, first offset).
        end: The offset after the segment before; None without one.

    Returns:
        The findings, and the offset after this segment.
    """
    segment = segments.segments[number]
    findings: list[Finding] = []
    path = str(segment.path)
    if end is not None and segment.base_offset < end:
        what = f"a base offset of {end} or more, where the segment before ends"
        findings.append(Finding(path, 0, "segment-overlap", what, str(segment.base_offset)))
    largest = -1
    starts = [start for _, start in epochs]
    for batch in segment.batches(columns=_HEADER, check_crc=False, on_error="stop"):
        position, base, last, epoch = (batch.column(name).to_pylist() for name in _HEADER if name != "maxTimestamp")
        for at, first, final, time, led in zip(
            position, base, last, timestamps(batch.column("maxTimestamp")), epoch, strict=True
        ):
            largest = max(largest, -1 if time is None else time)
            end = max(final + 1, 0 if end is None else end)
            known = bisect_right(starts, final) - 1
            # Old messages have no epoch; what comes before the first line of the file was led by nobody we know.
            if led is None or led < 0 or first is None or known < 0 or led == epochs[known][0]:
                continue
            what = f"{epochs[known][0]}, which leads from offset {epochs[known][1]} on"
            findings.append(Finding(path, at + _LEADER_EPOCH_AT, "leader-epoch", what, str(led)))
    if number + 1 < len(segments.segments):
        findings += _time_index_end(segments, number, largest)
    return findings, segments.segments[number].base_offset if end is None else end


def _time_index_end(segments: Segments, number: int, largest: int) -> Iterator[Finding]:
    """Compare the last entry of a closed segment's time index with the largest timestamp of its batches."""
    path = segments.file(number, TIME_INDEX)
    if path is None or largest < 0:
        return
    base_offset = segments.segments[number].base_offset
    try:
        with _core.TimeIndex.open(path, check="trust", base_offset=base_offset) as index:
            last, entries = index.last_entry[0], len(index)
    except (CorruptFileError, OSError):
        return
    if last != largest:
        found = str(last) if entries else "no entry"
        at = max(0, entries - 1) * _ENTRY_BYTES[TIME_INDEX]
        yield Finding(str(path), at, "time-index-end", f"the segment's largest timestamp, {largest}", found)


def _snapshot(path: Path) -> Iterator[Finding]:
    try:
        _core.read_producer_snapshot(path)
    except CorruptFileError as error:
        yield content_finding(error)
    except FileNotFoundError:
        pass  # deleted since it was listed
