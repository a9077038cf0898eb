"""`logdex verify`: what is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import add_path, command, open_options
from logdex.cli.kinds import open_source
from logdex.cli.output import say_report
from logdex.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Reads everything and checks it: a store's log, its queues against the log, its index against
both, each way. The kinds of findings are a closed list (docs/findings.md). Changes nothing.

  logdex verify /data/store
  logdex verify /data/store/index --json | jq -r .kind | sort | uniq -c"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "verify", "check every byte that means something", _DETAILS)
    add_path(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 where there are any."""
    with open_source(arguments.path, **open_options(arguments)) as source, Progress("verify") as progress:
        report = source.verify(progress)
    return say_report(report, json=arguments.json)
