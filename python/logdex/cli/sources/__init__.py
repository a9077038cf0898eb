"""A path that commands read: described, read row by row, verified.

A new format subclasses `Source` and adds a function that opens its paths to `KINDS` of `logdex.cli.commands.paths`.
"""

from __future__ import annotations

import errno
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import time_text
from logdex._files import Closing
from logdex.report import unknown_topic

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from logdex._core import BatchStream, SegmentReader
    from logdex.cli.output import Progress
    from logdex.groups import GroupOffset
    from logdex.report import Report
    from logdex.usage import By, Usage

    Facts: TypeAlias = tuple[dict[str, Any], list["Listing"]]

_S = TypeVar("_S", bound="Source")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of a description. The title says in the plural what the rows are; in JSON it names the list."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Description:
    """What `info` prints: what is at the path, in words; facts in display order; tables after them.

    A fact whose name ends in `_timestamp` is a time in ms, in `_bytes` a size.
    """

    kind: str
    facts: dict[str, Any]
    listings: Sequence[Listing] = ()


@dataclass(frozen=True, slots=True)
class LogRead:
    """One log that can be read from any place: a commit log, or a partition.

    `name` is for messages. `bounds` returns its first offset now and the one after its last. `read` reads the rows between two
    offsets. `starts` returns offsets from which to read a number of the last rows before an end, each farther
    from it.
    """

    name: str
    bounds: Callable[[], tuple[int, int]]
    read: Callable[[int, int], BatchStream | SegmentReader]
    starts: Callable[[int, int], Iterator[int]]


class Source(Closing):
    """One opened path. A source without rows leaves out `rows`."""

    def __init__(self, opened: Any) -> None:  # noqa: ANN401 -- each kind says its type
        self.opened = opened

    def close(self) -> None:
        """Close the files."""
        self.opened.close()

    @abstractmethod
    def describe(self) -> Description:
        """Return the description that `info` prints."""

    @abstractmethod
    def verify(self, progress: Progress, *, deep: bool = True) -> Report:
        """Check everything; not the records of Kafka unless `deep`."""

    def rows(self, filters: argparse.Namespace, *, body: bool) -> BatchStream | SegmentReader:  # noqa: ARG002 -- of sources with rows
        """Return the rows that pass the options `FILTERS`, in log order; without bodies unless `body`."""
        raise ValueError(f"{self.describe().kind}: it has no messages; expected a store, or its commit log")

    def bytes_after(self, filters: argparse.Namespace, path: str, offset: int) -> int:  # noqa: ARG002 -- as above
        """Return how many bytes of the logs of `rows` follow a byte offset in one of their files."""
        return 0

    def usage(self, by: By) -> Sequence[Usage]:  # noqa: ARG002 -- as above
        """Return messages and bytes by topic, queue or day."""
        raise ValueError(f"{self.describe().kind}: expected a store, or a Kafka log directory")

    def groups(self, group: str | None) -> Sequence[GroupOffset]:  # noqa: ARG002 -- as above
        """Return how far consumer groups have read."""
        raise ValueError(f"{self.describe().kind}: expected a store, or a Kafka log directory")

    def logs(self, filters: argparse.Namespace, *, body: bool) -> Sequence[LogRead]:
        """Return the logs that hold the rows of `rows`."""
        self.rows(filters, body=body)
        return []

    def held(self, topics: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:  # noqa: ARG002 -- as above
        """Return the topics here, and times in ms from the first to the last message of some of them; None: of all."""
        return [], []


class Part(Source):
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
        self._path = path
        self._kind = kind
        self._describe = describe or (lambda: ({"file_bytes": path.stat().st_size}, []))
        self._check = check

    def describe(self) -> Description:
        """Return kind, facts and listings."""
        return Description(self._kind, *self._describe())

    def verify(self, progress: Progress, *, deep: bool = True) -> Report:  # noqa: ARG002 -- small
        """Check what can be checked without the whole store."""
        if self._check is None:
            raise ValueError(f"{self._path}: {self._kind}; it is checked with the whole that it belongs to")
        return self._check()

    def close(self) -> None:
        """Do nothing: no file is open."""


def nothing_matches(
    arguments: argparse.Namespace, wanted: Sequence[str], topics: Sequence[str], times: Sequence[int]
) -> str:
    """Return in words what was asked for in vain, and what is there instead; see `Source.held`."""
    begin, end = time_text(arguments.begin), time_text(arguments.end)
    if unknown := [topic for topic in wanted if topic not in topics]:
        return f"nothing found: {unknown_topic(unknown[0], topics)}"
    bounds = f"{f' from {begin}' if begin else ''}{f' to {end}' if end else ''}"
    names = ", ".join(wanted)
    asked = f"nothing found{f' of topic {names}' if names else ''}{bounds}"
    if not times:
        return f"{asked}: there are no messages"
    return f"{asked}; messages are from {time_text(min(times))} to {time_text(max(times))}"


def open_first(path: Path, kinds: Iterable[Callable[..., _S | None]], expected: str, **options: Any) -> _S:  # noqa: ANN401 -- each kind has its own
    """Open a path as the first kind that takes it; each returns None for another path.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: No kind takes it.
    """
    for open_kind in kinds:
        source = open_kind(path, **options)
        if source is not None:
            return source
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    raise ValueError(f"{path}: {expected}")
