"""`logdex du`: how many messages and bytes there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from logdex.cli.arguments import OPEN, WHOLE, Command, add_options, add_source
from logdex.cli.output import say_json, table, words
from logdex.cli.sources import open_path
from logdex.report import size_text
from logdex.source import By

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
A RocketMQ store is counted by its queues, without reading the log: bytes of the messages'
frames. A Kafka directory is counted by its segments: bytes of the .log files, and offsets, of
which compaction and transactions leave fewer records.

  logdex du /data/store
  logdex du /data/store --by day --json"""
_COLUMNS = {"topic": ("topic",), "queue": ("topic", "queue_id"), "day": ("day",)}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, WHOLE)
    add_options(parser, *OPEN, "--wide")
    by = "what to add up (default: topic); days are in UTC"
    parser.add_argument("--by", choices=get_args(By), default="topic", help=by)


def _run(arguments: argparse.Namespace) -> int:
    """Print messages and bytes; 1 if there are none."""
    with open_path(arguments) as opened:
        rows = opened.usage(arguments.by)
    names = _COLUMNS[arguments.by]
    heads = (*names, "messages", "log_bytes")
    cells = [[getattr(row, name) for name in heads] for row in rows]
    if arguments.json:
        for row in cells:
            say_json(dict(zip(heads, row, strict=True)))
        return 0 if rows else 1
    total = ["total", *[None] * (len(names) - 1), sum(row.messages for row in rows), sum(row.log_bytes for row in rows)]
    table([[*row[:-1], size_text(row[-1])] for row in [*cells, total]], [*map(words, names), "messages", "bytes"])
    return 0 if rows else 1


COMMAND = Command("du", "count messages and bytes by topic, queue or day", _DETAILS, _add_arguments, _run)
