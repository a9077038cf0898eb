"""`logdex find`: the messages that carry a key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from logdex.cli.arguments import add_store, add_times, command, count, open_options, word
from logdex.cli.messages import message_json, message_text
from logdex.cli.output import complain, say, say_json, size_text
from logdex.cli.progress import Progress
from logdex.hash_index.query import TimeRange
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

    from logdex._types import Scan
    from logdex.cli.arguments import Subparsers
    from logdex.rocketmq import FindResult, Message

_DETAILS = """\
KEY is one of a message's keys, or its unique key (the id a client shows). With '*' as TOPIC
a unique key is tried under every topic, and the broker's own id of a message, which holds its
place in the log, is read from there. A 5.5.0 broker indexes tags, too: 'T#TagA' as KEY.

Every message is checked against topic and key: the index holds hashes. What no index file
covers is read from the log, up to 1 GiB, and said.

  logdex find /data/store Orders order-1001
  logdex find /data/store '*' 7F00000164845FFD2B2768AC96750001 --body
  logdex find /data/store Orders order-1001 --begin -2d --max 1 --json"""

ANY_TOPIC = "*"
_SCANS: dict[str, Scan] = {"auto": "auto", "all": True, "none": False}


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "find", "find messages by key, the newest first", _DETAILS)
    add_store(parser)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic; '*' for any")
    parser.add_argument("key", type=word, metavar="KEY", help="a key, a unique key, or with '*' an offset id")
    add_times(parser)
    parser.add_argument("--max", type=count, metavar="N", help="no more than N messages")
    parser.add_argument("--body", action="store_true", help="with the bodies")
    parser.add_argument(
        "--scan",
        choices=("auto", "all", "none"),
        default="auto",
        help="how much of the log that no index file covers is read: up to 1 GiB, all, none",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what is found; 1 where nothing is."""
    topic = None if arguments.topic == ANY_TOPIC else arguments.topic
    with MessageStore.open(arguments.store, **open_options(arguments)) as store:
        by_id = _by_id(store, arguments) if topic is None else None
        with Progress("log that no index file covers") as progress:
            result = store.find(
                topic,
                arguments.key,
                begin=arguments.begin,
                end=arguments.end,
                max_num=arguments.max,
                scan=_SCANS[arguments.scan],
                progress=progress,
            )
        messages = [by_id] if by_id is not None and not result and arguments.max != 0 else list(result)
        for message in messages:
            _print(message, arguments)
    found = bool(messages) or result.truncated
    _say_the_rest(result, found=found, arguments=arguments)
    return 0 if found else 1


def _by_id(store: MessageStore, arguments: argparse.Namespace) -> Message | None:
    """Read the message whose offset id the key is, where it was stored in the range of time."""
    message = store.message(arguments.key) if store.is_msg_id(arguments.key) else None
    times = TimeRange.of(arguments.begin, arguments.end)
    return message if message is not None and times.holds(message.store_timestamp) else None


def _print(message: Message, arguments: argparse.Namespace) -> None:
    row = dataclasses.asdict(message)
    if not arguments.body:
        del row["body"], row["body_error"]
    if arguments.json:
        say_json(message_json(row))
    else:
        say(message_text(row))


def _say_the_rest(result: FindResult, *, found: bool, arguments: argparse.Namespace) -> None:
    """Say what limits the answer; on the other stream, so that the rows stay rows."""
    if result.truncated:
        complain(f"there are more than {arguments.max}")
    if result.unscanned:
        size = sum(end - begin for begin, end in result.unscanned)
        complain(f"{size_text(size)} of the log are neither indexed nor read (--scan all reads them)")
    if not found:
        asked = "a topic and the key" if arguments.topic == ANY_TOPIC else "the same words"
        complain(f"nothing found; `logdex explain` with {asked} says why")
