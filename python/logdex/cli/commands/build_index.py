"""`logdex build-index`: index files, from a commit log or from Kafka segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex._core import locate
from logdex.cli.arguments import TARGET, Command, add_options, add_source, int32, open_options, word
from logdex.cli.output import Progress, say_built
from logdex.source import Kind, kind_to_open

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Writes into an empty directory the same index files that a broker would write, up to the first
damaged message of the log. Copy them into the `index` directory of a stopped broker, or search
them with logdex. Of a Kafka log directory it indexes the record keys, as `logdex kafka build-index`.
The store is only read.

  logdex build-index /data/store /data/index-new
  logdex build-index /data/store /tmp/index --hash-slots 500000 --max-entries 2000000"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "the store, or its commit log; or a Kafka log directory", metavar="STORE")
    parser.add_argument("directory", metavar="DIR", help=TARGET)
    add_options(parser, "--commit-log")
    slots = "maxHashSlotNum (default: the store's, 5,000,000)"
    parser.add_argument("--hash-slots", type=int32, metavar="N", help=slots)
    entries = "maxIndexNum (default: the store's, 20,000,000)"
    parser.add_argument("--max-entries", type=int32, metavar="N", help=entries)
    add_options(parser, "--zone")
    parser.add_argument("--tags", action="store_true", help="index tags, too, as a 5.5.0 broker does")
    topic = "Kafka: only this topic; may be repeated"
    parser.add_argument("--topic", type=word, action="append", metavar="T", help=topic)
    parser.add_argument("--header", type=word, metavar="NAME", help="Kafka: index the values of this header, too")


def _run(arguments: argparse.Namespace) -> int:
    """Build index files and print what was written."""
    if kind_to_open(locate(arguments.path), open_options(arguments)) is Kind.LOG_DIR:
        return build_key_index(arguments)
    if arguments.topic or arguments.header:
        raise ValueError(f"--topic and --header: expected a Kafka log directory, found {arguments.path}")
    from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- one broker's modules, not both

    with MessageStore.open(arguments.path, commit_log=arguments.commit_log) as store, Progress("index") as progress:
        report = store.build_index(
            arguments.directory,
            hash_slots=arguments.hash_slots,
            max_entries=arguments.max_entries,
            zone=arguments.zone,
            tags=arguments.tags or None,
            progress=progress,
        )
    return say_built(report, arguments.directory, as_json=arguments.json)


def build_key_index(arguments: argparse.Namespace) -> int:
    """Write key index files of a Kafka log directory; return 1 if damaged batches were skipped."""
    from logdex.kafka import LogDir, build_key_index  # noqa: PLC0415 -- as above

    tiered = {name: value for name, value in open_options(arguments).items() if name.startswith("tiered")}
    with LogDir.open(arguments.path, **tiered) as logs, Progress("build-index") as progress:
        report = build_key_index(
            logs,
            arguments.directory,
            topics=arguments.topic,
            header=arguments.header,
            progress=lambda _, read: progress.add(read),
        )
    return say_built(report, arguments.directory, as_json=arguments.json)


COMMAND = Command("build-index", "build index files from the commit log", _DETAILS, _add_arguments, _run)
