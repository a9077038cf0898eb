"""`logdex cat`: the rows of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.arguments import add_filters, add_open_options, command, open_options
from logdex.cli.kinds import open_source
from logdex.cli.output import complain, say, say_json
from logdex.cli.rows import limited_rows
from logdex.cli.source import Filters

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers
    from logdex.cli.source import Source

_DETAILS = """\
In the order of the log. Topic, queue and times are looked up in the consume queues where
they can be trusted, else the log is read.

  logdex cat /data/store --topic Orders --begin -2h --body
  logdex cat /data/store --json | jq -r .keys"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "cat", "print messages", _DETAILS)
    parser.add_argument("path", metavar="STORE", help="the store, or its commit log")
    add_filters(parser)
    add_open_options(parser)
    parser.add_argument("--body", action="store_true", help="with the bodies")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print; 1 where no row passes the filters."""
    printed = 0
    with open_source(arguments.path, **open_options(arguments)) as source:
        stream = source.rows(filters_of(arguments), body=arguments.body)
        for row in limited_rows(stream, arguments.limit):
            if arguments.json:
                say_json(source.as_json(row))
            else:
                say(source.as_text(row))
            printed += 1
        say_passed_over(source)
    return 0 if printed else 1


def say_passed_over(source: Source) -> None:
    """Name what is missing; on the other stream, so that the rows stay rows."""
    for finding in source.passed_over():
        complain(f"{finding.path} at byte {finding.offset}: expected {finding.expected}, found {finding.found}")


def filters_of(arguments: Any) -> Filters:  # noqa: ANN401 -- argparse
    """Take the filters out of the arguments."""
    return Filters(arguments.topic, arguments.queue, arguments.begin, arguments.end, arguments.skip_damaged)
