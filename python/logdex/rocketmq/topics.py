"""The topics of a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from logdex.rocketmq.sound import sound_messages

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.rocketmq.commit_log import CommitLog

_TABLE = "topicConfigTable"


def topics_in_log(log: CommitLog, *, salvage: bool) -> list[str]:
    """Give the topics of the messages of a log, sorted; linear.

    Args:
        log: The log.
        salvage: Go on behind damage; otherwise end where a broker's walk would.
    """
    topics: set[str] = set()
    for batch in sound_messages(log, ("topic",), log.min_offset, None, salvage=salvage):
        topics.update(batch.column("topic").to_pylist())
    return sorted(topics)


def configured_topics(config: Path) -> list[str]:
    """Give the topics of the broker's own table (topics.json); none where it is missing or damaged."""
    try:
        table = json.loads((config / "topics.json").read_text(encoding="utf-8")).get(_TABLE, {})
    except (OSError, ValueError, AttributeError, RecursionError):
        return []
    return list(table) if isinstance(table, dict) else []
