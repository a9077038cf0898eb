"""`logdex export`: messages in a Parquet, JSON or CSV file."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from logdex._core import csv_lines, csv_names, json_lines, local_path
from logdex._files import new_file, refuse_broker_directory
from logdex.cli.arguments import FILTERS, OPEN, STORE_OR_LOG, Command, add_options, add_source
from logdex.cli.output import Progress, complain, limited_batches, say, say_json
from logdex.cli.sources import open_path
from logdex.cli.sources.opened import nothing_matches
from logdex.errors import LogdexError
from logdex.report import size_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO, TypeAlias

    from arro3.core import RecordBatch, Schema

    _Write: TypeAlias = Callable[[RecordBatch], object]
    _Format: TypeAlias = Callable[..., AbstractContextManager[_Write]]

_DETAILS = """\
The extension is the format: .parquet (needs pyarrow), .json or .jsonl (JSON lines, as
`cat --json --body` prints them), .csv. Bodies are decompressed; one that is not UTF-8 is base64
in body_base64. README.md lists the columns. The file gets its name only when it is complete.

  logdex export /data/store orders.parquet --topic Orders --begin 2026-11-20
  logdex export /data/store heads.csv --no-body
  logdex export /data/store keys.csv --columns topic,keys,store_timestamp
  logdex export /data/store - | jq -r .keys"""


_GROUP_BYTES = 64 << 20
"""Bytes of a row group of Parquet before compression."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, STORE_OR_LOG, metavar="STORE")
    target = ".parquet, .json, .jsonl or .csv, and must not exist; - prints JSON lines"
    parser.add_argument("file", metavar="FILE", help=target)
    add_options(parser, *FILTERS, *OPEN, "--columns", "--decode", "--grep", "--where")
    parser.add_argument("--no-body", action="store_true", help="leave out the bodies")
    compressions = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    parser.add_argument("--compression", choices=compressions, help="of Parquet (default: snappy)")


def _run(arguments: argparse.Namespace) -> int:
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
    try:
        made = parquet.ParquetWriter(sink, pa.schema(schema), compression=arguments.compression or "snappy")
    except pa.ArrowNotImplementedError as error:
        # Unions of Avro.
        raise LogdexError(f"Parquet has no such type, .json and .csv have: {error}") from None
    group: list[pa.RecordBatch] = []
    size = 0

    def write(batch: RecordBatch) -> None:
        nonlocal size
        group.append(pa.record_batch(batch))
        size += group[-1].nbytes
        if size >= _GROUP_BYTES:
            write_group()

    def write_group() -> None:
        nonlocal size
        if group:
            writer.write_table(pa.Table.from_batches(group))
        group.clear()
        size = 0

    with made as writer:
        yield write
        write_group()


@contextlib.contextmanager
def _json(sink: BinaryIO, *_: object) -> Iterator[_Write]:
    yield lambda batch: json_lines(batch, sink.write)


@contextlib.contextmanager
def _csv(sink: BinaryIO, schema: Schema, _: object) -> Iterator[_Write]:
    sink.write(csv_names(schema).encode())
    yield lambda batch: sink.write(csv_lines(batch).encode())


_FORMATS: dict[str, _Format] = {".parquet": _parquet, ".json": _json, ".jsonl": _json, ".csv": _csv}


def _write(write: _Format, sink: BinaryIO, arguments: argparse.Namespace) -> int:
    """Write the rows; return their number."""
    rows = 0
    with open_path(arguments) as opened, opened.reporting_unread(arguments), Progress("export") as arguments.progress:
        with (
            opened.matching_rows(arguments, body=not arguments.no_body) as stream,
            write(sink, stream.schema, arguments) as write_batch,
        ):
            for batch in limited_batches(stream, arguments.limit):
                write_batch(batch)
                rows += batch.num_rows
        if not rows and arguments.limit != 0:
            complain(nothing_matches(arguments, arguments.topic or (), *opened.held(arguments.topic)))
    return rows


COMMAND = Command("export", "write messages into a Parquet, JSON or CSV file", _DETAILS, _add_arguments, _run)
