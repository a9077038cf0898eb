"""Scheduled messages: delivery of the parked messages that are due, and the table of what was delivered.

Source: ScheduleMessageService. A message of level *n* waits in queue *n* - 1 of `SCHEDULE_TOPIC_XXXX`. `config/delayOffset.json`
holds the end of the delivered part of each level. After a crash, the messages that were delivered since it was written are
delivered again. A broker writes it every 10 s; here synchronous flush writes it after each delivery. The file is in fastjson's
JSON: integer names have no quotes. 4.9.3 and 5.3.3 write the offsets on one line, 5.5.0 one per line; 5.x adds `dataVersion`.
Other content of the file and its format are kept.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex.rocketmq.broker_config import DELAY_OFFSETS, SCHEDULE_TOPIC, members_of, object_of, read_table, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from logdex._core import CommitLogWriter, Queues

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduleService:
    """Delivers the parked messages of a store. Not for several threads at a time."""

    _queues: Queues
    _offsets: DelayOffsets
    _levels: Sequence[int]
    """The delays of the levels, in ms, level 1 first."""
    _log: CommitLogWriter
    _saves: bool
    """True if the offsets are saved after each delivery, so that a crash repeats at most one; else only `save` writes them."""

    def deliver_due(self, now: int) -> int:
        """Deliver the messages of all levels that are due at a time, in ms since the epoch; return their number.

        Some parked messages are skipped with a warning: those that cannot be read, that do not name their topic and queue, or
        that no log takes; and half messages, as a broker does. After an I/O error, the messages delivered by then are not
        delivered again.
        """
        return sum(self._deliver(level, now) for level in range(1, len(self._levels) + 1))

    def _deliver(self, level: int, now: int) -> int:
        try:
            queue = self._queues.queue(SCHEDULE_TOPIC, level - 1)
        except FileNotFoundError:
            return 0
        count = 0
        offsets = self._offsets.offsets
        while due := queue.due_messages(offsets.get(level, 0), now=now, delay_ms=self._levels[level - 1]):
            messages, next_offset, skipped = due
            for phy_offset, reason in skipped:
                _log.warning("the message at offset %s of the log is not delivered: %s", phy_offset, reason)
            taken, refused = self._log.put_stored(messages)
            offsets[level] = next_offset
            if self._saves:
                self._offsets.save()
            count += sum(messages.num_rows for messages, _ in taken)
            for _, reason in refused:
                _log.warning("a scheduled message is not delivered: %s", reason)
        return count


class DelayOffsets:
    """The queue offset of the next message to deliver, by delay level, from 1 on: `offsets`."""

    def __init__(self, config: Path) -> None:
        """Read the file; if it is missing, empty or damaged its copy `.bak`. Without both nothing was delivered.

        Raises:
            CorruptFileError: One of them exists and none can be read.
        """
        self._path = config / DELAY_OFFSETS.file
        self._others: dict[str, Any] = {}
        self._one_a_line = False
        self._written: dict[int, int] | None = None
        self.offsets: dict[int, int] = {}
        read_table(self._path, self._parse, "a table of delay levels and offsets")

    def _parse(self, path: Path, text: str) -> None:
        table = members_of(text)
        offsets = object_of(table.pop(DELAY_OFFSETS.name, {}))
        self.offsets = {_integer(level): _integer(offset) for level, offset in offsets.items()}
        self._others, self._one_a_line = table, _has_one_per_line(text)
        if path == self._path:
            self._written = dict(self.offsets)

    def save(self) -> None:
        """Write the file if the offsets changed, and keep the old one as `.bak`."""
        if self.offsets != (self._written or {}):
            write_table(self._path, self.text().encode())
            self._written = dict(self.offsets)

    def text(self) -> str:
        """Return the broker's text."""
        gap = "\n\t\t" if self._one_a_line else ""
        offsets = f",{gap}".join(f"{level}:{offset}" for level, offset in sorted(self.offsets.items()))
        members = {name: _dumps(value) for name, value in self._others.items()}
        members[DELAY_OFFSETS.name] = f"{{{gap}{offsets}\n\t}}"
        return "{\n\t" + ",\n\t".join(f'"{name}":{members[name]}' for name in sorted(members)) + "\n}"


def _has_one_per_line(text: str) -> bool:
    """Return whether the table in a file has one line per level."""
    first = text.partition(f'"{DELAY_OFFSETS.name}"')[2].partition("{")[2]
    rest = first.lstrip()
    return "\n" in first[: len(first) - len(rest)] and not rest.startswith("}")


def _integer(value: object) -> int:
    if isinstance(value, str | int) and (number := int(value)) >= 0:
        return number
    raise ValueError(f"expected an integer of 0 or more, found {value!r:.40}")


def _dumps(value: Any) -> str:  # noqa: ANN401 -- what JSON holds
    """Return a value in the text of fastjson, at the first level of a table."""
    return json.dumps(value, indent="\t", separators=(",", ":")).replace("\n", "\n\t")
