"""Offsets of consumer groups: those of the store, and what consumers commit to the server, in memory or in a file beside it.

Source: ConsumerOffsetManager. The file has the form of the broker's `consumerOffset.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex._core import read_file, replace_file
from logdex.errors import CorruptFileError
from logdex.rocketmq import fastjson
from logdex.rocketmq.groups import TABLE, parse_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from logdex.rocketmq.server.config_file import ConfigFile

_BUCKETS = 1024
"""Of the broker's table, which is made for 512 entries."""
_MOST_ENTRIES = 100_000
"""Pairs of topic and group that clients may add, so that none fills the memory."""
_MOST_QUEUES = (65_536, 1_000_000)
"""Largest number of queues of one pair, and of all pairs."""


class ConsumerOffsets:
    """Committed offsets by group and topic. The event loop changes them, and any thread reads and saves them."""

    def __init__(
        self, tables: Iterable[dict[str, Any]], file: Path | None = None, own: ConfigFile | None = None
    ) -> None:
        """Start with tables of the store, the first one wins, and with the file's, which wins over them.

        `own` is the broker's own file, which is written then.

        Raises:
            CorruptFileError: The file is no such table.
            OSError: The system refuses.
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
                found |= parse_offsets(fastjson.loads(read_file(file).decode())[TABLE])
            except (ValueError, AttributeError, TypeError, KeyError) as error:
                raise CorruptFileError(str(file), 0, "the offsets of consumer groups", repr(error)) from None
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
            if len(queues) >= _MOST_QUEUES[0] or self._queues >= _MOST_QUEUES[1]:
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
            ordered = {name: dict(sorted(table[name].items())) for name in fastjson.in_java_order(table, _BUCKETS)}
            self._own.save({TABLE: ordered})
        if self._file is not None:
            replace_file(self._file, fastjson.dumps({TABLE: self.table()}).encode(errors="replace"))
        self._saved = changes
