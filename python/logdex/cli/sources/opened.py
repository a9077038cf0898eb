"""An opened path, as the commands use it: described, read row by row, searched, verified."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logdex._files import Closing
from logdex.cli.arguments import chosen_columns
from logdex.cli.output import complain, say_built, time_text
from logdex.errors import CorruptFileError, LogdexError
from logdex.report import size_text, unknown_topic
from logdex.source import EXPECTED_WHOLE, NO_MESSAGES, Info, matching_topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from logdex._core import BatchStream, SegmentReader
    from logdex.cli.output import Progress
    from logdex.duckdb import Tables
    from logdex.report import Finding, Report
    from logdex.source import By, GroupOffset, Source, Table, Usage

    Facts: TypeAlias = tuple[dict[str, Any], list[Table]]


@dataclass(frozen=True, slots=True)
class LogRead:
    """One log that can be read from any position: a commit log, or a partition.

    Attributes:
        name: Its name, for messages.
        bounds: Returns its first offset now, and the offset after its last row.
        read: Reads the rows between two offsets that pass `--where`, as `Opened.matching_rows` does.
        starts: Returns offsets from which to read the last rows before an end, each further from it.
    """

    name: str
    bounds: Callable[[], tuple[int, int]]
    read: Callable[[int, int], contextlib.AbstractContextManager[Any]]
    starts: Callable[[int, int], Iterator[int]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequences of the findings at a path.

    Attributes:
        lost: How much is lost at least, in words; empty for nothing.
        blockers: The findings with which a broker does not start, by its release; empty if that is unknown.
        warning: A danger of starting a broker; empty without one.
        commands: The next commands, with what they do.
    """

    lost: str = ""
    blockers: dict[str, list[Finding]] = field(default_factory=dict)
    warning: str = ""
    commands: dict[str, str] = field(default_factory=dict)

    def to_dict(self, report: Report) -> dict[str, Any]:
        """Return what the last line of `logdex verify --json` has besides the counts."""
        return {
            "severities": report.severities,
            "lost": self.lost or None,
            "broker_starts": {release: not found for release, found in self.blockers.items()},
            "next": list(self.commands),
        }


class Opened(Closing):
    """One opened path. The defaults are those of a path without rows.

    Attributes:
        bodies: The columns that are printed on demand only.
    """

    bodies: tuple[str, ...] = ()

    def __init__(self, kind: str, source: Source | None = None) -> None:
        """Use a source; None for a file or a part. `kind` is the kind of the path in words."""
        self.kind = kind
        self._source = source

    def _whole(self) -> Source:
        if self._source is None:
            raise ValueError(f"{self.kind}: {EXPECTED_WHOLE}")
        return self._source

    def info(self) -> Info:
        """Return the description."""
        return self._whole().info()

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        """Check everything; the records of Kafka only if `deep`."""
        del progress, deep
        return self._whole().verify()

    def verdict(self, report: Report) -> Verdict:
        """Return the consequences of the findings of `verify`."""
        del report
        return Verdict()

    def rows(self, filters: argparse.Namespace, *, body: bool) -> BatchStream | SegmentReader:
        """Return the rows that pass the options `FILTERS`, in log order; without bodies unless `body`."""
        del filters, body
        raise ValueError(f"{self.kind}: {NO_MESSAGES}")

    def options(self, filters: argparse.Namespace) -> dict[str, Any]:
        """Return the options of a read of the rows that pass the options `FILTERS`, None for those that are not given."""
        del filters
        return {}

    def tables(self, filters: argparse.Namespace, *, empty: bool = False) -> Tables:
        """Return tables for queries; messages or records are those that pass the options `FILTERS`."""
        return tables_of(self._whole(), self.options(filters), empty=empty)

    def matching_rows(self, filters: argparse.Namespace, *, body: bool) -> contextlib.AbstractContextManager[Any]:
        """Read the rows of `rows` that pass `--where`, a stream with a schema; then print what was skipped."""
        return self._where(filters, body, lambda: self.rows(filters, body=body), lambda: self.tables(filters))

    @contextlib.contextmanager
    def _where(
        self,
        filters: argparse.Namespace,
        body: bool,  # noqa: FBT001 -- passed on
        rows: Callable[[], BatchStream | SegmentReader],
        tables: Callable[[], Tables],
    ) -> Iterator[Any]:
        """Read rows as they are, or with `--where` from tables; then print what was skipped."""
        if filters.where is None:
            streams = [rows()]
            yield streams[0]
        else:
            with tables() as opened:
                columns = chosen_columns(filters, opened.schema.names, () if body else self.bodies)
                yield opened.where(filters.where, columns)
            streams = [stream for _, stream in opened.reads]
        filters.progress.hide()
        for stream in streams:
            self.say_skipped(stream)

    def settle_formats(self, filters: argparse.Namespace) -> None:
        """Make each read for `--where` decode objects with the fields of the first ones of `rows`."""
        if filters.where is not None and filters.decode:
            filters.decode = list(self.tables(filters).rows.filters["decode"].items())

    def logs(self, filters: argparse.Namespace, *, body: bool) -> Sequence[LogRead]:
        """Return the logs that hold the rows of `rows`."""
        self.rows(filters, body=body)
        return []

    def bytes_of_log(self) -> int | None:
        """Return the length of the log of a store up to its last message; None: there is no such log."""
        return None

    def bytes_after(self, filters: argparse.Namespace, path: str, offset: int) -> int:
        """Return how many bytes of the logs of `rows` follow a byte offset in one of their files."""
        del filters, path, offset
        return 0

    def say_skipped(self, stream: BatchStream | SegmentReader) -> None:
        """Close a stream of `rows`, and print what it skipped besides the damage, which is logged."""
        stream.close()

    def held(self, topics: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
        """Return the topics here, and times in ms from the first to the last message of some of them; None: of all."""
        del topics
        return [], []

    def find(self, arguments: argparse.Namespace) -> int:
        """Print the messages that carry a key; return 1 if there are none."""
        del arguments
        raise ValueError(f"{self.kind}: {NO_MESSAGES}")

    def explain(self, arguments: argparse.Namespace) -> int:
        """Print why a key is found or not; return 1 if nothing is found."""
        return self.find(arguments)

    def copy(self, arguments: argparse.Namespace) -> int:
        """Copy messages into a new directory; return 1 if there are none or if some are damaged."""
        del arguments
        raise ValueError(f"{self.kind}: {EXPECTED_WHOLE}")

    def usage(self, by: By) -> Sequence[Usage]:
        """Return messages and bytes by topic, queue or day."""
        return self._whole().usage(by)

    def groups(self, as_of: int | None = None) -> Sequence[GroupOffset]:
        """Return how far consumer groups have read, at a moment in ms if one is given."""
        if as_of is not None:
            raise ValueError(f"--as-of: expected a Kafka log directory, found {self.kind}")
        return self._whole().groups()

    def close(self) -> None:
        """Close the files."""
        if self._source is not None:
            self._source.close()

    @contextlib.contextmanager
    def reporting_unread(self, arguments: argparse.Namespace) -> Iterator[None]:
        """Print on standard error how much is unread if damage ends a read. The caller prints the error later."""
        try:
            yield
        except CorruptFileError as error:
            if left := self.bytes_after(arguments, error.path, error.offset):
                text = f"stopped at damage, {size_text(left)} of the log are unread; --skip-damaged reads on after it"
                complain(text)
            raise


def tables_of(source: Source, options: Mapping[str, Any], *, empty: bool = False) -> Tables:
    """Return tables for queries over the rows that a read with these options has; None for one that is not given."""
    try:
        from logdex.duckdb import Tables  # noqa: PLC0415 -- optional
        from logdex.pushdown import Rows  # noqa: PLC0415 -- as above
    except ImportError as error:
        raise LogdexError(str(error)) from error
    return Tables(Rows(source, {name: value for name, value in options.items() if value is not None}), empty=empty)


class Part(Opened):
    """A file or directory that belongs to a store or a log directory. It is read on demand; nothing stays open.

    Without `describe` only its size is known; without `check` it is checked with the whole store only.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        describe: Callable[[], Facts] | None = None,
        check: Callable[[], Report] | None = None,
    ) -> None:
        super().__init__(kind)
        self._path = path
        self._describe = describe or (lambda: ({"file_bytes": path.stat().st_size}, []))
        self._check = check

    def info(self) -> Info:
        """Return kind, facts and tables."""
        return Info(self.kind, *self._describe())

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        """Check what can be checked without the whole store."""
        del progress, deep
        if self._check is None:
            raise ValueError(f"{self._path}: {self.kind}; check the whole store or log directory instead")
        return self._check()


def nothing_matches(
    arguments: argparse.Namespace, wanted: Sequence[str], topics: Sequence[str], times: Sequence[int]
) -> str:
    """Return the message for a search or filter without a match, and what there is instead; see `Opened.held`."""
    begin, end = time_text(arguments.begin), time_text(arguments.end)
    if unknown := [topic for topic in matching_topics(wanted, lambda: topics) if topic not in topics]:
        return f"nothing found: {unknown_topic(unknown[0], topics)}"
    bounds = f"{f' from {begin}' if begin else ''}{f' to {end}' if end else ''}"
    names = ", ".join(wanted)
    asked = f"nothing found{f' of topic {names}' if names else ''}{bounds}"
    if not times:
        return f"{asked}: there are no messages"
    return f"{asked}; messages are from {time_text(min(times))} to {time_text(max(times))}"


def say_copied(
    arguments: argparse.Namespace,
    report: Report,
    what: str,
    held: Callable[[], tuple[Sequence[str], Sequence[int]]],
) -> int:
    """Print the result of a copy, which counts `what`; return 1 if nothing was copied or if there is damage."""
    copied = report.checked[what]
    if not copied:
        complain(nothing_matches(arguments, arguments.topic or [], *held()))
    code = say_built(report, arguments.directory, as_json=arguments.json) if copied or arguments.json else 1
    return code if copied else 1
