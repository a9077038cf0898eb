"""`logdex verify`: what is broken."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from logdex.cli.arguments import add_commit_log, command
from logdex.cli.kinds import open_source
from logdex.cli.output import printable, say, say_json
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
    parser.add_argument("path", metavar="PATH", help="a store, a commit log, an index directory or file")
    add_commit_log(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 where there are any."""
    source = open_source(arguments.path, commit_log=arguments.commit_log)
    try:
        with Progress("verify") as progress:
            report = source.verify(progress)
    finally:
        source.close()
    if arguments.json:
        for finding in report.findings:
            say_json(dataclasses.asdict(finding))
        say_json({"ok": report.ok, "findings": len(report.findings), "checked": report.checked})
    else:
        for line in str(report).splitlines():
            say(printable(line))
    return 0 if report.ok else 1
