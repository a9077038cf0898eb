"""What a server that takes messages knows beside an archive: topics and groups that it may create.

Source: TopicConfigManager, SubscriptionGroupManager.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex.rocketmq.remoting_codes import Code
from logdex.rocketmq.server.archive import RETRY_PREFIX, Topic, topic_of
from logdex.rocketmq.server.config_file import ConfigTable
from logdex.rocketmq.server.exchange import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from logdex._core import SendTable
    from logdex._types import Flush
    from logdex.rocketmq.server.state import State
    from logdex.rocketmq.write.retention import Retention
    from logdex.rocketmq.write.store_writer import StoreStatistics

READ, WRITE, INHERIT = 4, 2, 1
"""Bits of a topic's permission."""
AUTO_CREATE_TOPIC = "TBW102"
"""The topic from which producers let others be made."""
DLQ_PREFIX = "%DLQ%"
UNIT, UNIT_SUB = 1, 2
"""Bits of a topic's system flag: the topic of a unit, and of a group in one."""

MOST_QUEUES = 65_536
"""Largest number of queues in a topic, so that no request exhausts the memory. A broker has no limit."""
LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
LEGAL = "^[%|a-zA-Z0-9_-]+$"
"""Characters that are allowed in names of topics and groups."""
_LONGEST_GROUP = 255
_MOST_NAMES = 100_000
"""Topics, and groups, that clients may create by using them, so that no client exhausts the memory."""

_QUEUES_OF_NEW = 8
"""defaultTopicQueueNums."""
_OWN_TOPICS = {"SELF_TEST_TOPIC": 1, "BenchmarkTest": 1024, "OFFSET_MOVED_EVENT": 1}
_OWN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


@dataclass(frozen=True, slots=True)
class Master:
    """The part of a server's state that sends change."""

    topics: TopicTable
    groups: GroupTable
    store_host: str
    """The broker in new messages, and in their ids: `ip:port`."""
    flush: Flush
    retention: Retention | None = None
    multi_dispatch: bool = False
    """True if messages are also dispatched to the queues that INNER_MULTI_DISPATCH names."""
    statistics: Callable[[], StoreStatistics] | None = None
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


def master_of(state: State) -> Master:
    """Return the part of a state that sends change.

    Raises:
        Refusal: The server is an archive.
    """
    if state.master is None:
        raise Refusal(Code.NO_PERMISSION, f"the broker[{state.address}] sending message is forbidden")
    return state.master


class TopicTable:
    """The topics of a broker, and their file."""

    def __init__(
        self, config: Path, broker: str, cluster: str, levels: int, on_disk: Mapping[str, Topic], *, may_create: bool
    ) -> None:
        """Read the table, and add the broker's own topics; and if there is no table, those that have queues.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: The system refuses.
        """
        self.table = ConfigTable(config, "topics.json", "topicConfigTable")
        own = {name: _topic(name, queues) for name, queues in _OWN_TOPICS.items()}
        self.may_create = may_create
        if may_create:
            own[AUTO_CREATE_TOPIC] = _topic(AUTO_CREATE_TOPIC, _QUEUES_OF_NEW, READ | WRITE | INHERIT)
        own[cluster] = _topic(cluster, 16, READ | WRITE | INHERIT)
        own[broker] = _topic(broker, 1, READ | WRITE | INHERIT)
        own["SCHEDULE_TOPIC_XXXX"] = _topic("SCHEDULE_TOPIC_XXXX", levels)
        own[f"{cluster}_REPLY_TOPIC"] = _topic(f"{cluster}_REPLY_TOPIC", 1)
        self.sends: SendTable | None = None
        """The topics that take plain sends, which come here only once."""
        self.waiting: Counter[str] = Counter()
        """Number of sends that wait for the file, by topic."""
        self._known: dict[str, Topic] = {}
        is_new = not self.table.entries
        if is_new:
            # A store that no broker has made: its messages shall be found.
            own = {name: _topic(name, topic.read_queues) for name, topic in on_disk.items()} | own
        for name, members in own.items():
            self.table.entries.setdefault(name, members)
        if not may_create and AUTO_CREATE_TOPIC in self.table.entries:
            self.table.entries[AUTO_CREATE_TOPIC]["perm"] = READ | WRITE
        if is_new:
            self.table.save()

    def content(self) -> dict[str, Any]:
        """Return what topics.json holds."""
        return self.table.content()

    def get(self, name: str) -> Topic | None:
        """Return a topic; None if it is not configured."""
        topic = self._known.get(name)
        if topic is None and name in self.table.entries:
            topic = self._known[name] = topic_of(self.table.entries[name])
        return topic

    def all(self) -> dict[str, Topic]:
        """Return all topics."""
        return {name: topic_of(members) for name, members in [*self.table.entries.items()]}

    def inherit(self, name: str, from_topic: str, queues: int, sys_flag: int) -> Topic | None:
        """Make a topic for a producer from another one; None if that is not there, or not for it."""
        origin = self.get(from_topic)
        if origin is None or not origin.perm & INHERIT:
            return None
        number = max(0, min(queues, origin.write_queues))
        return self.create(name, number, origin.perm & ~INHERIT, sys_flag)

    def create(
        self, name: str, queues: int, perm: int = READ | WRITE, sys_flag: int = 0, *, is_own: bool = False
    ) -> Topic:
        """Create a topic unless it exists. The limit of topics is not for the broker's own.

        Raises:
            Refusal: There are too many topics.
        """
        known = self.get(name)
        if known is not None:
            return known
        if not is_own:
            _check_number(self.table, "topics")
        self.table.put(name, _topic(name, queues, perm, sys_flag))
        return topic_of(self.table.entries[name])

    def unready(self, *names: str) -> str | None:
        """Return the first of some topics that is not in the file yet or for which sends wait; None: there is none."""
        return next((name for name in names if name in self.waiting or not self.table.is_saved(name)), None)

    def learn(self, name: str) -> None:
        """Allow batching of sends to a topic from now on: no send waits for a table, so that none overtakes another."""
        topic = self.get(name)
        if self.sends is not None and topic is not None and self.unready(name) is None:
            self.sends.learn(name, max(topic.read_queues, topic.write_queues))

    def put(self, name: str, topic: Topic, filter_type: str) -> None:
        """Make a topic, or change it."""
        self._forget(name)
        self.table.put(
            name,
            {
                "order": topic.is_ordered,
                "perm": topic.perm,
                "readQueueNums": topic.read_queues,
                "topicFilterType": filter_type,
                "topicName": name,
                "topicSysFlag": topic.sys_flag,
                "writeQueueNums": topic.write_queues,
            },
        )

    def remove(self, name: str) -> None:
        """Remove a topic; its queues stay on the disk."""
        self._forget(name)
        self.table.remove(name)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        if self.sends is not None:
            self.sends.forget(name)


class GroupTable:
    """The consumer groups of a broker, and their file."""

    def __init__(self, config: Path) -> None:
        """Read the table, and add the broker's own groups.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: The system refuses.
        """
        self.table = ConfigTable(config, "subscriptionGroup.json", "subscriptionGroupTable")
        is_new = not self.table.entries
        for name in _OWN_GROUPS:
            self.table.entries.setdefault(name, _group(name))
        if is_new:
            self.table.save()

    def content(self) -> dict[str, Any]:
        """Return what subscriptionGroup.json holds."""
        return self.table.content()

    def get(self, name: str) -> dict[str, Any]:
        """Return a group; create it if it does not exist (autoCreateSubscriptionGroup).

        Raises:
            Refusal: The name is invalid, or there are too many groups.
        """
        if name not in self.table.entries:
            check_group_name(name)
            _check_number(self.table, "groups")
            self.table.put(name, _group(name))
        return self.table.entries[name]

    def number(self, name: str, member: str) -> int:
        """Return a number of a group's configuration."""
        value = self.get(name).get(member)
        default: int = _GROUP[member]
        return value if isinstance(value, int) else default

    def put(self, name: str, members: dict[str, Any]) -> None:
        """Create or change a group.

        Raises:
            Refusal: The name is invalid, or a member has a type with which a broker cannot load the table.
        """
        check_group_name(name)
        known = {member: _member(member, members.get(member)) for member in _GROUP}
        if known["retryQueueNums"] > MOST_QUEUES:
            raise Refusal(Code.SYSTEM_ERROR, f"retryQueueNums of group[{name}]: expected at most {MOST_QUEUES}")
        self.table.put(name, dict(sorted({**known, "groupName": name}.items())))

    def remove(self, name: str) -> bool:
        """Remove a group; return whether there was one."""
        return self.table.remove(name)


_GROUP: dict[str, Any] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


_LONGS = {"brokerId", "whichBrokerWhenConsumeSlowly"}
"""Members that are 64-bit integers."""
_TRUTHS = {True: True, False: False, "true": True, "false": False}


def _member(name: str, value: object) -> bool | int:
    """Convert a member of a group to the type that a broker uses; null becomes the default.

    Raises:
        Refusal: A broker does not accept the value.
    """
    default: bool | int = _GROUP[name]
    if value is None:
        return default
    if isinstance(default, bool):
        if isinstance(value, bool | int | str) and value in _TRUTHS:
            return _TRUTHS[value]
        raise _wrong_type(name, "a boolean", value)
    bits = 64 if name in _LONGS else 32
    if isinstance(value, str) and len(value) < bits and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    raise _wrong_type(name, f"an integer of {bits} bits", value)


def _wrong_type(name: str, expected: str, value: object) -> Refusal:
    error = f"com.alibaba.fastjson.JSONException: {name}: expected {expected}, found {value!r:.40}"
    return Refusal(Code.SYSTEM_ERROR, error)


def check_group_name(name: str) -> None:
    """Check the name of a group, as clients and later brokers do (Validators#checkGroup).

    Raises:
        Refusal: The name is invalid.
    """
    if not name.strip():
        remark = "the specified group is blank"
    elif len(name) > _LONGEST_GROUP:
        remark = f"the specified group is longer than group max length {_LONGEST_GROUP}."
    elif not LEGAL_NAME.fullmatch(name):
        remark = f"the specified group[{name}] contains illegal characters, allowing only {LEGAL}"
    else:
        return
    raise Refusal(Code.SYSTEM_ERROR, remark)


def _check_number(table: ConfigTable, what: str) -> None:
    if len(table.entries) >= _MOST_NAMES:
        raise Refusal(Code.SYSTEM_BUSY, f"more than {_MOST_NAMES} {what}")


def _group(name: str) -> dict[str, Any]:
    return dict(sorted({**_GROUP, "groupName": name}.items()))


def _topic(name: str, queues: int, perm: int = READ | WRITE, sys_flag: int = 0) -> dict[str, Any]:
    return {
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": sys_flag,
        "writeQueueNums": queues,
    }
