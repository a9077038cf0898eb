"""The command line: `logdex` and `python -m logdex`.

One module a command. Each has `add_parsers(subparsers)`, which sets `run`, a function from the parsed arguments to the exit
code: 0 found or sound, 1 nothing found or faults found, 2 wrong use or unreadable.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from logdex import __version__
from logdex.__main__ import INTERRUPTED
from logdex.cli import build_index, build_queues, cat, copy, explain, export, find, info, kafka, recover, stats, verify
from logdex.cli.output import complain
from logdex.errors import LogdexError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (info, find, explain, cat, export, verify, build_index, build_queues, copy, recover, stats, kafka)

_WRONG = 2

_DESCRIPTION = """\
Reads what a message broker left on disk, without the broker: a RocketMQ store, a part of
one, its index; a Kafka log directory, a partition, a segment. Nothing that is read is
changed, locked or touched; a running broker may go on. Only `recover` changes a store."""

_EPILOG = """\
begin with
  logdex info /data/store                       what lies here
  logdex find /data/store Orders order-1001     the messages that carry a key
  logdex explain /data/store Orders order-1001  why a key is found, or why not
  logdex verify /data/store                     what is broken
  logdex kafka --help                           what there is for Kafka alone

times: milliseconds since the epoch, ISO 8601 (UTC where no zone is said), or
  -2h, -3d: so long ago (s, m, h, d, w). Both ends of a range belong to it.
exit codes: 0 found, sound; 1 nothing found, faults found; 2 wrong use, unreadable.
`logdex COMMAND --help` has examples."""

_DASHED_TIME = re.compile(r"-\d.*")


class _Once(logging.Filter):
    """Lets a warning pass once: a command may open the same files several times."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether it was not said yet."""
        text = record.getMessage()
        if text in self._said:
            return False
        self._said.add(text)
        return True


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The words after the program's name; None: the process's own.

    Returns:
        The exit code.
    """
    _open_streams()
    handler = logging.StreamHandler()
    handler.addFilter(_Once())
    logging.basicConfig(format="logdex: %(message)s", level=logging.WARNING, handlers=[handler])
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Who read us has seen enough. What is still buffered must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LogdexError, OSError, ValueError, TypeError) as error:
        complain(_in_words(error))
        return _WRONG
    except Exception as error:  # noqa: BLE001 -- nobody but us can do something with the traceback
        complain(f"this is a fault of logdex, please report it: {_in_one_line(error)}")
        return _WRONG
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        arguments = _parser().parse_args(_join_times(argv))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else _WRONG
    code: int = arguments.run(arguments)
    return code


def _open_streams() -> None:
    """Make the standard streams fit for every text, and give those that were closed (`>&-`) a place to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 -- for as long as we run
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets its escape.
        sys.stdout.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("logdex", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"logdex {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parsers(subparsers)
    return parser


def _join_times(argv: Sequence[str]) -> list[str]:
    """Write `--begin -2h` as `--begin=-2h`: argparse takes what begins with a dash for an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in ("--begin", "--end") and _DASHED_TIME.fullmatch(word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def _in_one_line(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
