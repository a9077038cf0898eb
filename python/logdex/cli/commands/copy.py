"""`logdex copy`: messages copied into a new store."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from logdex._types import Compat
from logdex.cli.arguments import (
    OPEN_STORE,
    STORE,
    TIMES,
    Command,
    add_options,
    add_source,
    open_options,
    settle_times,
    word,
)
from logdex.cli.output import Progress, complain, say_built
from logdex.cli.sources.opened import nothing_matches
from logdex.rocketmq import MessageStore, copy_messages

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
DIR becomes a store with log, queues and index that a broker loads; it must be missing or
empty. Store times, hosts, properties and queue offsets are kept. Damaged messages are skipped
and reported. The source store is not changed, and its broker may run. Waiting delayed messages
are in SCHEDULE_TOPIC_XXXX: copy all topics to keep them.

  logdex copy /data/store /data/new
  logdex copy /data/store /tmp/orders --topic Orders --begin 2026-11-20 --end -2h"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, STORE, metavar="STORE")
    add_options(parser, *OPEN_STORE)
    parser.add_argument("directory", metavar="DIR", help="the new store; created if it is missing")
    parser.add_argument("--topic", type=word, metavar="T", help="only this topic")
    add_options(parser, *TIMES, "--zone")
    release = "the broker's release that loads DIR; 4.9.3 (the default) refuses what only later ones take"
    parser.add_argument("--compat", choices=get_args(Compat), help=release)


def _run(arguments: argparse.Namespace) -> int:
    """Copy messages and print the counts; 1 if none was copied or if the store is damaged."""
    with MessageStore.open(arguments.path, **open_options(arguments)) as store, Progress("copy") as progress:
        settle_times(arguments, store.times)
        report = copy_messages(
            store,
            arguments.directory,
            topic=arguments.topic,
            begin=arguments.begin,
            end=arguments.end,
            zone=arguments.zone,
            compat=arguments.compat,
            progress=progress,
        )
        copied = report.checked["messages"]
        if not copied:
            wanted = [] if arguments.topic is None else [arguments.topic]
            complain(nothing_matches(arguments, wanted, store.topics, store.times(arguments.topic)))
    code = say_built(report, arguments.directory, as_json=arguments.json) if copied or arguments.json else 1
    return code if copied else 1


COMMAND = Command("copy", "copy messages into a new store, which a broker loads", _DETAILS, _add_arguments, _run)
