"""The offsets that consumer groups committed, from the records of `__consumer_offsets`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex._core import GroupOffsets, read_records, transactions_before
from logdex.source import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from logdex.kafka.log import Log
    from logdex.report import Finding

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


def group_offsets_at(
    logs: Iterable[Log], others: Mapping[tuple[str, int], Log], as_of: int, group: str | None
) -> list[GroupOffset]:
    """Read the partitions of `__consumer_offsets`, and the ends of the others, as they were at a moment."""
    rows: list[tuple[str, str, int, int, int]] = []
    for log in logs:
        committed, findings = read_groups(log, as_of)
        for finding in findings:
            _log.warning("%s", finding)
        rows += (row for row in committed.rows() if group in (None, row[0]))
    ends: dict[tuple[str, int], int] = {}
    for place in {(topic, partition) for _, topic, partition, *_ in rows} & others.keys():
        later = others[place].offset_for_timestamp(as_of + 1, special=False)
        ends[place] = others[place].log_end_offset if later is None else later.offset
    return [
        GroupOffset(name, topic, partition, offset, ends.get((topic, partition)), timestamp)
        for name, topic, partition, offset, timestamp in sorted(rows)
    ]


def read_groups(log: Log, as_of: int | None) -> tuple[GroupOffsets, list[Finding]]:
    """Read a partition of `__consumer_offsets` up to a moment, without the transactions that were open then; and its damage."""
    plan = list(log.parts())
    cut, aborted, still_open, _ = transactions_before(plan, as_of)
    omitted = [*aborted, *(place for place, _ in still_open)]
    # Their timestamps are the broker's, so nothing before the cut is later than the moment.
    ends = log.log_end_offset if cut is None else cut
    parts = [part if not isinstance(part, tuple) else (*part[:2], min(part[2] or ends, ends), omitted) for part in plan]
    stream = read_records(parts, columns=["key", "value"], on_error="skip", warn=False)
    committed = GroupOffsets()
    unknown = sum(committed.add(batch) for batch in stream)
    if unknown:
        _log.warning("%s: %d records have a form that is not known, and are not restored", log.path, unknown)
    return committed, stream.damage
