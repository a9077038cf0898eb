"""`logdex grep`: messages with a match in their body."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING, Any

from logdex._core import Decoder, Pattern
from logdex.cli.arguments import FILTERS, OPEN, STORE_OR_LOG, Command, add_options, count, pattern_text
from logdex.cli.output import Progress, complain, limited_batches, say, say_json, say_matches
from logdex.cli.sources import open_path
from logdex.cli.sources.opened import nothing_matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch

    from logdex.cli.sources.opened import Opened

_FIELDS = ("body", "value", "keys", "key", "properties", "headers")

_DETAILS = """\
Searches the decompressed bodies (Kafka: values), on all processors, of the messages that pass the
filters. PATTERN is a regular expression: https://docs.rs/regex has the syntax. Prints each message
with its first matches and what is around them; -o only the matches. With --json each line has the
positions of all matches in `matches`. A body that cannot be decompressed is reported.
With --decode the JSON of the decoded body is searched, not what is stored.

  logdex grep order-1001 /data/store --topic Orders --begin -2h
  logdex grep -F '"status":"FAILED"' /data/store -c
  logdex grep -i 'timeout|refused' /data/kafka --in value,headers --json
  logdex grep -o 'user-[0-9]+' /data/store /backup/store
  logdex grep refused /data/store --where 'store_size > 4096 AND reconsume_times > 0'
  logdex grep '"status":"FAILED"' /data/kafka -t orders --decode value=avro:order.avsc"""


def _fields(text: str) -> tuple[str, ...]:
    """Parse the fields to search: names of either broker with commas between."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in _FIELDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected names of {', '.join(_FIELDS)} with commas between")
    return names


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", metavar="PATTERN", help="what to search: a regular expression")
    parser.add_argument("paths", nargs="+", metavar="PATH", help=STORE_OR_LOG)
    parser.add_argument("-F", dest="literal", action="store_true", help="the pattern is a text, no regular expression")
    parser.add_argument("-i", dest="ignore_case", action="store_true", help="upper and lower case are the same")
    parser.add_argument("-w", dest="word", action="store_true", help="only whole words match")
    parser.add_argument("-v", dest="invert", action="store_true", help="print the messages without a match")
    parser.add_argument("-c", dest="count", action="store_true", help="print only the number of messages, of each path")
    parser.add_argument("-o", dest="only", action="store_true", help="print only the matches, each on a line")
    parser.add_argument(
        "--in",
        dest="fields",
        type=_fields,
        default=("body",),
        metavar="FIELDS",
        help="what is searched (default: body)",
    )
    parser.add_argument("-m", "--limit", type=count, metavar="N", help="at most N messages, of each path")
    parser.add_argument("--body", action="store_true", help="print whole bodies")
    add_options(parser, *(name for name in FILTERS if name != "--limit"), *OPEN, "--decode", "--where", "--storage")


def _run(arguments: argparse.Namespace) -> int:
    """Print the messages of each path; 1 if there are none."""
    arguments.matches = Pattern(
        pattern_text(arguments.pattern),
        fields=arguments.fields,
        literal=arguments.literal,
        ignore_case=arguments.ignore_case,
        word=arguments.word,
        invert=arguments.invert,
    )
    of_paths = [argparse.Namespace(**{**vars(arguments), "path": path}) for path in arguments.paths]
    with contextlib.ExitStack() as stack:
        # All are opened before the first is searched, which may take long.
        sources = [stack.enter_context(open_path(each)) for each in of_paths]
        rows = [_grep(*each, is_named=len(sources) > 1) for each in zip(sources, of_paths, strict=True)]
    return 0 if any(rows) else 1


def _grep(opened: Opened, arguments: argparse.Namespace, *, is_named: bool) -> int:
    """Print the messages of one path; return their number."""
    name = os.fspath(arguments.path) if is_named else None
    undecoded: list[int] = []
    with (
        opened.reporting_unread(arguments),
        Progress("grep") as arguments.progress,
        _rows(opened, arguments, undecoded) as stream,
    ):
        batches = arguments.progress.hide_for(limited_batches(stream, arguments.limit))
        if arguments.count:
            rows: int = sum(batch.num_rows for batch in batches)
            if arguments.json:
                say_json({"path": name or str(arguments.path), "messages": rows})
            else:
                say(f"{rows}" if name is None else f"{name}: {rows}")
        else:
            rows = say_matches(
                batches,
                arguments.matches,
                path=name,
                as_json=arguments.json,
                bodies=arguments.body,
                only=arguments.only,
            )
    if any(undecoded):
        text = "messages that do not decode, and were not searched there"
        complain(f"{text}: {sum(undecoded):,}; `logdex cat --decode` has the reasons")
    if not rows and arguments.limit != 0 and not arguments.count:
        text = nothing_matches(arguments, arguments.topic or (), *opened.held(arguments.topic))
        complain(text if name is None else f"{name}: {text}")
    return rows


@contextlib.contextmanager
def _rows(opened: Opened, arguments: argparse.Namespace, undecoded: list[int]) -> Iterator[Any]:
    """Read the rows with a match. Those to decode are all read, as they are stored unless `--where` needs their fields."""
    if not arguments.decode:
        # The positions of matches are searched in the rows, so they need the bodies.
        with opened.matching_rows(arguments, body=not arguments.count) as stream:
            yield stream
        return
    read = {"matches": None, "decode": arguments.decode if arguments.where else []}
    with opened.matching_rows(argparse.Namespace(**{**vars(arguments), **read}), body=True) as stream:
        yield _decoded(stream, arguments, undecoded)


def _decoded(rows: Any, arguments: argparse.Namespace, undecoded: list[int]) -> Iterator[RecordBatch]:  # noqa: ANN401 -- of two packages
    """Search rows in the texts of their decoded columns, and count those that do not decode."""
    decoder = Decoder(dict(arguments.decode))
    for batch in rows:
        texts = decoder.texts(batch)
        undecoded.append(texts.num_rows - texts.column("body_error").null_count)
        yield arguments.matches.select(texts)


COMMAND = Command("grep", "search in the bodies of messages", _DETAILS, _add_arguments, _run)
