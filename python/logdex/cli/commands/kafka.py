"""`logdex kafka`: dump, find, verify, rebuild-index, build-index."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import dump_file, locate
from logdex.cli.arguments import TIERED, TIMES, add_options, command, count, int32, raw_bytes, settle_times, word
from logdex.cli.commands import SUMMARIES
from logdex.cli.output import Progress, complain, say, say_json, say_lines, say_report, say_rows
from logdex.cli.sources import nothing_matches, open_first
from logdex.cli.sources.kafka import files_to_dump, open_part, open_source
from logdex.kafka import Log, LogDir, LogSegment, ProducerState, build_key_index, explain, find
from logdex.kafka.files import LOG
from logdex.kafka.find import RECORD_COLUMNS
from logdex.kafka.log import INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES, refuse_rebuild_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from logdex.cli.arguments import Subparsers
    from logdex.cli.sources import Source

_T = TypeVar("_T")
_ANY_TOPIC = "*"
"""Argument for every topic of a RocketMQ store. No Kafka topic can have this name."""

_KAFKA = """\
Commands for Kafka only. `logdex info`, `cat`, `export` and `verify` take Kafka paths, too: a
log directory, a partition, a segment. `logdex find` and `build-index` take a log directory.

  logdex kafka dump orders-0 --print-data-log
  logdex kafka find /var/kafka-logs orders order-1001 --index /var/key-index
  logdex kafka rebuild-index orders-0 --to /tmp/indexes"""

_DUMP = """\
Prints the batches of a .log file, the entries of an index, the producers of a .snapshot: the
lines of kafka-dump-log, without a JVM. Faults are listed at the end.

  logdex kafka dump orders-0/00000000000000000000.log
  logdex kafka dump orders-0 --print-data-log
  logdex kafka dump orders-0/00000000000000000000.log --deep --json | jq -r .offset"""

_FIND = """\
Compares the key of each record: the index holds hashes. What no index covers is scanned, and
a message says so. `logdex seal` writes an index of all topics that needs one read.

  logdex kafka build-index /var/kafka-logs /var/key-index --topic orders
  logdex kafka find /var/kafka-logs orders order-1001 --index /var/key-index
  logdex kafka find /var/kafka-logs orders order-1001 --begin -2d --max 1 --json"""

_VERIFY = """\
Checks batches, records, indexes and the files beside them against each other.
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


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command and its subcommands."""
    parser = subparsers.add_parser(
        "kafka",
        help=SUMMARIES["kafka"]["kafka"],
        description=_KAFKA,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser = command(commands, "dump", "print the content of segment files", _DUMP, run_dump)
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files of a segment, or a partition's directory")
    parser.add_argument("--deep", "--deep-iteration", action="store_true", help="print the records of each batch, too")
    parser.add_argument("--print-data-log", action="store_true", help="print the records with keys and values")
    parser = command(commands, "find", "find records by key, the newest first", _FIND, run_find)
    parser.add_argument("store", metavar="LOG_DIR", help=_LOG_DIR)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic")
    parser.add_argument("key", type=raw_bytes, metavar="KEY", help="the key, or the value of --header")
    add_options(parser, "--index", "--header", "--sealed", *TIMES, *TIERED)
    parser.add_argument("--max", type=count, metavar="N", help="at most N records")
    parser.add_argument("--body", action="store_true", help="print the values, too")
    parser = command(commands, "verify", "check every byte that has a meaning", _VERIFY, run_verify)
    parser.add_argument("path", metavar="PATH", help="a log directory, a partition's directory, a .log file")
    parser.add_argument("--shallow", action="store_true", help="do not decode the records")
    add_options(parser, "--sealed", *TIERED)
    parser = command(commands, "rebuild-index", "rebuild index files from the log", _REBUILD, run_rebuild)
    parser.add_argument("path", metavar="PATH", help="a partition's directory, or a .log file")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="DIR", help="where to write; existing files are not replaced")
    where.add_argument("--in-place", action="store_true", help="beside the log; existing files are replaced")
    parser.add_argument("--index-interval-bytes", type=int32, default=INDEX_INTERVAL_BYTES, metavar="N")
    parser.add_argument("--max-index-bytes", type=int32, default=MAX_INDEX_BYTES, metavar="N")
    parser = command(commands, "build-index", "index records by their keys", _BUILD, run_build)
    parser.add_argument("store", metavar="LOG_DIR", help=_LOG_DIR)
    parser.add_argument("directory", metavar="DIR", help="where the index goes")
    add_options(parser, "--topic")
    parser.add_argument("--header", type=word, metavar="NAME", help="index the values of this header, too")
    add_options(parser, *TIERED)


def run_dump(arguments: argparse.Namespace) -> int:
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
            say_json({"type": "finding", **dataclasses.asdict(finding)})
        else:
            complain(f"{finding.kind} in {finding}")
    return 1 if findings else 0


@contextmanager
def _searched(arguments: argparse.Namespace) -> Iterator[Source]:
    """Open the log directory of a search, and settle its times, which may be those of the topic's end."""
    if arguments.topic == _ANY_TOPIC:
        what = "`logdex cat --key KEY` reads those of all topics"
        raise ValueError(
            f"TOPIC {_ANY_TOPIC}: expected one topic, since the keys of Kafka are searched by topic; {what}"
        )
    with open_first(
        locate(arguments.store), (open_source,), "no Kafka log directory", sealed=arguments.sealed
    ) as source:
        settle_times(arguments, lambda: source.held([arguments.topic])[1])
        yield source


def _search(search: Callable[..., _T], source: Source, arguments: argparse.Namespace, **others: Any) -> _T:  # noqa: ANN401 -- what only one search takes
    """Return what `find` or `explain` says to the arguments that both take."""
    return search(
        source.opened if isinstance(source.opened, LogDir) else arguments.store,
        arguments.topic,
        arguments.key,
        index=arguments.index,
        begin=arguments.begin,
        end=arguments.end,
        header=arguments.header,
        **others,
    )


def run_find(arguments: argparse.Namespace) -> int:
    """Print records; 1 if there are none."""
    with _searched(arguments) as source:
        if arguments.key == "-":
            raise ValueError(
                "KEY -: expected a key; keys from standard input are for RocketMQ, `logdex cat --key` takes several"
            )
        result = _search(find, source, arguments, max_num=arguments.max)
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
            complain(nothing_matches(arguments, [arguments.topic], *source.held([arguments.topic])))
    return 0 if result else 1


def run_explain(arguments: argparse.Namespace) -> int:
    """Print how a record key is searched; 1 if no record carries it."""
    with _searched(arguments) as source:
        explanation = _search(explain, source, arguments)
    if arguments.json:
        say_json(explanation.to_dict())
    else:
        say_lines(explanation.text())
    return 0 if explanation.found else 1


def run_verify(arguments: argparse.Namespace) -> int:
    """Print findings; 1 if there are any."""
    expected = "no Kafka log directory, no partition's directory, no file of a segment"
    with (
        open_first(locate(arguments.path), (open_source, open_part), expected, sealed=arguments.sealed) as source,
        Progress("verify") as progress,
    ):
        report = source.verify(progress, deep=not arguments.shallow)
    return say_report(report, json=arguments.json)


def run_rebuild(arguments: argparse.Namespace) -> int:
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
    return say_report(report, json=arguments.json)


def run_build(arguments: argparse.Namespace) -> int:
    """Write key index files; 1 if damaged batches were skipped."""
    with LogDir.open(arguments.store) as logs, Progress("build-index") as progress:
        if not LogDir.exists_at(arguments.store):
            raise ValueError(f"{arguments.store}: no Kafka log directory, it holds no <topic>-<partition>")
        report = build_key_index(
            logs,
            arguments.directory,
            topics=arguments.topic,
            header=arguments.header,
            progress=lambda _, read: progress.add(read),
        )
    return say_report(report, json=arguments.json)
