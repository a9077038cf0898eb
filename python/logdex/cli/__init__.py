"""The command line: `logdex` and `python -m logdex`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
import traceback
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex import __version__
from logdex._core import CODECS, SCHEMES
from logdex.cli import commands
from logdex.cli.arguments import locate_urls, refuse_archive, time_zone
from logdex.cli.output import complain, display
from logdex.errors import DamageWarning, LogdexError, UnknownTopicWarning, printable
from logdex.report import near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

_WRONG = 2

_DESCRIPTION = """\
Reads the files of a message broker without the broker: a RocketMQ store, a part of it, its
index; a Kafka log directory, a partition, a segment. Reading changes and locks nothing, so
the broker may run. Three commands change a store: `recover` repairs it, `seal` adds an index in
its directory _logdex, and `serve --write` takes messages. Other commands write only
to other paths, which you name."""

_EPILOG = """\
start with
  logdex info /data/store                       describe a store
  logdex find /data/store Orders order-1001     find the messages with a key
  logdex explain /data/store Orders order-1001  explain why a key is found or not
  logdex verify /data/store                     check a store for damage
  logdex browse /data/store                     look at a store in a browser
  logdex kafka --help                           commands for Kafka only

times: milliseconds since the epoch, ISO 8601, an age such as -2h or -3d (s, m, h, d, w), now,
  today, yesterday, 11:30, or end-2h, before the last message. Without a zone they are in that
  of --tz, by default UTC. A range includes both ends.
exit codes: 0 found or valid; 1 nothing found or faults found; 2 wrong use or unreadable.
`logdex COMMAND --help` has examples."""

_VERSION = f"""\
logdex {__version__}
codecs: {", ".join(CODECS)}
stores: local, {", ".join(f"{scheme}://" for scheme in SCHEMES)}"""

_DASHED_TIME = re.compile(r"-\d.*")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with the arguments after the program's name (None: those of the process); return the exit code.

    Raises:
        KeyboardInterrupt: Ctrl-C; `logdex.__main__` turns it into an exit code.
    """
    _open_streams()
    handler = logging.StreamHandler()
    handler.addFilter(partial(_is_new, set()))
    logging.basicConfig(format="logdex: %(message)s", level=logging.WARNING, handlers=[handler])
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe closed it. The rest of the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LogdexError, OSError, ValueError, TypeError) as error:
        complain(_in_words(error))
        return _WRONG
    except Exception as error:  # noqa: BLE001 -- a user cannot use a traceback
        complain(f"this is a bug in logdex, please report it: {_in_one_line(error)}")
        return _WRONG
    return code


def _run(argv: Sequence[str]) -> int:
    display.zone, display.wide = _given_zone(argv), "--wide" in argv
    try:
        arguments = _parse(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else _WRONG
    # A read logs the damage that it skips. Here it only changes the exit code.
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always", DamageWarning)
        warnings.simplefilter("always", UnknownTopicWarning)
        locate_urls(arguments)
        refuse_archive(arguments)
        code: int = arguments.run(arguments)
    if not code:
        # Without rows, the command prints the reason.
        for text in dict.fromkeys(str(each.message) for each in issued if each.category is UnknownTopicWarning):
            complain(text)
    return code or int(any(issubclass(each.category, DamageWarning) for each in issued))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. An error is reported with the usage of the command that it is about, and near spellings.

    Raises:
        SystemExit: The arguments are wrong, or ask for help.
    """
    root = parser(argv)
    if not argv:
        root.print_help()
        root.exit()
    known = commands.names()
    if not argv[0].startswith("-") and argv[0] not in known:
        root.error(f"no command {argv[0]!r}; {near_names(argv[0], known)}")
    arguments, rest = root.parse_known_args(_join_times(argv))
    if rest:
        from difflib import get_close_matches  # noqa: PLC0415 -- after an error

        own: argparse.ArgumentParser = arguments.parser
        options = [option for action in own._actions for option in action.option_strings]  # noqa: SLF001 -- no public name
        near = [name for word in rest for name in get_close_matches(word.partition("=")[0], options)]
        words = f"; near spellings: {', '.join(near)}" if near else ""
        own.error(f"unrecognized arguments: {' '.join(rest)}{words}")
    return arguments


def _given_zone(argv: Sequence[str]) -> Callable[[int], int] | None:
    """Return the time zone of `--tz`, which the other arguments are parsed with. The parser reports an invalid one."""
    given = [
        after if word == "--tz" else word[5:] for word, after in pairwise([*argv, ""]) if word[:5] in ("--tz", "--tz=")
    ]
    try:
        return time_zone(given[-1]) if given else None
    except argparse.ArgumentTypeError:
        return None


def _is_new(said: set[str], record: logging.LogRecord) -> bool:
    """Pass each warning once, as one printable line: a command may open the same files several times."""
    text = printable(record.getMessage())
    record.msg, record.args = text, ()
    is_new = text not in said
    said.add(text)
    return is_new


def _open_streams() -> None:
    """Make the standard streams accept every text, and replace closed ones (`>&-`) by /dev/null."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 -- open until exit
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")


class _Printed(argparse.Action):
    """Prints a completion script or a man page that another package generates from the parsers, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, value: Any, option: str | None = None) -> None:  # noqa: ANN401 -- as argparse has it
        text = _completion(value) if value else _man_page()
        if text is None:
            needed = "shtab" if value else "argparse-manpage"
            parser.error(f"{option} needs {needed}: pip install {needed}")
        sys.stdout.write(text)
        parser.exit()


def _completion(shell: str) -> str | None:
    try:
        import shtab  # noqa: PLC0415 -- optional
    except ImportError:
        return None
    return str(shtab.complete(parser(), shell))


def _man_page() -> str | None:
    try:
        from argparse_manpage.manpage import Manpage  # noqa: PLC0415 -- optional
    except ImportError:
        return None
    os.environ["COLUMNS"] = "10000"  # `man` wraps the lines; the process ends with this page
    root = parser()
    root.man_short_description = "find, read, check and repair messages in the files of RocketMQ and Kafka"  # type: ignore[attr-defined]
    page = Manpage(root, format="pretty")
    page.date, page.source, page.manual = "", f"logdex {__version__}", "User Commands"
    # A line that starts with a dot is a request of roff: those of the page have capital letters.
    return re.sub(r"^\.(?![A-Z])", r"\\&.", str(page), flags=re.MULTILINE)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line. If the first word is a command, it has only this command."""
    layout = argparse.RawDescriptionHelpFormatter
    root = _Parser("logdex", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=layout)
    root.add_argument("--version", action="version", version=_VERSION, help="print version, codecs and stores; exit")
    shells = "print a script for completion in this shell, which needs shtab; exit"
    root.add_argument("--print-completion", action=_Printed, choices=("bash", "zsh", "fish"), help=shells)
    page = "print a page for man, which needs argparse-manpage; exit"
    root.add_argument("--print-man-page", action=_Printed, nargs=0, help=page)
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    known = commands.names()
    for name in words[:1] if words and words[0] in known else known:
        commands.load(name).add_to(subparsers)
    return root


def _join_times(argv: Sequence[str]) -> list[str]:
    """Write `--begin -2h` as `--begin=-2h`: argparse treats a word with a leading dash as an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in ("--begin", "--end", "--as-of") and _DASHED_TIME.fullmatch(word):
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
