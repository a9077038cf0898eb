"""The kind of a path, and the base class of everything that can be opened.

No other module decides what a path is.
"""

from __future__ import annotations

import errno
import fnmatch
import re
from abc import abstractmethod
from dataclasses import dataclass
from datetime import date, datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from logdex import _core
from logdex._core import is_index_file_name, locate_beside
from logdex._files import Closing
from logdex.report import SHOWN_ROWS, html_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from logdex._types import Sealed, Time
    from logdex.report import Report


By: TypeAlias = Literal["topic", "queue", "day"]

_DAY_MS = 86_400_000
_SHELL_PATTERN = re.compile(r"[*?[]")


class Usage(NamedTuple):
    """Number and bytes of the messages of a topic, of one of its queues, or of a day in UTC."""

    topic: str | None
    queue_id: int | None
    day: date | None
    messages: int
    log_bytes: int


def check_by(by: str) -> None:
    """Raise `ValueError` if the argument is not one of the words of `By`."""
    if by not in get_args(By):
        raise ValueError(f"by={by!r}: expected one of {', '.join(get_args(By))}")


def days(
    begin: int, end: int, time_at: Callable[[int], int | None], offset_at: Callable[[int], int | None]
) -> Iterator[tuple[date | None, int, int]]:
    """Cut a range of offsets at the midnights between its messages.

    `time_at` returns the time in ms of the message at an offset; `offset_at` the offset of the first message at a time or
    later. After a message without a time the rest has no day.
    """
    while begin < end:
        time = time_at(begin)
        if time is None:
            yield None, begin, end
            return
        number = time // _DAY_MS
        following = offset_at((number + 1) * _DAY_MS)
        # The loop must also advance if the clock was set back.
        until = end if following is None else min(end, max(following, begin + 1))
        yield datetime.fromtimestamp(number * 86_400, timezone.utc).date(), begin, until
        begin = until


def grouped(parts: Iterable[Usage], by: By) -> list[Usage]:
    """Add up parts by topic, by topic and queue, or by day; sorted."""
    sums: dict[tuple[str | None, int | None, date | None], tuple[int, int]] = {}
    for part in parts:
        key = {
            "topic": (part.topic, None, None),
            "queue": (part.topic, part.queue_id, None),
            "day": (None, None, part.day),
        }[by]
        messages, log_bytes = sums.get(key, (0, 0))
        sums[key] = messages + part.messages, log_bytes + part.log_bytes
    return [Usage(*key, *sums[key]) for key in sorted(sums, key=lambda key: tuple(map(_sortable, key)))]


def _sortable(value: object) -> tuple[bool, object]:
    return value is None, value


def matching_topics(wanted: Iterable[str], known: Callable[[], Iterable[str]]) -> list[str]:
    """Return topics with the patterns among them replaced by the topics that match.

    A pattern is that of a shell, with `*`, `?` or `[...]`, or a regular expression between slashes. No name of a topic has these
    characters. A pattern that nothing matches stays, as the name of a topic that does not exist.

    Args:
        wanted: Names and patterns.
        known: Returns all topics; called if there is a pattern.

    Raises:
        ValueError: A regular expression is invalid.
    """
    return list(dict.fromkeys(name for each in wanted for name in _matching(each, known)))


def is_topic_pattern(topic: str) -> bool:
    """Return whether a topic of `matching_topics` is a pattern."""
    return _is_expression(topic) or _SHELL_PATTERN.search(topic) is not None


def _is_expression(topic: str) -> bool:
    return len(topic) > 1 and topic[0] == topic[-1] == "/"


def _matching(wanted: str, known: Callable[[], Iterable[str]]) -> list[str]:
    if not is_topic_pattern(wanted):
        return [wanted]
    if _is_expression(wanted):
        try:
            pattern = re.compile(wanted[1:-1])
        except re.error as error:
            raise ValueError(f"{wanted}: expected a regular expression between slashes: {error}") from None
    else:
        pattern = re.compile(fnmatch.translate(wanted))
    return sorted(filter(pattern.fullmatch, known())) or [wanted]


class GroupOffset(NamedTuple):
    """The position of a consumer group in a queue or partition.

    `offset` is the next offset that it reads, `end_offset` the one after the last message, or None if the queue is not here.
    `commit_timestamp` is the time of the commit in ms since the epoch (Kafka), or None if it is not stored.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    end_offset: int | None
    commit_timestamp: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has not read yet; None if the queue is not here."""
        return None if self.end_offset is None else max(0, self.end_offset - self.offset)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a description. The title is a plural noun for the rows."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Info:
    """The description of a source, as `logdex info` prints it.

    Attributes:
        kind: What the source is, such as "Kafka partition".
        facts: Facts by name, in display order. A name that ends in `_timestamp` is a time in ms, in `_bytes` a size.
        tables: Tables of the parts of the source, such as its topics.
    """

    kind: str
    facts: dict[str, Any]
    tables: Sequence[Table] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the facts and the rows of each table under its title, as JSON values."""
        tables = {
            table.title.replace(" ", "_"): [dict(zip(table.heads, row, strict=True)) for row in table.rows]
            for table in self.tables
        }
        return {"kind": self.kind, **self.facts, **tables}

    def __repr__(self) -> str:
        """Return kind and facts, and the length of each table."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items() if value is not None)
        counts = "".join(f", {len(table.rows)} {table.title}" for table in self.tables)
        return f"Info({self.kind!r}, {facts}{counts})"

    def _repr_html_(self) -> str:
        """Return the facts as a table, and the first rows of each table."""
        facts = Table(self.kind, ("fact", "value"), list(self.facts.items()))
        return "".join(
            html_table(table.title, table.heads, table.rows[:SHOWN_ROWS], len(table.rows) - SHOWN_ROWS)
            for table in (facts, *self.tables)
        )


class Source(Closing):
    """A path that `logdex.open` opened: `MessageStore`, `kafka.LogDir`, `kafka.Log` or `IndexService`.

    All of them can be described, verified and closed, and are context managers. A RocketMQ source reads `messages`, a Kafka
    source `records`. A call that makes no sense for a kind of source is a `ValueError` that names the expected kind: an index
    directory has no messages to find, and only a store and a log directory have consumer groups and can be sealed.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The kind of source, in words."""

    @abstractmethod
    def info(self) -> Info:
        """Return a description: files, ranges of offsets and times. This is fast."""

    @abstractmethod
    def verify(self) -> Report:
        """Check everything; linear in the size of the source. Findings are never raised."""

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        max_num: int | None = None,
    ) -> Sequence[Any]:
        """Find the messages or records that carry a key, the newest first."""
        del topic, key, begin, end, max_num
        raise self._refusal(NO_MESSAGES)

    def explain(self, topic: str, key: str, *, begin: Time | None = None, end: Time | None = None) -> Any:  # noqa: ANN401 -- each broker has its own steps
        """Explain why a key is found or not."""
        del topic, key, begin, end
        raise self._refusal(NO_MESSAGES)

    def usage(self, by: By = "topic") -> list[Usage]:
        """Return messages and bytes by topic, queue or day."""
        del by
        raise self._refusal(EXPECTED_WHOLE)

    def groups(self, group: str | None = None) -> list[GroupOffset]:
        """Return how far consumer groups, or one of them, have read."""
        del group
        raise self._refusal(EXPECTED_WHOLE)

    def seal(self) -> Report:
        """Write a sealed index."""
        raise self._refusal(EXPECTED_WHOLE)

    def _refusal(self, text: str) -> ValueError:
        return ValueError(f"{self.kind}: {text}")


NO_MESSAGES = "it has no messages; expected a store, or its commit log"
EXPECTED_WHOLE = "expected a store, or a Kafka log directory"


OFFSET_NAME = re.compile(r"\d{20}")
"""The name of a file of a commit log or of a queue: the offset of its first byte."""

_SEGMENT_NAME = re.compile(r"\d{1,20}\.log")
_LOG_NAME_DIGITS = 20
_MAGIC = slice(4, 8)
_FRAME_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94")
"""Bytes 4 to 7 of messages of version 1 and 2, and of BLANK."""


class Kind(Enum):
    """A kind of path that can be opened. The value is its name in words."""

    STORE = "RocketMQ message store"
    INDEX = "RocketMQ index directory"
    INDEX_FILE = "RocketMQ index file"
    LOG_DIR = "Kafka log directory"
    PARTITION = "Kafka partition"
    SEGMENT = "Kafka segment"

    @property
    def is_kafka(self) -> bool:
        """True if it belongs to Kafka."""
        return self in _OF_KAFKA


_OF_KAFKA = (Kind.LOG_DIR, Kind.PARTITION, Kind.SEGMENT)


def detect(path: Path, *, sealed: Sealed = "auto") -> Kind | None:
    """Return what is at a path; None if it is none of the kinds, or if there is nothing.

    A directory that fits several kinds is the first of them, in the order of `Kind`.

    Args:
        path: A path that `locate` returned.
        sealed: The sealed index that will be used; see `MessageStore.open`. A catalog in an object store is read in advance.

    Raises:
        OSError: The path cannot be read.
    """
    # These are the first requests of a search in a remote store, and so cost it nothing. Another kind waits one round more.
    if sealed != "never":
        _core.expect_catalog(_core.sealed_directory(path if sealed == "auto" else locate_beside(path, sealed)))
    _core.expect_lists([path / "commitlog", path / "index"])
    if (path / "commitlog").is_dir():
        return Kind.STORE
    if not path.is_dir():
        return _kind_of_file(path)
    names = {entry.name for entry in path.iterdir()}
    if "commitlog" in names or holds_log_files(path, names):
        return Kind.STORE
    if any(names_index_file(name) and (path / name).is_file() for name in names):
        return Kind.INDEX
    if _core.has_segments(path):
        return Kind.PARTITION
    return Kind.LOG_DIR if _core.is_log_dir(path) or _core.holds_tiered(path) else None


def _kind_of_file(path: Path) -> Kind | None:
    if path.is_file():
        if names_index_file(path.name):
            return Kind.INDEX_FILE
        if _SEGMENT_NAME.fullmatch(path.name):
            return Kind.SEGMENT
    return None


def names_index_file(name: str) -> bool:
    """Return whether a name is an index file's, and not that of a file of a log or queue, which has 20 digits."""
    return is_index_file_name(name) and len(name) != _LOG_NAME_DIGITS


def holds_log_files(directory: Path, names: Collection[str]) -> bool:
    """Return whether files belong to a commit log; the files of a queue have the same names."""
    for name in sorted(filter(OFFSET_NAME.fullmatch, names)):
        try:
            if _core.read_file(directory / name, _MAGIC.stop)[_MAGIC] in _FRAME_MAGICS:
                return True
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ESPIPE):
                raise
    return False


def kind_to_open(path: Path, options: Mapping[str, Any]) -> Kind | None:
    """Return what to open at a path with some options of `logdex.open`; an option of one kind only decides by itself.

    Raises:
        OSError: The path cannot be read.
    """
    if options.get("commit_log") is not None:
        return Kind.STORE
    if options.get("tiered") is not None:
        return Kind.PARTITION if _core.has_segments(path) else Kind.LOG_DIR
    is_as_broker = options.get("compat") is not None
    kind = detect(path, sealed="never" if is_as_broker else options.get("sealed", "auto"))
    if options.get("tiered_keys") is not None and kind is not Kind.LOG_DIR:
        raise ValueError(f"{path}: expected segments in Kafka's remote storage, for which the private keys are")
    return kind


def refusal(path: Path, kind: Kind | None = None) -> OSError | ValueError:
    """Return the error for a path that cannot be opened, with a hint what to open instead."""
    if kind is None and not path.exists():
        return FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    if kind is Kind.INDEX_FILE:
        return ValueError(
            f"{path}: expected a directory, found an index file; open it with logdex.rocketmq.IndexFile.open"
        )
    if kind is Kind.SEGMENT:
        return ValueError(f"{path}: expected a directory, found a segment; open it with logdex.kafka.LogSegment.open")
    return ValueError(
        f"{path}: expected a store (holds commitlog), an index directory (files named by 17 digits) or a Kafka log directory "
        f"(holds <topic>-<partition>); {_hint(path)}"
    )


def _hint(path: Path) -> str:
    if path.is_file():
        return "give the directory of the file, or the store's root"
    return hint(path, {entry.name for entry in path.iterdir()}) or "found none of them"


def hint(directory: Path, names: Collection[str]) -> str:
    """Return a hint what to open instead of a directory, if the names of its entries suggest something; else ""."""
    if "store" in names and (directory / "store" / "commitlog").is_dir():
        return f"there is a store in {directory / 'store'}"
    if _core.has_segments(directory):
        return "this is the directory of a Kafka partition, which `logdex info`, `cat`, `find` and `verify` take"
    if _core.is_log_dir(directory):
        return "this is a Kafka log directory, which `logdex info`, `cat`, `find`, `verify`, `copy` and `recover` take"
    if not {"consumequeue", "index", "checkpoint"}.isdisjoint(names):
        return "it has other parts of a store: if the log is in another directory (storePathCommitLog), give it as commit_log"
    if any(map(OFFSET_NAME.fullmatch, names)):
        return (
            "its files have the names of a commit log or queue, but begin with no message; "
            "open a consume queue with MessageStore.queue"
        )
    return ""
