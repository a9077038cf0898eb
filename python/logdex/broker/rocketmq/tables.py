"""The tables of a broker and their files in `config`: topics, consumer groups and consumer offsets.

Source: ConfigManager, DataVersion, TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager. A broker writes a table
for each change. Here one thread writes all changes since its last write.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from logdex._core import read_file, replace_file
from logdex.broker.rocketmq.requests import Refusal
from logdex.broker.wire import ResponseCode
from logdex.errors import CorruptFileError
from logdex.rocketmq import fastjson
from logdex.rocketmq.broker_config import (
    AUTO_CREATE_TOPIC,
    GROUPS,
    OFFSETS,
    SCHEDULE_TOPIC,
    TOPICS,
    members_of,
    parse_offsets,
    read_members,
    write_table,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from logdex._core import SendTable
    from logdex.rocketmq.broker_config import ConfigName

    NotSaved: TypeAlias = "OSError | ValueError"
    """Reason for a failed write of a table."""
    Then: TypeAlias = "Callable[[NotSaved | None], None]"

_log = logging.getLogger(__name__)

READ, WRITE, INHERIT = 4, 2, 1
"""Bits of a topic's permission."""
UNIT, UNIT_SUB = 1, 2
"""Bits of a topic's system flag: the topic belongs to a unit, or to a group in a unit."""
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
_OFFSET_BUCKETS = 1024
"""Size of the broker's table of offsets, which is made for 512 entries."""
_MOST_ENTRIES = 100_000
"""Largest number of pairs of topic and group, so that no client exhausts the memory."""
_MOST_OFFSETS = (65_536, 1_000_000)
"""Largest number of queues of one pair, and of all pairs."""


class ConfigTable:
    """Configuration table by name, with its version. The event loop changes it, and any thread saves it."""

    _BUCKETS = 2048
    """Of the broker's tables, which are made for 1024 names."""

    def __init__(self, config: Path, table: ConfigName) -> None:
        """Read the table.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: An I/O error.
        """
        self._path, self._name = config / table.file, table.name
        content = read_members(self._path)
        entries, version = content.get(self._name), content.get("dataVersion")
        self.entries: dict[str, dict[str, Any]] = {
            name: members
            for name, members in (entries.items() if isinstance(entries, dict) else ())
            if isinstance(members, dict)
        }
        """Entries by name. The members of an entry are never changed, only replaced."""
        self._version = version if isinstance(version, dict) else {"counter": 0, "timestamp": _now_ms()}
        self.changes = 0
        """Number of changes since the table was read."""
        self.changed: Callable[[], None] | None = None
        """Function that is called after each change."""
        # A table without entries has no file yet.
        self._saved = 0 if self.entries else -1
        self._last_changes: dict[str, int] = {}
        # The last written entries with their texts, because a table of thousands grows by a few at a time.
        self._texts: dict[str, tuple[dict[str, Any], fastjson.Pretty]] = {}

    def content(self) -> dict[str, Any]:
        """Return what the file holds, in the broker's order."""
        entries = self.entries.copy()
        names = fastjson.in_java_order(entries, self._BUCKETS)
        return {"dataVersion": self._version, self._name: {name: entries[name] for name in names}}

    def put(self, name: str, members: dict[str, Any]) -> None:
        """Add or replace an entry."""
        self.entries[name] = members
        self._changed(name)

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether it existed."""
        is_known = self.entries.pop(name, None) is not None
        if is_known:
            self._changed(name)
        return is_known

    def is_saved(self, name: str) -> bool:
        """Return whether the file has the current entry."""
        return self._last_changes.get(name, 0) <= self._saved

    def save(self) -> None:
        """Write the table if it changed. Only one thread at a time may call this.

        Raises:
            OSError: An I/O error.
        """
        changes = self.changes
        if changes != self._saved:
            content = self.content()
            content[self._name] = {name: self._text(name, members) for name, members in content[self._name].items()}
            write_table(self._path, fastjson.dumps_pretty(content).encode(errors="replace"))
            self._texts = {name: known for name, known in self._texts.items() if name in content[self._name]}
            self._saved = changes

    def _text(self, name: str, members: dict[str, Any]) -> fastjson.Pretty:
        known = self._texts.get(name)
        if known is None or known[0] is not members:
            known = self._texts[name] = members, fastjson.Pretty(fastjson.dumps_pretty(members, "\t\t"))
        return known[1]

    def _changed(self, name: str) -> None:
        if self._saved == self.changes:
            self._last_changes.clear()
        counter = self._version.get("counter", 0)
        self._version = {"counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": _now_ms()}
        self.changes += 1
        self._last_changes[name] = self.changes
        if self.changed is not None:
            self.changed()


class Saving(Protocol):
    """Table with a file."""

    def save(self) -> None:
        """Write the table if it changed."""


class TableWriter:
    """Writer of tables to their files, with one thread. Changes during a write are written together afterwards.

    Methods are called in the thread of the event loop, and so are the callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread."""
        self._loop = loop
        self._queue: SimpleQueue[tuple[Sequence[Saving], Then] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="logdex-tables", daemon=True)
        self._thread.start()

    def save(self, tables: Sequence[Saving], then: Then) -> None:
        """Write the tables that changed, then call `then` in the event loop, with the error if a write fails."""
        self._queue.put((tables, then))

    def close(self) -> None:
        """Write the pending changes and end the thread. This blocks until it has ended."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            together = [self._queue.get()]
            with suppress(Empty):
                while True:
                    together.append(self._queue.get_nowait())
            is_open = None not in together
            waiting = [each for each in together if each is not None]
            errors = {
                table: _save(table) for table in dict.fromkeys(table for tables, _ in waiting for table in tables)
            }
            results = [(then, _first([errors[table] for table in tables])) for tables, then in waiting]
            # If the event loop has ended, no callback is needed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_call_back, results)


def _save(table: Saving) -> NotSaved | None:
    try:
        table.save()
    except (OSError, ValueError) as error:
        _log.error("a table of the broker is not written: %s", error)
        return error
    except Exception as error:  # noqa: BLE001 -- logged
        # A bug in logdex must not end the thread.
        _log.exception("a table of the broker is not written")
        return ValueError(f"{type(error).__name__}: {error}")
    return None


def _first(errors: list[NotSaved | None]) -> NotSaved | None:
    return next((error for error in errors if error is not None), None)


def _call_back(results: list[tuple[Then, NotSaved | None]]) -> None:
    for then, error in results:
        try:
            then(error)
        except Exception:  # noqa: BLE001 -- logged
            # A bug in logdex must not prevent the answers of other requests.
            _log.exception("the callback after the write of a table failed")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration."""

    read_queues: int
    write_queues: int
    perm: int = 6
    sys_flag: int = 0
    is_ordered: bool = False

    @property
    def is_readable(self) -> bool:
        """True if consumers may read it."""
        return bool(self.perm & 4)


def topic_of(members: object) -> Topic:
    """Return the topic of an entry of topics.json."""
    numbers = (("readQueueNums", 0), ("writeQueueNums", 0), ("perm", 6), ("topicSysFlag", 0), ("order", 0))
    read, write, perm, sys_flag, order = (number_of(members, name, otherwise) for name, otherwise in numbers)
    return Topic(read, write, perm, sys_flag, order == 1)


def number_of(members: object, name: str, otherwise: int) -> int:
    """Return a number of an entry; `otherwise` if the entry has none."""
    value = members.get(name, otherwise) if isinstance(members, dict) else otherwise
    return value if isinstance(value, int) else otherwise


class TopicTable:
    """The topics of a broker and their file."""

    def __init__(
        self, config: Path, broker: str, cluster: str, levels: int, on_disk: Mapping[str, Topic], *, may_create: bool
    ) -> None:
        """Read the table and add the broker's own topics. Without a table, also add the topics that have queues.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: An I/O error.
        """
        self.table = ConfigTable(config, TOPICS)
        own = {name: Topic(queues, queues) for name, queues in _OWN_TOPICS.items()}
        self.may_create = may_create
        if may_create:
            own[AUTO_CREATE_TOPIC] = Topic(_QUEUES_OF_NEW, _QUEUES_OF_NEW, READ | WRITE | INHERIT)
        own[cluster] = Topic(16, 16, READ | WRITE | INHERIT)
        own[broker] = Topic(1, 1, READ | WRITE | INHERIT)
        own[SCHEDULE_TOPIC] = Topic(levels, levels)
        own[f"{cluster}_REPLY_TOPIC"] = Topic(1, 1)
        self.sends: SendTable | None = None
        """The topics whose plain sends need no handler. A topic's first send adds it."""
        self.waiting: Counter[str] = Counter()
        """Number of sends that wait for the file, by topic."""
        self._known: dict[str, Topic] = {}
        is_new = not self.table.entries
        if is_new:
            # No broker wrote this store. Consumers need its topics to find the messages.
            own = {name: Topic(topic.read_queues, topic.read_queues) for name, topic in on_disk.items()} | own
        for name, topic in own.items():
            self.table.entries.setdefault(name, topic_entry(name, topic))
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
        """Create a topic for a producer after another one; return None if that is missing or has no permission to inherit."""
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
        topic = Topic(queues, queues, perm, sys_flag)
        self.table.put(name, topic_entry(name, topic))
        return topic

    def unready(self, *names: str) -> str | None:
        """Return the first topic that is not in the file yet or for which sends wait; None if all are ready."""
        return next((name for name in names if name in self.waiting or not self.table.is_saved(name)), None)

    def learn(self, name: str) -> None:
        """Allow batching of sends to a topic if no send waits for its table, so that no send overtakes another."""
        topic = self.get(name)
        if self.sends is not None and topic is not None and self.unready(name) is None:
            self.sends.learn(name, max(topic.read_queues, topic.write_queues))

    def put(self, name: str, topic: Topic, filter_type: str) -> None:
        """Create or change a topic."""
        self._forget(name)
        self.table.put(name, topic_entry(name, topic, filter_type))

    def remove(self, name: str) -> None:
        """Remove a topic; its queues stay on the disk."""
        self._forget(name)
        self.table.remove(name)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        if self.sends is not None:
            self.sends.forget(name)


class GroupTable:
    """The consumer groups of a broker and their file."""

    def __init__(self, config: Path) -> None:
        """Read the table, and add the broker's own groups.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: An I/O error.
        """
        self.table = ConfigTable(config, GROUPS)
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
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"retryQueueNums of group[{name}]: expected at most {MOST_QUEUES}")
        self.table.put(name, dict(sorted({**known, "groupName": name}.items())))

    def remove(self, name: str) -> bool:
        """Remove a group; return whether there was one."""
        return self.table.remove(name)


def _member(name: str, value: object) -> bool | int:
    """Convert a member of a group to the broker's type; null becomes the default.

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
    return Refusal(ResponseCode.SYSTEM_ERROR, error)


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
    raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _check_number(table: ConfigTable, what: str) -> None:
    if len(table.entries) >= _MOST_NAMES:
        raise Refusal(ResponseCode.SYSTEM_BUSY, f"more than {_MOST_NAMES} {what}")


def _group(name: str) -> dict[str, Any]:
    return dict(sorted({**_GROUP, "groupName": name}.items()))


def topic_entry(name: str, topic: Topic, filter_type: str = "SINGLE_TAG") -> dict[str, Any]:
    """Return the entry of a topic in topics.json."""
    return {
        "order": topic.is_ordered,
        "perm": topic.perm,
        "readQueueNums": topic.read_queues,
        "topicFilterType": filter_type,
        "topicName": name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }


class ConsumerOffsets:
    """Committed offsets by group and topic. The event loop changes them, and any thread reads and saves them."""

    def __init__(self, tables: Iterable[dict[str, Any]], file: Path | None = None, own: Path | None = None) -> None:
        """Merge the tables of the store, the first one wins, and the table of the file, which wins over them.

        `own` is the broker's own file; `save` writes it.

        Raises:
            CorruptFileError: The file is not a consumer offset table.
            OSError: An I/O error.
        """
        self._file = file
        self._own = own
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._entries = self._queues = 0
        self._changes = self._saved = 0
        found: dict[tuple[str, str], dict[int, int]] = {}
        for table in tables:
            found = parse_offsets(table) | found
        if file is not None and file.exists():
            try:
                found |= parse_offsets(members_of(read_file(file).decode()).get(OFFSETS.name))
            except ValueError as error:
                raise CorruptFileError(str(file), 0, "the offsets of consumer groups", str(error)) from None
        for (topic, group), offsets in found.items():
            self._groups.setdefault(group, {})[topic] = offsets
            self._entries += 1
            self._queues += len(offsets)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a group; None if it has none."""
        return self._groups.get(group, {}).get(topic, {}).get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set the offset of a group; return False if there are too many groups or queues."""
        queues = self._groups.get(group, {}).get(topic)
        if queues is None:
            if self._entries >= _MOST_ENTRIES:
                return False
            queues = self._groups.setdefault(group, {})[topic] = {}
            self._entries += 1
        if queue_id not in queues:
            if len(queues) >= _MOST_OFFSETS[0] or self._queues >= _MOST_OFFSETS[1]:
                return False
            self._queues += 1
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._changes += 1
        return True

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Copy the offsets of another group in a topic to a group; return False if there are too many groups."""
        queues = self._groups.get(source, {}).get(topic)
        if queues is None:
            return True
        old = self._groups.get(target, {}).get(topic, {})
        for queue_id in old.keys() - queues.keys():
            del old[queue_id]
            self._queues -= 1
            self._changes += 1
        return all(self.commit(target, topic, queue_id, offset) for queue_id, offset in [*queues.items()])

    def remove(self, group: str) -> None:
        """Drop the offsets of a group."""
        topics = self._groups.pop(group, None)
        if topics is not None:
            self._entries -= len(topics)
            self._queues -= sum(map(len, topics.values()))
            self._changes += 1

    def topics(self, group: str) -> set[str]:
        """Return the topics in which a group has offsets."""
        return {*self._groups.get(group, {}).copy()}

    def groups(self, topic: str) -> set[str]:
        """Return the groups with offsets in a topic."""
        return {group for group, topics in [*self._groups.items()] if topic in topics}

    def all_groups(self) -> set[str]:
        """Return the groups with offsets."""
        return {*self._groups.copy()}

    def knows(self, group: str) -> bool:
        """Return whether a group has offsets."""
        return group in self._groups

    def table(self) -> dict[str, dict[int, int]]:
        """Return the offsets as the broker names them: by `topic@group` and queue."""
        groups = [(group, [*topics.items()]) for group, topics in [*self._groups.items()]]
        return {f"{topic}@{group}": queues.copy() for group, topics in groups for topic, queues in topics}

    def save(self) -> None:
        """Write the file if there is one and an offset changed. A crash leaves the old or the new content.

        Raises:
            OSError: An I/O error.
        """
        changes = self._changes
        if changes == self._saved:
            return
        if self._own is not None:
            table = self.table()
            ordered = {
                name: dict(sorted(table[name].items())) for name in fastjson.in_java_order(table, _OFFSET_BUCKETS)
            }
            write_table(self._own, fastjson.dumps_pretty({OFFSETS.name: ordered}).encode(errors="replace"))
        if self._file is not None:
            replace_file(self._file, fastjson.dumps({OFFSETS.name: self.table()}).encode(errors="replace"))
        self._saved = changes
