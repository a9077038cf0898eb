"""`logdex copy`: messages copied into a new store, or topics into a new log directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

from logdex._types import Compat
from logdex.cli.arguments import (
    OPEN,
    TIMES,
    WHOLE,
    Command,
    add_options,
    add_source,
    int32,
    time_ms,
    word,
)
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
DIR must be missing or empty. Damaged messages are skipped and reported. The source is not
changed, and its broker may run.

Of a RocketMQ store, DIR becomes a store with log, queues and index that a broker loads. Store
times, hosts, properties and queue offsets are kept. Waiting delayed messages are in
SCHEDULE_TOPIC_XXXX: copy all topics to keep them.

Of a Kafka log directory, DIR becomes a log directory with the same offsets, timestamps and
transactions; those that are open at its end are aborted. DIR.steps.txt has the commands with
which a broker loads it. If kafka-storage.sh has formatted DIR, its broker starts with the topics.

  logdex copy /data/store /data/new
  logdex copy /data/store /tmp/orders --topic Orders --begin 2026-11-20 --end -2h
  logdex copy /var/kafka-logs /data/restored --as-of 2026-11-20T14:05:00Z --groups
  logdex copy /var/kafka-logs /data/one --topic orders --key order-1001"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, WHOLE)
    add_options(parser, *OPEN)
    parser.add_argument(
        "directory", metavar="DIR", help="the new directory; created if it is missing; of Kafka, also a formatted one"
    )
    add_options(parser, "--topic")
    number = "Kafka: only this partition of the topics; may be repeated"
    parser.add_argument("--partition", action="append", type=int32, metavar="N", help=number)
    add_options(parser, *TIMES, "--zone")
    of_key = "Kafka: only the records with this key; may be repeated"
    parser.add_argument("--key", action="append", type=word, metavar="K", help=of_key)
    add_options(parser, "--header")
    as_of = "Kafka: as the log was at this time; each partition ends before its first record with a later timestamp"
    parser.add_argument("--as-of", type=partial(time_ms, end=True), metavar="T", help=as_of)
    parser.add_argument("--groups", action="store_true", help="Kafka: restore the offsets of consumer groups, too")
    parser.add_argument("--committed", action="store_true", help="Kafka: leave out the records of aborted transactions")
    still_open = "Kafka: what becomes of transactions that are open at the end (default: abort)"
    parser.add_argument("--open-transactions", choices=("abort", "keep"), help=still_open)
    release = "RocketMQ: the broker's release that loads DIR; 4.9.3 (the default) refuses what only later ones take"
    parser.add_argument("--compat", choices=get_args(Compat), help=release)


def _run(arguments: argparse.Namespace) -> int:
    """Copy messages and print the counts; 1 if none was copied or if the source is damaged."""
    with open_path(arguments) as opened:
        return opened.copy(arguments)


COMMAND = Command("copy", "copy messages into a new directory, which a broker loads", _DETAILS, _add_arguments, _run)
