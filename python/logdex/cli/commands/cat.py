"""`logdex cat`: messages as text or JSON."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from arro3.core import RecordBatch

from logdex._core import internal_as_json
from logdex.cli.arguments import FILTERS, OPEN, STORE_OR_LOG, Command, add_options, add_source, count, row_format
from logdex.cli.output import Progress, complain, limited_batches, say_rows
from logdex.cli.sources import open_path
from logdex.cli.sources.opened import nothing_matches

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from logdex.cli.sources.opened import LogRead, Opened

_POLL_SECONDS = 0.5

_DETAILS = """\
Prints messages in log order. With a topic, a queue or times, the consume queues are used if
they can be trusted; else the log is scanned.

  logdex cat /data/store --topic Orders --begin -2h --body
  logdex cat /data/store --tail 10 --follow
  logdex cat /data/store --follow --where "tags = 'TagA' AND store_size > 4096"
  logdex cat /data/store --json | jq -r .keys
  logdex cat /data/store -t Orders --decode body=json --where "body.user.id = 'u1' AND tags = 'TagA'"
  logdex cat /var/kafka-logs -t orders -n 5 --format '%t %p %o %k %s'

The letters of a format are those of kcat: %t topic, %p queue or partition, %o offset, %T time in
ms, %k keys or key, %s body or value, %h properties or headers; %K and %S are lengths in bytes.
%{tags} is the column tags. Escapes are \\n, \\t, \\r, \\0, \\\\ and \\x1f, and %% is a %."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, STORE_OR_LOG, metavar="STORE")
    add_options(parser, *FILTERS, *OPEN, "--body", "--decode", "--grep", "--where")
    options = "print each row in this format, and its bytes as they are"
    parser.add_argument("--format", "-f", type=row_format, metavar="FORMAT", help=options)
    add_options(parser, "--columns")
    parser.add_argument("--from-beginning", action="store_true", help="has no effect: reading begins at the start")
    parser.add_argument("--tail", type=count, metavar="N", help="only the last N rows; of Kafka, of each partition")
    parser.add_argument("--follow", action="store_true", help="then wait for new rows, until Ctrl-C")


def _run(arguments: argparse.Namespace) -> int:
    """Print the rows; 1 if no row passes the filters."""
    if arguments.format is not None and (arguments.json or arguments.columns):
        raise ValueError("--format: expected neither --json nor --columns with it")
    with open_path(arguments) as opened, opened.reporting_unread(arguments), Progress("cat") as arguments.progress:
        if arguments.tail is not None or arguments.follow:
            printed = _cat_logs(opened, arguments)
        else:
            with opened.matching_rows(arguments, body=_prints_bodies(arguments)) as stream:
                printed = _say(limited_batches(stream, arguments.limit), arguments)
        if not printed and arguments.tail != 0 and arguments.limit != 0:
            complain(nothing_matches(arguments, arguments.topic or (), *opened.held(arguments.topic)))
    return 0 if printed else 1


def _prints_bodies(arguments: argparse.Namespace) -> bool:
    return arguments.body or bool(arguments.decode) or _are_internal(arguments.topic or ())


def _are_internal(topics: Sequence[str]) -> bool:
    """Return whether these are only topics that Kafka's brokers keep for themselves."""
    if not topics or not all(topic.startswith("__") for topic in topics):
        return False
    from logdex.kafka.copy import INTERNAL  # noqa: PLC0415 -- one broker's modules, not both

    return INTERNAL.issuperset(topics)


def _say(batches: Iterator[RecordBatch], arguments: argparse.Namespace) -> int:
    """Print rows, those of Kafka's internal topics as JSON; return their number."""
    labelled = arguments.columns is not None
    batches = map(internal_as_json, arguments.progress.hide_for(batches))
    return say_rows(batches, as_json=arguments.json, labelled=labelled, row_format=arguments.format)


def _cat_logs(opened: Opened, arguments: argparse.Namespace) -> int:
    """Print the last rows of each log, or all rows, and with `--follow` new rows; return the number of printed rows."""
    opened.settle_formats(arguments)
    logs = opened.logs(arguments, body=_prints_bodies(arguments))
    places, ends, left = [], [], sys.maxsize if arguments.limit is None else arguments.limit
    printed = 0
    for log in logs:
        begin, end = log.bounds()
        places.append(max(begin, end))
        ends.append(end)
        if arguments.tail is None:
            with log.read(begin, end) as stream:
                printed += _say(limited_batches(stream, left - printed), arguments)
        else:
            batches = _last_rows(log, end, arguments.tail)
            printed += _say(limited_batches(batches, left - printed), arguments)
    arguments.progress.end()
    while arguments.follow and printed < left:
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)
        for at, log in enumerate(logs):
            begin, end = log.bounds()
            if end < ends[at]:
                complain(f"{log.name} was truncated: it ends at offset {end:,}, and ended at {ends[at]:,}")
                places[at] = max(begin, end)
            elif begin > places[at]:
                complain(f"{log.name} begins at offset {begin:,} now: from {places[at]:,} on it was deleted unread")
                places[at] = begin
            ends[at] = end
            if end > places[at]:
                with log.read(places[at], end) as stream:
                    printed += _say(limited_batches(stream, left - printed), arguments)
                places[at] = end
    return printed


def _last_rows(log: LogRead, end: int, num: int) -> Iterator[RecordBatch]:
    """Read the last rows before an offset, from positions further and further back until there are enough."""
    batches: deque[RecordBatch] = deque()
    rows = 0
    for begin in log.starts(end, num) if num else ():
        batches, rows = deque(), 0
        with log.read(begin, end) as stream:
            # A slice of a batch of pyarrow, which --where makes, cannot be passed on.
            for batch in map(RecordBatch.from_arrow, stream):
                batches.append(batch)
                rows += batch.num_rows
                while rows - batches[0].num_rows >= num:
                    rows -= batches.popleft().num_rows
        if rows >= num:
            break
    if batches:
        batches[0] = batches[0].slice(max(0, rows - num))
    return iter(batches)


COMMAND = Command("cat", "print messages", _DETAILS, _add_arguments, _run)
