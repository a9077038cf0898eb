"""The consume queues of a store, by topic and queue."""

from __future__ import annotations

import errno
import operator
import os
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from arro3.core import Array

    from logdex._core import CommitLog
    from logdex.report import Finding
    from logdex.rocketmq.layout import StoreLayout

Directories: TypeAlias = "dict[tuple[str, int], list[Path]]"
"""The directories of queues, by topic and queue id."""

UNIT_BYTES = {"plain": 20, "batch": 46}
"""Bytes of a unit, by the kind of its queue."""

_KEPT_OPEN = 128
"""Queues that are kept open: a broker may have many thousands, and each holds files open."""


class TopicTotals(NamedTuple):
    """Totals of a topic: the number of queues and messages, and the bytes of the messages in the log (None: not measured)."""

    topic: str
    queues: int
    messages: int
    log_bytes: int | None


class QueueTotals(NamedTuple):
    """Totals of queues.

    Attributes:
        topics: Totals by topic, sorted.
        ends: Log offsets of the first and the last message of each queue.
        gaps: Missing ranges of bytes between the files of a queue, as `CommitLog.gaps` returns them.
    """

    topics: list[TopicTotals]
    ends: Array
    gaps: list[tuple[int, int, Finding]]


class QueueSet:
    """The queues of a store; recently used queues stay open."""

    def __init__(self, layout: StoreLayout, log: CommitLog, options: dict[str, Any]) -> None:
        """Keep the paths and options, as of `ConsumeQueue.open`: `access`, `compat` and `clock_slack_ms`. Nothing is read."""
        self._layout = layout
        self._log = log
        self._options = options
        self.reading = {"access": options["access"], "compat": options["compat"]}
        self._open: dict[Path, _core.ConsumeQueue] = {}
        self._lock = _core.ThreadLock()
        self._end_lock = _core.ThreadLock()
        self._dispatched_end: int | None = None

    def is_readable(self) -> bool:
        """Return whether the queues are files: a 5.x broker may keep them in a RocksDB in the same directory."""
        queues = self._layout.queues
        # Listed, so that an error of the system names the directory.
        return queues.is_dir() and all(path.name != "CURRENT" for path in queues.iterdir())

    def directories(self, topics: Collection[str] | None = None) -> Directories:
        """Return the directories of the queues by topic and queue id; batch queues have a folder of their own.

        A directory without files is left out: a deleted topic leaves one behind. `topics` None: of all topics.
        """
        found: Directories = {}
        for root in self._folders():
            for topic, queue_id, path in _core.list_queues(root, topics):
                found.setdefault((topic, queue_id), []).append(path)
        return found

    def _folders(self) -> list[Path]:
        plain = [self._layout.queues] if self.is_readable() else []
        return [*plain, self._layout.batch_queues]

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted."""
        return _core.list_topics(self._folders())

    def totals(self, topics: Collection[str] | None = None, *, measure: bool = False) -> QueueTotals:
        """Return the totals of the queues of these topics or of all, read in one pass; `measure` reads all units."""
        chosen = None if topics is None else list(topics)
        rows, ends, gaps = _core.queue_totals(self._folders(), self._log, chosen, measure=measure, **self.reading)
        return QueueTotals(list(map(TopicTotals._make, rows)), ends, gaps)

    def dispatched_end(self, topics: Collection[str] | None, threads: int | None) -> int | None:
        """Return the largest end offset of the messages that units of the queues of these topics, or of all, refer to."""
        chosen = None if topics is None else list(topics)
        return _core.dispatched_end(self._log, self._folders(), chosen, threads=threads, **self.reading)

    def dispatched_end_of_all(self, lag: int, threads: int | None) -> int | None:
        """Return the largest end offset of the messages that units of any queue refer to.

        With many queues this takes seconds. An earlier result is reused as long as it is less than `lag` bytes before the end of
        the log. Of several threads that need it at the same time, one computes it and the others wait.
        """
        if not lag:
            return self.dispatched_end(None, threads)
        with self._end_lock.hold():
            known = self._dispatched_end
            if known is None or not 0 <= self._log.max_offset - known < lag:
                known = self._dispatched_end = self.dispatched_end(None, threads)
            return known

    def queue(self, topic: str, queue_id: int) -> _core.ConsumeQueue:
        """Open one queue; see `MessageStore.queue`."""
        if not isinstance(topic, str):
            raise TypeError(f"a topic is str, not {type(topic).__name__}")
        # A topic from a caller must not name another directory.
        queue_id = operator.index(queue_id)
        missing = self._layout.queues
        if topic not in ("", ".", "..") and not {os.sep, "\0"} & set(topic):
            for root in (self._layout.batch_queues, self._layout.queues):
                path = root / topic / str(queue_id)
                if _holds_entries(path):
                    return self.open(path)
            missing = missing / topic / str(queue_id)
        raise FileNotFoundError(errno.ENOENT, f"no files of queue {queue_id} of topic {topic!r}", str(missing))

    def start_of_last(self, num: int, topics: Collection[str] | None, queue_id: int | None) -> int | None:
        """Return the log offset of the first of the last `num` units of queues together, or None."""
        found = self.directories(topics).items()
        paths = [path for (_, number), paths in found if queue_id in (None, number) for path in paths]
        return _core.start_of_last([self.open(path) for path in paths], num)

    def open(self, path: Path) -> _core.ConsumeQueue:
        """Return the queue of a directory, open."""
        with self._lock.hold():
            queue = self._open.pop(path, None)
            if queue is None:
                extension = self._layout.queue_extensions / path.parent.name / path.name
                queue = _core.ConsumeQueue.open(
                    path,
                    commit_log=self._log,
                    extension=extension if extension.is_dir() else None,
                    **self._options,
                )
            # Drop the least recently used queue; it stays open as long as a caller holds it.
            self._open[path] = queue
            if len(self._open) > _KEPT_OPEN:
                del self._open[next(iter(self._open))]
            return queue

    def file_sizes(self) -> dict[str, int]:
        """Return the sizes of queue files as `ConsumeQueueWriter.create` takes them; unknown ones are left out."""
        sizes: dict[str, int] = {}
        names = {"plain": "file_size", "batch": "batch_file_size"}
        for path in chain.from_iterable(self.directories().values()):
            queue = self.open(path)
            if queue.file_size:
                sizes.setdefault(names[queue.kind], queue.file_size)
            if len(sizes) == len(names):
                break
        return sizes

    def extension_file_size(self) -> int | None:
        """Return the size of the extension files, as `ConsumeQueueWriter.create` takes it; None without such files."""
        files = self._layout.queue_extensions.glob(f"*/*/{'[0-9]' * 20}")
        return max((file.stat().st_size for file in files), default=0) or None

    def close(self) -> None:
        """Close the queues. Takes no lock: the end of a writer that was dropped may run in any thread."""
        for queue in [*self._open.values()]:
            queue.close()
        self._open = {}


def _holds_entries(path: Path) -> bool:
    """Return whether a path is a directory with an entry; False if its name is too long for the file system."""
    try:
        return path.is_dir() and any(path.iterdir())
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
