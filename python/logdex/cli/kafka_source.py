"""A Kafka log directory, a partition or a segment, for the commands that take any path."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any, TypeAlias

from arro3.core import DataType

from logdex._core import broker_lock_holder
from logdex.cli import kafka_part
from logdex.cli.output import body_text, json_bytes, printable, time_text
from logdex.cli.sources import Description, Filters, Listing, Source
from logdex.errors import CorruptFileError
from logdex.kafka import Log, LogDir, LogSegment, checkpoint
from logdex.kafka.file_name import LOG, parse_segment_file
from logdex.kafka.record import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex._core import SegmentReader
    from logdex.cli.sources import Part
    from logdex.report import Finding, Report

_Opened: TypeAlias = LogDir | Log | LogSegment
_SHOWN_BYTES = 2_000


class KafkaSource(Source):
    """Records of Kafka."""

    def __init__(self, opened: _Opened) -> None:
        self.opened = opened
        self._stream: SegmentReader | None = None

    def describe(self) -> Description:
        """Count topics, partitions and segments, and give the ranges of offsets."""
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
            names = ("name", "base_offset", "begin_timestamp", "end_timestamp", "log_bytes")
            rows: list[Sequence[Any]] = [
                (segment.path.name, segment.base_offset, *_times([segment]), segment.size) for segment in log.segments
            ]
            listing = Listing("segments", names, rows)
            return Description("Kafka partition", _log_facts(log), [listing])
        logs = [self.opened.log(each.topic, each.partition) for each in self.opened.partitions()]
        heads = (
            *("topic", "partition", "segments", "begin_offset", "end_offset"),
            *("begin_timestamp", "end_timestamp", "log_bytes"),
        )
        table = [
            [
                *(log.topic, log.partition, len(log.segments), log.log_start_offset, log.log_end_offset),
                *_times(log.segments),
                log.size,
            ]
            for log in logs
        ]
        facts = {
            "broker": _broker(self.opened.path),
            "topics": len({log.topic for log in logs}),
            "partitions": len(logs),
            "log_bytes": sum(log.size for log in logs),
        }
        return Description("Kafka log directory", facts, [Listing("partitions", heads, [*table])])

    def rows(self, filters: Filters, *, body: bool) -> Any:  # noqa: ANN401 -- an Arrow stream
        """Read records."""
        columns = [name for name in COLUMNS if body or name != "value"]
        bounds: dict[str, Any] = {
            "begin": filters.begin,
            "end": filters.end,
            "columns": columns,
            "on_error": "skip" if filters.skip_damaged else "raise",
        }
        self._stream = self._records(filters, columns, bounds)
        return self._stream

    def passed_over(self) -> list[Finding]:
        """Name the batches that could not be read."""
        return [] if self._stream is None else self._stream.findings

    def _records(self, filters: Filters, columns: Sequence[str], bounds: dict[str, Any]) -> SegmentReader:
        if isinstance(self.opened, LogDir):
            if filters.queue is None:
                return self.opened.records(filters.topic, **bounds)
            if filters.topic is None:
                raise ValueError("a partition is one of a topic: give the topic, too")
            return self.opened.log(filters.topic, filters.queue).records(**bounds)
        opened = self.opened
        if filters.topic not in (None, opened.topic) or filters.queue not in (None, opened.partition):
            return opened.records(end_offset=0, columns=columns)
        return opened.records(**bounds)

    def as_text(self, row: dict[str, Any]) -> str:
        """Write one record for people."""
        return record_text(row)

    def as_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Turn one record into what JSON holds."""
        return record_json(row)

    def verify(self, progress: Callable[[int, int], None], *, deep: bool = True) -> Report:
        """Check everything; tells the progress in bytes of `.log` files."""
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
        """Let the files go."""
        self.opened.close()


def _times(segments: Sequence[LogSegment]) -> tuple[int | None, int | None]:
    """Give the time of the first record and the largest of all, in ms; None where none is told. Reads one batch a call."""
    held = [segment for segment in segments if segment.size]
    begin = end = None
    with contextlib.suppress(CorruptFileError):
        largest = max((segment.max_timestamp()[0] for segment in held), default=-1)
        end = largest if largest >= 0 else None
        first = held[0].read(held[0].base_offset, 1) if held else None
        if first is not None:
            end_position = first.position + first.size
            records = held[0].core.records(
                begin_position=first.position, end_position=end_position, columns=["timestamp"], control=True
            )
            times = [time for batch in records for time in batch.column(0).cast(DataType.int64()).to_pylist()]
            begin = next((time for time in times if time is not None and time >= 0), None)
    return begin, end


def _broker(log_dir: Path) -> str:
    with contextlib.suppress(OSError):
        holder = broker_lock_holder(log_dir / ".lock")
        if holder is not None:
            return f"running, process {holder}"
    clean = (log_dir / checkpoint.CLEAN_SHUTDOWN).exists()
    return (
        "stopped cleanly"
        if clean
        else "stopped without warning, or running elsewhere (.kafka_cleanshutdown is missing)"
    )


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


def recognise(path: Path, **options: Any) -> KafkaSource | None:  # noqa: ANN401, ARG001 -- those of other kinds
    """Open a path that is a log directory, a partition's directory or a segment."""
    parsed = parse_segment_file(path.name)
    if path.is_file():
        return KafkaSource(LogSegment.open(path)) if parsed is not None and parsed[1] == LOG else None
    if not path.is_dir():
        return None
    if Log.lies_at(path):
        return KafkaSource(Log.open(path))
    return KafkaSource(LogDir.open(path)) if LogDir.lies_at(path) else None


def open_kafka(path: Path) -> KafkaSource | Part:
    """Open a path of Kafka, or a part of one.

    Raises:
        OSError: Nothing lies there.
        ValueError: What lies there is not Kafka's.
    """
    source = recognise(path) or kafka_part.recognise(path)
    if source is not None:
        return source
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    raise ValueError(f"{path}: no Kafka log directory, no partition's directory, no file of a segment")


def record_text(row: dict[str, Any]) -> str:
    """Write a record for people: one line, and its value below where it was read."""
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
    """Turn a record into what JSON holds: times in ms, bytes that are no text as base64 under another name."""
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
