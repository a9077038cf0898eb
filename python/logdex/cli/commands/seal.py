"""`logdex seal`: a sealed index beside a store, or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex._core import locate, sealed_directory
from logdex.cli.arguments import add_source, command, open_options
from logdex.cli.output import Progress, say_built
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_SEAL = """\
Writes `_logdex` into the store, or into DIR_OR_URL: all index entries sorted by their hashes, as
Parquet, and a catalog of the files of the store. A search then costs one read in place of some in
each index file, over a network one request. The files of the store are not changed. What a broker
adds later is searched as before; seal again from time to time, or when the store is at rest.

  logdex seal /backup/store
  logdex seal s3://backups/store --storage aws_region=eu-west-1
  logdex seal /data/store --out /var/lib/logdex/store"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "seal", "make searches cost one read", _SEAL, seal)
    add_source(parser, "store", "the store")
    parser.add_argument("--out", metavar="DIR_OR_URL", help="where to write `_logdex` (default: into the store)")


def seal(arguments: argparse.Namespace) -> int:
    """Seal a store and print what was counted; 1 if index files are left out."""
    if LogDir.exists_at(locate(arguments.store)):
        raise ValueError(f"{arguments.store}: expected a RocketMQ store, found a Kafka log directory")
    out = arguments.store if arguments.out is None else arguments.out
    with (
        MessageStore.open(arguments.store, sealed="never", **open_options(arguments)) as store,
        Progress("seal") as progress,
    ):
        report = store.seal(arguments.out, progress=progress)
    return say_built(report, str(sealed_directory(locate(out))), as_json=arguments.json)
