"""`logdex find` and `logdex explain`: the messages that carry a key, and why a key is found or not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from arro3.core import RecordBatchReader

from logdex._core import distinct, locate, time_text
from logdex.cli.arguments import TIMES, add_options, add_source, command, count, open_options, settle_times, word
from logdex.cli.commands import SUMMARIES, kafka
from logdex.cli.output import (
    BOLD,
    Progress,
    complain,
    in_flags,
    say_json,
    say_lines,
    say_rows,
    styled,
)
from logdex.cli.sources import nothing_matches
from logdex.cli.sources.rocketmq import MESSAGE_COLUMNS
from logdex.hash_index.query import TimeRange
from logdex.kafka import LogDir
from logdex.report import size_text
from logdex.rocketmq import MessageStore
from logdex.rocketmq.find import ANY_TOPIC
from logdex.rocketmq.read import subtract

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from arro3.core import RecordBatch

    from logdex._types import Scan
    from logdex.cli.arguments import Subparsers
    from logdex.rocketmq import FindResult, Message

_STORE = "the broker's store directory, a copy of it, or a part of it"
_FOUND_IN = f"{_STORE}; or a Kafka log directory"

_KEY = "a key, a unique key, or with '*' an offset id; '-' reads keys from standard input, one a line"

_FIND = """\
KEY is one of a message's keys, or its unique key (the message id that a client shows).
With '*' as TOPIC, a unique key is tried under every topic, and an offset id (the broker's own
message id, which holds the place in the log) is read directly. A 5.5.0 broker indexes tags,
too: use 'T#TagA' as KEY.

The index holds hashes, so every message is checked against topic and key. Log ranges that no
index file covers are scanned, up to 1 GiB, and reported. In a Kafka log directory the record keys
are searched, as by `logdex kafka find`.

  logdex find /data/store Orders order-1001
  logdex find /data/store '*' 7F00000164845FFD2B2768AC96750001 --body
  logdex find /data/store Orders order-1001 --begin -2d --max 1 --json
  logdex find /data/store Orders - --json < keys.txt"""

_EXPLAIN = """\
Prints the verdict and its likely causes (docs/findings.md has all), how far the index is behind
the log, and each candidate with its real topic and keys. --verbose adds every index file with
its time window, why it was searched or skipped, its slot and its chain. For a Kafka log directory:
the partition that producers choose for the key, and the search in each partition.

  logdex explain /data/store Orders order-1001
  logdex explain /data/store Orders order-1001 --begin -2h --json"""

_SCANS: dict[str, Scan] = {"auto": "auto", "all": True, "none": False}


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(subparsers, "find", SUMMARIES["search"]["find"], _FIND, find)
    add_source(parser, "store", _FOUND_IN)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic; of RocketMQ, '*' for any")
    parser.add_argument("key", type=word, metavar="KEY", help=_KEY)
    add_options(parser, *TIMES)
    parser.add_argument("--max", type=count, metavar="N", help="at most N messages")
    add_options(parser, "--body")
    parser.add_argument(
        "--scan",
        choices=_SCANS,
        help="RocketMQ: how much of the log without an index to scan: up to 1 GiB (auto, the default), all, none",
    )
    add_options(parser, "--index", "--header", "--sealed")
    parser = command(subparsers, "explain", SUMMARIES["search"]["explain"], _EXPLAIN, explain)
    add_source(parser, "store", _FOUND_IN)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic")
    parser.add_argument("key", type=word, metavar="KEY", help="the key")
    add_options(parser, *TIMES, "--index", "--header", "--sealed")
    parser.add_argument("--verbose", action="store_true", help="print each index file and its chain, too")


def find(arguments: argparse.Namespace) -> int:
    """Print the messages; 1 if there are none."""
    if LogDir.exists_at(locate(arguments.store)):
        _refuse_options_of_rocketmq(arguments)
        return kafka.run_find(arguments)
    _refuse_options_of_kafka(arguments)
    with MessageStore.open(arguments.store, **open_options(arguments)) as store:
        settle_times(arguments, store.times)
        if arguments.key == "-":
            return _find_each(store, arguments)
        by_id = _by_id(store, arguments) if arguments.topic == ANY_TOPIC else None
        with Progress("log without an index") as progress:
            result = store.find(
                arguments.topic,
                arguments.key,
                begin=arguments.begin,
                end=arguments.end,
                max_num=arguments.max,
                scan=_SCANS[arguments.scan or "auto"],
                progress=progress,
                # Each body is printed once, a batch at a time.
                body_budget=0,
            )
        batches: Iterable[RecordBatch] = RecordBatchReader.from_stream(result if arguments.body else result.heads())
        if by_id is not None and not result and arguments.max != 0:
            batches = [store.commit_log.messages([by_id.phy_offset])]
        columns = [name for name in MESSAGE_COLUMNS if arguments.body or name not in ("body", "body_error")]
        printed = say_rows((batch.select(columns) for batch in batches), as_json=arguments.json)
        found = printed > 0 or result.truncated
        _say_limits(result, arguments)
        if not found:
            complain(_nothing_found(store, arguments))
    return 0 if found else 1


def _refuse_options_of_rocketmq(arguments: argparse.Namespace) -> None:
    if arguments.scan is not None:
        what = "a search in a Kafka log directory reads all that no index covers"
        raise ValueError(f"--scan {arguments.scan}: expected a RocketMQ store, found {arguments.store}; {what}")


def _refuse_options_of_kafka(arguments: argparse.Namespace) -> None:
    if arguments.index or arguments.header:
        raise ValueError(f"--index and --header: expected a Kafka log directory, found {arguments.store}")


def _find_each(store: MessageStore, arguments: argparse.Namespace) -> int:
    """Print the messages of the keys on standard input, in their order; 1 if a key has none."""
    keys = list(dict.fromkeys(sys.stdin.read().split("\n")))
    keys = [key for key in keys if key]
    columns = [name for name in MESSAGE_COLUMNS if arguments.body or name not in ("body", "body_error")]
    found: set[int] = set()
    limits = {"begin": arguments.begin, "end": arguments.end, "max_num": arguments.max}
    for batch in store.find_batch(arguments.topic, keys, **limits, scan=_SCANS[arguments.scan or "auto"]):
        found.update(distinct(batch.column("query_row")))
        say_rows([batch.select(columns)], as_json=arguments.json)
    if len(found) < len(keys):
        missing = next(key for number, key in enumerate(keys) if number not in found)
        complain(f"nothing found for {len(keys) - len(found):,} of {len(keys):,} keys, the first is {missing!r}")
    return 0 if len(found) == len(keys) else 1


def explain(arguments: argparse.Namespace) -> int:
    """Print the explanation; 1 if nothing is found."""
    if LogDir.exists_at(locate(arguments.store)):
        return kafka.run_explain(arguments)
    _refuse_options_of_kafka(arguments)
    with MessageStore.open(arguments.store, **open_options(arguments)) as store:
        settle_times(arguments, store.times)
        explanation = store.explain(arguments.topic, arguments.key, begin=arguments.begin, end=arguments.end)
    if arguments.json:
        say_json(explanation.to_dict())
    else:
        verdict, _, rest = in_flags(explanation.text(files=arguments.verbose)).partition("\n")
        sys.stdout.write(f"{styled(verdict, BOLD, sys.stdout)}\n")
        say_lines(rest)
    return 0 if explanation.found else 1


def _by_id(store: MessageStore, arguments: argparse.Namespace) -> Message | None:
    """Return the message whose offset id is the key, if it was stored in the time range."""
    message = store.message(arguments.key) if store.is_msg_id(arguments.key) else None
    times = TimeRange.of(arguments.begin, arguments.end)
    return message if message is not None and times.holds(message.store_timestamp) else None


def _say_limits(result: FindResult, arguments: argparse.Namespace) -> None:
    """Print on standard error what limits the answer, so that standard output holds only messages."""
    if result.truncated:
        complain(f"there are more than {arguments.max}")
    size = sum(sum(end - begin for begin, end in subtract(part, result.unreadable)) for part in result.unscanned)
    if size:
        complain(f"{size_text(size)} of the log are neither indexed nor scanned (--scan all scans them)")
    for begin, end in result.unreadable:
        complain(f"the log from {begin:,} to {end:,} cannot be read: a file is missing, or its messages are damaged")


def _nothing_found(store: MessageStore, arguments: argparse.Namespace) -> str:
    """Return why nothing is found, as far as one more look tells it."""
    topic, key = arguments.topic, arguments.key
    if topic != ANY_TOPIC and topic not in store.topics:
        return nothing_matches(arguments, [topic], store.topics, [])
    if (arguments.begin, arguments.end) != (None, None) and (other := store.find(topic, key, max_num=1, scan=False)):
        return f"nothing found in this range of times; a message has the key at {time_text(other[0].store_timestamp)}"
    asked = "a topic and the key" if topic == ANY_TOPIC else "the same arguments"
    return f"nothing found; run `logdex explain` with {asked} to see why"
