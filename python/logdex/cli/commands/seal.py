"""`logdex seal`: a sealed index, in a store or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex._core import locate, sealed_directory
from logdex.cli.arguments import OPEN, WHOLE, Command, add_options, add_source, open_options, word
from logdex.cli.output import Progress, say_built
from logdex.source import Kind, kind_to_open

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Writes `_logdex` into the store, or into DIR_OR_URL: all index entries sorted by their hashes, as
Parquet, and a catalog of the files of the store. A search then costs one read instead of several in
each index file, over a network one request. The files of the store are not changed. What a broker
adds later is searched as before; seal again from time to time, or when the store is at rest.

Of a Kafka log directory the record keys are sealed, and with --header the values of one header.
A broker does not start if `_logdex` is in its log directory, so --out is needed there.

  logdex seal /backup/store
  logdex seal s3://backups/store --storage aws_region=eu-west-1
  logdex seal /data/store --out /var/lib/logdex/store
  logdex find /data/store Orders order-1001 --sealed /var/lib/logdex/store
  logdex seal /var/kafka-logs --out /var/lib/logdex/kafka --header order-id"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, WHOLE, metavar="STORE")
    add_options(parser, *OPEN)
    parser.add_argument("--out", metavar="DIR_OR_URL", help="where to write `_logdex` (default: into the store)")
    parser.add_argument("--header", type=word, metavar="NAME", help="Kafka: seal the values of this header, too")


def _run(arguments: argparse.Namespace) -> int:
    """Seal a store and print what was counted; 1 if index files or segments are left out."""
    out = arguments.path if arguments.out is None else arguments.out
    options = {**open_options(arguments), "sealed": "never"}
    if kind_to_open(locate(arguments.path), options) is Kind.LOG_DIR:
        from logdex.kafka import LogDir  # noqa: PLC0415 -- one broker's modules, not both

        with LogDir.open(arguments.path, **options) as logs, Progress("seal") as progress:
            report = logs.seal(arguments.out, header=arguments.header, progress=progress)
    elif arguments.header is not None:
        raise ValueError(f"--header: expected a Kafka log directory, found {arguments.path}")
    else:
        from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- as above

        with MessageStore.open(arguments.path, **options) as store, Progress("seal") as progress:
            report = store.seal(arguments.out, progress=progress)
    return say_built(report, str(sealed_directory(locate(out))), as_json=arguments.json)


COMMAND = Command("seal", "write an index with which a search costs one read", _DETAILS, _add_arguments, _run)
