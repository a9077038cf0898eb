"""Scanning a log that may be damaged: everything that is a message, and nothing that only looks like one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex.arrow import take_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arro3.core import RecordBatch

    from logdex._types import Body
    from logdex.report import Finding
    from logdex.rocketmq.commit_log import CommitLog

_log = logging.getLogger(__name__)

_CUT_OFF = "cut-off"
_SUSPECT = "suspect"
_OFFSET = "phy_offset"


def warn(finding: Finding) -> None:
    """Log a finding."""
    _log.warning("%s at byte %d: expected %s, found %s", finding.path, finding.offset, finding.expected, finding.found)


def is_ghost(suspect: str | None) -> bool:
    """Say whether what a salvaging scan says of a message means that a broker cut it off before.

    A message behind damage is as good as any.
    """
    return suspect is not None and _CUT_OFF in suspect


def sound_messages(
    log: CommitLog,
    columns: Sequence[str],
    begin: int,
    end: int | None,
    *,
    salvage: bool,
    body: Body = "decoded",
    on_damage: Callable[[Finding], None] = warn,
    led_to: int = -1,
) -> Iterator[RecordBatch]:
    """Scan a range of a log.

    Args:
        log: The log.
        columns: What to read.
        begin: No message begins before it.
        end: No message begins at or after it; None: the end.
        salvage: Go on behind damage, without what was cut off before.
        body: "decoded" or "stored", as for `CommitLog.scan`.
        on_damage: Called at the end for each place that is no good message; logs it where not given.
        led_to: Up to here queues lead. What begins before it is given, too, if it only looks as if it had been cut off; `columns`
            have `phy_offset` then.
    """
    if end is not None and begin >= end:
        return
    stop = "salvage" if salvage else "broker"
    reader = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=columns, stop=stop, body=body)  # type: ignore[arg-type]
    for batch in reader:
        if salvage:
            suspect = batch.column(_SUSPECT)
            # Nearly always nothing is suspect; to ask each row would take longer than to read it.
            suspects = list(suspect.to_pylist()) if suspect.null_count < batch.num_rows else []
            kept = batch.select(list(columns))
            if any(map(is_ghost, suspects)):
                rows = [row for row, suspect in enumerate(suspects) if not is_ghost(suspect)]
                if led_to >= 0:
                    offsets = kept.column(_OFFSET).to_pylist()
                    rows = sorted({*rows, *(row for row, offset in enumerate(offsets) if offset < led_to)})
                kept = take_rows(kept, rows)
        else:
            kept = batch
        if kept.num_rows:
            yield kept
    for finding in reader.report.findings if salvage else ():
        on_damage(finding)
