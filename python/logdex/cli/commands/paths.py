"""`logdex info`, `verify`, `cat` and `export`: commands that take any path."""

from __future__ import annotations

import contextlib
import errno
import sys
from typing import TYPE_CHECKING, Any

from logdex._core import SegmentReader, csv_lines, csv_names, json_lines, local_path, time_text
from logdex.cli.arguments import FILTERS, OPEN, add_options, add_source, command, open_options
from logdex.cli.output import (
    Progress,
    complain,
    limited_batches,
    say,
    say_facts,
    say_json,
    say_report,
    say_rows,
    size_text,
    table,
)
from logdex.cli.sources import kafka, nothing_matches, open_first, rocketmq
from logdex.errors import LogdexError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO, TypeAlias

    from arro3.core import RecordBatch, Schema

    from logdex._core import BatchStream
    from logdex.cli.arguments import Subparsers
    from logdex.cli.sources import Source

    _Write: TypeAlias = Callable[[RecordBatch], object]
    _Format: TypeAlias = Callable[..., AbstractContextManager[_Write]]

_PATH = "a store, a commit log, an index directory or file; a Kafka log directory, or a part of it"
_STORE = "the store, or its commit log"
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

_CAT = """\
Prints messages in log order. With a topic, a queue or times, the consume queues are used if
they can be trusted; else the log is scanned.

  logdex cat /data/store --topic Orders --begin -2h --body
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
    add_source(command(subparsers, "info", "describe the store, log or index at a path", _INFO, info), "path", _PATH)
    add_source(command(subparsers, "verify", "check every byte that has a meaning", _VERIFY, verify), "path", _PATH)
    parser = command(subparsers, "cat", "print messages", _CAT, cat)
    parser.add_argument("path", metavar="STORE", help=_STORE)
    add_options(parser, *FILTERS, *OPEN, "--body")
    parser = command(subparsers, "export", "write messages into a Parquet, JSON or CSV file", _EXPORT, export)
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
    return say_report(report, json=arguments.json)


def cat(arguments: argparse.Namespace) -> int:
    """Print the rows; 1 if no row passes the filters."""
    with _open(arguments) as source:
        stream = source.rows(arguments, body=arguments.body)
        printed = say_rows(limited_batches(stream, arguments.limit), as_json=arguments.json)
        _say_passed_over(stream)
        _say_nothing(source, arguments, printed)
    return 0 if printed else 1


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
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the file exists already", str(target))
    part = target.with_name(target.name + ".part")
    # "x": another export may be writing this file.
    sink = part.open("xb")
    try:
        with sink:
            rows = _write(write, sink, arguments)
        part.rename(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
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
    yield lambda batch: json_lines(batch, lambda text: sink.write(text.encode()))


@contextlib.contextmanager
def _csv(sink: BinaryIO, schema: Schema, _: object) -> Iterator[_Write]:
    sink.write(csv_names(schema).encode())
    yield lambda batch: sink.write(csv_lines(batch).encode())


_FORMATS: dict[str, _Format] = {".parquet": _parquet, ".json": _json, ".jsonl": _json, ".csv": _csv}


def _write(write: _Format, sink: BinaryIO, arguments: argparse.Namespace) -> int:
    """Write the rows. The progress is the position in the log, or the bytes of batches without `phy_offset`."""
    rows = 0
    with _open(arguments) as source, Progress("export") as progress:
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
        complain(nothing_matches(arguments, *source.held(arguments.topic)))


def _open(arguments: argparse.Namespace) -> Source:
    return open_first(local_path(arguments.path), KINDS, _EXPECTED, **open_options(arguments))


def _say_passed_over(stream: BatchStream | SegmentReader) -> None:
    """Print on standard error the unfinished end of a Kafka log. Damage that the rows leave out is logged at their end."""
    stream.close()
    if isinstance(stream, SegmentReader):
        damage = stream.damage
        for finding in (each for each in stream.findings if each not in damage):
            complain(str(finding))


def _words(name: str) -> str:
    """Return the name of a fact as words. The unit is printed with the value."""
    return name.removesuffix("_bytes").replace("_timestamp", "").replace("_", " ")


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 -- facts of every type
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_timestamp") and isinstance(value, int):
        return time_text(value)
    return size_text(value) if name.endswith("_bytes") and value is not None else value
