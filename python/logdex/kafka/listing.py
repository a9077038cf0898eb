"""Which files of a partition directory make its log, whatever stop left them there.

A broker tidies up when it starts; this module decides the same without touching anything. Source: LogLoader#load.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logdex.kafka.file_name import LEFTOVERS, LOG, SNAPSHOT, is_metadata_snapshot, parse_segment_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DELETED, _CLEANED, _SWAP = LEFTOVERS


@dataclass(slots=True)
class Listing:
    """The files of a partition.

    Attributes:
        segments: The files of each segment by base offset, in the order of these: suffix to path; every one has a `.log`.
        snapshots: Producer snapshots by offset, in the order of these.
        orphans: Index files whose `.log` is not there. A broker deletes them.
        leftovers: Files that wait for deletion or belong to a compaction that did not end.
        strays: Other files; the text files beside the segments are none.
    """

    segments: dict[int, dict[str, Path]] = field(default_factory=dict)
    snapshots: dict[int, Path] = field(default_factory=dict)
    orphans: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    strays: list[Path] = field(default_factory=list)


_TEXT_FILES = {
    f"{name}{ending}"
    for name in ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")
    for ending in ("", ".tmp")
}


def list_partition(directory: Path, next_offset: Callable[[Path], int]) -> Listing:
    """List the files of a partition.

    Args:
        directory: The partition's directory.
        next_offset: Gives the offset after the last batch of a `.log` file. It is asked for only where a swap was cut short.

    Raises:
        OSError: The directory cannot be read.
    """
    found = Listing()
    files: dict[int, dict[str, Path]] = {}
    swaps: dict[int, dict[str, Path]] = {}
    cleaned: list[int] = []
    for path in sorted(directory.iterdir()):
        name, leftover = _split_leftover(path.name)
        parsed = parse_segment_file(name)
        if parsed is None:
            if path.name not in _TEXT_FILES and not is_metadata_snapshot(path.name):
                found.strays.append(path)
            continue
        offset, suffix = parsed
        if leftover is None and suffix == SNAPSHOT:
            found.snapshots[offset] = path
        elif leftover is None:
            files.setdefault(offset, {})[suffix] = path
        elif leftover == _SWAP:
            swaps.setdefault(offset, {})[suffix] = path
        else:
            found.leftovers.append(path)
            if leftover == _CLEANED:
                cleaned.append(offset)
    _swap_in(found, files, swaps, min(cleaned, default=None), next_offset)
    for offset, parts in sorted(files.items()):
        if LOG in parts:
            found.segments[offset] = parts
        else:
            found.orphans += parts.values()
    return found


def _swap_in(
    found: Listing,
    files: dict[int, dict[str, Path]],
    swaps: dict[int, dict[str, Path]],
    first_cleaned: int | None,
    next_offset: Callable[[Path], int],
) -> None:
    """Let finished segments take the place of those that they were made from."""
    # A split was not finished where there are cleaned files still: its swapped ones are void.
    void = [offset for offset in swaps if first_cleaned is not None and offset >= first_cleaned]
    for offset in void:
        found.leftovers += swaps.pop(offset).values()
    logs = {offset: parts[LOG] for offset, parts in swaps.items() if LOG in parts}
    if logs:
        first = min(logs)
        end = max(next_offset(path) for path in logs.values())
        for offset in [offset for offset in files if first <= offset < end and LOG in files[offset]]:
            found.leftovers += files.pop(offset).values()
    for offset, parts in swaps.items():
        # A file without the ending was renamed already, so what is left are its indexes.
        files[offset] = {**files.get(offset, {}), **parts}


def _split_leftover(name: str) -> tuple[str, str | None]:
    for ending in LEFTOVERS:
        if name.endswith(ending):
            return name.removesuffix(ending), ending
    return name, None
