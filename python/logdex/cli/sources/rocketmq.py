"""RocketMQ paths: a store, an index, and the parts of a store (queues, checkpoint, tables, single files)."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from logdex.cli.sources import Description, Listing, LogRead, Part, Source
from logdex.hash_index.rolling import names_index_file
from logdex.report import Report, merge
from logdex.rocketmq import CommitLog, ConsumeQueue, IndexFile, IndexService, Message, MessageStore, StoreCheckpoint
from logdex.rocketmq.layout import OFFSET_NAME
from logdex.rocketmq.overview import checkpoint_times, first_time
from logdex.rocketmq.queues import UNIT_BYTES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from logdex._core import BatchStream
    from logdex.cli.output import Progress
    from logdex.cli.sources import Facts
    from logdex.groups import GroupOffset
    from logdex.usage import By, Usage

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))
_QUEUES = ("consumequeue", "batchconsumequeue")
_EXTENSIONS = "consumequeue_ext"
_TABLES = "config"
_MARKS = {
    "abort": "marker of a broker that runs or did not stop cleanly",
    "lock": "lock file of a broker, running or not",
    "timerwheel": "timer wheel, which logdex does not read",
}


class _StoreSource(Source):
    opened: MessageStore

    def describe(self) -> Description:
        overview = self.opened.overview()
        heads = ("name", "entries", "begin_timestamp", "end_timestamp")
        topics = Listing("topics", ("topic", "queues", "messages"), overview.pop("topics"))
        index = Listing("index files", heads, overview.pop("index_files"))
        return Description("RocketMQ message store", overview, [each for each in (topics, index) if each.rows])

    def rows(self, filters: argparse.Namespace, *, body: bool) -> BatchStream:
        return self._read(filters, body, self._first(filters), None)

    def _read(self, filters: argparse.Namespace, body: bool, begin: int | None, end: int | None) -> BatchStream:  # noqa: FBT001 -- passed on
        if filters.isolation:
            raise ValueError("--isolation: expected Kafka records; a RocketMQ log has no open transactions")
        if not filters.skip_damaged:
            raise ValueError("--no-skip-damaged: expected Kafka records; a RocketMQ log is always read to its end")
        columns = MESSAGE_COLUMNS if body else [name for name in MESSAGE_COLUMNS if not name.startswith("body")]
        return self.opened.messages(
            topics=filters.topic,
            queue_id=filters.queue,
            begin=filters.begin,
            end=filters.end,
            keys=filters.key,
            tags=filters.tag,
            begin_phy_offset=begin,
            end_phy_offset=end,
            columns=columns,
        )

    def _first(self, filters: argparse.Namespace) -> int | None:
        """Return the place in the log of `--offset`, which with a topic and a queue is an offset in this queue."""
        if filters.offset is None or filters.queue is None or len(filters.topic or ()) != 1:
            offset: int | None = filters.offset
            return offset
        queue = self.opened.queue(filters.topic[0], filters.queue)
        at = max(filters.offset, queue.min_offset)
        units = queue.units(at, at + 1).column("phy_offset")
        first: int = units[0].as_py() if len(units) else self.opened.commit_log.max_offset
        return first

    def logs(self, filters: argparse.Namespace, *, body: bool) -> list[LogRead]:
        log = self.opened.commit_log

        def starts(end: int, rows: int) -> Iterator[int]:
            first = self._first(filters) or log.min_offset
            at = self.opened.start_of_last(rows, topics=filters.topic, queue_id=filters.queue)
            files = [int(path.name) for path in log.files]
            yield from (each for each in (at, *reversed(files)) if each is not None and first < each < end)
            yield first

        return [
            LogRead(
                "the log",
                lambda: (max(self._first(filters) or 0, log.min_offset), log.max_offset),
                lambda begin, end: self._read(filters, body, begin, end),
                starts,
            )
        ]

    def usage(self, by: By) -> Sequence[Usage]:
        return self.opened.usage(by)

    def groups(self, group: str | None) -> Sequence[GroupOffset]:
        return self.opened.groups(group)

    def held(self, topics: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
        times = map(self.opened.times, topics or (None,))
        return self.opened.topics, [time for each in times for time in each]

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:  # noqa: ARG002 -- of Kafka
        return self.opened.verify(progress=progress)


class _IndexSource(Source):
    opened: IndexService | IndexFile

    @property
    def files(self) -> list[IndexFile]:
        return self.opened.files if isinstance(self.opened, IndexService) else [self.opened]

    def describe(self) -> Description:
        files = self.files
        headers = [file.header for file in files if len(file)]
        facts = {
            "files": len(files),
            "entries": sum(map(len, files)),
            "hash_slots": files[0].hash_slots if files else None,
            "max_entries": files[0].max_entries if files else None,
        }
        names = ("begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset")
        for name, outermost in zip(names, (min, max, min, max), strict=True):
            facts[name] = outermost((getattr(header, name) for header in headers), default=None)
        heads = ("name", "entries", *names)
        rows = [(file.path.name, len(file), *(getattr(file.header, name) for name in names)) for file in files]
        kind = "RocketMQ index directory" if isinstance(self.opened, IndexService) else "RocketMQ index file"
        return Description(kind, facts, [Listing("index files", heads, rows)])

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:  # noqa: ARG002 -- one file after another, quickly
        return self.opened.verify()


def open_store(path: Path, **options: Any) -> _StoreSource | None:  # noqa: ANN401 -- those of MessageStore.open
    """Open a path that is a store or the commit log of one; return None for another."""
    if not options.get("commit_log") and not MessageStore.exists_at(path):
        return None
    return _StoreSource(MessageStore.open(path, **options))


def open_index(path: Path, **options: Any) -> _IndexSource | None:  # noqa: ANN401 -- those of IndexService.open
    """Open a path that is an index directory or an index file; return None for another."""
    options = {name: value for name, value in options.items() if name not in ("commit_log", "sealed")}
    if path.is_dir():
        if any(names_index_file(entry.name) for entry in path.iterdir() if entry.is_file()):
            return _IndexSource(IndexService.open(path, **options))
    elif path.is_file() and names_index_file(path.name):
        return _IndexSource(IndexFile.open(path, **options))
    return None


def open_part(path: Path, **options: Any) -> Part | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Recognise a part of a store by its name and place; return None for another path."""
    place = path.absolute()
    if path.is_dir():
        return _directory(path, place)
    if not path.is_file():
        return None
    if OFFSET_NAME.fullmatch(path.name):
        return _numbered(path, place.parent)
    if place.parent.name == _TABLES and ".json" in path.suffixes:
        return Part(path, "RocketMQ table of a broker, as JSON")
    if path.name == "checkpoint":
        return Part(path, "RocketMQ store checkpoint", lambda: _checkpoint(path))
    return Part(path, f"RocketMQ {_MARKS[path.name]}") if path.name in _MARKS else None


def _directory(path: Path, place: Path) -> Part | None:
    """Recognise `consumequeue` and the like, one topic or one queue in it, or `config`."""
    if _is_queue(place):
        if place.parent.parent.name == _EXTENSIONS:
            return Part(path, "RocketMQ queue extension", lambda: _extensions([path]))
        return Part(path, "RocketMQ queue", lambda: _queue(path), lambda: _check_queues([path]))
    if place.name == _TABLES and any(path.glob("*.json")):
        return Part(path, "RocketMQ tables of a broker, as JSON")
    for root, pattern in ((place.name, "*/*"), (place.parent.name, "*")):
        queues = sorted(filter(_is_queue, path.glob(pattern))) if root in (_EXTENSIONS, *_QUEUES) else []
        if root == _EXTENSIONS:
            return Part(path, "RocketMQ queue extensions", partial(_extensions, queues))
        if root in _QUEUES:
            return Part(path, "RocketMQ queues", partial(_queues, queues), partial(_check_queues, queues))
    return None


def _numbered(path: Path, folder: Path) -> Part | None:
    if folder.parent.parent.name == _EXTENSIONS:
        return Part(path, "RocketMQ file of a queue extension")
    if _is_queue(folder):
        return Part(path, "RocketMQ file of a queue", lambda: _queue_file(path, folder))
    if MessageStore.exists_at(folder):
        return Part(path, "RocketMQ file of a commit log", lambda: _log_file(path, folder))
    return None


def _is_queue(directory: Path) -> bool:
    """Return whether a directory is a queue: named by a number, with files named by 20 digits."""
    return (
        directory.is_dir()
        and directory.name.isdecimal()
        and any(OFFSET_NAME.fullmatch(file.name) for file in directory.iterdir())
    )


def _queue(path: Path) -> Facts:
    with ConsumeQueue.open(path) as queue:
        facts = {
            "topic": path.absolute().parent.name,
            "queue": int(path.absolute().name),
            "unit": queue.kind,
            "files": len(queue.files),
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
            "first_phy_offset": _phy_offset(queue, queue.min_offset),
            "last_phy_offset": _phy_offset(queue, queue.max_offset - 1),
        }
        return facts, []


def _phy_offset(queue: ConsumeQueue, offset: int) -> int | None:
    units = queue.units(offset, offset + 1) if queue.min_offset <= offset < queue.max_offset else None
    return units.column("phy_offset")[0].as_py() if units is not None and units.num_rows else None


def _queues(queues: Sequence[Path]) -> Facts:
    rows = []
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


def _extensions(queues: Sequence[Path]) -> Facts:
    files = [file for queue in queues for file in queue.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return {"queues": len(queues), "files": len(files), "file_bytes": size}, []


def _checkpoint(path: Path) -> Facts:
    with StoreCheckpoint.open(path) as checkpoint:
        return dict(checkpoint_times(checkpoint)), []


def _queue_file(path: Path, folder: Path) -> Facts:
    with ConsumeQueue.open(folder) as queue:
        unit = UNIT_BYTES[queue.kind]
    size = path.stat().st_size
    # The name is the byte offset of the first unit in the queue.
    return {"queue": folder, "first_unit": int(path.name) // unit, "units": size // unit, "file_bytes": size}, []


def _log_file(path: Path, folder: Path) -> Facts:
    begin = int(path.name)
    end = begin + path.stat().st_size
    with CommitLog.open(folder) as log:
        first = first_time(log, begin, end)
    facts = {"commit_log": folder, "begin_offset": begin, "end_offset": end, "first_message_timestamp": first}
    return facts, []
