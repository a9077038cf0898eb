"""Check of a partition and of a log directory: the segments, their indexes and the files next to them, against each other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from logdex import _core
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.files import MAX_OFFSET, OFFSET_INDEX, TIME_INDEX, Listing
from logdex.report import Finding, Report, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from logdex._core import LogSegment, PartitionLog
    from logdex.kafka.files import TopicPartition


def verify_log(
    log: PartitionLog, directory: Path, *, deep: bool, progress: Callable[[LogSegment], None] | None
) -> Report:
    """Check a partition, of which the segments are pinned; never raises for what it finds. See `Log.verify`."""
    findings: list[Finding] = []
    epochs: Sequence[tuple[int, int]] = []
    with content_findings(findings):
        epochs = checkpoint.read_leader_epochs(directory)
    reports = []
    end = None
    segments, listing = log.segments, Listing(*log.listing())
    for number, segment in enumerate(segments):
        files = listing.segments[segment.base_offset]
        reports.append(segment.verify(deep=deep))
        found, end = segment.verify_in_log(
            epochs,
            previous_end=end,
            closed=number + 1 < len(segments),
            offset_index=files.get(OFFSET_INDEX),
            time_index=files.get(TIME_INDEX),
        )
        findings += found
        if progress is not None:
            progress(segment)
    missing, compacted = log.missing(0, MAX_OFFSET)
    findings += [finding for *_, finding in missing]
    findings += _core.unlisted_transactions(segments, after_crash=log.after_crash)
    for path in listing.snapshots.values():
        # A broker may delete it after it was listed.
        with contextlib.suppress(FileNotFoundError):
            findings += _core.dump_file(path).findings
    findings += [Finding(str(p), 0, "orphan-index", "a .log file next to it", "none") for p in listing.orphans]
    findings += [Finding(str(p), 0, "file-name", "a file of a segment", p.name) for p in listing.strays]
    checked = {"snapshots": len(listing.snapshots), "segments": len(segments)}
    if compacted:
        checked["gaps between segments, left by compaction"] = compacted
    report = merge([*reports, Report(findings, checked)])
    return replace(report, findings=sorted(report.findings, key=lambda finding: (finding.path, finding.offset)))


def verify_checkpoints(log_dir: Path, log_ends: Mapping[TopicPartition, int]) -> Report:
    """Check the text files of a log directory, and that no log starts after its end: a broker would delete it when it starts."""
    findings: list[Finding] = []
    for name in checkpoint.LOG_DIR_FILES:
        offsets: dict[TopicPartition, int] = {}
        with content_findings(findings):
            offsets = checkpoint.read_offsets(log_dir, name)
        if name == checkpoint.LOG_START:
            for partition, end in log_ends.items():
                if offsets.get(partition, 0) > end:
                    what = f"a start of {partition} of at most {end}, where its log ends"
                    findings.append(Finding(str(log_dir / name), 0, "file-content", what, str(offsets[partition])))
    return Report(findings, {})


@contextlib.contextmanager
def content_findings(findings: list[Finding]) -> Iterator[None]:
    """Add a finding if a small file cannot be decoded in the block."""
    try:
        yield
    except CorruptFileError as error:
        findings.append(Finding(error.path, error.offset, "file-content", error.expected, error.found))
