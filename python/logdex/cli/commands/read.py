"""`logdex cat` and `logdex export`: the rows of a log, as text or as a Parquet file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from logdex.arrow import BatchStream
from logdex.cli.arguments import add_filters, add_open_options, command, open_options
from logdex.cli.output import Progress, complain, say, say_json, size_text
from logdex.cli.rows import limited_batches, limited_rows
from logdex.cli.sources import Filters
from logdex.cli.sources.registry import open_source
from logdex.errors import LogdexError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex.cli.arguments import Subparsers
    from logdex.cli.sources import Source

_CAT = """\
Prints messages in log order. With a topic, a queue or times, the consume queues are used if
they can be trusted; else the log is scanned.

  logdex cat /data/store --topic Orders --begin -2h --body
  logdex cat /data/store --json | jq -r .keys"""

_EXPORT = """\
Needs pyarrow (pip install pyarrow). README.md lists the columns; bodies are decompressed.
The file gets its name only when it is complete.

  logdex export /data/store orders.parquet --topic Orders --begin 2026-11-20
  logdex export /data/store heads.parquet --no-body --compression zstd"""

_COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(subparsers, "cat", "print messages", _CAT)
    parser.add_argument("path", metavar="STORE", help="the store, or its commit log")
    add_filters(parser)
    add_open_options(parser)
    parser.add_argument("--body", action="store_true", help="print the bodies, too")
    parser.set_defaults(run=cat)
    parser = command(subparsers, "export", "write messages into a Parquet file", _EXPORT)
    parser.add_argument("path", metavar="STORE", help="the store, or its commit log")
    parser.add_argument("file", metavar="FILE.parquet", help="the file to write; it must not exist")
    add_filters(parser)
    add_open_options(parser)
    parser.add_argument("--no-body", action="store_true", help="leave out the bodies")
    parser.add_argument(
        "--compression", choices=_COMPRESSIONS, default="snappy", help="of Parquet (default: %(default)s)"
    )
    parser.set_defaults(run=export)


def cat(arguments: argparse.Namespace) -> int:
    """Print the rows; 1 if no row passes the filters."""
    printed = 0
    with open_source(arguments.path, **open_options(arguments)) as source:
        stream = source.rows(_filters(arguments), body=arguments.body)
        for row in limited_rows(stream, arguments.limit):
            if arguments.json:
                say_json(source.as_json(row))
            else:
                say(source.as_text(row))
            printed += 1
        _say_passed_over(source)
    return 0 if printed else 1


def export(arguments: argparse.Namespace) -> int:
    """Write the file; 1 if no row passes the filters, with a file of no rows."""
    target = Path(arguments.file)
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the file exists already", str(target))
    parquet = _parquet()
    part = target.with_name(target.name + ".part")
    # "x": another export may be writing this file.
    sink = part.open("xb")
    try:
        with (
            sink,
            open_source(arguments.path, **open_options(arguments)) as source,
            Progress("export") as progress,
        ):
            stream = source.rows(_filters(arguments), body=not arguments.no_body)
            rows = _write(parquet, sink, _with_progress(stream, source, progress), arguments)
            _say_passed_over(source)
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


def _filters(arguments: argparse.Namespace) -> Filters:
    return Filters(arguments.topic, arguments.queue, arguments.begin, arguments.end, arguments.skip_damaged)


def _say_passed_over(source: Source) -> None:
    """Print on standard error which damaged parts are left out."""
    for finding in source.passed_over():
        complain(f"{finding.path} at byte {finding.offset}: expected {finding.expected}, found {finding.found}")


def _write(parquet: Any, sink: BinaryIO, stream: BatchStream, arguments: argparse.Namespace) -> int:  # noqa: ANN401 -- pyarrow
    import pyarrow as pa  # noqa: PLC0415 -- optional

    rows = 0
    with parquet.ParquetWriter(sink, pa.schema(stream.schema), compression=arguments.compression) as writer:
        for batch in limited_batches(stream, arguments.limit):
            writer.write_batch(pa.record_batch(batch))
            rows += batch.num_rows
    return rows


def _with_progress(stream: Any, source: Source, progress: Progress) -> BatchStream:  # noqa: ANN401 -- PyCapsule
    """Report the position in the log after each batch, or the bytes of batches without `phy_offset`."""
    facts = source.describe().facts
    begin, total = facts.get("min_offset"), facts.get("log_bytes")

    def batches() -> Iterator[RecordBatch]:
        read = 0
        for batch in limited_batches(stream, None):
            if begin is not None and batch.num_rows and "phy_offset" in batch.column_names:
                progress(batch.column("phy_offset")[batch.num_rows - 1].as_py() - begin, total)
            else:
                read += batch.nbytes
                progress(read)
            yield batch

    return BatchStream(stream.schema, batches())


def _parquet() -> Any:  # noqa: ANN401 -- a module
    try:
        from pyarrow import parquet  # noqa: PLC0415 -- optional
    except ImportError:
        raise LogdexError("export needs pyarrow: pip install pyarrow") from None
    return parquet
