"""`logdex info`: what lies at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.cli.arguments import add_path, command, open_options
from logdex.cli.kinds import open_source
from logdex.cli.output import facts, say, say_json, size_text, table, time_text

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Kind, files, ranges of offsets and times, geometry of the index. Cheap: nothing is scanned
but the newest file of the log.

  logdex info /data/store
  logdex info /data/store/index
  logdex info /backup/20261121193005123"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "info", "what lies at a path", _DETAILS)
    add_path(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Describe the path; always 0 where something lies there."""
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


def _words(name: str) -> str:
    """Turn the name of a fact into words for people; units stand with the values."""
    return name.removesuffix("_bytes").replace("_timestamp", "").replace("_", " ")


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 -- facts of every type
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_timestamp") and isinstance(value, int):
        return time_text(value)
    return size_text(value) if name.endswith("_bytes") and value is not None else value
