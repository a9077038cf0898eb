"""`logdex explain`: why a key is found or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import OPEN, SEARCHED, TIMES, Command, add_options, add_source, word
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Prints the verdict and its likely causes (docs/findings.md has all), how much of the log
is not indexed yet, and each candidate with its real topic and keys. --verbose adds every index file with
its time window, why it was searched or skipped, its slot and its chain. For a Kafka log directory:
the partition that producers choose for the key, and the search in each partition.

  logdex explain /data/store Orders order-1001
  logdex explain /data/store Orders order-1001 --begin -2h --json"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, SEARCHED, metavar="STORE")
    add_options(parser, *OPEN)
    parser.add_argument("topic", type=word, metavar="TOPIC", help="the topic")
    parser.add_argument("key", type=word, metavar="KEY", help="the key")
    add_options(parser, *TIMES, "--index", "--header", "--sealed")
    parser.add_argument("--verbose", action="store_true", help="print each index file and its chain, too")


def _run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 1 if nothing is found."""
    with open_path(arguments) as opened:
        return opened.explain(arguments)


COMMAND = Command("explain", "explain why a key is found or not", _DETAILS, _add_arguments, _run)
