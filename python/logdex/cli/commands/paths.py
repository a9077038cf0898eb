"""`logdex info` and `logdex verify`: commands that take any path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.arguments import add_source, command, open_options
from logdex.cli.output import Progress, facts, say, say_json, say_report, size_text, table, time_text
from logdex.cli.sources.registry import open_source

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_PATH = "a store, a commit log, an index directory or file; a Kafka log directory, or a part of it"

_INFO = """\
Prints kind, files, ranges of offsets and times, and the geometry of the index. It is fast:
only the newest file of the log is scanned.

  logdex info /data/store
  logdex info /data/store/index
  logdex info /backup/20261121193005123"""

_VERIFY = """\
Reads and checks everything: the log, its queues against the log, its index against both, in
both directions. docs/findings.md lists all kinds of findings. Changes nothing.

  logdex verify /data/store
  logdex verify /data/store/index --json | jq -r .kind | sort | uniq -c"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(subparsers, "info", "describe the store, log or index at a path", _INFO)
    add_source(parser, "path", _PATH)
    parser.set_defaults(run=info)
    parser = command(subparsers, "verify", "check every byte that has a meaning", _VERIFY)
    add_source(parser, "path", _PATH)
    parser.set_defaults(run=verify)


def info(arguments: argparse.Namespace) -> int:
    """Describe the path; 0 if it can be read."""
    with open_source(arguments.path, **open_options(arguments)) as source:
        description = source.describe()
    if arguments.json:
        listings = {listing.title.replace(" ", "_"): listing.to_dicts() for listing in description.listings}
        say_json({"path": str(arguments.path), "kind": description.kind, **description.facts, **listings})
        return 0
    say(f"{arguments.path}: {description.kind}")
    facts([(_words(name), _shown(name, value)) for name, value in description.facts.items()], indent="  ")
    for listing in description.listings:
        say()
        rows = [[_shown(name, value) for name, value in zip(listing.heads, row, strict=True)] for row in listing.rows]
        table(rows, [_words(name) for name in listing.heads], indent="  ")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 if there are any."""
    with open_source(arguments.path, **open_options(arguments)) as source, Progress("verify") as progress:
        report = source.verify(progress)
    return say_report(report, json=arguments.json)


def _words(name: str) -> str:
    """Return the name of a fact as words. The unit is printed with the value."""
    return name.removesuffix("_bytes").replace("_timestamp", "").replace("_", " ")


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 -- facts of every type
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_timestamp") and isinstance(value, int):
        return time_text(value)
    return size_text(value) if name.endswith("_bytes") and value is not None else value
