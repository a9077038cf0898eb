"""`logdex explain`: why a key is found, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import add_store, add_times, command, open_options, word
from logdex.cli.output import say, say_json
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Goes the whole way and tells it: hash, slot, every index file with its time window and why
it was taken or skipped, the chain, each candidate and what it really is, how far the index
is behind the log; then the likely causes, each of a closed list (docs/findings.md).

  logdex explain /data/store Orders order-1001
  logdex explain /data/store Orders order-1001 --begin -2h --json"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "explain", "why a key is found, or why not", _DETAILS)
    add_store(parser)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic")
    parser.add_argument("key", type=word, metavar="KEY", help="what was looked for")
    add_times(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the way; 1 where nothing is found."""
    with MessageStore.open(arguments.store, **open_options(arguments)) as store:
        explanation = store.explain(arguments.topic, arguments.key, begin=arguments.begin, end=arguments.end)
    if arguments.json:
        say_json(explanation.to_dict())
    else:
        say(str(explanation))
    return 0 if explanation.found else 1
