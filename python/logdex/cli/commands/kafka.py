"""`logdex kafka`: dump, find, verify, rebuild-index, build-index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from logdex._core import dump_file, locate
from logdex.cli.arguments import (
    TIERED,
    TIMES,
    Command,
    add_options,
    add_source,
    count,
    int32,
    open_options,
    raw_bytes,
    word,
)
from logdex.cli.commands.build_index import build_key_index
from logdex.cli.commands.verify import say_verified
from logdex.cli.output import Progress, complain, finding_row, say, say_built, say_json, say_lines
from logdex.cli.sources import open_path
from logdex.cli.sources.kafka import files_to_dump
from logdex.kafka import Log, LogSegment, ProducerState
from logdex.kafka.files import LOG
from logdex.kafka.log import INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES, refuse_rebuild_into
from logdex.source import Kind, kind_to_open

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Commands for Kafka only. `logdex info`, `cat`, `export` and `verify` take Kafka paths, too: a
log directory, a partition, a segment. `logdex find` and `build-index` take a log directory.

  logdex kafka dump orders-0 --print-data-log
  logdex kafka find /var/kafka-logs orders order-1001 --index /var/key-index
  logdex kafka rebuild-index orders-0 --to /tmp/indexes"""

_DUMP = """\
Prints the batches of a .log file, the entries of an index, the producers of a .snapshot: the
lines of kafka-dump-log, without a JVM. Faults are listed at the end. The records of internal
topics, such as __consumer_offsets, are decoded.

  logdex kafka dump orders-0/00000000000000000000.log
  logdex kafka dump orders-0 --print-data-log
  logdex kafka dump orders-0/00000000000000000000.log --deep --json | jq -r .offset"""

_FIND = """\
Compares the key of each record: the index holds hashes. What no index covers is scanned, and
a message reports it. `logdex seal` writes an index of all topics that needs one read.

  logdex kafka build-index /var/kafka-logs /var/key-index --topic orders
  logdex kafka find /var/kafka-logs orders order-1001 --index /var/key-index
  logdex kafka find /var/kafka-logs orders order-1001 --begin -2d --max 1 --json"""

_VERIFY = """\
Checks batches, records, indexes and the files next to them against each other.
docs/findings.md lists all kinds of findings. Changes nothing.

  logdex kafka verify /var/kafka-logs
  logdex kafka verify orders-0 --shallow"""

_REBUILD = """\
Writes the index files that a broker's recovery would write for the .log files, which stay
unchanged. With --in-place they replace those of the partition; stop the broker first.

  logdex kafka rebuild-index orders-0 --to /tmp/indexes
  logdex kafka rebuild-index orders-0 --in-place --index-interval-bytes 4096"""

_BUILD = """\
Builds an index from record keys to offsets, one directory for each partition, or continues
one that an earlier call began. Kafka's own files are only read.

  logdex kafka build-index /var/kafka-logs /var/key-index --topic orders"""
_LOG_DIR = "the broker's log directory (log.dirs), or a copy of it"


def _add_dump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files of a segment, or a partition's directory")
    add_options(parser, "--storage")
    parser.add_argument("--deep", "--deep-iteration", action="store_true", help="print the records of each batch, too")
    parser.add_argument("--print-data-log", action="store_true", help="print the records with keys and values")


def _dump(arguments: argparse.Namespace) -> int:
    """Print files; 1 if they have faults."""
    data = arguments.print_data_log
    options = {"records": arguments.deep or data, "data": data, "json": arguments.json}
    findings = []
    for path in files_to_dump([locate(path) for path in arguments.paths]):
        if not arguments.json:
            say(f"Dumping {path}")
        findings += dump_file(path, sys.stdout.write if arguments.json else say_lines, **options).findings
    for finding in findings:
        if arguments.json:
            say_json({"type": "finding", **finding_row(finding)})
        else:
            complain(f"{finding.kind} in {finding}")
    return 1 if findings else 0


def _add_find(parser: argparse.ArgumentParser) -> None:
    add_source(parser, _LOG_DIR, metavar="LOG_DIR")
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic")
    parser.add_argument("key", type=raw_bytes, metavar="KEY", help="the key, or the value of --header")
    add_options(parser, "--index", "--header", "--sealed", *TIMES, *TIERED)
    parser.add_argument("--max", type=count, metavar="N", help="at most N records")
    parser.add_argument("--body", action="store_true", help="print the values, too")


def _find(arguments: argparse.Namespace) -> int:
    """Print records; 1 if there are none."""
    with open_path(arguments) as opened:
        return opened.find(arguments)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "a log directory, a partition's directory, a file of a segment")
    parser.add_argument("--shallow", action="store_true", help="do not decode the records")
    add_options(parser, "--sealed", *TIERED)


def _verify(arguments: argparse.Namespace) -> int:
    """Print findings; 1 if there are any."""
    with open_path(arguments) as opened:
        with Progress("verify") as progress:
            report = opened.verify(progress, deep=not arguments.shallow)
        return say_verified(opened, report, as_json=arguments.json)


def _add_rebuild(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "a partition's directory, or a .log file")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="DIR", help="where to write; existing files are not replaced")
    where.add_argument("--in-place", action="store_true", help="next to the log; existing files are replaced")
    parser.add_argument("--index-interval-bytes", type=int32, default=INDEX_INTERVAL_BYTES, metavar="N")
    parser.add_argument("--max-index-bytes", type=int32, default=MAX_INDEX_BYTES, metavar="N")


def _rebuild(arguments: argparse.Namespace) -> int:
    """Write index files; 1 if the log has faults."""
    path = locate(arguments.path)
    options: dict[str, Any] = {
        "index_interval_bytes": arguments.index_interval_bytes,
        "max_index_bytes": arguments.max_index_bytes,
        "overwrite": arguments.in_place,
    }
    if path.suffix == LOG:
        if arguments.to:
            refuse_rebuild_into(arguments.to, path.parent)
        with LogSegment.open(path) as segment:
            report = segment.rebuild_indexes(arguments.to or path.parent, producers=ProducerState(), **options)
    else:
        with Log.open(path) as log:
            if not log.segments:
                raise ValueError(f"{path}: expected a partition's directory, found no .log file")
            report = log.rebuild_indexes(arguments.to or path, **options)
    return say_built(report, str(arguments.to or path), as_json=arguments.json)


def _add_build(parser: argparse.ArgumentParser) -> None:
    add_source(parser, _LOG_DIR, metavar="LOG_DIR")
    parser.add_argument("directory", metavar="DIR", help="where the index goes")
    add_options(parser, "--topic")
    parser.add_argument("--header", type=word, metavar="NAME", help="index the values of this header, too")
    add_options(parser, *TIERED)


def _build(arguments: argparse.Namespace) -> int:
    """Write key index files; 1 if damaged batches were skipped."""
    options = open_options(arguments)
    if kind_to_open(locate(arguments.path), {**options, "sealed": "never"}) is not Kind.LOG_DIR:
        locate(arguments.path).stat()
        raise ValueError(f"{arguments.path}: no Kafka log directory, it holds no <topic>-<partition>")
    return build_key_index(arguments)


COMMAND = Command(
    "kafka",
    "segments and indexes of Kafka: dump, find, verify, rebuild-index, build-index",
    _DETAILS,
    commands=(
        Command("dump", "print the content of segment files", _DUMP, _add_dump, _dump),
        Command("find", "find records by key, the newest first", _FIND, _add_find, _find),
        Command("verify", "check every byte that has a meaning", _VERIFY, _add_verify, _verify),
        Command("rebuild-index", "rebuild index files from the log", _REBUILD, _add_rebuild, _rebuild),
        Command("build-index", "index records by their keys", _BUILD, _add_build, _build),
    ),
)
