"""`logdex build-queues`: consume queues from a commit log."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from logdex.cli.arguments import add_open_options, command, open_options
from logdex.cli.output import complain, say, say_report
from logdex.cli.progress import Progress
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers
    from logdex.report import Report

_DETAILS = """\
Writes `consumequeue` (and `batchconsumequeue`) below DIR, by the rules of a broker that
starts without queues; copy them into the store of a stopped broker. The store is only read.

  logdex build-queues /data/store /data/rebuilt"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "build-queues", "make consume queues from the commit log", _DETAILS)
    parser.add_argument("store", metavar="STORE", help="the store, or its commit log")
    parser.add_argument("directory", metavar="DIR", help="where the queues go; made when it is not there")
    add_open_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build, and say what was made."""
    with MessageStore.open(arguments.store, **open_options(arguments)) as store, Progress("queues") as progress:
        report = store.build_queues(arguments.directory, progress=progress)
    return say_built(report, arguments.directory, as_json=arguments.json)


def say_built(report: Report, directory: str, *, as_json: bool) -> int:
    """Say what was made and what stood in the way; give the exit code."""
    if as_json:
        return say_report(report, json=True)
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.checked.items())
    say(f"{directory}: {counts}")
    for finding in report.findings:
        path, at, kind, expected, found = dataclasses.astuple(finding)
        complain(f"{kind} in {path} at byte {at}: expected {expected}, found {found}")
    return 0 if report.ok else 1
