"""`logdex groups`: how far consumer groups have read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from logdex.cli.arguments import OPEN, WHOLE, Command, add_options, add_source, time_ms, word
from logdex.cli.output import complain, say_json, shown, table, words
from logdex.cli.sources import open_path
from logdex.report import near_names

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Prints the next offset that each group reads, the end of the queue or partition, and the lag
between them: of a RocketMQ store from `config/consumerOffset.json`, as the broker wrote it last;
of Kafka from the records of `__consumer_offsets`.

  logdex groups /data/store
  logdex groups /var/kafka-logs billing --json
  logdex groups /var/kafka-logs --as-of 2026-11-20T14:05:00Z"""
_HEADS = ("group", "topic", "queue_id", "offset", "end_offset", "lag", "commit_timestamp")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, WHOLE)
    parser.add_argument("group", metavar="GROUP", nargs="?", type=word, help="only this group")
    as_of = "Kafka: as of this time; partitions end before their first record with a later timestamp"
    parser.add_argument("--as-of", type=partial(time_ms, end=True), metavar="T", help=as_of)
    add_options(parser, *OPEN, "--tz", "--wide")


def _run(arguments: argparse.Namespace) -> int:
    """Print offset, end and lag of each group and queue; 1 if there are none."""
    with open_path(arguments) as opened:
        everyone = opened.groups(arguments.as_of)
    rows = [row for row in everyone if arguments.group in (None, row.group)]
    if not everyone:
        complain("no consumer group has committed an offset here")
    elif not rows:
        near = near_names(arguments.group, {row.group for row in everyone})
        complain(f"no consumer group {arguments.group!r} here; {near}")
    if arguments.json:
        for row in rows:
            say_json({**row._asdict(), "lag": row.lag})
    elif rows:
        cells = [[shown(name, getattr(row, name)) for name in _HEADS] for row in rows]
        last = len(_HEADS) - 1
        columns = [at for at in range(len(_HEADS)) if at < last or any(row[at] is not None for row in cells)]
        table([[row[at] for at in columns] for row in cells], [words(_HEADS[at]) for at in columns])
    return 0 if rows else 1


COMMAND = Command("groups", "print how far consumer groups have read", _DETAILS, _add_arguments, _run)
