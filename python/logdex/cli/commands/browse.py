"""`logdex browse`: pages about a path, for a browser on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from logdex.cli.arguments import OPEN, Command, add_options, add_source, open_options, port
from logdex.cli.output import say, say_json
from logdex.errors import LogdexError

if TYPE_CHECKING:
    import argparse

_DETAILS = """\
Shows a store, a Kafka log directory or an index directory in a browser: topics, messages, a
search by key with each of its steps, index files, and a check. It needs the extra `web`.
Nothing is changed, and nothing is loaded from elsewhere. It serves on 127.0.0.1 until Ctrl-C.

  logdex browse /data/store
  logdex browse /data/store --decode body=avro:order.avsc
  logdex browse /data/store --port 8417 --no-open
  ssh -L 8417:127.0.0.1:8417 broker logdex browse /data/store --port 8417 --no-open"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "a store, an index directory, or a Kafka log directory")
    add_options(parser, *OPEN, "--decode")
    parser.add_argument("--port", type=port, metavar="N", help="on 127.0.0.1 (default: 8417 if it is free, else any)")
    parser.add_argument("--no-open", action="store_true", help="print the address, and open no browser")
    parser.add_argument("--token", metavar="TEXT", help="the secret word of the address (default: a random one)")


def _run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    # The other commands start faster without it, and work without its packages.
    try:
        from logdex.browse import browse  # noqa: PLC0415
    except ImportError as error:
        raise LogdexError(str(error)) from error

    def started(address: str) -> None:
        if arguments.json:
            say_json({"address": address})
        else:
            say(f"{arguments.path}: open {address}")
            say("  only this address has the token; Ctrl-C ends")
        # A pipe gets the address now, not at the end.
        sys.stdout.flush()

    browse(
        arguments.path,
        port=arguments.port,
        open_browser=not arguments.no_open,
        token=arguments.token,
        started=started,
        storage_options=dict(arguments.storage),
        decode=dict(arguments.decode),
        **open_options(arguments),
    )
    return 0


COMMAND = Command("browse", "look at a store in a browser", _DETAILS, _add_arguments, _run)
