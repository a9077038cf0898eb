"""RocketMQ paths: a store, an index, and the parts of a store (queues, checkpoint, tables, single files)."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from arro3.core import RecordBatchReader

from logdex._core import distinct, subtract_ranges
from logdex.cli.arguments import chosen_columns
from logdex.cli.output import BOLD, Progress, complain, in_flags, say, say_json, say_rows, say_text, time_text
from logdex.cli.sources.opened import LogRead, Opened, Part, Verdict, nothing_matches, say_copied, tables_of
from logdex.hash_index.index_directory import describe_index
from logdex.hash_index.query import TimeRange
from logdex.report import SEVERITIES, Report, merge, size_text
from logdex.rocketmq import (
    CommitLog,
    ConsumeQueue,
    IndexFile,
    IndexService,
    Message,
    MessageStore,
    StoreCheckpoint,
)
from logdex.rocketmq.find import ANY_TOPIC
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.overview import checkpoint_times, first_time
from logdex.rocketmq.queues import UNIT_BYTES
from logdex.source import OFFSET_NAME, Info, Kind, Table, detect, is_topic_pattern, matching_topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from arro3.core import RecordBatch

    from logdex._core import BatchStream
    from logdex._types import Compat, Scan
    from logdex.cli.sources.opened import Facts
    from logdex.report import Finding
    from logdex.rocketmq import FindResult

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))
_QUEUES = ("consumequeue", "batchconsumequeue")
_EXTENSIONS = "consumequeue_ext"
_TABLES = "config"
_OF_KAFKA_COPIES = ("partition", "key", "header", "as_of", "groups", "committed")
"""Options of copies of log directories."""
SCANS: dict[str, Scan] = {"auto": "auto", "all": True, "none": False}
_MARKS = {
    "abort": "marker of a broker that runs or did not stop cleanly",
    "lock": "lock file of a broker, running or not",
    "timerwheel": "timer wheel, which logdex does not read",
}


_RELEASES: tuple[Compat, ...] = ("4.9.3", "5.5.0")
_OF_QUEUES = {"queue-message", "queue-missing", "queue-order", "queue-tags", "queue-unit"}
_OF_INDEX = {kind for kind in SEVERITIES if kind.startswith("index-")} | {
    *("begin-phy-offset", "end-phy-offset", "entry-hash", "header-time", "prev-index", "slot-value", "time-diff")
}
_OF_ENDS = {"checkpoint", "file-empty", "file-size", "log-ghost"}
"""Kinds that `recover` repairs."""


class _StoreOpened(Opened):
    bodies = ("body", "body_crc", "body_error")

    def __init__(self, path: Path, store: MessageStore) -> None:
        super().__init__(store.kind, store)
        self._store = store
        self._path = path
        is_whole = (path / "commitlog").is_dir()
        self._layout = StoreLayout(path, path / "commitlog") if is_whole else None

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        del deep
        return self._store.verify(progress=progress)

    def verdict(self, report: Report) -> Verdict:
        # A wrong unit of a queue whose message is in the log leaves this message without a unit.
        no_message = report.kinds.get("queue-message", 0) - report.checked.get("messages_without_unit", 0)
        least = max(report.kinds.get("log-frame", 0), no_message)
        lost = [f"at least {least:,} message{'s' if least > 1 else ''}"] if least > 0 else []
        in_log = [each for each in report.findings if each.path.startswith(str(self._path / "commitlog"))]
        if gaps := len({each for each in in_log if each.kind == "file-gap"}):
            lost.append(f"the messages of {gaps:,} missing part{'s' if gaps > 1 else ''} of the log")
        of_log = {each.kind for each in in_log if each.severity == "lost"}
        warning = ""
        if "log-frame" in of_log:
            first = next(each for each in in_log if each.kind == "log-frame")
            will = "truncates" if (self._path / "abort").exists() else "may truncate"
            warning = (
                f"a broker that starts {will} the log at {first.path}, byte {first.offset:,}, and deletes all after it"
            )
        return Verdict(
            " and ".join(lost), self._blockers(report), warning, self._next(report, copies=bool(of_log or lost))
        )

    def _blockers(self, report: Report) -> dict[str, list[Finding]]:
        """Return the findings with which brokers do not start, of a store on this machine."""
        if self._layout is None:
            return {}
        from logdex.rocketmq.write.recovery import RecoveryReport, find_start_blockers  # noqa: PLC0415 -- few runs need it

        no_change = RecoveryReport([], {})
        queues = {str(each) for each in (self._layout.queues, self._layout.batch_queues, self._layout.queue_extensions)}
        sizes = [
            each
            for each in report.findings
            if each.kind in ("file-size", "file-empty") and any(map(each.path.startswith, queues))
        ]
        found: dict[str, list[Finding]] = {}
        for release in _RELEASES:
            stops = [*find_start_blockers(self._layout, no_change, release), *sizes]
            # 5.x deletes an empty last file.
            found[release] = [each for each in stops if release == "4.9.3" or each.kind != "file-empty"]
        return found

    def _next(self, report: Report, *, copies: bool) -> dict[str, str]:
        path, kinds = shlex.quote(str(self._path)), set(report.kinds)
        if copies:
            return {
                f"logdex copy {path} NEW_STORE": "keeps every valid message, in a new store that a broker loads",
                f"logdex recover {path} --dry-run": "shows what a repair in place would do; the broker must be stopped",
            }
        steps = {}
        if kinds & _OF_QUEUES:
            steps[f"logdex build-queues {path} NEW_DIR"] = "builds all queues from the log, for the stopped broker"
        if kinds & _OF_INDEX:
            steps[f"logdex build-index {path} NEW_DIR"] = "builds the index from the log, for the stopped broker"
        if kinds & {"sealed-file", "sealed-row"}:
            steps[f"logdex seal {path}"] = "writes the sealed index anew"
        if kinds & _OF_ENDS:
            steps[f"logdex recover {path} --dry-run"] = (
                "shows what a repair in place would do; the broker must be stopped"
            )
        return steps

    def rows(self, filters: argparse.Namespace, *, body: bool) -> BatchStream:
        return self._read(filters, body, self._first(filters), None)

    def _read(self, filters: argparse.Namespace, body: bool, begin: int | None, end: int | None) -> BatchStream:  # noqa: FBT001 -- passed on
        columns = chosen_columns(filters, MESSAGE_COLUMNS, () if body else self.bodies)
        options = _filters(filters)
        return self._store.messages(columns=columns, **_place(begin, end), **options)

    def options(self, filters: argparse.Namespace) -> dict[str, Any]:
        return {**_place(self._first(filters), None), **_filters(filters)}

    def _first(self, filters: argparse.Namespace) -> int | None:
        """Return the position in the log of `--offset`, which with a topic and a queue is an offset in this queue."""
        if filters.offset is None or filters.queue is None or len(filters.topic or ()) != 1:
            offset: int | None = filters.offset
            return offset
        queue = self._store.queue(filters.topic[0], filters.queue)
        at = max(filters.offset, queue.min_offset)
        units = queue.units(at, at + 1).column("phy_offset")
        first: int = units[0].as_py() if len(units) else self._store.commit_log.max_offset
        return first

    def logs(self, filters: argparse.Namespace, *, body: bool) -> list[LogRead]:
        log = self._store.commit_log

        def starts(end: int, rows: int) -> Iterator[int]:
            first = self._first(filters) or log.min_offset
            at = self._store.start_of_last(rows, topics=filters.topic, queue_id=filters.queue)
            files = [int(path.name) for path in log.files]
            yield from (each for each in (at, *reversed(files)) if each is not None and first < each < end)
            yield first

        return [
            LogRead(
                "the log",
                lambda: (max(self._first(filters) or 0, log.min_offset), log.max_offset),
                lambda begin, end: self._where(
                    filters,
                    body,
                    lambda: self._read(filters, body, begin, end),
                    lambda: tables_of(self._store, {**_place(begin, end), **_filters(filters)}),
                ),
                starts,
            )
        ]

    def bytes_of_log(self) -> int:
        log = self._store.commit_log
        return log.max_offset - log.min_offset

    def held(self, topics: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
        known = self._store.topics
        times = map(self._store.times, matching_topics(topics, lambda: known) if topics else (None,))
        return known, [time for each in times for time in each]

    def find(self, arguments: argparse.Namespace) -> int:
        """Print the messages that carry a key; return 1 if there are none."""
        _refuse_options_of_kafka(arguments)
        store = self._store
        if arguments.key == "-":
            return _find_each(store, arguments)
        by_id = _by_id(store, arguments) if arguments.topic == ANY_TOPIC else None
        with Progress("log without an index") as progress:
            result = store.find(
                arguments.topic,
                arguments.key,
                begin=arguments.begin,
                end=arguments.end,
                max_num=arguments.max,
                scan=SCANS[arguments.scan or "auto"],
                progress=progress,
                # Each body is printed once, a batch at a time.
                body_budget=0,
            )
        batches: Iterable[RecordBatch] = RecordBatchReader.from_stream(result if arguments.body else result.heads())
        if by_id is not None and not result and arguments.max != 0:
            batches = [store.commit_log.messages([by_id.phy_offset])]
        columns = [name for name in MESSAGE_COLUMNS if arguments.body or name not in ("body", "body_error")]
        printed = say_rows((batch.select(columns) for batch in batches), as_json=arguments.json)
        found = printed > 0 or result.truncated
        _say_limits(result, arguments)
        if not found:
            complain(_nothing_found(store, arguments))
        return 0 if found else 1

    def explain(self, arguments: argparse.Namespace) -> int:
        """Print why a key is found or not; return 1 if nothing is found."""
        _refuse_options_of_kafka(arguments)
        explanation = self._store.explain(arguments.topic, arguments.key, begin=arguments.begin, end=arguments.end)
        if arguments.json:
            say_json(explanation.to_dict())
        else:
            verdict, _, rest = in_flags(explanation.text(files=arguments.verbose)).partition("\n")
            say(verdict, style=BOLD)
            say_text(rest)
        return 0 if explanation.found else 1

    def copy(self, arguments: argparse.Namespace) -> int:
        """Copy messages into a new store; return 1 if there are none or if some are damaged."""
        if given := [name for name in _OF_KAFKA_COPIES if getattr(arguments, name)]:
            raise ValueError(f"--{given[0].replace('_', '-')}: expected a Kafka log directory, found {arguments.path}")
        topics = arguments.topic or [None]
        if len(topics) > 1:
            raise ValueError(f"--topic: expected one topic of a RocketMQ store, found {len(topics)}")
        from logdex.rocketmq.copy import copy_messages  # noqa: PLC0415 -- few runs need it

        with Progress("copy") as progress:
            report = copy_messages(
                self._store,
                arguments.directory,
                topic=topics[0],
                begin=arguments.begin,
                end=arguments.end,
                zone=arguments.zone,
                compat=arguments.compat,
                progress=progress,
            )
        return say_copied(arguments, report, "messages", lambda: self.held(arguments.topic))


def _place(begin: int | None, end: int | None) -> dict[str, Any]:
    """Return the options of a read for its place."""
    return {"begin_phy_offset": begin, "end_phy_offset": end}


def _filters(filters: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a read besides its place."""
    if filters.isolation:
        raise ValueError("--isolation: expected Kafka records; a RocketMQ log has no open transactions")
    if not filters.skip_damaged:
        raise ValueError("--no-skip-damaged: expected Kafka records; a RocketMQ log is always read to its end")
    return {
        "topics": filters.topic,
        "queue_id": filters.queue,
        "begin": filters.begin,
        "end": filters.end,
        "keys": filters.key,
        "tags": filters.tag,
        "matches": filters.matches,
        "decode": dict(getattr(filters, "decode", ())) or None,
        "progress": getattr(filters, "progress", None),
    }


def _refuse_options_of_kafka(arguments: argparse.Namespace) -> None:
    if arguments.index or arguments.header:
        raise ValueError(f"--index and --header: expected a Kafka log directory, found {arguments.path}")


def _find_each(store: MessageStore, arguments: argparse.Namespace) -> int:
    """Print the messages of the keys on standard input, in their order; 1 if a key has none."""
    keys = list(dict.fromkeys(sys.stdin.read().split("\n")))
    keys = [key for key in keys if key]
    columns = [name for name in MESSAGE_COLUMNS if arguments.body or name not in ("body", "body_error")]
    found: set[int] = set()
    limits = {"begin": arguments.begin, "end": arguments.end, "max_num": arguments.max}
    scan = SCANS[arguments.scan or "auto"]
    for batch in store.find_batch(arguments.topic, keys, **limits, scan=scan, columns=columns):
        found.update(distinct(batch.column("query_row")))
        say_rows([batch.select(columns)], as_json=arguments.json)
    if len(found) < len(keys):
        missing = next(key for number, key in enumerate(keys) if number not in found)
        complain(f"nothing found for {len(keys) - len(found):,} of {len(keys):,} keys, the first is {missing!r}")
    return 0 if len(found) == len(keys) else 1


def _by_id(store: MessageStore, arguments: argparse.Namespace) -> Message | None:
    """Return the message whose offset id is the key, if it was stored in the time range."""
    message = store.message(arguments.key) if store.is_msg_id(arguments.key) else None
    times = TimeRange.of(arguments.begin, arguments.end)
    return message if message is not None and times.holds(message.store_timestamp) else None


def _say_limits(result: FindResult, arguments: argparse.Namespace) -> None:
    """Print on standard error what limits the answer, so that standard output holds only messages."""
    if result.truncated:
        complain(f"there are more than {arguments.max}")
    size = sum(sum(end - begin for begin, end in subtract_ranges(part, result.unreadable)) for part in result.unscanned)
    if size:
        complain(f"{size_text(size)} of the log are neither indexed nor scanned (--scan all scans them)")
    for begin, end in result.unreadable:
        complain(f"the log from {begin:,} to {end:,} cannot be read: a file is missing, or its messages are damaged")


def _nothing_found(store: MessageStore, arguments: argparse.Namespace) -> str:
    """Return why nothing is found, as far as one more search shows it."""
    topic, key = arguments.topic, arguments.key
    if topic != ANY_TOPIC and not {*matching_topics([topic], lambda: store.topics)}.issubset(store.topics):
        return nothing_matches(arguments, [topic], store.topics, [])
    if (arguments.begin, arguments.end) != (None, None) and (other := store.find(topic, key, max_num=1, scan=False)):
        return f"nothing found in this range of times; a message has the key at {time_text(other[0].store_timestamp)}"
    asked = "a topic and the key" if is_topic_pattern(topic) else "the same arguments"
    return f"nothing found; run `logdex explain` with {asked} to see why"


class _IndexOpened(Opened):
    def __init__(self, kind: Kind, path: Path, opened: IndexService | IndexFile) -> None:
        super().__init__(kind.value, opened if isinstance(opened, IndexService) else None)
        self._opened = opened
        self._directory = path if kind is Kind.INDEX else path.parent

    def close(self) -> None:
        self._opened.close()

    @property
    def files(self) -> list[IndexFile]:
        """The open index files."""
        return self._opened.files if isinstance(self._opened, IndexService) else [self._opened]

    def info(self) -> Info:
        return describe_index(self.kind, self.files)

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        del progress, deep
        return self._opened.verify()

    def verdict(self, report: Report) -> Verdict:
        if report.ok:
            return Verdict()
        above = self._directory.absolute().parent
        store = shlex.quote(str(above)) if (above / "commitlog").is_dir() else "STORE"
        what = "builds the index from the log, for the stopped broker"
        return Verdict(commands={f"logdex build-index {store} NEW_DIR": what})


def open_kind(kind: Kind, path: Path, options: dict[str, Any]) -> Opened:
    """Open a store, an index directory or an index file."""
    if kind is Kind.STORE:
        return _StoreOpened(path, MessageStore.open(path, **options))
    return open_index(kind, path, options)


def open_index(kind: Kind, path: Path, options: dict[str, Any]) -> _IndexOpened:
    """Open an index directory or an index file."""
    return _IndexOpened(kind, path, (IndexService if kind is Kind.INDEX else IndexFile).open(path, **options))


def open_part(path: Path) -> Part | None:
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
    if detect(folder, sealed="never") is Kind.STORE:
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
    listing = Table("queues", ("topic", "queue", "min_offset", "max_offset"), rows)
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
