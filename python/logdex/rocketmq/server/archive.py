"""What a server tells of a store: topics with their queues, bounds, offsets of groups, and the names of broker and cluster.

Facts are kept for a moment, because the broker of the store may run, and a consumer asks for the same queue again and again.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import read_file
from logdex._files import RemotePath
from logdex.rocketmq import fastjson
from logdex.rocketmq.overview import first_time
from logdex.rocketmq.write.options import DEFAULT_FILE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from logdex._core import ConsumeQueue, QueueView
    from logdex.rocketmq.find import KeyView
    from logdex.rocketmq.store import MessageStore

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_KEPT_S = (5.0, 0.25)
"""How long facts and bounds are believed."""
_KEPT_OF_REMOTE_S = (300.0, 60.0)
_QUEUES_KEPT = 128
"""Largest number of cached queues. Each keeps a file open."""
_DEFAULT_NAMES = ("broker-a", "DefaultCluster")
_INHERIT = 1
"""Bit of the permission of topics that others are made from: those named like the broker and its cluster, and TBW102."""
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0
    is_ordered: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read it."""
        return bool(self.perm & 4)


class Archive:
    """A store that is served. Any thread may call."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.compat = store.compat
        self.is_remote = isinstance(store.root, RemotePath)
        self._facts_kept_s, self._bounds_kept_s = _KEPT_OF_REMOTE_S if self.is_remote else _KEPT_S
        self._facts: dict[str, tuple[float, Any]] = {}
        self._queues: dict[tuple[str, int], tuple[float, ConsumeQueue, QueueView]] = {}
        self._growths = 0
        self._lock = threading.Lock()
        """Held for each change of the cached queues."""

    @property
    def log_file_size(self) -> int:
        """Bytes of a file of the log."""
        return self.store.commit_log.file_size or DEFAULT_FILE_SIZE

    def names(self) -> tuple[str, str]:
        """Return the names of broker and cluster, as far as the broker's own topics show them.

        Source: TopicConfigManager: both have a topic from which others inherit; the cluster's has 16 queues, the broker's one.
        """
        table = self.table("topics.json", "topicConfigTable")
        own = [name for name, topic in table.items() if _number(topic, "perm", 0) & _INHERIT and name != "TBW102"]
        clusters = [
            name for name in own if f"{name}_REPLY_TOPIC" in table or _number(table[name], "readQueueNums", 0) > 1
        ]
        brokers = [name for name in own if name not in clusters]
        broker, cluster = _DEFAULT_NAMES
        return (brokers[0] if len(brokers) == 1 else broker, clusters[0] if len(clusters) == 1 else cluster)

    def topics(self) -> dict[str, Topic]:
        """Return the configured topics, and those that only have queues."""
        return self._kept("topics", self._read_topics)

    def _read_topics(self) -> dict[str, Topic]:
        on_disk: dict[str, int] = {}
        for topic, queue_id in self.store.queues():
            on_disk[topic] = max(on_disk.get(topic, 0), queue_id + 1)
        topics: dict[str, Topic] = {}
        for name, members in self.table("topics.json", "topicConfigTable").items():
            config = topic_of(members)
            # A topic that was made smaller still has messages in its other queues.
            topics[name] = replace(config, read_queues=max(config.read_queues, on_disk.get(name, 0)))
        for name, queues in on_disk.items():
            topics.setdefault(name, Topic(queues, queues, 6))
        return topics

    def table(self, file: str, name: str) -> dict[str, Any]:
        """Return a table of one of the broker's config files, or of its backup; empty if neither can be read."""
        found = self.config(file).get(name)
        return found if isinstance(found, dict) else {}

    def config(self, file: str) -> dict[str, Any]:
        """Return one of the broker's config files, or its backup; empty if neither can be read."""
        config = self.store.layout.config
        return self._kept(file, lambda: _read(config / file) or _read(config / f"{file}.bak") or {})

    def queue(self, topic: str, queue_id: int) -> tuple[ConsumeQueue, QueueView] | None:
        """Return a queue, and how it is at this moment; None if it has no files."""
        now = time.monotonic()
        kept = self._queues.get((topic, queue_id))
        if kept is None or kept[0] < now:
            growths = self._growths
            try:
                queue = self.store.queue(topic, queue_id)
            except (FileNotFoundError, ValueError):
                return None
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                return None
            # The files of a queue that was open for long may be gone, and its topic with them.
            kept = (now + self._bounds_kept_s, queue, queue.view())
            with self._lock:
                if growths == self._growths:
                    self._queues[topic, queue_id] = kept
                if len(self._queues) > _QUEUES_KEPT:
                    del self._queues[next(iter(self._queues))]
        return kept[1:]

    def forget_bounds(self, queues: Iterable[tuple[str, int]]) -> None:
        """Discard the cached bounds of these queues, because they grew."""
        # A view that another thread is opening may be older than this call, so it is not cached.
        with self._lock:
            self._growths += 1
            for queue in queues:
                self._queues.pop(queue, None)
        self._facts.pop("keys", None)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first queue offset and the one after the last; 0 and 0 if there is no such queue."""
        found = self.queue(topic, queue_id)
        return (0, 0) if found is None else found[1].bounds

    def present(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic that have files; a topic may be configured for many more."""
        return {*self.store.queue_ids(topic)}

    def stored_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time in ms of a message; None if there is none."""
        found = self.queue(topic, queue_id)
        if found is None or not found[1].bounds[0] <= offset < found[1].bounds[1]:
            return None
        return found[0].store_timestamp(offset)

    def first_time(self) -> int:
        """Return the store time in ms of the first message of the log; -1 without messages."""
        log = self.store.commit_log
        time_ms = self._kept("first_time", lambda: first_time(log, log.min_offset))
        return -1 if time_ms is None else time_ms

    def keys(self) -> KeyView:
        """Return the keys of the store at this moment."""
        return self._kept("keys", self.store.key_view, self._bounds_kept_s)

    def _kept(self, name: str, read: Callable[[], _T], kept_s: float | None = None) -> _T:
        until, fact = self._facts.get(name, (0.0, None))
        if until < time.monotonic():
            fact = read()
            self._facts[name] = (time.monotonic() + (kept_s or self._facts_kept_s), fact)
        value: _T = fact
        return value


def topic_of(members: object) -> Topic:
    """Return the topic of an entry of topics.json."""
    numbers = (("readQueueNums", 0), ("writeQueueNums", 0), ("perm", 6), ("topicSysFlag", 0), ("order", 0))
    read, write, perm, sys_flag, order = (_number(members, name, otherwise) for name, otherwise in numbers)
    return Topic(read, write, perm, sys_flag, order == 1)


def _number(members: object, name: str, otherwise: int) -> int:
    value = members.get(name, otherwise) if isinstance(members, dict) else otherwise
    return value if isinstance(value, int) else otherwise


def _read(path: Path) -> dict[str, Any] | None:
    try:
        table = fastjson.loads(read_file(path).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: not used: %s", path, error)
        return None
    return table if isinstance(table, dict) else None
