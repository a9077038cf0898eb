"""What a server knows beside the store: its name, the clients, their offsets, and what it counted."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from logdex._core import Meter
from logdex.rocketmq.fastjson import MessageQueue
from logdex.rocketmq.server.archive import RETRY_PREFIX, Archive, Topic
from logdex.rocketmq.server.clients import Clients

if TYPE_CHECKING:
    from logdex.rocketmq.server.master import Master
    from logdex.rocketmq.server.offsets import ConsumerOffsets

PULLED, STORED = "messages_total", "stored_messages_total"
"""Names of counts."""
_RETRY_TOPIC = Topic(1, 1, 6)


@dataclass(slots=True)
class State:
    """The state of a server. Only one thread changes it; others may read."""

    broker: str
    cluster: str
    address: str
    """Host and port that clients are told."""
    offsets: ConsumerOffsets
    master: Master | None = None
    """What a server that takes messages knows beside; None: it is an archive."""
    ha_port: int | None = None
    """The port of the log stream; None: no slave may follow."""
    is_synchronous: bool = False
    """Whether producers wait for a slave (SYNC_MASTER)."""
    clients: Clients = field(default_factory=Clients)
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    counts: Counter[str] = field(default_factory=Counter)
    pulled: Meter = field(default_factory=Meter)
    """Messages that consumers pulled."""
    mornings: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    """The counts at the begin of yesterday and of today."""
    today: date = field(default_factory=date.today)

    def begin_day(self, today: date) -> None:
        """Keep the counts of midnight. Source: BrokerStats#record."""
        if today != self.today:
            self.today, self.mornings = today, (self.mornings[1], Counter(self.counts))

    @staticmethod
    def now() -> float:
        """Return seconds of a clock that never steps."""
        return time.monotonic()

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """Return the name of a queue of this broker."""
        return MessageQueue(self.broker, queue_id, topic)

    def topics(self, archive: Archive) -> dict[str, Topic]:
        """Return the topics of the store, and the retry topics that a broker makes for the groups that it knows.

        Tools find the brokers of a group by the route of its retry topic.
        """
        if self.master is not None:
            return self.master.topics.all()
        groups = {*self.clients.consumers, *self.offsets.all_groups()}
        return {**{RETRY_PREFIX + group: _RETRY_TOPIC for group in sorted(groups)}, **archive.topics()}

    def topic(self, archive: Archive, name: str) -> Topic | None:
        """Return one topic; None if it does not exist."""
        if self.master is not None:
            return self.master.topics.get(name)
        topic = archive.topics().get(name)
        if topic is None and name.startswith(RETRY_PREFIX):
            group = name.removeprefix(RETRY_PREFIX)
            if group in self.clients.consumers or self.offsets.knows(group):
                return _RETRY_TOPIC
        return topic
