"""`logdex copy`: messages of a store into a store of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import add_open_options, add_times, add_zone, command, open_options, word
from logdex.cli.build_queues import say_built
from logdex.cli.progress import Progress
from logdex.rocketmq import MessageStore, copy_messages

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
DIR becomes a store with log, queues and index, which a broker loads; it must be missing or
empty. Store times, hosts, properties and queue offsets stay; damage is passed over and named.
The store that is read is not changed, and its broker may run. Delayed messages that wait lie
under SCHEDULE_TOPIC_XXXX: they go with a copy of all topics.

  logdex copy /data/store /data/new
  logdex copy /data/store /tmp/orders --topic Orders --begin 2026-11-20 --end -2h"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "copy", "copy messages into a new store, which a broker loads", _DETAILS)
    parser.add_argument("store", metavar="STORE", help="the store, or its commit log")
    parser.add_argument("directory", metavar="DIR", help="the new store; made when it is not there")
    parser.add_argument("--topic", type=word, metavar="T", help="only this topic")
    add_times(parser)
    add_zone(parser)
    add_open_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Copy, and say what was copied; 1 where nothing was, or where something is damaged."""
    with MessageStore.open(arguments.store, **open_options(arguments)) as store, Progress("copy") as progress:
        report = copy_messages(
            store,
            arguments.directory,
            topic=arguments.topic,
            begin=arguments.begin,
            end=arguments.end,
            zone=arguments.zone,
            progress=progress,
        )
    code = say_built(report, arguments.directory, as_json=arguments.json)
    return code if report.checked["messages"] else 1
