"""Paths of Kafka: a log directory, a partition, a segment; the files next to the segments; and the key index."""

from __future__ import annotations

import shlex
from functools import partial
from itertools import dropwhile, groupby
from typing import TYPE_CHECKING, Any

from logdex._core import RemotePath, SegmentReader, dump_file, read_key_settings, read_records
from logdex.cli.arguments import chosen_columns
from logdex.cli.output import Progress, complain, say, say_json, say_rows, say_text
from logdex.cli.sources.opened import LogRead, Opened, Part, Verdict, nothing_matches, say_copied, tables_of
from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.kafka import Log, LogDir, LogSegment, OffsetIndex, TimeIndex, checkpoint
from logdex.kafka.copy import copy, steps_path
from logdex.kafka.files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_metadata_snapshot,
    parse_segment_file,
)
from logdex.kafka.find import RECORD_COLUMNS, UnreadRange
from logdex.kafka.overview import TIMES, times_and_size
from logdex.kafka.recover import find_start_blockers
from logdex.kafka.verify import content_findings
from logdex.report import Report, merge, size_text, warn_of_topics
from logdex.source import Info, Kind, Table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from logdex._core import BatchStream
    from logdex.cli.sources.opened import Facts
    from logdex.kafka.log import Part as RecordPart
    from logdex.report import Finding
    from logdex.source import GroupOffset

_PROPERTIES = {"meta.properties": "properties of a broker", "partition.metadata": "properties of a partition"}
_OFFSETS = {
    checkpoint.LOG_START: "checkpoint: log start offsets",
    checkpoint.RECOVERY_POINT: "checkpoint: recovery points",
    checkpoint.HIGH_WATERMARK: "checkpoint: high watermarks",
    checkpoint.CLEANER: "checkpoint: offsets up to which logs were compacted",
}
_MOST_BYTES = 1 << 20  # of a file of properties
_BOOTSTRAP = "bootstrap.checkpoint"
_ANY_TOPIC = "*"
"""Argument for every topic of a RocketMQ store. No Kafka topic can have this name."""


class _KafkaOpened(Opened):
    bodies = ("value",)

    def __init__(self, kind: Kind, opened: LogDir | Log | LogSegment) -> None:
        super().__init__(kind.value, None if isinstance(opened, LogSegment) else opened)
        self.opened = opened
        self._said: set[str] = set()

    def info(self) -> Info:
        if not isinstance(self.opened, LogSegment):
            return self.opened.info()
        ends = {"base_offset": self.opened.base_offset, "end_offset": self.opened.next_offset()}
        return Info(self.kind, {**ends, **times_and_size([self.opened])})

    def close(self) -> None:
        self.opened.close()

    def rows(self, filters: argparse.Namespace, *, body: bool) -> SegmentReader:
        return self._read(self._matching(filters), filters, body, filters.offset, None)

    def _matching(self, filters: argparse.Namespace) -> list[Log | LogSegment]:
        """Return the partitions, or the one segment, that `--topic` and `--queue` name."""
        if isinstance(self.opened, LogDir) and filters.queue is not None and filters.topic is None:
            raise ValueError("a partition without a topic; expected both")
        if isinstance(self.opened, LogDir) and filters.topic is not None:
            filters.topic = sorted(self.opened.named_topics(filters.topic) or ())
            warn_of_topics(filters.topic, self.opened.topics)
        logs = [self.opened] if isinstance(self.opened, LogSegment) else self._logs(filters.topic)
        topics, queue = filters.topic, filters.queue
        return [log for log in logs if queue in (None, log.partition) and (topics is None or log.topic in topics)]

    def _read(
        self,
        logs: Sequence[Log | LogSegment],
        filters: argparse.Namespace,
        body: bool,  # noqa: FBT001 -- passed on
        begin: int | None,
        end: int | None,
    ) -> SegmentReader:
        parts: list[RecordPart | Finding] = []
        for log in logs:
            if isinstance(log, Log):
                parts += log.parts(begin, end, filters.begin, isolation=filters.isolation or "read_uncommitted")
            elif filters.isolation:
                raise ValueError(f"--isolation: expected a partition's directory, found a segment: {log.path}")
            else:
                parts.append((log, begin, end, None))
        columns = chosen_columns(filters, RECORD_COLUMNS, () if body else self.bodies)
        return read_records(parts, columns=columns, **_filters(filters))

    def options(self, filters: argparse.Namespace) -> dict[str, Any]:
        of_dir = {"topic": filters.topic, "partitions": filters.queue} if isinstance(self.opened, LogDir) else {}
        return {**of_dir, "begin_offset": filters.offset, "isolation": filters.isolation, **_filters(filters)}

    def _read_part(
        self,
        log: Log | LogSegment,
        filters: argparse.Namespace,
        body: bool,  # noqa: FBT001 -- passed on
        begin: int,
        end: int,
    ) -> AbstractContextManager[Any]:
        """Read the rows of one log between two offsets that pass `--where`."""
        last = _read_end(log, end)
        place = {"begin_offset": begin, "end_offset": last, "isolation": filters.isolation}
        return self._where(
            filters,
            body,
            lambda: self._read([log], filters, body, begin, last),
            lambda: tables_of(self._whole() if isinstance(log, LogSegment) else log, {**place, **_filters(filters)}),
        )

    def bytes_after(self, filters: argparse.Namespace, path: str, offset: int) -> int:
        """Return how many bytes of the wanted logs follow a byte offset in one of their files."""
        logs = self._matching(filters)
        segments = [each for log in logs for each in ([log] if isinstance(log, LogSegment) else log.segments)]
        folder, _, name = path.rpartition("/")
        after = dropwhile(lambda each: str(each.path.parent) != folder or each.path.name < name, segments)
        return sum(each.size - (offset if str(each.path) == path else 0) for each in after)

    def logs(self, filters: argparse.Namespace, *, body: bool) -> list[LogRead]:
        return [
            LogRead(
                f"{log.topic}-{log.partition}",
                partial(_bounds, log, filters.offset),
                partial(self._read_part, log, filters, body),
                partial(_starts, log, filters.offset),
            )
            for log in self._matching(filters)
        ]

    def held(self, topics: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
        opened = self.opened
        names = list(opened.topics) if isinstance(opened, LogDir) else [opened.topic or ""]
        parts = [[opened]] if isinstance(opened, LogSegment) else [log.segments for log in self._logs(topics)]
        ranges = [times_and_size(segments) for segments in parts]
        return names, [each[name] for each in ranges for name in TIMES[:2] if each[name] is not None]

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        """Check everything; the progress counts bytes of `.log` files."""
        if isinstance(self.opened, LogSegment):
            return self.opened.verify(deep=deep)
        total = sum(log.size for log in self._logs())
        return self.opened.verify(deep=deep, progress=lambda segment: progress.add(segment.size, total))

    def verdict(self, report: Report) -> Verdict:
        opened, counts = self.opened, report.kinds
        lost = []
        if batches := sum(n for kind, n in report.severities.get("lost", {}).items() if kind != "file-gap"):
            lost.append(f"the records of {batches:,} damaged batch{'es' if batches > 1 else ''}")
        if gaps := counts.get("file-gap"):
            lost.append(f"the records of {gaps:,} missing segment{'s' if gaps > 1 else ''}")
        warning = (
            "a broker that starts after a crash cuts each log at its first damaged batch, and deletes all after it; after a "
            "clean stop it serves the damage"
        )
        is_here = not isinstance(opened.path, RemotePath)
        blockers, commands = {}, {}
        if isinstance(opened, LogDir):
            blockers["4.3.1"] = find_start_blockers(opened.path, report.findings)
        if not is_here:
            return Verdict(" and ".join(lost), blockers, warning if lost else "")
        if report.severities.keys() - {"harmless"} or any(blockers.values()):
            above = {LogDir: 0, Log: 1, LogSegment: 2}[type(opened)]
            root = [opened.path.absolute(), *opened.path.absolute().parents][above] if above else opened.path
            command = f"logdex recover {shlex.quote(str(root))} --dry-run"
            commands[command] = "shows what a repair in place would do; the broker must be stopped"
        return Verdict(" and ".join(lost), blockers, warning if lost else "", commands)

    def say_skipped(self, stream: BatchStream | SegmentReader) -> None:
        """Print the unfinished end of a log, and the offsets that damage hides; once, however often they are read."""
        stream.close()
        if not isinstance(stream, SegmentReader):
            return
        damage = stream.damage
        for finding in (each for each in stream.findings if each not in damage):
            self._say_once(str(finding))
        for (topic, partition), unread in groupby(stream.unread, lambda each: each[:2]):
            ranges = list(unread)
            others = f" and in {len(ranges) - 1:,} more places" if len(ranges) > 1 else ""
            size = size_text(sum(bytes_ for *_, bytes_ in ranges))
            offsets = UnreadRange(0, *ranges[0][2:4]).offsets
            self._say_once(
                f"{topic}-{partition}: {offsets}{others} are unread, {size} of damaged batches; reading went on after "
                "them (--skip-damaged, the default; --no-skip-damaged stops there)"
            )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            complain(text)
        self._said.add(text)

    def find(self, arguments: argparse.Namespace) -> int:
        """Print the records that carry a key; return 1 if there are none."""
        if getattr(arguments, "scan", None) is not None:
            what = "a search in a Kafka log directory reads all that no index covers"
            raise ValueError(f"--scan {arguments.scan}: expected a RocketMQ store, found {arguments.path}; {what}")
        if arguments.key in ("-", b"-"):
            raise ValueError(
                "KEY -: expected a key; keys from standard input are for RocketMQ, `logdex cat --key` takes several"
            )
        source = self._searched(arguments)
        result = source.find(arguments.topic, arguments.key, max_num=arguments.max, **_search_options(arguments))
        columns = [name for name in RECORD_COLUMNS if arguments.body or name != "value"]
        say_rows(result.to_arrow().select(columns).to_batches(), as_json=arguments.json)
        if result.truncated:
            complain(f"there are more than {arguments.max}")
        if result.scanned_offsets:
            complain(f"{result.scanned_offsets:,} offsets were scanned: no index covers them")
        for each in result.unscanned:
            what = "a segment is missing, or its batches are damaged"
            complain(f"{arguments.topic}-{each.partition}: {each.offsets} were not searched: {what}")
        if not result:
            complain(nothing_matches(arguments, [arguments.topic], *self.held([arguments.topic])))
        return 0 if result else 1

    def explain(self, arguments: argparse.Namespace) -> int:
        """Print how a record key is searched; return 1 if no record carries it."""
        source = self._searched(arguments)
        explanation = source.explain(arguments.topic, arguments.key, **_search_options(arguments))
        if arguments.json:
            say_json(explanation.to_dict())
        else:
            say_text(explanation.text())
        return 0 if explanation.found else 1

    def copy(self, arguments: argparse.Namespace) -> int:
        """Copy topics into a new log directory; return 1 if there are no records or if some are damaged."""
        if not isinstance(self.opened, LogDir):
            raise ValueError(f"{self.kind}: expected a Kafka log directory, as the offsets of groups are in it, too")  # noqa: TRY004 -- of a path
        if given := [flag for flag in ("zone", "compat") if getattr(arguments, flag)]:
            raise ValueError(f"--{given[0]}: expected a RocketMQ store, found {arguments.path}")
        with Progress("copy") as progress:
            report = copy(
                self.opened,
                arguments.directory,
                topics=arguments.topic,
                partitions=arguments.partition,
                begin=arguments.begin,
                end=arguments.end,
                keys=arguments.key,
                header=arguments.header,
                as_of=arguments.as_of,
                groups=arguments.groups,
                committed=arguments.committed,
                open_transactions=arguments.open_transactions or "abort",
                progress=progress,
            )
        code = say_copied(arguments, report, "records", lambda: self.held(arguments.topic))
        if report.checked["records"] and not arguments.json:
            say(f"the steps with which a broker loads it: {steps_path(arguments.directory)}")
        return code

    def groups(self, as_of: int | None = None) -> Sequence[GroupOffset]:
        return self.opened.groups(as_of=as_of) if isinstance(self.opened, LogDir) else super().groups(as_of)

    def _searched(self, arguments: argparse.Namespace) -> LogDir | Log:
        if isinstance(self.opened, LogSegment):
            raise ValueError(f"{self.kind}: expected a Kafka log directory, or a partition's directory")  # noqa: TRY004 -- of a path
        if arguments.topic == _ANY_TOPIC:
            what = "`logdex cat --key KEY` reads those of all topics"
            raise ValueError(
                f"TOPIC {_ANY_TOPIC}: expected one topic, since the keys of Kafka are searched by topic; {what}"
            )
        return self.opened

    def _logs(self, topics: Sequence[str] | None = None) -> list[Log]:
        if not isinstance(self.opened, LogDir):
            return [self.opened] if isinstance(self.opened, Log) else []
        return [self.opened.log(each.topic, each.partition) for each in self.opened.partitions(topics)]


def _filters(filters: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a read besides its place."""
    if filters.tag:
        raise ValueError("--tag: expected RocketMQ messages; Kafka records have no tags")
    return {
        "begin": filters.begin,
        "end": filters.end,
        "keys": filters.key,
        "matches": filters.matches,
        "on_error": "skip" if filters.skip_damaged else "raise",
        "decode": dict(getattr(filters, "decode", ())) or None,
        "progress": getattr(filters, "progress", None),
        # Few rows are wanted, of which a thread would read ahead.
        "threads": None if getattr(filters, "limit", None) is None else 1,
    }


def _bounds(log: Log | LogSegment, offset: int | None) -> tuple[int, int]:
    """Return the first offset to read, and the one after the last record."""
    if isinstance(log, LogSegment):
        return max(offset or 0, log.base_offset), log.readable_end()
    return max(offset or 0, log.log_start_offset), log.readable_end()


def _read_end(log: Log | LogSegment, end: int) -> int | None:
    """Return the end of a read; None if the log cannot be read to its end, so that the read reaches the damage."""
    try:
        _ = log.next_offset() if isinstance(log, LogSegment) else log.log_end_offset
    except CorruptFileError:
        return None
    return end


def _starts(log: Log | LogSegment, offset: int | None, end: int, rows: int) -> Iterator[int]:
    """Return where the last rows may begin. Compaction, transactions and filters leave fewer rows than offsets."""
    first, _ = _bounds(log, offset)
    span = max(rows, 1)
    while end - span > first:
        yield end - span
        span *= 8
    yield first


def _search_options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("index", "begin", "end", "header")}


def open_kind(kind: Kind, path: Path, options: dict[str, Any]) -> Opened:
    """Open a log directory, a partition's directory or a segment."""
    if kind is Kind.LOG_DIR:
        return _KafkaOpened(kind, LogDir.open(path, **options))
    return _KafkaOpened(kind, Log.open(path, **options) if kind is Kind.PARTITION else LogSegment.open(path, **options))


def open_part(path: Path) -> Part | None:
    """Open a file next to the segments, by its name, or a key index; return None for another path."""
    if path.is_dir():
        return _key_index(path)
    if not path.is_file():
        return None
    parsed = parse_segment_file(path.name)
    return _named(path) if parsed is None else _of_segment(path, *parsed)


def files_to_dump(paths: list[Path]) -> list[Path]:
    """Return the files to dump: each path, or the files of a partition's directory by name.

    Files of another kind are ignored, because a shell's `partition/*` names them, too; a message names those that were given.

    Raises:
        OSError: A path does not exist.
        ValueError: Nothing can be dumped.
    """
    wanted = []
    for path in paths:
        if path.is_dir():
            wanted += sorted(filter(_is_dumped, path.iterdir()))
            continue
        path.stat()
        if _is_dumped(path):
            wanted.append(path)
        else:
            complain(f"ignoring {path}: no file of a segment")
    if not wanted:
        raise ValueError(f"{paths[0]}: no file of a segment, nor a partition's directory with one")
    return wanted


def _is_dumped(path: Path) -> bool:
    names_segment = parse_segment_file(path.name) is not None
    return names_segment or path.name == _BOOTSTRAP or parse_metadata_snapshot(path.name) is not None


def _named(path: Path) -> Part | None:
    if _is_dumped(path):
        kind = "Kafka snapshot of KRaft's metadata"
        return Part(path, kind, lambda: (_counted(path), []), partial(dump_file, path))
    if path.name in _PROPERTIES:
        return Part(path, f"Kafka {_PROPERTIES[path.name]}", lambda: (_properties(path), []))
    if path.name == checkpoint.CLEAN_SHUTDOWN:
        return Part(path, "Kafka marker of a clean stop")
    read = {checkpoint.LEADER_EPOCHS: _epochs, **dict.fromkeys(_OFFSETS, _offsets)}.get(path.name)
    if read is None:
        return None
    kind = _OFFSETS.get(path.name, "checkpoint: leader epochs")
    return Part(path, f"Kafka {kind}", partial(read, path), partial(_content, partial(read, path)))


def _content(read: Callable[[], object]) -> Report:
    """Check a file by reading it."""
    findings: list[Finding] = []
    with content_findings(findings):
        read()
    return Report(findings, {"files": 1})


def _of_segment(path: Path, offset: int, suffix: str) -> Part | None:
    kinds: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
        OFFSET_INDEX: ("offset index", partial(_sparse_index, OffsetIndex, ("last_offset", "last_position"))),
        TIME_INDEX: ("time index", partial(_sparse_index, TimeIndex, ("largest_timestamp", "last_offset"))),
        TXN_INDEX: ("index of aborted transactions", _counted),
        SNAPSHOT: ("snapshot of producers", _counted),
    }
    if suffix == LOG:
        return None
    kind, facts = kinds[suffix]
    name = "offset" if suffix == SNAPSHOT else "base_offset"

    def describe() -> Facts:
        return {name: offset, "file_bytes": path.stat().st_size, **facts(path)}, []

    # A file is checked against the log next to it.
    return Part(path, f"Kafka {kind}", describe, partial(dump_file, path))


def _sparse_index(kind: type[OffsetIndex | TimeIndex], names: tuple[str, str], path: Path) -> dict[str, Any]:
    """Return the number of entries, and the fields of the last one under these names."""
    with kind.open(path) as index:
        last = index.entry(len(index) - 1) if len(index) else (None, None)
        return {"entries": len(index), "max_entries": index.max_entries, **dict(zip(names, last, strict=True))}


def _counted(path: Path) -> dict[str, Any]:
    report = dump_file(path)
    return {"entries": report.checked["entries"], "faults": len(report.findings) or None}


def _offsets(path: Path) -> Facts:
    offsets = sorted(checkpoint.read_offsets(path.parent, path.name).items())
    rows = [(of.topic, of.partition, offset) for of, offset in offsets]
    return {"topics": len({row[0] for row in rows})}, [Table("partitions", ("topic", "partition", "offset"), rows)]


def _epochs(path: Path) -> Facts:
    rows = checkpoint.read_leader_epochs(path.parent)
    return {"entries": len(rows)}, [Table("leader epochs", ("epoch", "begin_offset"), rows)]


def _properties(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace")
    pairs = (line.partition("=" if "=" in line else ":") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _key_index(path: Path) -> Part | None:
    """Open the directory that `logdex kafka build-index` wrote."""
    parts = [place for place in sorted(path.iterdir()) if place.is_dir() and read_key_settings(place) is not None]
    if not parts:
        return None

    def describe() -> Facts:
        rows = []
        for place in parts:
            with IndexDirectory.open(place) as index:
                rows.append((place.name, len(index.files), sum(map(len, index.files))))
        return {"entries": sum(row[2] for row in rows)}, [Table("partitions", ("name", "files", "entries"), rows)]

    def check() -> Report:
        reports = []
        for place in parts:
            with IndexDirectory.open(place) as index:
                reports.append(index.verify())
        return merge(reports)

    return Part(path, "Kafka key index", describe, check)
