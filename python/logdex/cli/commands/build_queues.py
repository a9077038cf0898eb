"""`logdex build-queues`: consume queues from a commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import OPEN_STORE, STORE, TARGET, Command, add_options, add_source, open_options
from logdex.cli.output import Progress, say_built
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Writes `consumequeue` (and `batchconsumequeue`) into DIR, as a broker does that starts without
queues. Copy them into the store of a stopped broker. The store is only read.

  logdex build-queues /data/store /data/rebuilt"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, STORE, metavar="STORE")
    add_options(parser, *OPEN_STORE)
    parser.add_argument("directory", metavar="DIR", help=TARGET)


def _run(arguments: argparse.Namespace) -> int:
    """Build consume queues and print what was written."""
    with MessageStore.open(arguments.path, **open_options(arguments)) as store, Progress("queues") as progress:
        report = store.build_queues(arguments.directory, progress=progress)
    return say_built(report, arguments.directory, as_json=arguments.json)


COMMAND = Command("build-queues", "build consume queues from the commit log", _DETAILS, _add_arguments, _run)
