"""Offsets of consumer groups: those of the store, and what consumers commit to the server, in memory or in a file beside it.

Source: ConsumerOffsetManager. The file has the form of the broker's `consumerOffset.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex._core import read_file
from logdex._files import replace_file
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


class ConsumerOffsets:
    """Committed offsets by topic and group."""

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
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._is_changed = False
        for table in tables:
            for key, offsets in parse_offsets(table).items():
                self._offsets.setdefault(key, offsets)
        if file is not None and file.exists():
            try:
                self._offsets |= parse_offsets(fastjson.loads(read_file(file).decode())[TABLE])
            except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
                raise CorruptFileError(str(file), 0, "the offsets of consumer groups", repr(error)) from None

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a group; None if it has none."""
        return self._offsets.get((topic, group), {}).get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set the offset of a group; return False if there are too many groups."""
        key = (topic, group)
        if key not in self._offsets and len(self._offsets) >= _MOST_ENTRIES:
            return False
        queues = self._offsets.setdefault(key, {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._is_changed = True
        return True

    def remove(self, group: str) -> None:
        """Drop the offsets of a group."""
        for key in [key for key in self._offsets if key[1] == group]:
            del self._offsets[key]
            self._is_changed = True

    def topics(self, group: str) -> set[str]:
        """Return the topics in which a group has offsets."""
        return {topic for topic, owner in [*self._offsets] if owner == group}

    def groups(self, topic: str | None = None) -> set[str]:
        """Return the groups with offsets in a topic; None: in any."""
        return {group for of, group in [*self._offsets] if topic in (None, of)}

    def table(self) -> dict[str, dict[int, int]]:
        """Return the offsets as the broker names them: by `topic@group` and queue."""
        return {f"{topic}@{group}": dict(queues) for (topic, group), queues in [*self._offsets.items()]}

    def take_changes(self) -> bytes | None:
        """Return the content for the file; None if there is no file or nothing new."""
        if (self._file is None and self._own is None) or not self._is_changed:
            return None
        self._is_changed = False
        if self._own is not None:
            table = self.table()
            ordered = {name: dict(sorted(table[name].items())) for name in fastjson.in_java_order(table, _BUCKETS)}
            return fastjson.dumps_pretty({TABLE: ordered}).encode(errors="replace")
        return fastjson.dumps({TABLE: self.table()}).encode(errors="replace")

    def keep_changes(self) -> None:
        """Return the content again: it was not written."""
        self._is_changed = True

    def write(self, content: bytes) -> None:
        """Replace the file. A crash leaves the old content or the new one."""
        if self._own is not None:
            self._own.replace(content)
        if self._file is not None:
            replace_file(self._file, content)
