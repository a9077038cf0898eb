"""`logdex build-index`: index files from a commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import add_commit_log, add_zone, command, int32
from logdex.cli.build_queues import say_built
from logdex.cli.progress import Progress
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Writes into a directory of its own, which must be empty, the very files that a broker
would write, up to where the log is damaged; copy them into the `index` directory of a
stopped broker, or ask them with logdex. The store is only read.

  logdex build-index /data/store /data/index-new
  logdex build-index /data/store /tmp/index --hash-slots 500000 --max-entries 2000000"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "build-index", "make index files from the commit log", _DETAILS)
    parser.add_argument("store", metavar="STORE", help="the store, or its commit log")
    parser.add_argument("directory", metavar="DIR", help="where the files go; made when it is not there")
    add_commit_log(parser)
    parser.add_argument(
        "--hash-slots", type=int32, metavar="N", help="maxHashSlotNum (default: the store's, 5,000,000)"
    )
    parser.add_argument("--max-entries", type=int32, metavar="N", help="maxIndexNum (default: the store's, 20,000,000)")
    add_zone(parser)
    parser.add_argument("--tags", action="store_true", help="index tags, too, as a 5.5.0 broker does")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build, and say what was made."""
    with MessageStore.open(arguments.store, commit_log=arguments.commit_log) as store, Progress("index") as progress:
        report = store.build_index(
            arguments.directory,
            hash_slots=arguments.hash_slots,
            max_entries=arguments.max_entries,
            zone=arguments.zone,
            tags=arguments.tags or None,
            progress=progress,
        )
    return say_built(report, arguments.directory, as_json=arguments.json)
