"""The master's tables in the files of a copy: topics, groups, and the offsets of consumers and delay levels.

Source: SlaveSynchronize. Topics, groups and delay offsets are written as they come. Offsets of consumers are merged: groups that
the master deleted stay. Each file keeps its last content as `.bak`, as a broker's does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from logdex._core import make_directory, read_file, replace_file, sync_directory
from logdex.rocketmq import fastjson
from logdex.rocketmq.groups import TABLE, parse_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MEMBERS = {
    "topics.json": "topicConfigTable",
    "consumerOffset.json": TABLE,
    "delayOffset.json": TABLE,
    "subscriptionGroup.json": "subscriptionGroupTable",
}

_log = logging.getLogger(__name__)


def write_tables(config: Path, bodies: Mapping[str, bytes]) -> None:
    """Write the master's answers into the files of their names, if they differ. What is no such table only gets a warning.

    Raises:
        OSError: The system refuses.
    """
    changed = False
    for name, body in bodies.items():
        old = _read(config / name)
        content = _merged(old, body) if name == "consumerOffset.json" else body
        if _table(name, content) is None:
            _log.warning("%s: the master sent no such table: %.80r", name, body)
        elif content != old:
            make_directory(config)
            if old is not None:
                replace_file(config / f"{name}.bak", old)
            replace_file(config / name, content)
            changed = True
    if changed:
        sync_directory(config)


def _read(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except FileNotFoundError:
        return None


def _table(name: str, content: bytes | None) -> dict[str, Any] | None:
    """Return the members of a file's content; None if it is no such table."""
    if not content:
        return None
    try:
        members = fastjson.loads(content.decode())
    except ValueError:
        return None
    return members if isinstance(members, dict) and isinstance(members.get(_MEMBERS[name]), dict) else None


def _merged(old: bytes | None, body: bytes) -> bytes:
    """Return the offsets of the master, with those that only the copy has."""
    name = "consumerOffset.json"
    before, members = _table(name, old), _table(name, body)
    if before is None or members is None or before[TABLE].keys() <= members[TABLE].keys():
        return body
    try:
        offsets = {**parse_offsets(before[TABLE]), **parse_offsets(members[TABLE])}
    except (ValueError, AttributeError, TypeError):
        return body
    members[TABLE] = {f"{topic}@{group}": queues for (topic, group), queues in offsets.items()}
    return fastjson.dumps(members).encode(errors="replace")
