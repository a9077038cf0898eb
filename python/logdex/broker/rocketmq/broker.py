"""A broker: the view of its store, its name, its clients and their offsets, and its counters.

Facts about the store are cached for a moment, because its own broker may run and consumers request the same queues repeatedly.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import Meter, RemotePath
from logdex.broker.rocketmq.clients import Clients
from logdex.broker.rocketmq.requests import Refusal
from logdex.broker.rocketmq.tables import UNIT_SUB, Topic, number_of, topic_of
from logdex.broker.wire import ResponseCode
from logdex.rocketmq.broker_config import AUTO_CREATE_TOPIC, RETRY_PREFIX, TOPICS, readable_members
from logdex.rocketmq.fastjson import MessageQueue
from logdex.rocketmq.overview import first_time
from logdex.rocketmq.write.options import DEFAULT_FILE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from logdex._core import ConsumeQueue, KeyView, QueueView
    from logdex._types import Flush
    from logdex.broker.rocketmq.tables import ConfigTable, ConsumerOffsets, GroupTable, TopicTable
    from logdex.rocketmq.broker_config import ConfigName
    from logdex.rocketmq.store import MessageStore
    from logdex.rocketmq.write.retention import Retention
    from logdex.statistics import WriterStatistics

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_KEPT_S = (5.0, 0.25)
"""Seconds for which facts and bounds are cached."""
_KEPT_OF_REMOTE_S = (300.0, 60.0)
_QUEUES_KEPT = 128
"""Largest number of cached queues. Each keeps a file open."""
_DEFAULT_NAMES = ("broker-a", "DefaultCluster")
_INHERIT = 1
"""Permission bit of topics from which others inherit: those named like the broker and its cluster, and TBW102."""

PULLED, STORED = "messages_total", "stored_messages_total"
"""Names of counters."""
_RETRY_TOPIC = Topic(1, 1)


class StoreView:
    """Read-only view of the store for the broker. Any thread may call."""

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
        table = self.table(TOPICS)
        own = [
            name
            for name, topic in table.items()
            if number_of(topic, "perm", 0) & _INHERIT and name != AUTO_CREATE_TOPIC
        ]
        clusters = [
            name for name in own if f"{name}_REPLY_TOPIC" in table or number_of(table[name], "readQueueNums", 0) > 1
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
        for name, members in self.table(TOPICS).items():
            config = topic_of(members)
            # A topic whose number of queues was reduced still has messages in the other queues.
            topics[name] = replace(config, read_queues=max(config.read_queues, on_disk.get(name, 0)))
        for name, queues in on_disk.items():
            topics.setdefault(name, Topic(queues, queues))
        return topics

    def table(self, table: ConfigName) -> dict[str, Any]:
        """Return a table of the store's broker, or of its copy; empty if neither can be read."""
        found = self.config(table).get(table.name)
        return found if isinstance(found, dict) else {}

    def config(self, table: ConfigName) -> dict[str, Any]:
        """Return the file of a table, or its copy; empty if neither can be read."""
        return self._kept(table.file, lambda: readable_members(self.store.layout.config / table.file))

    def queue(self, topic: str, queue_id: int) -> tuple[ConsumeQueue, QueueView] | None:
        """Return a queue and its current view; None if the queue has no files."""
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
            # The files of a queue that was opened long ago may be deleted, and its topic too.
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
        """Return the first queue offset and the one after the last; 0 and 0 if the queue does not exist."""
        found = self.queue(topic, queue_id)
        return (0, 0) if found is None else found[1].bounds

    def present(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic that have files; a topic may be configured for many more."""
        return {*self.store.queue_ids(topic)}

    def stored_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time in ms of a message; None if the message does not exist."""
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
        """Return the current keys of the store."""
        return self._kept("keys", self.store.key_view, self._bounds_kept_s)

    def _kept(self, name: str, read: Callable[[], _T], kept_s: float | None = None) -> _T:
        until, fact = self._facts.get(name, (0.0, None))
        if until < time.monotonic():
            fact = read()
            self._facts[name] = (time.monotonic() + (kept_s or self._facts_kept_s), fact)
        value: _T = fact
        return value


@dataclass(frozen=True, slots=True)
class Master:
    """The part of a broker that takes messages: topics, groups, and facts about the writer of the store."""

    topics: TopicTable
    groups: GroupTable
    store_host: str
    """The broker in new messages, and in their ids: `ip:port`."""
    flush: Flush
    retention: Retention | None = None
    multi_dispatch: bool = False
    """True if messages are also dispatched to the queues that INNER_MULTI_DISPATCH names."""
    statistics: Callable[[], WriterStatistics] | None = None
    waiting: Callable[[], int] = int
    """The number of messages that are not stored yet."""

    @property
    def tables(self) -> tuple[ConfigTable, ConfigTable]:
        """Tables that requests change."""
        return self.topics.table, self.groups.table

    def take_group(self, name: str, *, is_unit: bool) -> None:
        """Create a consumer group, and the topic for the messages that it sends back.

        Raises:
            Refusal: The name is invalid, or there are too many groups.
        """
        queues = self.groups.number(name, "retryQueueNums")
        self.topics.create(RETRY_PREFIX + name, queues, sys_flag=UNIT_SUB if is_unit else 0)


@dataclass(slots=True)
class Broker:
    """A broker. Only one thread changes it; others may read."""

    view: StoreView
    name: str
    cluster: str
    address: str
    """Host and port that clients connect to."""
    offsets: ConsumerOffsets
    master: Master | None = None
    """None: the broker is an archive, which takes no messages."""
    ha_port: int | None = None
    """The port of the log stream; None: no slave may follow."""
    is_synchronous: bool = False
    """True if producers wait for a slave (SYNC_MASTER)."""
    clients: Clients = field(default_factory=Clients)
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    counts: Counter[str] = field(default_factory=Counter)
    pulled: Meter = field(default_factory=Meter)
    """Messages that consumers pulled."""
    mornings: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    """The counts at the start of yesterday and of today."""
    today: date = field(default_factory=date.today)

    def require_master(self) -> Master:
        """Return the part of the broker that takes messages.

        Raises:
            Refusal: The broker is an archive.
        """
        if self.master is None:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self.address}] sending message is forbidden")
        return self.master

    def begin_day(self, today: date) -> None:
        """Keep the counts of midnight. Source: BrokerStats#record."""
        if today != self.today:
            self.today, self.mornings = today, (self.mornings[1], Counter(self.counts))

    @staticmethod
    def now() -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """Return the name of a queue of this broker."""
        return MessageQueue(self.name, queue_id, topic)

    def topics(self) -> dict[str, Topic]:
        """Return the topics of the store, and the retry topics that a broker creates for its groups.

        Tools find the brokers of a group by the route of its retry topic.
        """
        if self.master is not None:
            return self.master.topics.all()
        groups = {*self.clients.consumers, *self.offsets.all_groups()}
        return {**{RETRY_PREFIX + group: _RETRY_TOPIC for group in sorted(groups)}, **self.view.topics()}

    def topic(self, name: str) -> Topic | None:
        """Return one topic; None if it does not exist."""
        if self.master is not None:
            return self.master.topics.get(name)
        topic = self.view.topics().get(name)
        if topic is None and name.startswith(RETRY_PREFIX):
            group = name.removeprefix(RETRY_PREFIX)
            if group in self.clients.consumers or self.offsets.knows(group):
                return _RETRY_TOPIC
        return topic
