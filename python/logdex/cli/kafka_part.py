"""Parts of a Kafka log directory that stand beside the segments: their indexes, checkpoints, properties; and our key index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from logdex.cli.kafka_dump import Dump, is_known
from logdex.cli.sources import Listing, Part
from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.kafka import OffsetIndex, TimeIndex, checkpoint
from logdex.kafka.check import content_finding
from logdex.kafka.file_name import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_segment_file
from logdex.kafka.key_settings import KeySettings
from logdex.report import Report, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_PROPERTIES = {"meta.properties": "properties of a broker", "partition.metadata": "properties of a partition"}
_OFFSETS = {
    checkpoint.LOG_START: "checkpoint: log start offsets",
    checkpoint.RECOVERY_POINT: "checkpoint: recovery points",
    checkpoint.HIGH_WATERMARK: "checkpoint: high watermarks",
    checkpoint.CLEANER: "checkpoint: offsets up to which logs were compacted",
}
_NAMES = {
    **_PROPERTIES,
    **_OFFSETS,
    checkpoint.LEADER_EPOCHS: "checkpoint: leader epochs",
    checkpoint.CLEAN_SHUTDOWN: "mark of a clean stop",
}
_MOST_BYTES = 1 << 20
"""A file of properties is no longer."""


def recognise(path: Path, **options: Any) -> Part | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Tell what a part of a log directory is by its name; None for anything else."""
    if path.is_dir():
        return _key_index(path)
    if not path.is_file():
        return None
    parsed = parse_segment_file(path.name)
    return _beside(path) if parsed is None else _of_segment(path, *parsed)


def _beside(path: Path) -> Part | None:
    if is_known(path):
        return Part(path, "Kafka snapshot of KRaft's metadata", lambda: (_counted(path), []), lambda: _check(path))
    told: dict[str, Callable[[], tuple[dict[str, Any], list[Listing]]] | None] = {
        **dict.fromkeys(_PROPERTIES, lambda: (_properties(path), [])),
        **dict.fromkeys(_OFFSETS, lambda: _offsets(path)),
        checkpoint.LEADER_EPOCHS: lambda: _epochs(path),
        checkpoint.CLEAN_SHUTDOWN: None,
    }
    if path.name not in _NAMES:
        return None
    tell = told[path.name]
    check = partial(_content, tell) if tell is not None and path.name not in _PROPERTIES else None
    return Part(path, f"Kafka {_NAMES[path.name]}", tell, check)


def _content(tell: Callable[[], object]) -> Report:
    """Check a file by reading it."""
    try:
        tell()
    except CorruptFileError as error:
        return Report([content_finding(error)], {"files": 1})
    return Report([], {"files": 1})


def _of_segment(path: Path, offset: int, suffix: str) -> Part | None:
    kinds: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
        OFFSET_INDEX: ("Kafka offset index", _offset_index),
        TIME_INDEX: ("Kafka time index", _time_index),
        TXN_INDEX: ("Kafka index of aborted transactions", _counted),
        SNAPSHOT: ("Kafka snapshot of producers", _counted),
    }
    if suffix == LOG:
        return None
    kind, facts = kinds[suffix]
    name = "offset" if suffix == SNAPSHOT else "base_offset"

    def tell() -> tuple[dict[str, Any], list[Listing]]:
        return {name: offset, "file_bytes": path.stat().st_size, **facts(path)}, []

    return Part(path, kind, tell, lambda: _check(path))


def _offset_index(path: Path) -> dict[str, Any]:
    with OffsetIndex.open(path) as index:
        return _sparse_index(index, "last_offset", "last_position")


def _time_index(path: Path) -> dict[str, Any]:
    with TimeIndex.open(path) as index:
        return _sparse_index(index, "largest_timestamp", "last_offset")


def _sparse_index(index: OffsetIndex | TimeIndex, *names: str) -> dict[str, Any]:
    """Count the entries and give the fields of the last one these names."""
    last = index.entry(len(index) - 1) if len(index) else (None, None)
    return {"entries": len(index), "max_entries": index.max_entries, **dict(zip(names, last, strict=True))}


def _counted(path: Path) -> dict[str, Any]:
    dump = Dump(json=True)
    entries = sum(1 for _ in dump.file(path))
    return {"entries": entries, "faults": len(dump.findings) or None}


def _check(path: Path) -> Report:
    """Check a file against the log beside it, as a dump does."""
    dump = Dump(json=True)
    entries = sum(1 for _ in dump.file(path))
    return Report(dump.findings, {"files": 1, "entries": entries})


def _offsets(path: Path) -> tuple[dict[str, Any], list[Listing]]:
    offsets = sorted(checkpoint.read_offsets(path.parent, path.name).items())
    rows: list[Sequence[Any]] = [(of.topic, of.partition, offset) for of, offset in offsets]
    return {"topics": len({row[0] for row in rows})}, [Listing("partitions", ("topic", "partition", "offset"), rows)]


def _epochs(path: Path) -> tuple[dict[str, Any], list[Listing]]:
    rows = checkpoint.read_leader_epochs(path.parent)
    return {"entries": len(rows)}, [Listing("leader epochs", ("epoch", "begin_offset"), [*rows])]


def _properties(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace")
    pairs = (line.partition("=" if "=" in line else ":") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _key_index(path: Path) -> Part | None:
    """Tell the directory that `logdex kafka build-index` wrote."""
    parts = [place for place in sorted(path.iterdir()) if place.is_dir() and KeySettings.read(place) is not None]
    if not parts:
        return None

    def tell() -> tuple[dict[str, Any], list[Listing]]:
        rows: list[Sequence[Any]] = []
        for place in parts:
            with IndexDirectory.open(place) as index:
                rows.append((place.name, len(index.files), sum(map(len, index.files))))
        facts = {"entries": sum(row[2] for row in rows)}
        return facts, [Listing("partitions", ("name", "files", "entries"), rows)]

    def check() -> Report:
        reports = []
        for place in parts:
            with IndexDirectory.open(place) as index:
                reports.append(index.verify())
        return merge(reports)

    return Part(path, "Kafka key index", tell, check)
