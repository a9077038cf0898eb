"""The offsets that consumer groups committed, from the records of `__consumer_offsets`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex._core import GroupOffsets
from logdex.source import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logdex.kafka.log import Log

OFFSETS_TOPIC = "__consumer_offsets"

_log = logging.getLogger(__name__)


def group_offsets(logs: Iterable[Log], ends: dict[tuple[str, int], int], group: str | None) -> list[GroupOffset]:
    """Read the partitions of `__consumer_offsets`; a transaction that was aborted or is open commits nothing."""
    committed = GroupOffsets()
    for log in logs:
        unknown = 0
        for batch in log.records(columns=["key", "value"], isolation="read_committed"):
            unknown += committed.add(batch)
        if unknown:
            _log.warning("%s: %d records have a form that is not known, and are not counted", log.path, unknown)
    return [
        GroupOffset(name, topic, partition, offset, ends.get((topic, partition)), timestamp)
        for name, topic, partition, offset, timestamp in committed.rows()
        if group in (None, name)
    ]
