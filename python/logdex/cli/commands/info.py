"""`logdex info`: the description of a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import ANY_PATH, OPEN, Command, add_options, add_source
from logdex.cli.output import say, say_facts, say_json, shown, table, words
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Prints kind, files, ranges of offsets and times, and the geometry of the index. It is fast:
only the newest file of the log is scanned.

  logdex info /data/store
  logdex info /data/store/index
  logdex info /backup/20261121193005123"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, ANY_PATH)
    add_options(parser, *OPEN, "--sealed", "--tz", "--wide")


def _run(arguments: argparse.Namespace) -> int:
    """Describe the path; 0 if it can be read."""
    with open_path(arguments) as opened:
        info = opened.info()
    if arguments.json:
        say_json({"path": str(arguments.path), **info.to_dict()})
        return 0
    say(f"{arguments.path}: {info.kind}")
    say_facts([(words(name), shown(name, value)) for name, value in info.facts.items()], indent="  ")
    for each in info.tables:
        say()
        rows = [[shown(name, value) for name, value in zip(each.heads, row, strict=True)] for row in each.rows]
        table(rows, [words(name) for name in each.heads], indent="  ")
    return 0


COMMAND = Command("info", "describe the store, log or index at a path", _DETAILS, _add_arguments, _run)
