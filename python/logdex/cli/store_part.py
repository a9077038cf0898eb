"""Parts of a RocketMQ store that stand beside log and index: queues, checkpoint, marks, tables; and one file of a log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from logdex.cli.part import Part
from logdex.cli.source import Listing
from logdex.report import Report, merge
from logdex.rocketmq import CommitLog, ConsumeQueue, MessageStore, StoreCheckpoint
from logdex.rocketmq.layout import OFFSET_NAME
from logdex.rocketmq.overview import checkpoint_times, first_time
from logdex.rocketmq.queue_set import UNIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_QUEUES = ("consumequeue", "batchconsumequeue")
_EXTENSIONS = "consumequeue_ext"
_TABLES = "config"
_MARKS = {
    "abort": "mark of a broker that runs or did not stop cleanly",
    "lock": "lock file of a broker, running or not",
    "timerwheel": "timer wheel, which logdex does not read",
}


def recognise(path: Path, **options: Any) -> Part | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Tell what a part of a store is by its name and its place; None for anything else."""
    place = path.absolute()
    if path.is_dir():
        return _of_queue(path) if _is_queue(place) else _of_queues(path)
    if not path.is_file():
        return None
    if OFFSET_NAME.fullmatch(path.name):
        return _numbered(path)
    if place.parent.name == _TABLES and ".json" in path.suffixes:
        return Part(path, "RocketMQ table of a broker, as JSON")
    if path.name == "checkpoint":
        return Part(path, "RocketMQ store checkpoint", lambda: (_checkpoint(path), []))
    return Part(path, f"RocketMQ {_MARKS[path.name]}") if path.name in _MARKS else None


def _of_queue(path: Path) -> Part:
    if path.absolute().parent.parent.name == _EXTENSIONS:
        return Part(path, "RocketMQ queue extension", lambda: _extensions([path]))
    return Part(path, "RocketMQ queue", lambda: (_queue(path), []), lambda: _check_queues([path]))


def _of_queues(path: Path) -> Part | None:
    """Tell `consumequeue` and the like, one topic below it, or `config`."""
    place = path.absolute()
    if place.name == _TABLES and any(path.glob("*.json")):
        return Part(path, "RocketMQ tables of a broker, as JSON")
    for root, pattern in ((place.name, "*/*"), (place.parent.name, "*")):
        if root == _EXTENSIONS:
            return Part(path, "RocketMQ queue extensions", partial(_extensions, _below(path, pattern)))
        if root in _QUEUES:
            queues = _below(path, pattern)
            return Part(path, "RocketMQ queues", partial(_queues, queues), partial(_check_queues, queues))
    return None


def _below(path: Path, pattern: str) -> list[Path]:
    return sorted(filter(_is_queue, path.glob(pattern)))


def _numbered(path: Path) -> Part | None:
    folder = path.absolute().parent
    if folder.parent.parent.name == _EXTENSIONS:
        return Part(path, "RocketMQ file of a queue extension")
    if _is_queue(folder):
        return Part(path, "RocketMQ file of a queue", lambda: (_queue_file(path, folder), []))
    if MessageStore.lies_at(folder):
        return Part(path, "RocketMQ file of a commit log", lambda: (_log_file(path, folder), []))
    return None


def _is_queue(directory: Path) -> bool:
    """Say whether a directory is a queue's: its number, with files named by 20 digits."""
    return (
        directory.is_dir()
        and directory.name.isdecimal()
        and any(OFFSET_NAME.fullmatch(file.name) for file in directory.iterdir())
    )


def _queue(path: Path) -> dict[str, Any]:
    with ConsumeQueue.open(path) as queue:
        return {
            "topic": path.absolute().parent.name,
            "queue": int(path.absolute().name),
            "unit": queue.kind,
            "files": len(queue.files),
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
            "first_phy_offset": _phy_offset(queue, queue.min_offset),
            "last_phy_offset": _phy_offset(queue, queue.max_offset - 1),
        }


def _phy_offset(queue: ConsumeQueue, offset: int) -> int | None:
    units = queue.units(offset, offset + 1) if queue.min_offset <= offset < queue.max_offset else None
    return units.column("phy_offset")[0].as_py() if units is not None and units.num_rows else None


def _queues(queues: Sequence[Path]) -> tuple[dict[str, Any], list[Listing]]:
    rows: list[Sequence[Any]] = []
    for place in queues:
        with ConsumeQueue.open(place) as queue:
            rows.append((place.absolute().parent.name, int(place.name), queue.min_offset, queue.max_offset))
    listing = Listing("queues", ("topic", "queue", "min_offset", "max_offset"), rows)
    return {"topics": len({row[0] for row in rows})}, [listing]


def _check_queues(queues: Sequence[Path]) -> Report:
    reports = [Report([], {"queues": len(queues)})]
    for place in queues:
        with ConsumeQueue.open(place) as queue:
            reports.append(queue.check_files())
    return merge(reports)


def _extensions(queues: Sequence[Path]) -> tuple[dict[str, Any], list[Listing]]:
    files = [file for queue in queues for file in queue.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return {"queues": len(queues), "files": len(files), "file_bytes": size}, []


def _checkpoint(path: Path) -> dict[str, Any]:
    with StoreCheckpoint.open(path) as checkpoint:
        return dict(checkpoint_times(checkpoint))


def _queue_file(path: Path, folder: Path) -> dict[str, Any]:
    """Name the units of a file: its name is the place of its first byte in the queue."""
    with ConsumeQueue.open(folder) as queue:
        unit = UNIT_BYTES[queue.kind]
    size = path.stat().st_size
    return {"queue": folder, "first_unit": int(path.name) // unit, "units": size // unit, "file_bytes": size}


def _log_file(path: Path, folder: Path) -> dict[str, Any]:
    begin, size = int(path.name), path.stat().st_size
    with CommitLog.open(folder) as log:
        return {
            "commit_log": folder,
            "begin_offset": begin,
            "end_offset": begin + size,
            "first_message_timestamp": first_time(log, begin, begin + size),
        }
