"""`logdex recover`: a store after a crash, made fit for its broker."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from logdex.cli.arguments import add_geometry, add_zone, command, int32
from logdex.cli.build_queues import say_built
from logdex.cli.output import complain, say_json
from logdex.errors import CorruptFileError
from logdex.report import Report
from logdex.rocketmq import StoreWriter
from logdex.rocketmq.write.recovery import holds_log

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Changes the store, as its broker's start after a crash does: cuts the log off behind its last
good message, cuts queues and index back to it, dispatches what they lack, and ends as a
broker that was stopped. Other than a broker it deletes no index file that the log cannot
give again, and refuses to cut where sound messages lie behind damage (--truncate does cut).
The broker must be stopped. `logdex verify` looks without changing anything; `logdex copy`
keeps what lies behind damage.

  logdex recover /data/store
  logdex recover /data/store --truncate"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "recover", "mend a store after a crash, in place", _DETAILS)
    parser.add_argument("store", metavar="STORE", help="the store; its broker must be stopped")
    parser.add_argument("--truncate", action="store_true", help="cut at damage, whatever lies behind it")
    parser.add_argument(
        "--file-size",
        type=int32,
        metavar="N",
        help="mappedFileSizeCommitLog, where the only file of the log was cut short",
    )
    add_zone(parser)
    add_geometry(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Mend, and say what was found and done; 1 where there was damage."""
    if not holds_log(Path(arguments.store)):
        raise FileNotFoundError(errno.ENOENT, "no store with a log in commitlog", arguments.store)
    try:
        with StoreWriter.open(
            arguments.store,
            truncate=arguments.truncate,
            last_exit_ok=False,
            services=False,
            file_size=arguments.file_size,
            zone=arguments.zone,
            hash_slots=arguments.hash_slots,
            max_entries=arguments.max_entries,
        ) as writer:
            report = writer.recovered
    except CorruptFileError as error:
        return _say_refused(error, as_json=arguments.json)
    if not arguments.json:
        done = {name: count for name, count in report.checked.items() if count or name == "log_bytes"}
        report = Report(report.findings, done)
    return say_built(report, arguments.store, as_json=arguments.json)


def _say_refused(error: CorruptFileError, *, as_json: bool) -> int:
    if as_json:
        say_json(
            {"ok": False, "path": error.path, "offset": error.offset, "expected": error.expected, "found": error.found}
        )
    else:
        complain(f"{error}; nothing was changed")
    return 1
