"""`logdex build-index`, `build-queues`, `copy` and `recover`: commands that write RocketMQ files from a commit log."""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from logdex._core import CommitLog, local_path, locate
from logdex._types import Compat
from logdex.cli.arguments import (
    GEOMETRY,
    TIMES,
    add_options,
    add_source,
    command,
    int32,
    open_options,
    settle_times,
    word,
)
from logdex.cli.commands import SUMMARIES, kafka
from logdex.cli.output import Progress, complain, counts_text, say, say_built, say_json, say_report
from logdex.cli.sources import nothing_matches
from logdex.errors import CorruptFileError
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter, copy_messages
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.read import read_ahead
from logdex.rocketmq.write.options import StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.rocketmq.write.recovery import RecoveryReport, find_start_blockers, holds_log

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from logdex.cli.arguments import Subparsers
    from logdex.report import Finding

_STORE = "the store, or its commit log"
_TARGET = "where to write; created if it is missing"

_BUILD_INDEX = """\
Writes into an empty directory the same index files that a broker would write, up to the first
damaged message of the log. Copy them into the `index` directory of a stopped broker, or search
them with logdex. Of a Kafka log directory it indexes the record keys, as `logdex kafka build-index`.
The store is only read.

  logdex build-index /data/store /data/index-new
  logdex build-index /data/store /tmp/index --hash-slots 500000 --max-entries 2000000"""

_BUILD_QUEUES = """\
Writes `consumequeue` (and `batchconsumequeue`) into DIR, as a broker does that starts without
queues. Copy them into the store of a stopped broker. The store is only read.

  logdex build-queues /data/store /data/rebuilt"""

_COPY = """\
DIR becomes a store with log, queues and index that a broker loads; it must be missing or
empty. Store times, hosts, properties and queue offsets are kept. Damaged messages are skipped
and reported. The source store is not changed, and its broker may run. Waiting delayed messages
are in SCHEDULE_TOPIC_XXXX: copy all topics to keep them.

  logdex copy /data/store /data/new
  logdex copy /data/store /tmp/orders --topic Orders --begin 2026-11-20 --end -2h"""

_RECOVER = """\
Changes the store as its broker does when it starts after a crash: truncates the log after its
last valid message, truncates queues and index to match, dispatches missing messages to them,
and leaves the store as after a clean stop. Unlike a broker it deletes no index file that cannot
be built again from the log, and it refuses to truncate if valid messages follow a corrupt
region (--truncate does it). The broker must be stopped. `logdex verify` checks without changing
anything; `logdex copy` keeps the messages after a corrupt region. Damage of the log before the
part that a broker walks is reported, and stays. The last lines show whether a broker starts with
the store, and what is left to do by hand.

  logdex recover /data/store --dry-run
  logdex recover /data/store
  logdex recover /data/store --truncate --verify"""
_RECOVER_OPTIONS = ("truncate", "file_size", "zone", "hash_slots", "max_entries")
_NO_CHANGE = ("log_bytes", "messages_dispatched")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(subparsers, "build-index", SUMMARIES["build"]["build-index"], _BUILD_INDEX, build_index)
    parser.add_argument("store", metavar="STORE", help=_STORE)
    parser.add_argument("directory", metavar="DIR", help=_TARGET)
    add_options(parser, "--commit-log")
    slots, entries = (
        "maxHashSlotNum (default: the store's, 5,000,000)",
        "maxIndexNum (default: the store's, 20,000,000)",
    )
    parser.add_argument("--hash-slots", type=int32, metavar="N", help=slots)
    parser.add_argument("--max-entries", type=int32, metavar="N", help=entries)
    add_options(parser, "--zone")
    parser.add_argument("--tags", action="store_true", help="index tags, too, as a 5.5.0 broker does")
    topic = "Kafka: only this topic; may be repeated"
    parser.add_argument("--topic", type=word, action="append", metavar="T", help=topic)
    parser.add_argument("--header", type=word, metavar="NAME", help="Kafka: index the values of this header, too")
    parser = command(subparsers, "build-queues", SUMMARIES["build"]["build-queues"], _BUILD_QUEUES, build_queues)
    add_source(parser, "store", _STORE)
    parser.add_argument("directory", metavar="DIR", help=_TARGET)
    parser = command(subparsers, "copy", SUMMARIES["build"]["copy"], _COPY, copy)
    add_source(parser, "store", _STORE)
    parser.add_argument("directory", metavar="DIR", help="the new store; created if it is missing")
    parser.add_argument("--topic", type=word, metavar="T", help="only this topic")
    add_options(parser, *TIMES, "--zone")
    release = "the broker's release that loads DIR; 4.9.3 (the default) refuses what only later ones take"
    parser.add_argument("--compat", choices=get_args(Compat), help=release)
    parser = command(subparsers, "recover", SUMMARIES["build"]["recover"], _RECOVER, recover)
    parser.add_argument("store", metavar="STORE", help="the store; its broker must be stopped")
    parser.add_argument("--truncate", action="store_true", help="truncate at damage, even if valid messages follow")
    parser.add_argument("--dry-run", action="store_true", help="print the steps without changing anything")
    parser.add_argument("--verify", action="store_true", help="check the whole store afterwards, as `logdex verify`")
    size = "mappedFileSizeCommitLog, if the only file of the log is truncated"
    parser.add_argument("--file-size", type=int32, metavar="N", help=size)
    release = "the broker's release; 4.9.3 (the default) refuses more than later ones"
    parser.add_argument("--compat", choices=get_args(Compat), default="4.9.3", help=release)
    add_options(parser, "--zone", *GEOMETRY)


def build_index(arguments: argparse.Namespace) -> int:
    """Build index files and print what was written."""
    if LogDir.exists_at(locate(arguments.store)):
        return kafka.run_build(arguments)
    if arguments.topic or arguments.header:
        raise ValueError(f"--topic and --header: expected a Kafka log directory, found {arguments.store}")
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


def build_queues(arguments: argparse.Namespace) -> int:
    """Build consume queues and print what was written."""
    with MessageStore.open(arguments.store, **open_options(arguments)) as store, Progress("queues") as progress:
        report = store.build_queues(arguments.directory, progress=progress)
    return say_built(report, arguments.directory, as_json=arguments.json)


def copy(arguments: argparse.Namespace) -> int:
    """Copy messages and print the counts; 1 if none was copied or if the store is damaged."""
    with MessageStore.open(arguments.store, **open_options(arguments)) as store, Progress("copy") as progress:
        settle_times(arguments, store.times)
        report = copy_messages(
            store,
            arguments.directory,
            topic=arguments.topic,
            begin=arguments.begin,
            end=arguments.end,
            zone=arguments.zone,
            compat=arguments.compat,
            progress=progress,
        )
        copied = report.checked["messages"]
        if not copied:
            wanted = [] if arguments.topic is None else [arguments.topic]
            complain(nothing_matches(arguments, wanted, store.topics, store.times(arguments.topic)))
    code = say_built(report, arguments.directory, as_json=arguments.json) if copied or arguments.json else 1
    return code if copied else 1


def recover(arguments: argparse.Namespace) -> int:
    """Repair the store and print the changes; return 1 if something is left to repair or messages were lost."""
    root = local_path(arguments.store)
    if not holds_log(root):
        raise FileNotFoundError(errno.ENOENT, "no store with a log in commitlog", arguments.store)
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
    stops = find_start_blockers(StoreLayout(root, str(root / "commitlog")), report, arguments.compat)
    code = _print_recovered(arguments, report, stops, was_open=was_open)
    if arguments.verify:
        with MessageStore.open(root) as store, Progress("verify") as progress:
            code = max(code, say_report(store.verify(progress), json=arguments.json))
    if not arguments.json:
        _print_broker_start(arguments, stops)
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
    if arguments.json:
        for finding in report.findings:
            say_json({**asdict(finding), "repaired": finding not in report.left})
        say_json(
            {
                "ok": is_whole,
                "findings": len(report.findings),
                "checked": report.checked,
                "absent": report.absent,
                "dry_run": arguments.dry_run,
                "was_open": was_open,
                "broker": arguments.compat,
                "broker_starts": not stops,
                "left_to_do": [asdict(finding) for finding in stops],
            }
        )
        return 0 if is_whole else 1
    for finding in report.findings:
        repaired = "" if finding in report.left else "would be repaired: " if arguments.dry_run else "repaired: "
        complain(f"{repaired}{finding.kind} in {finding}")
    what = ("would be: " if arguments.dry_run else "") + counts_text(changes) if changes else "nothing to do"
    closed = "would count as closed then" if arguments.dry_run else "counts as closed now"
    marked = f"; it was not closed, and {closed}" if was_open else ""
    checked = (
        "" if arguments.verify else "; queues and index as a whole are checked by `logdex verify`, or with --verify"
    )
    say(f"{arguments.store}: {what}{marked}{checked}")
    return 0 if is_whole else 1


def _print_broker_start(arguments: argparse.Namespace, stops: list[Finding]) -> None:
    """Print whether a broker starts with the store, and the steps that are left to do by hand."""
    broker = f"a {arguments.compat} broker"
    if not stops:
        say(f"{broker} {'would start then' if arguments.dry_run else 'starts with this store'}")
        return
    say(
        f"{broker} {'would still not start' if arguments.dry_run else 'does not start with this store'}; left to do by hand:"
    )
    for finding in stops:
        say(f"  move away or restore {finding}")
