"""`logdex recover`: the repair of a store or of a Kafka log directory after a crash."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Any, get_args

from logdex._core import CommitLog, is_log_dir, local_path
from logdex._types import Compat
from logdex.cli.arguments import GEOMETRY, Command, add_options, int32
from logdex.cli.output import Progress, complain, counts_text, finding_row, say, say_json, say_report
from logdex.errors import CorruptFileError
from logdex.kafka import LogDir, recover
from logdex.report import MEANINGS
from logdex.rocketmq import MessageStore, StoreWriter
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.read import read_ahead
from logdex.rocketmq.write.options import StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.rocketmq.write.recovery import RecoveryReport, find_start_blockers, holds_log
from logdex.source import hint

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from logdex.kafka import LogDirRecovery
    from logdex.report import Finding, Report

_DETAILS = """\
Changes a RocketMQ store as its broker does when it starts after a crash: truncates the log after its
last valid message, truncates queues and index to match, dispatches missing messages to them,
and leaves the store as after a clean stop. Unlike a broker it deletes no index file that cannot
be built again from the log, and it refuses to truncate if valid messages follow a corrupt
region (--truncate does it). The broker must be stopped. `logdex verify` checks without changing
anything; `logdex copy` keeps the messages after a corrupt region. Damage of the log before the
part that a broker walks is reported, and stays. The last lines show whether a broker starts with
the store, and what is left to do by hand.

Of a Kafka log directory, damaged batches are left out of new segments, and all others stay at
their offsets (--truncate cuts each log at its first damage, as a broker does). A replaced segment
stays as NAME.log.damaged. Checkpoints that a broker cannot read are written anew; indexes and
snapshots are rebuilt. Directories and files that stop a broker are reported.

  logdex recover /data/store --dry-run
  logdex recover /data/store
  logdex recover /data/store --truncate --verify
  logdex recover /var/kafka-logs --verify"""
_RECOVER_OPTIONS = ("truncate", "file_size", "zone", "hash_slots", "max_entries")
_NO_CHANGE = ("log_bytes", "messages_dispatched")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="a store or a Kafka log directory, on this machine; its broker must be stopped"
    )
    parser.add_argument(
        "--truncate", action="store_true", help="truncate at damage, even if valid messages or records follow"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the steps without changing anything")
    parser.add_argument("--verify", action="store_true", help="check the whole store afterwards, as `logdex verify`")
    size = "mappedFileSizeCommitLog, if the only file of the log is truncated"
    parser.add_argument("--file-size", type=int32, metavar="N", help=size)
    release = "the broker's release; 4.9.3 (the default) refuses more than later ones"
    parser.add_argument("--compat", choices=get_args(Compat), default="4.9.3", help=release)
    add_options(parser, "--zone", *GEOMETRY)


def _run(arguments: argparse.Namespace) -> int:
    """Repair the store and print the changes; return 1 if something is left to repair or messages were lost."""
    root = local_path(arguments.path)
    if not (root / "commitlog").is_dir() and is_log_dir(root):
        return _recover_log_dir(arguments)
    names = {entry.name for entry in root.iterdir()} if root.is_dir() else set()
    if "commitlog" not in names and (text := hint(root, names)):
        raise FileNotFoundError(errno.ENOENT, f"no store with a log in commitlog; {text}", arguments.path)
    if not holds_log(root):
        raise FileNotFoundError(errno.ENOENT, "no store with a log in commitlog", arguments.path)
    options: dict[str, Any] = {name: getattr(arguments, name) for name in _RECOVER_OPTIONS}
    was_open = (root / "abort").exists()
    try:
        if arguments.dry_run:
            report = StoreParts(root, StoreOptions(last_exit_ok=False, **options), dry_run=True).recovered
        else:
            with StoreWriter.open(root, last_exit_ok=False, services=False, **options) as writer:
                report = writer.recovered
    except CorruptFileError as error:
        if arguments.json:
            say_json({"ok": False, **{name: getattr(error, name) for name in ("path", "offset", "expected", "found")}})
        else:
            complain(f"{error}; nothing was changed")
        return 1
    earlier = _earlier_damage(root, report.begin)
    report = RecoveryReport([*earlier, *report.findings], report.checked, left=[*earlier, *report.left])
    stops = find_start_blockers(StoreLayout(root, root / "commitlog"), report, arguments.compat)
    code = _print_recovered(arguments, report, stops, was_open=was_open)
    if arguments.verify:
        with MessageStore.open(root) as store, Progress("verify") as progress:
            code = max(code, say_report(store.verify(progress), json=arguments.json))
    if not arguments.json:
        _print_broker_start(f"a {arguments.compat} broker", "store", stops, dry_run=arguments.dry_run)
    return code


def _earlier_damage(root: Path, begin: int) -> list[Finding]:
    """Return the damage of the log before the part that a recovery walks, by reading it."""
    with CommitLog.open(root / "commitlog") as log, Progress("log") as progress:
        span = (log.min_offset, begin)
        reader = log.scan(end_phy_offset=begin, columns=("phy_offset", "store_size", "store_timestamp"), stop="valid")
        deque(read_ahead(reader, progress, span), maxlen=0)
        return reader.report.findings


def _print_recovered(
    arguments: argparse.Namespace, report: RecoveryReport, stops: list[Finding], *, was_open: bool
) -> int:
    """Print findings and changes; return 1 if the store is incomplete afterwards or lost messages."""
    is_whole = not report.left and not report.checked["messages_cut_off"] and not stops
    changes = {name: count for name, count in report.checked.items() if count and name not in _NO_CHANGE}
    _print_findings(arguments, report)
    if arguments.json:
        say_json(
            {
                "ok": is_whole,
                "findings": len(report.findings),
                "checked": report.checked,
                "absent": report.absent,
                "dry_run": arguments.dry_run,
                "was_open": was_open,
                "severities": report.severities,
                "broker": arguments.compat,
                "broker_starts": not stops,
                "left_to_do": [finding_row(finding) for finding in stops],
            }
        )
        return 0 if is_whole else 1
    what = ("would be: " if arguments.dry_run else "") + counts_text(changes) if changes else "nothing to do"
    closed = "would count as closed then" if arguments.dry_run else "counts as closed now"
    marked = f"; it was not closed, and {closed}" if was_open else ""
    checked = (
        "" if arguments.verify else "; queues and index as a whole are checked by `logdex verify`, or with --verify"
    )
    say(f"{arguments.path}: {what}{marked}{checked}")
    _say_lost(report, report.checked["messages_cut_off"], "messages after the damage")
    return 0 if is_whole else 1


def _say_lost(report: Report, removed: int, what: str) -> None:
    """Print what is damaged or missing for good, and what a truncation removes besides."""
    counts = [f"{number:,} {kind}" for kind, number in report.severities.get("lost", {}).items()]
    counts += [f"{removed:,} {what} are removed"] if removed else []
    if counts:
        say(f"lost: {', '.join(counts)}: {MEANINGS['lost']}")


def _print_findings(arguments: argparse.Namespace, report: RecoveryReport | LogDirRecovery) -> None:
    for finding in report.findings:
        if arguments.json:
            say_json({**finding_row(finding), "repaired": finding not in report.left})
        else:
            repaired = "" if finding in report.left else "would be repaired: " if arguments.dry_run else "repaired: "
            complain(f"{repaired}{finding.kind} in {finding}")


def _recover_log_dir(arguments: argparse.Namespace) -> int:
    """Repair a Kafka log directory and print the changes; return 1 if something is left to repair or records were lost."""
    options = {"--file-size": "file_size", "--hash-slots": "hash_slots", "--max-entries": "max_entries"}
    if given := [flag for flag, name in options.items() if getattr(arguments, name) is not None]:
        raise ValueError(f"{given[0]}: expected a RocketMQ store, found a Kafka log directory, {arguments.path}")
    with Progress("recover") as progress:
        report = recover(arguments.path, dry_run=arguments.dry_run, truncate=arguments.truncate, progress=progress)
    _print_findings(arguments, report)
    is_whole = not report.left and not report.checked["left_out_bytes"] and "file-gap" not in report.kinds
    stops = [each for each in report.left if each.kind in ("file-name", "file-content")]
    if arguments.json:
        counts = {"findings": len(report.findings), "checked": report.checked, "dry_run": arguments.dry_run}
        counts |= {"severities": report.severities, "broker_starts": not stops}
        say_json({"ok": is_whole, **counts, "left_to_do": [finding_row(finding) for finding in report.left]})
    else:
        would = "would hold " if arguments.dry_run and report.findings else ""
        say(f"{arguments.path}: {would}{counts_text(report.checked)}")
        _say_lost(report, report.checked["truncated_batches"], "batches after the damage")
    code = 0 if is_whole else 1
    if arguments.verify:
        with LogDir.open(arguments.path) as logs:
            code = max(code, say_report(logs.verify(), json=arguments.json))
    if not arguments.json:
        _print_broker_start("a broker", "log directory", stops, dry_run=arguments.dry_run)
    return code


def _print_broker_start(broker: str, what: str, stops: list[Finding], *, dry_run: bool) -> None:
    """Print whether a broker starts with the directory, and the steps that are left to do by hand."""
    if not stops:
        say(f"{broker} {'would start then' if dry_run else f'starts with this {what}'}")
        return
    say(f"{broker} {'would still not start' if dry_run else f'does not start with this {what}'}; left to do by hand:")
    for finding in stops:
        say(f"  move away or restore {finding}")


COMMAND = Command(
    "recover", "repair a store or a Kafka log directory after a crash, in place", _DETAILS, _add_arguments, _run
)
