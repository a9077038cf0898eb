"""`logdex info`, `verify`, `cat` and `export`: commands that take any path."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Any, get_args

from logdex._core import SegmentReader, csv_lines, csv_names, json_lines, local_path, locate, time_text
from logdex._files import new_file, refuse_broker_directory
from logdex.cli.arguments import (
    FILTERS,
    OPEN,
    add_options,
    add_source,
    command,
    count,
    open_options,
    settle_times,
    word,
)
from logdex.cli.commands import SUMMARIES
from logdex.cli.output import (
    SHOWN_FAULTS,
    Progress,
    complain,
    limited_batches,
    say,
    say_facts,
    say_json,
    say_report,
    say_rows,
    table,
)
from logdex.cli.sources import kafka, nothing_matches, open_first, rocketmq
from logdex.errors import CorruptFileError, LogdexError
from logdex.kafka.find import UnreadRange
from logdex.report import near_names, size_text
from logdex.usage import By

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO, TypeAlias

    from arro3.core import RecordBatch, Schema

    from logdex._core import BatchStream
    from logdex.cli.arguments import Subparsers
    from logdex.cli.sources import LogRead, Source

    _Write: TypeAlias = Callable[[RecordBatch], object]
    _Format: TypeAlias = Callable[..., AbstractContextManager[_Write]]

_PATH = "a store, a commit log, an index directory or file; a Kafka log directory, or a part of it"
_STORE = "the store, or its commit log"
_POLL_SECONDS = 0.5
_EXPECTED = (
    "expected a store (holds commitlog), an index directory (files named by 17 digits) "
    "or a Kafka log directory (<topic>-<partition>); found none of them"
)
KINDS: tuple[Callable[..., Source | None], ...] = (
    *(rocketmq.open_store, rocketmq.open_index),
    *(kafka.open_source, rocketmq.open_part, kafka.open_part),
)

_INFO = """\
Prints kind, files, ranges of offsets and times, and the geometry of the index. It is fast:
only the newest file of the log is scanned.

  logdex info /data/store
  logdex info /data/store/index
  logdex info /backup/20261121193005123"""

_VERIFY = """\
Reads and checks everything: the log, its queues against the log, its index against both, in
both directions. docs/findings.md lists all kinds of findings. Changes nothing.

  logdex verify /data/store
  logdex verify /data/store/index --json | jq -r .kind | sort | uniq -c"""

_DU = """\
A RocketMQ store is counted by its queues, without reading the log: bytes of the messages'
frames. A Kafka directory is counted by its segments: bytes of the .log files, and offsets, of
which compaction and transactions leave fewer records.

  logdex du /data/store
  logdex du /data/store --by day --json"""

_GROUPS = """\
Prints the next offset that each group reads, the end of the queue or partition, and the lag
between them: of a RocketMQ store from `config/consumerOffset.json`, as the broker wrote it last;
of Kafka from the records of `__consumer_offsets`.

  logdex groups /data/store
  logdex groups /var/kafka-logs billing --json"""

_CAT = """\
Prints messages in log order. With a topic, a queue or times, the consume queues are used if
they can be trusted; else the log is scanned.

  logdex cat /data/store --topic Orders --begin -2h --body
  logdex cat /data/store --tail 10 --follow
  logdex cat /data/store --json | jq -r .keys"""

_EXPORT = """\
The extension is the format: .parquet (needs pyarrow), .json or .jsonl (JSON lines, as
`cat --json --body` prints them), .csv. Bodies are decompressed; one that is not UTF-8 is base64
in body_base64. README.md lists the columns. The file gets its name only when it is complete.

  logdex export /data/store orders.parquet --topic Orders --begin 2026-11-20
  logdex export /data/store heads.csv --no-body
  logdex export /data/store - | jq -r .keys"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(subparsers, "info", SUMMARIES["paths"]["info"], _INFO, info)
    add_source(parser, "path", _PATH)
    add_options(parser, "--sealed")
    parser = command(subparsers, "verify", SUMMARIES["paths"]["verify"], _VERIFY, verify)
    add_source(parser, "path", _PATH)
    add_options(parser, "--sealed")
    faults = f"print at most N kinds of faults in files (default: {SHOWN_FAULTS}); --json prints every fault"
    parser.add_argument("--limit", type=count, default=SHOWN_FAULTS, metavar="N", help=faults)
    parser = command(subparsers, "du", SUMMARIES["paths"]["du"], _DU, du)
    add_source(parser, "path", "a store, or a Kafka log directory")
    by = "what to add up (default: topic); days are in UTC"
    parser.add_argument("--by", choices=get_args(By), default="topic", help=by)
    parser = command(subparsers, "groups", SUMMARIES["paths"]["groups"], _GROUPS, groups)
    parser.add_argument("path", metavar="PATH", help="a store, or a Kafka log directory")
    parser.add_argument("group", metavar="GROUP", nargs="?", type=word, help="only this group")
    add_options(parser, *OPEN)
    parser = command(subparsers, "cat", SUMMARIES["paths"]["cat"], _CAT, cat)
    parser.add_argument("path", metavar="STORE", help=_STORE)
    add_options(parser, *FILTERS, *OPEN, "--body")
    parser.add_argument("--tail", type=count, metavar="N", help="only the last N rows; of Kafka, of each partition")
    parser.add_argument("--follow", action="store_true", help="then wait for new rows, until Ctrl-C")
    parser = command(subparsers, "export", SUMMARIES["paths"]["export"], _EXPORT, export)
    parser.add_argument("path", metavar="STORE", help=_STORE)
    target = ".parquet, .json, .jsonl or .csv, and must not exist; - prints JSON lines"
    parser.add_argument("file", metavar="FILE", help=target)
    add_options(parser, *FILTERS, *OPEN)
    parser.add_argument("--no-body", action="store_true", help="leave out the bodies")
    compressions = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    parser.add_argument("--compression", choices=compressions, help="of Parquet (default: snappy)")


def info(arguments: argparse.Namespace) -> int:
    """Describe the path; 0 if it can be read."""
    with _open(arguments) as source:
        description = source.describe()
    if arguments.json:
        listings = {
            listing.title.replace(" ", "_"): [dict(zip(listing.heads, row, strict=True)) for row in listing.rows]
            for listing in description.listings
        }
        say_json({"path": str(arguments.path), "kind": description.kind, **description.facts, **listings})
        return 0
    say(f"{arguments.path}: {description.kind}")
    say_facts([(_words(name), _shown(name, value)) for name, value in description.facts.items()], indent="  ")
    for listing in description.listings:
        say()
        rows = [[_shown(name, value) for name, value in zip(listing.heads, row, strict=True)] for row in listing.rows]
        table(rows, [_words(name) for name in listing.heads], indent="  ")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 if there are any."""
    with _open(arguments) as source, Progress("verify") as progress:
        report = source.verify(progress)
    return say_report(report, json=arguments.json, limit=arguments.limit)


def du(arguments: argparse.Namespace) -> int:
    """Print messages and bytes; 1 if there are none."""
    with _open(arguments) as source:
        rows = source.usage(arguments.by)
    names = {"topic": ("topic",), "queue": ("topic", "queue_id"), "day": ("day",)}[arguments.by]
    heads = (*names, "messages", "log_bytes")
    cells = [[getattr(row, name) for name in heads] for row in rows]
    if arguments.json:
        for row in cells:
            say_json(dict(zip(heads, row, strict=True)))
        return 0 if rows else 1
    total = ["total", *[None] * (len(names) - 1), sum(row.messages for row in rows), sum(row.log_bytes for row in rows)]
    table(
        [[*row[:-1], size_text(row[-1])] for row in [*cells, total]],
        [*map(_words, names), "messages", "bytes"],
    )
    return 0 if rows else 1


def groups(arguments: argparse.Namespace) -> int:
    """Print offset, end and lag of each group and queue; 1 if there are none."""
    with _open(arguments) as source:
        everyone = source.groups(None)
    rows = [row for row in everyone if arguments.group in (None, row.group)]
    if not everyone:
        complain("no consumer group has committed an offset here")
    elif not rows:
        near = near_names(arguments.group, {row.group for row in everyone})
        complain(f"no consumer group {arguments.group!r} here; {near}")
    if arguments.json:
        for row in rows:
            say_json({**row._asdict(), "lag": row.lag})
    elif rows:
        heads = ("group", "topic", "queue_id", "offset", "end_offset", "lag", "commit_timestamp")
        cells = [[_shown(name, getattr(row, name)) for name in heads] for row in rows]
        shown = [at for at in range(len(heads)) if at < len(heads) - 1 or any(row[at] is not None for row in cells)]
        table([[row[at] for at in shown] for row in cells], [_words(heads[at]) for at in shown])
    return 0 if rows else 1


def cat(arguments: argparse.Namespace) -> int:
    """Print the rows; 1 if no row passes the filters."""
    with _open(arguments) as source, _reporting_unread(source, arguments):
        if arguments.tail is not None or arguments.follow:
            printed = _cat_logs(source, arguments)
        else:
            stream = source.rows(arguments, body=arguments.body)
            printed = say_rows(limited_batches(stream, arguments.limit), as_json=arguments.json)
            _say_passed_over(stream)
        if arguments.tail != 0:
            _say_nothing(source, arguments, printed)
    return 0 if printed else 1


def _cat_logs(source: Source, arguments: argparse.Namespace) -> int:
    """Print the last rows of each log, or all, and then with `--follow` those that come; return their number."""
    logs = source.logs(arguments, body=arguments.body)
    places, ends, left = [], [], sys.maxsize if arguments.limit is None else arguments.limit
    printed = 0
    for log in logs:
        begin, end = log.bounds()
        places.append(max(begin, end))
        ends.append(end)
        if arguments.tail is None:
            stream = log.read(begin, end)
            printed += say_rows(limited_batches(stream, left - printed), as_json=arguments.json)
            _say_passed_over(stream)
        else:
            batches = _last_rows(log, end, arguments.tail)
            printed += say_rows(limited_batches(batches, left - printed), as_json=arguments.json)
    while arguments.follow and printed < left:
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)
        for at, log in enumerate(logs):
            begin, end = log.bounds()
            if end < ends[at]:
                complain(f"{log.name} was truncated: it ends at offset {end:,}, and ended at {ends[at]:,}")
                places[at] = max(begin, end)
            elif begin > places[at]:
                complain(f"{log.name} begins at offset {begin:,} now: from {places[at]:,} on it was deleted unread")
                places[at] = begin
            ends[at] = end
            if end > places[at]:
                stream = log.read(places[at], end)
                printed += say_rows(limited_batches(stream, left - printed), as_json=arguments.json)
                _say_passed_over(stream)
                places[at] = end
    return printed


def _last_rows(log: LogRead, end: int, num: int) -> Iterator[RecordBatch]:
    """Read the last rows before an offset, from ever farther back until there are enough."""
    batches: deque[RecordBatch] = deque()
    rows, stream = 0, None
    for begin in log.starts(end, num) if num else ():
        batches, rows = deque(), 0
        stream = log.read(begin, end)
        for batch in stream:
            batches.append(batch)
            rows += batch.num_rows
            while rows - batches[0].num_rows >= num:
                rows -= batches.popleft().num_rows
        if rows >= num:
            break
    if stream is not None:
        _say_passed_over(stream)
    if batches:
        batches[0] = batches[0].slice(max(0, rows - num))
    return iter(batches)


def export(arguments: argparse.Namespace) -> int:
    """Write the file; 1 if no row passes the filters, with a file of no rows."""
    if arguments.file == "-":
        return 0 if _write(_json, sys.stdout.buffer, arguments) else 1
    target = local_path(arguments.file)
    write = _FORMATS.get(target.suffix.lower())
    if write is None:
        found = target.suffix or "no extension"
        raise ValueError(f"{target}: expected {', '.join(_FORMATS)}, or - for standard output, found {found}")
    if arguments.compression and write is not _parquet:
        raise ValueError(f"--compression {arguments.compression}: expected a .parquet file, found {target}")
    refuse_broker_directory(target)
    with new_file(target) as sink:
        rows = _write(write, sink, arguments)
    size = target.stat().st_size
    if arguments.json:
        say_json({"file": str(target), "rows": rows, "bytes": size})
    else:
        say(f"{target}: {rows:,} rows, {size_text(size)}")
    return 0 if rows else 1


@contextlib.contextmanager
def _parquet(sink: BinaryIO, schema: Schema, arguments: argparse.Namespace) -> Iterator[_Write]:
    try:
        import pyarrow as pa  # noqa: PLC0415 -- optional
        from pyarrow import parquet  # noqa: PLC0415 -- optional
    except ImportError:
        raise LogdexError("export to Parquet needs pyarrow: pip install pyarrow; .json and .csv need nothing") from None
    with parquet.ParquetWriter(sink, pa.schema(schema), compression=arguments.compression or "snappy") as writer:
        yield lambda batch: writer.write_batch(pa.record_batch(batch))


@contextlib.contextmanager
def _json(sink: BinaryIO, *_: object) -> Iterator[_Write]:
    yield lambda batch: json_lines(batch, sink.write)


@contextlib.contextmanager
def _csv(sink: BinaryIO, schema: Schema, _: object) -> Iterator[_Write]:
    sink.write(csv_names(schema).encode())
    yield lambda batch: sink.write(csv_lines(batch).encode())


_FORMATS: dict[str, _Format] = {".parquet": _parquet, ".json": _json, ".jsonl": _json, ".csv": _csv}


def _write(write: _Format, sink: BinaryIO, arguments: argparse.Namespace) -> int:
    """Write the rows. The progress is the position in the log, or the bytes of batches without `phy_offset`."""
    rows = 0
    with _open(arguments) as source, _reporting_unread(source, arguments), Progress("export") as progress:
        stream = source.rows(arguments, body=not arguments.no_body)
        log = getattr(source.opened, "commit_log", None)
        begin, total = (None, None) if log is None else (log.min_offset, log.max_offset - log.min_offset)
        with write(sink, stream.schema, arguments) as write_batch:
            for batch in limited_batches(stream, arguments.limit):
                write_batch(batch)
                rows += batch.num_rows
                if begin is not None and "phy_offset" in batch.column_names:
                    progress(batch.column("phy_offset")[batch.num_rows - 1].as_py() - begin, total)
                else:
                    progress.add(batch.nbytes)
        _say_passed_over(stream)
        _say_nothing(source, arguments, rows)
    return rows


def _say_nothing(source: Source, arguments: argparse.Namespace, rows: int) -> None:
    """Print on standard error what is there, if no row passed the filters."""
    if not rows and arguments.limit != 0:
        complain(nothing_matches(arguments, arguments.topic or (), *source.held(arguments.topic)))


def _open(arguments: argparse.Namespace) -> Source:
    source = open_first(locate(arguments.path), KINDS, _EXPECTED, **open_options(arguments))
    if hasattr(arguments, "begin"):
        settle_times(arguments, lambda: source.held(None)[1])
    return source


@contextlib.contextmanager
def _reporting_unread(source: Source, arguments: argparse.Namespace) -> Iterator[None]:
    """Print on standard error how much is unread if damage ends a read. The caller prints the error later."""
    try:
        yield
    except CorruptFileError as error:
        if left := source.bytes_after(arguments, error.path, error.offset):
            complain(f"stopped at damage, {size_text(left)} of the log are unread; --skip-damaged reads on after it")
        raise


def _say_passed_over(stream: BatchStream | SegmentReader) -> None:
    """Print on standard error the unfinished end of a Kafka log and the offsets that damage hides. The damage is logged."""
    stream.close()
    if isinstance(stream, SegmentReader):
        damage = stream.damage
        for finding in (each for each in stream.findings if each not in damage):
            complain(str(finding))
        for (topic, partition), unread in groupby(stream.unread, lambda each: each[:2]):
            ranges = list(unread)
            others = f" and in {len(ranges) - 1:,} more places" if len(ranges) > 1 else ""
            size = size_text(sum(bytes_ for *_, bytes_ in ranges))
            offsets = UnreadRange(0, *ranges[0][2:4]).offsets
            complain(
                f"{topic}-{partition}: {offsets}{others} are unread, {size} of damaged batches; reading went on after "
                "them (--skip-damaged, the default; --no-skip-damaged stops there)"
            )


def _words(name: str) -> str:
    """Return the name of a fact as words. The unit is printed with the value."""
    return name.removesuffix("_bytes").replace("_timestamp", "").replace("_", " ")


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 -- facts of every type
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_timestamp") and isinstance(value, int):
        return time_text(value)
    return size_text(value) if name.endswith("_bytes") and value is not None else value
