"""Clients that are connected: members of consumer groups with their subscriptions, producers, and locks of queues.

Source: ConsumerManager, ConsumerGroupInfo, ProducerManager, RebalanceLockManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logdex._core import tags_hash
from logdex.broker.rocketmq.requests import Notice, integer_in, list_in, objects_in, text_in
from logdex.broker.wire import RequestCode

if TYPE_CHECKING:
    from logdex.broker.rocketmq.requests import Peer
    from logdex.rocketmq.fastjson import MessageQueue

ALL_TAGS = "*"
BROADCASTING = "BROADCASTING"
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_MESSAGE_MODELS = (BROADCASTING, "CLUSTERING")
_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""Constants of the broker, in the order of the numbers that C++ clients send."""
TAG = "TAG"

_LOCK_S = 60.0
_SILENT_S = 120.0
"""Time after the last heartbeat of a member after which it is dropped."""
_MOST_GROUPS = 10_000
"""Largest number of groups, so that no client exhausts the memory."""
_MOST_MEMBERS = 100_000
"""Largest number of memberships of clients in groups."""
_LONGEST_EXPRESSION = 65_536
"""Largest number of characters in the tags of a pull."""
_MOST_TAGS = 16_384
"""Largest number of tags in one subscription."""
_MOST_LOCKS = 200_000
"""Largest number of queue locks."""
_SWEEP_S = 1.0
"""Seconds between two searches of a full table for expired locks. Each search reads all locks."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription of a group to a topic."""

    topic: str
    expression: str = ALL_TAGS
    kind: str = TAG
    version: int = 0
    codes: list[int] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)
    """The client's own object, for tools."""

    @classmethod
    def parse(cls, topic: str, expression: str | None, kind: str = TAG) -> Subscription:
        """Parse the expression of a pull.

        Raises:
            ValueError: The expression has no tags or is too long.

        Source: FilterAPI#buildSubscriptionData.
        """
        if kind != TAG and not expression:
            raise ValueError("Expression can't be null!")
        if kind != TAG or not expression or expression == ALL_TAGS:
            return cls(topic, expression or ALL_TAGS, kind)
        if len(expression) > _LONGEST_EXPRESSION:
            raise ValueError(f"an expression of {len(expression)} characters: expected at most {_LONGEST_EXPRESSION}")
        if not expression.replace("||", ""):
            raise ValueError("subString split error")
        return cls(
            topic, expression, kind, codes=[tags_hash(tag.strip()) for tag in expression.split("||") if tag.strip()]
        )

    @classmethod
    def of_heartbeat(cls, members: dict[str, Any]) -> Subscription:
        """Parse the subscription of a heartbeat. C++ clients leave out what is empty.

        Raises:
            ValueError: A member has a wrong type, or there are too many tags.
        """
        topic, expression = text_in(members, "topic"), str(members.get("subString") or ALL_TAGS)
        tags, codes = (list_in(members, name) if members.get(name) else [] for name in ("tagsSet", "codeSet"))
        if max(len(tags), len(codes)) > _MOST_TAGS:
            raise ValueError(f"tagsSet, codeSet: expected at most {_MOST_TAGS} tags")
        codes = [integer_in("codeSet", code) for code in codes] or [tags_hash(str(tag)) for tag in tags]
        if any(not -(1 << 31) <= code < 1 << 31 for code in codes):
            raise ValueError("codeSet: expected 32-bit integers")
        kind, version = (
            str(members.get("expressionType") or TAG),
            integer_in("subVersion", members.get("subVersion") or 0),
        )
        return cls(topic, expression, kind, version, codes, members)

    @property
    def wanted_codes(self) -> list[int] | None:
        """Hashes of the tags that pass; None: all."""
        return None if self.expression == ALL_TAGS else self.codes


@dataclass(slots=True)
class Member:
    """A client of a group."""

    client_id: str | None
    """None: the client sent none."""
    language: str
    version: int
    seen: float


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group that is online. A value that its last member omitted or that a broker does not recognize is None."""

    consume_type: str | None
    message_model: str | None
    from_where: str | None
    members: dict[Peer, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def update(self, subscriptions: list[Subscription]) -> bool:
        """Update the subscriptions from a heartbeat; return whether the topics changed."""
        topics = {each.topic for each in subscriptions}
        is_changed = topics != self.subscriptions.keys()
        for each in subscriptions:
            old = self.subscriptions.get(each.topic)
            if old is None or each.version > old.version:
                self.subscriptions[each.topic] = each
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
        return is_changed


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """Data of a consumer group in a heartbeat."""

    group: str
    is_unit: bool
    consume_type: str | None
    message_model: str | None
    from_where: str | None
    subscriptions: list[Subscription]

    @classmethod
    def of_heartbeat(cls, members: dict[str, Any]) -> ConsumerData:
        """Parse a group of a heartbeat.

        Raises:
            ValueError: A member is missing or has a wrong type.
        """
        return cls(
            text_in(members, "groupName"),
            members.get("unitMode") is True,
            _constant(members, "consumeType", _CONSUME_TYPES),
            _constant(members, "messageModel", _MESSAGE_MODELS),
            _constant(members, "consumeFromWhere", _FROM_WHERE),
            [Subscription.of_heartbeat(each) for each in objects_in(members, "subscriptionDataSet")],
        )


class Clients:
    """The clients of a server."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, Member]] = {}
        self._consumes: dict[Peer, dict[str, None]] = {}
        self._produces: dict[Peer, dict[str, None]] = {}
        self._members = 0
        self._locks: dict[tuple[str, MessageQueue], tuple[str, float]] = {}
        self._swept: float | None = None
        """Time of the last search for expired locks."""

    def join(self, group: str, peer: Peer, member: Member, data: ConsumerData) -> list[Notice]:
        """Record the heartbeat of a consumer; return the notices for the members.

        Raises:
            ValueError: There are too many groups or members.
        """
        known = self.consumers.get(group)
        is_new = known is None or peer not in known.members
        if is_new:
            self._count_member()
        if known is None:
            if len(self.consumers) >= _MOST_GROUPS:
                raise ValueError(f"more than {_MOST_GROUPS} consumer groups")
            known = self.consumers[group] = ConsumerGroup(data.consume_type, data.message_model, data.from_where)
        known.consume_type, known.message_model, known.from_where = (
            data.consume_type,
            data.message_model,
            data.from_where,
        )
        if is_new:
            self._members += 1
            self._consumes.setdefault(peer, {})[group] = None
        known.members[peer] = member
        is_changed = known.update(data.subscriptions)
        return self._notices(group) if is_new or is_changed else []

    def produce(self, group: str, peer: Peer, member: Member) -> None:
        """Record the heartbeat of a producer.

        Raises:
            ValueError: There are too many groups or members.
        """
        members = self.producers.get(group, {})
        if peer not in members:
            self._count_member()
            if not members and len(self.producers) >= _MOST_GROUPS:
                raise ValueError(f"more than {_MOST_GROUPS} producer groups")
            self._members += 1
            self._produces.setdefault(peer, {})[group] = None
        members[peer] = member
        self.producers[group] = members

    def _count_member(self) -> None:
        if self._members >= _MOST_MEMBERS:
            raise ValueError(f"more than {_MOST_MEMBERS} members of groups")

    def leave(self, peer: Peer, group: str | None = None, producer_group: str | None = None) -> list[Notice]:
        """Remove a client from two groups, or from all if both are None; return the notices for the other members."""
        everything = group is None and producer_group is None
        notices: list[Notice] = []
        for name in [*self._consumes.get(peer, ())] if everything else [group or ""]:
            known = self.consumers.get(name)
            if known is not None and known.members.pop(peer, None) is not None:
                self._forget(self._consumes, peer, name)
                notices += self._notices(name)
                if not known.members:
                    del self.consumers[name]
        for name in [*self._produces.get(peer, ())] if everything else [producer_group or ""]:
            members = self.producers.get(name, {})
            if members.pop(peer, None) is not None:
                self._forget(self._produces, peer, name)
                if not members:
                    del self.producers[name]
        return notices

    def _forget(self, groups: dict[Peer, dict[str, None]], peer: Peer, name: str) -> None:
        self._members -= 1
        del groups[peer][name]
        if not groups[peer]:
            del groups[peer]

    def silent(self, now: float) -> set[Peer]:
        """Return the members that sent no heartbeat for long."""
        groups = [*(group.members for group in self.consumers.values()), *self.producers.values()]
        return {peer for members in groups for peer, member in members.items() if member.seen + _SILENT_S < now}

    def forget_locks(self, now: float) -> None:
        """Drop the locks that expired."""
        self._swept = now
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] + _LOCK_S >= now}

    def lock(self, group: str, client_id: str, queues: list[MessageQueue], now: float) -> list[MessageQueue]:
        """Lock queues for a client; return those that no other client holds.

        Raises:
            ValueError: There are too many locks.
        """
        granted = []
        if len(self._locks) + len(queues) > _MOST_LOCKS:
            if self._swept is None or self._swept + _SWEEP_S <= now:
                self.forget_locks(now)
            if len(self._locks) + len(queues) > _MOST_LOCKS:
                raise ValueError(f"more than {_MOST_LOCKS} locks of queues")
        for queue in queues:
            owner, since = self._locks.get((group, queue), (client_id, now))
            if owner == client_id or since + _LOCK_S < now:
                self._locks[group, queue] = (client_id, now)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: list[MessageQueue]) -> None:
        """Release the locks that a client holds."""
        for queue in queues:
            if self._locks.get((group, queue), ("", 0.0))[0] == client_id:
                del self._locks[group, queue]

    def _notices(self, group: str) -> list[Notice]:
        return [
            Notice(peer, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            for peer in self.consumers[group].members
        ]


def _constant(members: dict[str, Any], member: str, names: tuple[str, ...]) -> str | None:
    """Return a constant that a member gives by name or number; None for another name.

    Raises:
        ValueError: The value is neither.
    """
    value = members.get(member)
    if value is None or isinstance(value, str):
        return value if value in names else None
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(f"{member}: expected one of {', '.join(names)}, or 0 to {len(names) - 1}, found {value!r:.40}")
    return names[value]
