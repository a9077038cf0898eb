"""The configuration of a broker: its tables in the directory `config`, how far groups have read, and the names of its own topics.

Each table is a file in fastjson's JSON, with its previous content as `.bak`. A broker reads the copy if the file is missing,
empty or damaged. It deletes the old file before it renames the new one; here the new one replaces the old one.
Source: ConfigManager, MixAll#string2File, ConsumerOffsetManager, LmqConsumerOffsetManager, TopicValidator.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logdex._core import make_directory, read_file, replace_file, sync_directory
from logdex.errors import CorruptFileError
from logdex.rocketmq import fastjson
from logdex.source import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex._core import Queues


_T = TypeVar("_T")
_log = logging.getLogger(__name__)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Messages that wait for their delay."""
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Messages of open transactions, and the numbers of those that ended."""
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Messages whose transaction no producer ended."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
AUTO_CREATE_TOPIC = "TBW102"
"""The topic whose settings a topic gets that a producer creates."""
SYSTEM_TOPICS = (
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    TRACE_TOPIC,
    OP_TOPIC,
    "BenchmarkTest",
    GIVEN_UP_TOPIC,
    "OFFSET_MOVED_EVENT",
    AUTO_CREATE_TOPIC,
    "SELF_TEST_TOPIC",
)
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
"""Topics of the messages that a group gave back, and of those that it could not consume."""


class ConfigName(NamedTuple):
    """A table of the configuration."""

    file: str
    name: str
    """The member of the file that has the entries."""


TOPICS = ConfigName("topics.json", "topicConfigTable")
GROUPS = ConfigName("subscriptionGroup.json", "subscriptionGroupTable")
DELAY_OFFSETS = ConfigName("delayOffset.json", "offsetTable")
OFFSETS = ConfigName("consumerOffset.json", "offsetTable")
LIGHT_OFFSETS = ConfigName("lmqConsumerOffset.json", "offsetTable")
"""The file of a broker with light message queues, which it writes instead of `consumerOffset.json`."""
_LIGHT_TABLE = "lmqOffsetTable"
"""Offsets in light message queues: each has one queue, 0, and its entry is a number."""


def backup_of(path: Path) -> Path:
    """Return the path of a file's copy."""
    return path.with_name(f"{path.name}.bak")


def read_table(path: Path, parse: Callable[[Path, str], _T], expected: str) -> _T | None:
    """Read a file, or its copy if the file is missing, empty or damaged; return None if neither exists.

    Raises:
        CorruptFileError: One of them exists and `parse` raises ValueError for both.
        OSError: An I/O error.
    """
    damage: CorruptFileError | None = None
    for place in (path, backup_of(path)):
        try:
            return parse(place, read_file(place).decode())
        except FileNotFoundError:
            continue
        except ValueError as error:
            damage = damage or CorruptFileError(str(place), 0, expected, str(error))
    if damage is not None:
        raise damage
    return None


def members_of(text: str) -> dict[str, Any]:
    """Return the members of a file.

    Raises:
        ValueError: The text is not an object in fastjson's JSON.
    """
    return object_of(fastjson.loads(text))


def object_of(value: object) -> dict[str, Any]:
    """Return a value that is an object in JSON.

    Raises:
        ValueError: It is not.
    """
    if isinstance(value, dict):
        return value
    raise ValueError(f"{value!r:.40} instead of an object")


def read_members(path: Path) -> dict[str, Any]:
    """Return the members of a file or of its copy; empty if neither exists.

    Raises:
        CorruptFileError: One of them exists and neither can be read.
        OSError: An I/O error.
    """
    return read_table(path, lambda _, text: members_of(text), "a configuration of the broker") or {}


def readable_members(path: Path) -> dict[str, Any]:
    """Return the members of a file or of its copy; empty if neither can be read. A damaged file gets a warning."""
    for place in (path, backup_of(path)):
        try:
            found = fastjson.loads(read_file(place).decode())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            _log.warning("%s: not used: %s", place, error)
            continue
        if isinstance(found, dict) and found:
            return found
    return {}


def write_table(path: Path, content: bytes) -> None:
    """Write a file, and keep the old one as its copy.

    Raises:
        OSError: An I/O error; the old file is still there.
    """
    make_directory(path.parent)
    if path.exists():
        replace_file(backup_of(path), read_file(path))
    replace_file(path, content)
    sync_directory(path.parent)


def parse_offsets(table: object) -> dict[tuple[str, str], dict[int, int]]:
    """Return the offsets of a table by topic and group, and by queue.

    Raises:
        ValueError: The value is not a consumer offset table.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, queues in object_of(table).items():
        topic, _, group = key.partition("@")
        by_queue = queues if isinstance(queues, dict) else {0: queues}
        try:
            found[topic, group] = {int(queue_id): int(offset) for queue_id, offset in by_queue.items()}
        except (ValueError, TypeError):
            raise ValueError(f"entry {key:.80}: expected offsets by queue, found {queues!r:.40}") from None
    return found


def group_offsets(config: Path, queues: Queues, group: str | None) -> list[GroupOffset]:
    """Return how far each group has read, or one of them, sorted; an offset in a queue without files has no end."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for table in (OFFSETS, LIGHT_OFFSETS):
        offsets = read_table(config / table.file, _parse_groups, "the offsets of consumer groups")
        found = (offsets or {}) | found
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


def _parse_groups(_: Path, text: str) -> dict[tuple[str, str], dict[int, int]]:
    members = members_of(text)
    return parse_offsets(members.get(_LIGHT_TABLE) or {}) | parse_offsets(members.get(OFFSETS.name) or {})
