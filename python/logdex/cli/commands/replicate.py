"""`logdex replicate`: the store of a running broker, copied and followed as by its slave."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from logdex.cli.arguments import Command
from logdex.cli.output import Progress, complain, counts_text, say, say_report
from logdex.rocketmq import Replication

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Copies the log of a running broker into DIR byte for byte, builds queues and index after it, and
copies the topics, groups and offsets. It uses the protocols of a slave, so nothing has to be
installed or set at the broker. DIR can be read while it is written, and goes on where it stopped.
Without --once it follows the broker until it gets SIGINT or SIGTERM.

HOST:PORT is where the broker listens (10911). It reports the port of its log stream (10912).

  logdex replicate broker-a:10911 /backup/broker-a --once
  logdex replicate broker-a:10911 /backup/broker-a"""

_INTERRUPTED = 130


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("master", metavar="HOST:PORT", help="where the broker listens")
    parser.add_argument("directory", metavar="DIR", help="the copy; created if it is missing")
    parser.add_argument("--once", action="store_true", help="end when DIR has all that the broker had at the start")


def _run(arguments: argparse.Namespace) -> int:
    """Copy until the end or a signal; 130 if a copy that was to end was interrupted."""
    with Progress("copy") as progress:
        replication = Replication(arguments.master, arguments.directory, once=arguments.once, progress=progress)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: replication.stop())
        if not arguments.once and not arguments.json:
            say(f"{arguments.directory}: follows {arguments.master}; stop with Ctrl-C")
            sys.stdout.flush()
        report = replication.run()
    if arguments.json:
        say_report(report, json=True)
    else:
        say(f"{arguments.directory}: {counts_text(report.checked)}")
    if arguments.once and not replication.is_complete:
        complain(f"{arguments.directory}: interrupted before it had all that {arguments.master} had")
        return _INTERRUPTED
    return 0


COMMAND = Command("replicate", "copy the store of a running broker, and follow it", _DETAILS, _add_arguments, _run)
