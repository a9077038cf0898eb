"""Sources of Kafka: a log directory, a partition, a segment; the files beside the segments; and the key index."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from logdex._core import broker_lock_holder
from logdex.cli.output import body_text, json_bytes, printable, time_text
from logdex.cli.sources import Description, Filters, Listing, Part, Source
from logdex.cli.sources.kafka_dump import Dump, is_known
from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.kafka import Log, LogDir, LogSegment, OffsetIndex, TimeIndex, checkpoint
from logdex.kafka.files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_segment_file
from logdex.kafka.find import RECORD_COLUMNS
from logdex.kafka.key_index import KeySettings
from logdex.kafka.verify import content_finding
from logdex.report import Report, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex._core import SegmentReader
    from logdex._types import Progress
    from logdex.report import Finding

_Opened: TypeAlias = LogDir | Log | LogSegment
_Told: TypeAlias = tuple[dict[str, Any], list[Listing]]
_SHOWN_BYTES = 2_000

_PROPERTIES = {"meta.properties": "properties of a broker", "partition.metadata": "properties of a partition"}
_OFFSETS = {
    checkpoint.LOG_START: "checkpoint: log start offsets",
    checkpoint.RECOVERY_POINT: "checkpoint: recovery points",
    checkpoint.HIGH_WATERMARK: "checkpoint: high watermarks",
    checkpoint.CLEANER: "checkpoint: offsets up to which logs were compacted",
}
_MOST_BYTES = 1 << 20
"""No file of properties is longer."""


class KafkaSource(Source):
    """Records of Kafka."""

    def __init__(self, opened: _Opened) -> None:
        self.opened = opened
        self._stream: SegmentReader | None = None

    def describe(self) -> Description:
        """Count topics, partitions and segments, with their ranges of offsets."""
        if isinstance(self.opened, LogSegment):
            segment = self.opened
            begin, end = _times([segment])
            facts: dict[str, Any] = {
                "base_offset": segment.base_offset,
                "end_offset": segment.next_offset(),
                "begin_timestamp": begin,
                "end_timestamp": end,
                "log_bytes": segment.size,
            }
            return Description("Kafka segment", facts)
        if isinstance(self.opened, Log):
            log = self.opened
            columns = ("name", "base_offset", "begin_timestamp", "end_timestamp", "log_bytes")
            rows: list[Sequence[Any]] = [
                (segment.path.name, segment.base_offset, *_times([segment]), segment.size) for segment in log.segments
            ]
            return Description("Kafka partition", _log_facts(log), [Listing("segments", columns, rows)])
        logs = [self.opened.log(each.topic, each.partition) for each in self.opened.partitions()]
        heads = (
            *("topic", "partition", "segments", "begin_offset", "end_offset"),
            *("begin_timestamp", "end_timestamp", "log_bytes"),
        )
        offsets = [(log.log_start_offset, log.log_end_offset) for log in logs]
        table: list[Sequence[Any]] = [
            (log.topic, log.partition, len(log.segments), *ends, *_times(log.segments), log.size)
            for log, ends in zip(logs, offsets, strict=True)
        ]
        facts = {
            "broker": _broker(self.opened.path),
            "topics": len({log.topic for log in logs}),
            "partitions": len(logs),
            "log_bytes": sum(log.size for log in logs),
        }
        return Description("Kafka log directory", facts, [Listing("partitions", heads, table)])

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401 -- an Arrow stream
        """Return the records that pass the filters."""
        columns = [name for name in RECORD_COLUMNS if body or name != "value"]
        bounds: dict[str, Any] = {
            "begin": filters.begin,
            "end": filters.end,
            "columns": columns,
            "on_error": "skip" if filters.skip_damaged else "raise",
        }
        self._stream = self._records(filters, columns, bounds)
        return self._stream

    def passed_over(self) -> list[Finding]:
        """Return the batches that could not be read."""
        return [] if self._stream is None else self._stream.findings

    def _records(self, filters: Filters, columns: Sequence[str], bounds: dict[str, Any]) -> SegmentReader:
        if isinstance(self.opened, LogDir):
            if filters.queue is None:
                return self.opened.records(filters.topic, **bounds)
            if filters.topic is None:
                raise ValueError("a partition without a topic; expected both")
            return self.opened.log(filters.topic, filters.queue).records(**bounds)
        opened = self.opened
        if filters.topic not in (None, opened.topic) or filters.queue not in (None, opened.partition):
            return opened.records(end_offset=0, columns=columns)
        return opened.records(**bounds)

    def as_text(self, row: dict[str, Any]) -> str:
        """Return one record as text."""
        return record_text(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return one record as JSON values."""
        return record_json(row)

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        """Check everything; the progress counts bytes of `.log` files."""
        if isinstance(self.opened, LogSegment):
            return self.opened.verify(deep=deep)
        if isinstance(self.opened, Log):
            total = self.opened.size
        else:
            total = sum(self.opened.log(each.topic, each.partition).size for each in self.opened.partitions())
        done = 0

        def show(segment: LogSegment) -> None:
            nonlocal done
            done += segment.size
            progress(done, total)

        return self.opened.verify(deep=deep, progress=show)

    def close(self) -> None:
        """Close the files."""
        self.opened.close()


def _times(segments: Sequence[LogSegment]) -> tuple[int | None, int | None]:
    """Return the time of the first record that has one, and the largest of all, in ms. Reads few batches."""
    begin = end = None
    with contextlib.suppress(CorruptFileError):
        for segment in segments:
            largest, _ = segment.max_timestamp()
            end = largest if largest >= 0 and (end is None or largest > end) else end
            first = segment.offset_for_timestamp(0, control=True) if begin is None and largest >= 0 else None
            begin = first[0] if first is not None else begin
    return begin, end


def _broker(log_dir: Path) -> str:
    with contextlib.suppress(OSError):
        holder = broker_lock_holder(log_dir / ".lock")
        if holder is not None:
            return f"running, process {holder}"
    if (log_dir / checkpoint.CLEAN_SHUTDOWN).exists():
        return "stopped cleanly"
    return "stopped without warning, or running elsewhere (.kafka_cleanshutdown is missing)"


def _log_facts(log: Log) -> dict[str, Any]:
    begin, end = _times(log.segments)
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segments": len(log.segments),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "last_stable_offset": log.last_stable_offset,
        "begin_timestamp": begin,
        "end_timestamp": end,
        "log_bytes": log.size,
    }


def open_source(path: Path, **options: Any) -> KafkaSource | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Open a log directory, a partition's directory or a segment; None for another path."""
    parsed = parse_segment_file(path.name)
    if path.is_file():
        return KafkaSource(LogSegment.open(path)) if parsed is not None and parsed[1] == LOG else None
    if Log.exists_at(path):
        return KafkaSource(Log.open(path))
    return KafkaSource(LogDir.open(path)) if LogDir.exists_at(path) else None


def open_kafka(path: Path) -> KafkaSource | Part:
    """Open a path of Kafka, or a part of one.

    Raises:
        OSError: The path does not exist.
        ValueError: It is not Kafka's.
    """
    source = open_source(path) or open_part(path)
    if source is not None:
        return source
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    raise ValueError(f"{path}: no Kafka log directory, no partition's directory, no file of a segment")


def record_text(row: dict[str, Any]) -> str:
    """Return a record as text: one line, and the value below it if it was read."""
    head = [
        time_text(row["timestamp"]) or "-",
        f"{printable(row['topic'])}-{row['partition']}@{row['offset']}",
        f"key={_shown(row['key'])}",
    ]
    head += [f"{printable(each['key'])}={_shown(each['value'])}" for each in row["headers"] or ()]
    lines = ["  ".join(head)]
    if "value" in row:
        lines.append(f"    {_shown(row['value'])}")
    return "\n".join(lines)


def record_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record as JSON values: times in ms, bytes that are not UTF-8 as base64 under another name."""
    shown = {name: value for name, value in row.items() if name not in ("key", "value", "headers")}
    for name in ("key", "value"):
        if name in row:
            shown |= json_bytes(name, row[name])
    if "headers" in row:
        shown["headers"] = [{"key": each["key"], **json_bytes("value", each["value"])} for each in row["headers"] or ()]
    return shown


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    text = body_text(content)
    shown = content[: _SHOWN_BYTES // 2].hex(" ") if text is None else printable(text[:_SHOWN_BYTES])
    full = _SHOWN_BYTES // 2 if text is None else _SHOWN_BYTES
    more = len(content if text is None else text) - full
    return f"{shown} ({more:,} more)" if more > 0 else shown


def open_part(path: Path, **options: Any) -> Part | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Open a file beside the segments, by its name, or a key index; None for another path."""
    if path.is_dir():
        return _key_index(path)
    if not path.is_file():
        return None
    parsed = parse_segment_file(path.name)
    return _beside(path) if parsed is None else _of_segment(path, *parsed)


def _beside(path: Path) -> Part | None:
    if is_known(path):
        return Part(path, "Kafka snapshot of KRaft's metadata", lambda: (_counted(path), []), lambda: _check(path))
    if path.name in _PROPERTIES:
        return Part(path, f"Kafka {_PROPERTIES[path.name]}", lambda: (_properties(path), []))
    if path.name == checkpoint.CLEAN_SHUTDOWN:
        return Part(path, "Kafka mark of a clean stop")
    read = {checkpoint.LEADER_EPOCHS: _epochs, **dict.fromkeys(_OFFSETS, _offsets)}.get(path.name)
    if read is None:
        return None
    kind = _OFFSETS.get(path.name, "checkpoint: leader epochs")
    return Part(path, f"Kafka {kind}", partial(read, path), partial(_content, partial(read, path)))


def _content(tell: Callable[[], object]) -> Report:
    """Check a file by reading it."""
    try:
        tell()
    except CorruptFileError as error:
        return Report([content_finding(error)], {"files": 1})
    return Report([], {"files": 1})


def _of_segment(path: Path, offset: int, suffix: str) -> Part | None:
    kinds: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
        OFFSET_INDEX: ("Kafka offset index", partial(_sparse_index, OffsetIndex, ("last_offset", "last_position"))),
        TIME_INDEX: ("Kafka time index", partial(_sparse_index, TimeIndex, ("largest_timestamp", "last_offset"))),
        TXN_INDEX: ("Kafka index of aborted transactions", _counted),
        SNAPSHOT: ("Kafka snapshot of producers", _counted),
    }
    if suffix == LOG:
        return None
    kind, facts = kinds[suffix]
    name = "offset" if suffix == SNAPSHOT else "base_offset"

    def tell() -> _Told:
        return {name: offset, "file_bytes": path.stat().st_size, **facts(path)}, []

    return Part(path, kind, tell, lambda: _check(path))


def _sparse_index(kind: type[OffsetIndex | TimeIndex], names: tuple[str, str], path: Path) -> dict[str, Any]:
    """Return the number of entries, and the fields of the last one under these names."""
    with kind.open(path) as index:
        last = index.entry(len(index) - 1) if len(index) else (None, None)
        return {"entries": len(index), "max_entries": index.max_entries, **dict(zip(names, last, strict=True))}


def _counted(path: Path) -> dict[str, Any]:
    report = _check(path)
    return {"entries": report.checked["entries"], "faults": len(report.findings) or None}


def _check(path: Path) -> Report:
    """Check a file against the log beside it, as a dump does."""
    dump = Dump(json=True)
    entries = sum(1 for _ in dump.file(path))
    return Report(dump.findings, {"files": 1, "entries": entries})


def _offsets(path: Path) -> _Told:
    offsets = sorted(checkpoint.read_offsets(path.parent, path.name).items())
    rows: list[Sequence[Any]] = [(of.topic, of.partition, offset) for of, offset in offsets]
    return {"topics": len({row[0] for row in rows})}, [Listing("partitions", ("topic", "partition", "offset"), rows)]


def _epochs(path: Path) -> _Told:
    rows = checkpoint.read_leader_epochs(path.parent)
    return {"entries": len(rows)}, [Listing("leader epochs", ("epoch", "begin_offset"), [*rows])]


def _properties(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace")
    pairs = (line.partition("=" if "=" in line else ":") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _key_index(path: Path) -> Part | None:
    """Open the directory that `logdex kafka build-index` wrote."""
    parts = [place for place in sorted(path.iterdir()) if place.is_dir() and KeySettings.read(place) is not None]
    if not parts:
        return None

    def tell() -> _Told:
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
