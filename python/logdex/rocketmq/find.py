"""Finding messages by key: candidates of the index, and of log ranges that no index covers, checked against the messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from arro3.core import Table

from logdex import _core
from logdex._core import time_text
from logdex._files import RemotePath
from logdex._types import check_int64
from logdex.arrow import BatchStream
from logdex.hash_index.query import check_max_num
from logdex.notebook import SHOWN_ROWS, html_table
from logdex.report import Damage
from logdex.rocketmq.message import Message
from logdex.rocketmq.read import KeyIndex, Range, check_scan, subtract, union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from arro3.core import Array, RecordBatch

    from logdex._core import CommitLog
    from logdex._types import Progress, Scan
    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.index_service import IndexService

_log = logging.getLogger(__name__)

ANY_TOPIC = "*"
"""Stands for every topic: no topic of a broker has this name."""
TAG_PREFIX = "T#"
"""Prefix of the key by which a 5.5.0 broker indexes the tags of a message (IndexService#buildIndex)."""

_SCAN_BUDGET_BYTES = 1 << 30
_KEYS_A_STEP = 1_024
_MESSAGES_A_STEP = 1_024
BODY_BUDGET_BYTES = 64 << 20
"""Bytes of bodies that a result keeps in memory."""
_SETTERS = tuple(getattr(Message, field.name).__set__ for field in fields(Message))


class LogRange(NamedTuple):
    """A range of the commit log: the offset of its first byte, and the offset after its last byte."""

    begin_phy_offset: int
    end_phy_offset: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FindResult(Sequence[Message]):
    """Messages that carry a key, the newest first, each once: a sequence of `Message`, and an Arrow stream.

    The messages are held as Arrow batches, with up to 64 MiB of bodies. `Message` objects are made, and the other bodies read
    from the log, when they are asked for: a batch at a time by iteration and as an Arrow stream, and all by `to_arrow`.

    Attributes:
        truncated: More of them exist than were asked for.
        rejected: Candidates that turned out to carry another key: the index stores hashes.
        complete: Every part of the log was covered by the index or read.
        scanned_bytes: Bytes of the log that this call read because no index file covers them.
        unscanned: Ranges of the log that neither the index covers nor any call has read, that no file holds, or that are damaged
            and may hold a match.
        unreadable: Those parts of them that cannot be read: the file is missing, or the bytes are no valid message.
    """

    _count: int
    _found: _core.FoundMessages
    truncated: bool
    rejected: int
    complete: bool
    scanned_bytes: int
    unscanned: list[LogRange]
    unreadable: list[LogRange]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages."""
        return tuple(self)

    def to_arrow(self) -> Table:
        """Return the messages as a table of the message columns, with all bodies."""
        return Table.from_batches([*self._batches(0, len(self))], schema=self._found.schema)

    def __arrow_c_schema__(self) -> object:
        return self._found.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return BatchStream(self._found.schema, self._batches(0, len(self))).__arrow_c_stream__(requested_schema)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            rows = range(len(self))[index]
            return tuple(self._rows(rows.start, rows.stop)) if rows.step == 1 else self.messages[index]
        row = range(len(self))[index]
        return next(self._rows(row, row + 1))

    def __iter__(self) -> Iterator[Message]:
        return self._rows(0, len(self))

    def _repr_html_(self) -> str:
        """Return a table of the first messages."""
        heads = ("time", "topic", "queue", "queue_offset", "phy_offset", "tags", "keys", "body")
        rows = [
            (time_text(m.store_timestamp), m.topic, m.queue_id, m.queue_offset, m.phy_offset, m.tags, m.keys, m.body)
            for m in self[:SHOWN_ROWS]
        ]
        return html_table(repr(self), heads, rows, len(self) - len(rows))

    def heads(self) -> Table:
        """Return the messages as they are in memory: bodies that were not read are null."""
        return self._found.table()

    def _rows(self, begin: int, end: int) -> Iterator[Message]:
        whole = min(end, self._whole)
        while begin < whole:
            messages = _messages(self._found.lists(begin, min(begin + _MESSAGES_A_STEP, whole)))
            yield from messages
            begin += len(messages)
        for batch in self._read_again(begin, end):
            for row in range(0, batch.num_rows, _MESSAGES_A_STEP):
                yield from _messages(_core.message_lists(batch, row, min(row + _MESSAGES_A_STEP, batch.num_rows)))

    def _batches(self, begin: int, end: int) -> Iterator[RecordBatch]:
        """Iterate over the batches of some rows, and read the bodies that are not in memory."""
        yield from self._found.table().slice(begin, max(0, min(end, self._whole) - begin)).to_batches()
        yield from self._read_again(max(begin, self._whole), end)

    def _read_again(self, begin: int, end: int) -> Iterator[RecordBatch]:
        """Read some rows whose bodies are not in memory."""
        if begin < end:
            yield from self._found.at(self._found.table().column("phy_offset").slice(begin, end - begin))

    @property
    def _whole(self) -> int:
        """The number of rows whose bodies are in memory. They come first."""
        return self._count - self._found.without_body

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FindResult):
            return NotImplemented
        mine, others = ([r.messages, *(getattr(r, each.name) for each in fields(r)[2:])] for r in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        notes = [f"{len(self)} messages"]
        if self.truncated:
            notes.append("truncated")
        if self.rejected:
            notes.append(f"{self.rejected} candidates of other keys")
        if not self.complete:
            notes.append(f"{sum(end - begin for begin, end in self.unscanned)} bytes of the log not searched")
        return f"FindResult({', '.join(notes)})"


def _messages(columns: list[list[Any]]) -> list[Message]:
    """Make messages of their columns. Their slots are set directly: `__init__` of a frozen class takes twice as long."""
    messages = [Message.__new__(Message) for _ in columns[0]]
    for set_slot, values in zip(_SETTERS, columns, strict=True):
        deque(map(set_slot, messages, values), maxlen=0)
    return messages


class SearchIndex(KeyIndex, Protocol):
    """The index of a store, for a search."""

    @property
    def files(self) -> Sequence[_core.IndexFile]:
        """The open index files that are asked one by one."""

    def all_files(self) -> Sequence[_core.IndexFile]:
        """Return all open index files, sealed or not."""

    @property
    def knows_tags(self) -> bool:
        """Whether it says without its files whether tags are indexed."""

    @property
    def is_far(self) -> bool:
        """Whether a search makes many requests to another machine."""

    def is_capped(self, topic: str, key: str, times: TimeRange) -> bool:
        """Return whether a broker's limit cuts candidates off."""

    def holds_tags(self, log: CommitLog) -> bool:
        """Return whether tags are indexed, or there is no entry at all."""


class FilesIndex:
    """The index of a store, each file of which is asked."""

    knows_tags = False

    def __init__(self, index: IndexService) -> None:
        """Use an open index."""
        self._index = index

    @property
    def files(self) -> Sequence[_core.IndexFile]:
        """The open index files."""
        return self._index.files

    def all_files(self) -> Sequence[_core.IndexFile]:
        """Return the open index files."""
        return self._index.files

    @property
    def is_far(self) -> bool:
        """Whether a search makes many requests to another machine."""
        return isinstance(self._index.directory, RemotePath)

    def covered(self) -> list[Range]:
        """Return the ranges of the log whose messages are indexed."""
        return covered_ranges(self._index)

    def candidates(self, topics: Any, keys: Any, times: TimeRange) -> list[Array]:  # noqa: ANN401 -- any columns
        """Return lists of offsets where keys may be."""
        return [self._index.query_batch(topics, keys, begin=times.begin, end=times.end)]

    def is_capped(self, topic: str, key: str, times: TimeRange) -> bool:
        """Return whether a broker's limit cuts candidates off."""
        return self._index.query_offset(topic, key, begin=times.begin, end=times.end).truncated

    def holds_tags(self, log: CommitLog) -> bool:
        """Return whether tags are indexed, or there is no entry at all."""
        return not any(map(len, self.files)) or bool(_core.index_holds_tags(log, self.files))


class KeySearch:
    """Searches one store. It remembers the entries that it read from log ranges that no index file covers."""

    def __init__(
        self,
        log: CommitLog,
        index: Callable[[], SearchIndex | None],
        topics: Callable[[], Iterable[str]],
        *,
        salvage: bool,
    ) -> None:
        self._log = log
        self._index = index
        self._topics = topics
        self._salvage = salvage
        self._unindexed = _LogEntries(log, salvage=salvage)

    def has_tags(self) -> bool:
        """Return whether messages are found by their tags: the index holds them (5.5.0), or it holds no entry at all."""
        if self._unindexed.tags is None:
            index = self._index()
            self._unindexed.tags = index is None or index.holds_tags(self._log)
        return self._unindexed.tags

    def find(
        self,
        topic: str | None,
        key: str,
        *,
        times: TimeRange,
        max_num: int | None,
        scan: Scan,
        progress: Progress | None,
        body_budget: int,
    ) -> FindResult:
        """Find the messages of one key; see `MessageStore.find`."""
        check_max_num(max_num)
        index = self._index()
        if index is not None and index.is_far:
            # Its requests are made while the end of the log is looked for. The answer counts only after that.
            self._candidates(topic, key, times)
        scanned, unread = self._read_unindexed(scan, progress)
        candidates, capped = self._candidates(topic, key, times)
        # A file that the broker deletes from here on is an error, and not a message that is missing.
        log = self._log.pinned()
        found = _core.find_messages(
            log,
            [key],
            candidates,
            topics=topic,
            begin=times.begin,
            end=times.end,
            max_num=max_num,
            tags=key.startswith(TAG_PREFIX) and self.has_tags(),
            body_budget=body_budget,
        )
        count = found.hold()
        lost = [part[:2] for part in (*log.gaps(begin=times.begin, end=times.end), *log.damage(found.missing))]
        unscanned = [LogRange(*each) for each in union([*unread, *lost])]
        unreadable = [LogRange(*each) for each in union([*lost, *self._unindexed.refused])]
        is_truncated = capped or found.truncated
        return FindResult(count, found, is_truncated, found.rejected, not unscanned, scanned, unscanned, unreadable)

    def _candidates(self, topic: str | None, key: str, times: TimeRange) -> tuple[list[Array], bool]:
        """Return lists of offsets where the key may be, and whether a broker's limit cut some off."""
        index = self._index()
        # A key's hash includes its topic.
        topics = sorted({*self._topics(), *self._unindexed.topics}) if topic is None else [topic]
        keys = [key] * len(topics)
        candidates = [self._unindexed.table.select_batch(keys, topics=topics)]
        if index is None:
            return candidates, False
        candidates += index.candidates(topics, keys, times)
        if topic is None or self._salvage:
            return candidates, False
        return candidates, index.is_capped(topic, key, times)

    def view(self) -> KeyView:
        """Return log and index as they are now, after reading the parts of the log that no index file covers."""
        self._read_unindexed("auto")
        index = self._index()
        # Those that are sealed, too: this search lists nothing, so it could not see that a file changed.
        files = _core.newest_first(index.all_files()) if index is not None else []
        return KeyView(self._log.pinned(), files, self._unindexed)

    def find_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        times: TimeRange,
        max_num: int | None,
        scan: Scan,
        batch_size: int,
    ) -> BatchStream:
        """Find the messages of many keys; see `MessageStore.find_batch`."""
        check_max_num(max_num)
        check_int64(batch_size=batch_size)
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
        key_column = _core.text_column(keys, "keys")
        topic_column = None if isinstance(topics, str) else _core.text_column(topics, "topics")
        if topic_column is not None and len(topic_column) != len(key_column):
            raise ValueError(f"{len(topic_column)} topics for {len(key_column)} keys")
        _, unread = self._read_unindexed(scan)
        if scan and unread:
            _log.warning("%d bytes of the log are neither indexed nor read", sum(end - begin for begin, end in unread))
        index = self._index()
        tags = self.has_tags()
        log = self._log.pinned()

        def verified(first: int) -> _core.FoundMessages:
            length = min(_KEYS_A_STEP, len(key_column) - first)
            asked = key_column.slice(first, length)
            of = topics if topic_column is None else topic_column.slice(first, length)
            candidates = [self._unindexed.table.select_batch(asked, topics=of)]
            if index is not None:
                candidates += index.candidates(of, asked, times)
            return _core.find_messages(
                log,
                asked,
                candidates,
                topics=of,
                begin=times.begin,
                end=times.end,
                max_num=max_num,
                tags=tags,
                batch_size=batch_size,
                first_row=first,
            )

        first_step = verified(0)

        damage = Damage.of(log.gaps(begin=times.begin, end=times.end))

        def batches() -> Iterator[RecordBatch]:
            missing: set[int] = set()
            for first in range(0, len(key_column) or 1, _KEYS_A_STEP):
                found = verified(first) if first else first_step
                yield from found
                missing.update(found.missing)
            for _, _, finding in log.damage(sorted(missing)):
                if finding not in damage.findings:
                    damage.add(finding)
            damage.warn()

        return BatchStream(first_step.schema, batches(), damage.findings)

    def _read_unindexed(self, scan: Scan, progress: Progress | None = None) -> tuple[int, list[Range]]:
        """Read log ranges that no index file covers. Return the bytes read, and the ranges of files that remain unread."""
        check_scan(scan)
        # The index first: if the broker indexes more meanwhile, it is at worst read once more.
        index = self._index()
        log = self._log.pinned()
        covered = [*(index.covered() if index is not None else ()), *(gap[:2] for gap in log.gaps())]
        whole = (log.min_offset, log.max_offset)
        missing = self._unindexed.missing(whole, covered)
        if not scan or not missing:
            return 0, missing
        files = index.files if index is not None else []
        if index is not None and index.knows_tags:
            self.has_tags()
        scanned = self._unindexed.read(missing, _SCAN_BUDGET_BYTES if scan == "auto" else None, files, progress)
        return scanned, self._unindexed.missing(whole, covered)


class KeyView:
    """Log and index as they were at one moment: a search lists no directory, so that many searches cost little."""

    def __init__(self, log: CommitLog, files: Sequence[_core.IndexFile], unindexed: _LogEntries) -> None:
        self._log = log
        self._files = files
        self._unindexed = unindexed

    def __repr__(self) -> str:
        return f"KeyView({str(self._log.path)!r}, {len(self._files)} index files)"

    @property
    def newest(self) -> _core.IndexHeader | None:
        """The header of the newest index file."""
        return self._files[0].header if self._files else None

    def stored_frames(self, topic: str, key: str, *, begin: int, end: int, max_num: int, max_bytes: int) -> bytes:
        """Return the newest messages that carry a key as the log holds them, in its order. Bounds are store times in ms.

        Raises:
            OSError: An I/O error, or a file of that moment is gone.
        """
        files, table = self._files, self._unindexed.table
        return _core.frames_with_key(
            self._log, files, table, topic, key, begin=begin, end=end, max_num=max_num, max_bytes=max_bytes
        )


def covered_ranges(index: IndexService | None) -> list[Range]:
    """Return the ranges of the log whose messages are indexed.

    The first and the last message of a file are not covered: they may have keys in the files beside it.
    """
    headers = [file.header for file in (index.whole_files() if index is not None else ()) if len(file)]
    return [(header.begin_phy_offset + 1, header.end_phy_offset) for header in headers]


class _LogEntries:
    """The index entries, 12 bytes each, that a broker would have made of the log ranges read so far."""

    def __init__(self, log: CommitLog, *, salvage: bool) -> None:
        """Start with nothing read. Without `salvage` a range ends where a broker's walk would."""
        self._log = log
        self._salvage = salvage
        self.topics: set[str] = set()
        # Whether tags are indexed, too; None while it is not known.
        self.tags: bool | None = None
        self._lock = _core.ThreadLock()
        self._seen: list[Range] = []
        self.refused: list[Range] = []
        self.table = _core.EntryTable()
        self._entries = 0
        self._process = _core.fork_generation()

    def missing(self, whole: Range, covered: list[Range]) -> list[Range]:
        """Return the parts of a range that are neither covered otherwise nor read yet, rising."""
        if self._process != _core.fork_generation():
            self._check_forked()
        return subtract(whole, [*covered, *self._seen])

    def _check_forked(self) -> None:
        """Read all ranges again if this process was forked while a thread of its parent read one."""
        with self._lock.hold():
            if len(self.table) != self._entries:
                self.table = _core.EntryTable()
                self._entries, self._seen, self.refused = 0, [], []
            self._process = _core.fork_generation()

    def read(
        self,
        ranges: list[Range],
        budget_bytes: int | None,
        index_files: Sequence[_core.IndexFile],
        progress: Progress | None = None,
    ) -> int:
        """Read rising ranges of the log, the newest first, and keep their entries. Return the bytes that were read.

        A message that begins within the budget is read whole. The files of the index tell whether tags are indexed.
        """
        with self._lock.hold():
            # Another thread may have read meanwhile. Ranges that were refused once are not tried at every call.
            done = [*self._seen, *self.refused]
            total = 0
            parts = [part for whole in ranges for part in subtract(whole, done)]
            self._log.expect_ranges(parts)
            asked = sum(end - begin for begin, end in parts)
            asked = asked if budget_bytes is None else min(asked, budget_bytes)
            for begin, end in reversed(parts):
                left = end - begin if budget_bytes is None else budget_bytes - total
                if left <= 0:
                    break
                show = None if progress is None else partial(_show, progress, total - begin, asked)
                reached, refused, topics, self.tags = self.table.read_log(
                    self._log,
                    index_files,
                    begin=begin,
                    end=end,
                    stop=min(end, begin + left),
                    salvage=self._salvage,
                    tags=self.tags,
                    progress=show,
                )
                self.topics.update(topics)
                self.refused = union([*self.refused, *refused])
                self._seen = union([*self._seen, *subtract((begin, reached), refused)])
                self._entries = len(self.table)
                total += reached - begin
            return total


def _show(progress: Progress, before: int, total: int, reached: int) -> None:
    progress(before + reached, total)
