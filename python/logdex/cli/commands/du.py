"""`logdex du`: how many messages and bytes there are."""

from __future__ import annotations

import contextlib
import stat
from collections import Counter
from typing import TYPE_CHECKING, get_args

from logdex._core import local_path
from logdex.cli.arguments import OPEN, WHOLE, Command, add_options, add_source
from logdex.cli.output import say_json, table, words
from logdex.cli.sources import open_path
from logdex.report import size_text
from logdex.source import EXPECTED_WHOLE, By, Kind

if TYPE_CHECKING:
    import argparse

    from logdex.cli.sources.opened import Opened

_DETAILS = """\
A RocketMQ store is counted by its queues, without reading the log: bytes of the messages'
frames. A Kafka directory is counted by its segments: bytes of the .log files, and offsets, of
which compaction and transactions leave fewer records. The largest come first.

With --by part the files are counted, as `du` and `df` do: their length, and what they take on the
disk, which is less for files that were made ahead and not written yet.

  logdex du /data/store
  logdex du /data/store --by part
  logdex du /data/store --by day --json"""
_COLUMNS = {"topic": ("topic",), "queue": ("topic", "queue_id"), "day": ("day",)}
_PARTS = {
    "commitlog": "log",
    **dict.fromkeys(("consumequeue", "batchconsumequeue", "consumequeue_ext"), "queues"),
    "index": "index",
    "config": "tables",
    "_logdex": "sealed index",
}
"""Parts of a directory by the names in it."""
_SUFFIXES = {".log": "log", **dict.fromkeys((".index", ".timeindex", ".txnindex"), "indexes"), ".snapshot": "snapshots"}
"""Parts of a Kafka partition by the suffixes of its files."""
_COUNTS = ("files", "file_bytes", "disk_bytes", "free_bytes")
_BLOCK_BYTES = 512
"""The unit of `st_blocks`."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, WHOLE)
    add_options(parser, *OPEN, "--wide")
    by = "what to add up (default: topic); days are in UTC; a part is the log, the index and so on"
    parser.add_argument("--by", choices=(*get_args(By), "part"), default="topic", help=by)


def _run(arguments: argparse.Namespace) -> int:
    """Print messages and bytes; 1 if there are none."""
    with open_path(arguments) as opened:
        if arguments.by == "part":
            return _say_parts(arguments, opened)
        rows = opened.usage(arguments.by)
    names = _COLUMNS[arguments.by]
    heads = (*names, "messages", "log_bytes")
    cells = [[getattr(row, name) for name in heads] for row in rows]
    if arguments.json:
        for row in cells:
            say_json(dict(zip(heads, row, strict=True)))
        return 0 if rows else 1
    if arguments.by != "day":
        cells.sort(key=lambda row: -row[-1])
    total = ["total", *[None] * (len(names) - 1), sum(row.messages for row in rows), sum(row.log_bytes for row in rows)]
    table([[*row[:-1], size_text(row[-1])] for row in [*cells, total]], [*map(words, names), "messages", "bytes"])
    return 0 if rows else 1


def _say_parts(arguments: argparse.Namespace, opened: Opened) -> int:
    """Print how many files and bytes each part of a directory has; 1 if there are none."""
    if opened.kind not in (Kind.STORE.value, Kind.LOG_DIR.value, Kind.PARTITION.value):
        raise ValueError(f"{opened.kind}: {EXPECTED_WHOLE}")
    root = local_path(arguments.path)
    parts: dict[str, Counter[str]] = {}
    for entry in root.iterdir():
        for file in entry.rglob("*") if entry.is_dir() else (entry,):
            # A broker deletes files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                status = file.stat()
                if stat.S_ISREG(status.st_mode):
                    part = _PARTS.get(entry.name, _SUFFIXES.get(file.suffix, "other"))
                    blocks = getattr(status, "st_blocks", -(-status.st_size // _BLOCK_BYTES))
                    counts = {"files": 1, "file_bytes": status.st_size, "disk_bytes": blocks * _BLOCK_BYTES}
                    parts.setdefault(part, Counter()).update(counts)
    used = opened.bytes_of_log()
    if used is not None and "log" in parts:
        parts["log"]["free_bytes"] = max(0, parts["log"]["file_bytes"] - used)
    names = sorted(parts, key=lambda part: -parts[part]["file_bytes"])
    if arguments.json:
        for part in names:
            say_json({"part": part, **{name: parts[part].get(name) for name in _COUNTS}})
        return 0 if names else 1
    rows = [(part, parts[part]) for part in names] + [("total", sum(parts.values(), Counter()))]
    cells = [
        (part, counts["files"], *(size_text(counts[name]) if name in counts else None for name in _COUNTS[1:]))
        for part, counts in rows
    ]
    table(cells, ("part", "files", "length", "on disk", "not written yet"))
    return 0 if names else 1


COMMAND = Command("du", "count messages and bytes by topic, queue or day", _DETAILS, _add_arguments, _run)
