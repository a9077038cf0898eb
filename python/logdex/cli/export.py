"""`logdex export`: rows of a log as a Parquet file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from logdex.arrow import BatchStream
from logdex.cli.arguments import add_filters, add_open_options, command, open_options
from logdex.cli.cat import filters_of, say_passed_over
from logdex.cli.kinds import open_source
from logdex.cli.output import say, say_json, size_text
from logdex.cli.progress import Progress
from logdex.cli.rows import limited_batches
from logdex.errors import LogdexError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex.cli.arguments import Subparsers
    from logdex.cli.source import Source

_DETAILS = """\
Needs pyarrow (pip install pyarrow). Columns as in the documents; bodies decompressed. The
file appears under its name when it is whole.

  logdex export /data/store orders.parquet --topic Orders --begin 2026-11-20
  logdex export /data/store heads.parquet --no-body --compression zstd"""


_COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "export", "write messages into a Parquet file", _DETAILS)
    parser.add_argument("path", metavar="STORE", help="the store, or its commit log")
    parser.add_argument("file", metavar="FILE.parquet", help="the file to write; must not be there")
    add_filters(parser)
    add_open_options(parser)
    parser.add_argument("--no-body", action="store_true", help="without the bodies")
    parser.add_argument(
        "--compression", choices=_COMPRESSIONS, default="snappy", help="of Parquet (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the file; 1 where no row passes the filters, with a file of no rows."""
    target = Path(arguments.file)
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the file exists already", str(target))
    parquet = _parquet()
    part = target.with_name(target.name + ".part")
    # Not one that is there: another export may be writing it.
    sink = part.open("xb")
    try:
        with (
            sink,
            open_source(arguments.path, **open_options(arguments)) as source,
            Progress("export") as progress,
        ):
            stream = source.rows(filters_of(arguments), body=not arguments.no_body)
            rows = _write(parquet, sink, _with_progress(stream, source, progress), arguments)
            say_passed_over(source)
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


def _write(parquet: Any, sink: BinaryIO, stream: BatchStream, arguments: argparse.Namespace) -> int:  # noqa: ANN401 -- pyarrow
    import pyarrow as pa  # noqa: PLC0415 -- optional

    rows = 0
    with parquet.ParquetWriter(sink, pa.schema(stream.schema), compression=arguments.compression) as writer:
        for batch in limited_batches(stream, arguments.limit):
            writer.write_batch(pa.record_batch(batch))
            rows += batch.num_rows
    return rows


def _with_progress(stream: Any, source: Source, progress: Progress) -> BatchStream:  # noqa: ANN401 -- PyCapsule
    """Tell how far the log was read; where its rows do not say, how much of it came."""
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
