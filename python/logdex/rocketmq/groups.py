"""How far consumer groups have read, as the tables of the broker tell.

Source: ConsumerOffsetManager, LmqConsumerOffsetManager. A broker writes its table every 5 s and when it stops; one with light
message queues writes `lmqConsumerOffset.json` instead of `consumerOffset.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex._core import read_file
from logdex.errors import CorruptFileError
from logdex.groups import GroupOffset
from logdex.rocketmq import fastjson

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.rocketmq.queues import QueueSet

TABLE = "offsetTable"
_LIGHT_TABLE = "lmqOffsetTable"
"""Offsets in light message queues: each has one queue, 0, and its entry is a number."""
_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


def parse_offsets(table: dict[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """Return the offsets of a table by topic and group, and by queue.

    Raises:
        ValueError, AttributeError, TypeError: It is no such table.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, queues in table.items():
        topic, _, group = key.partition("@")
        by_queue = queues if isinstance(queues, dict) else {0: queues}
        found[topic, group] = {int(queue_id): int(offset) for queue_id, offset in by_queue.items()}
    return found


def group_offsets(config: Path, queues: QueueSet, group: str | None) -> list[GroupOffset]:
    """Return how far each group has read, or one of them, sorted; the offset in a queue that is not here has no end."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for name in _FILES:
        found = _offsets(config / name) | found
    own = {key: offsets for key, offsets in found.items() if group in (None, key[1])}
    ends = {
        (topic, queue_id): queues.open(paths[-1]).max_offset
        for (topic, queue_id), paths in queues.directories({topic for topic, _ in own}).items()
    }
    return sorted(
        GroupOffset(name, topic, queue_id, offset, ends.get((topic, queue_id)))
        for (topic, name), offsets in own.items()
        for queue_id, offset in offsets.items()
    )


def _offsets(path: Path) -> dict[tuple[str, str], dict[int, int]]:
    """Read one of the files, or its copy `.bak` if it is missing, empty or damaged, as a broker does; without both nothing."""
    damage: CorruptFileError | None = None
    for place in (path, path.with_name(f"{path.name}.bak")):
        try:
            tables = fastjson.loads(read_file(place).decode())
            return parse_offsets(tables.get(_LIGHT_TABLE) or {}) | parse_offsets(tables.get(TABLE) or {})
        except FileNotFoundError:
            continue
        except (ValueError, AttributeError, TypeError) as error:
            damage = damage or CorruptFileError(str(place), 0, "the offsets of consumer groups", repr(error))
    if damage is not None:
        raise damage
    return {}
