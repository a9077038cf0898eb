"""`logdex verify`: a check of everything at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import ANY_PATH, OPEN, Command, add_options, add_source, count
from logdex.cli.output import SHOWN_FAULTS, Progress, say_report
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Reads and checks everything: the log, its queues against the log, its index against both, in
both directions. docs/findings.md lists all kinds of findings. Changes nothing.

  logdex verify /data/store
  logdex verify /data/store/index --json | jq -r .kind | sort | uniq -c"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, ANY_PATH)
    add_options(parser, *OPEN, "--sealed", "--wide")
    faults = f"print at most N kinds of faults in files (default: {SHOWN_FAULTS}); --json prints every fault"
    parser.add_argument("--limit", type=count, default=SHOWN_FAULTS, metavar="N", help=faults)


def _run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 if there are any."""
    with open_path(arguments) as opened, Progress("verify") as progress:
        report = opened.verify(progress)
    return say_report(report, json=arguments.json, limit=arguments.limit)


COMMAND = Command("verify", "check every byte that has a meaning", _DETAILS, _add_arguments, _run)
