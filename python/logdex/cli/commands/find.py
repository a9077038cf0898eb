"""`logdex find`: the messages that carry a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import OPEN, SEARCHED, TIMES, Command, add_options, add_source, count, word
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
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
  logdex find /data/store 'Order*' order-1001
  logdex find /data/store Orders - --json < keys.txt"""
_TOPIC = "the topic, or a pattern of topics: 'Order*' or '/regex/'; of RocketMQ, '*' for any"
_KEY = "a key, a unique key, or with '*' an offset id; '-' reads keys from standard input, one a line"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, SEARCHED, metavar="STORE")
    add_options(parser, *OPEN)
    parser.add_argument("topic", type=word, metavar="TOPIC", help=_TOPIC)
    parser.add_argument("key", type=word, metavar="KEY", help=_KEY)
    add_options(parser, *TIMES)
    parser.add_argument("--max", type=count, metavar="N", help="at most N messages")
    add_options(parser, "--body")
    scan = "RocketMQ: how much of the log without an index to scan: up to 1 GiB (auto, the default), all, none"
    parser.add_argument("--scan", choices=("auto", "all", "none"), help=scan)
    add_options(parser, "--index", "--header", "--sealed")


def _run(arguments: argparse.Namespace) -> int:
    """Print the messages; 1 if there are none."""
    with open_path(arguments) as opened:
        return opened.find(arguments)


COMMAND = Command("find", "find messages by key, the newest first", _DETAILS, _add_arguments, _run)
