"""What a message says of its place, beside what the unit of a queue says that leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex.rocketmq.commit_log import CommitLog

FACTS = ("topic", "queue_id", "queue_offset", "phy_offset")
"""Columns of a message that must be as its unit says."""


def facts_of(messages: Any, names: Sequence[str] = FACTS) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 -- arro3's or pyarrow's
    """Give these columns of a batch row by row."""
    return zip(*(messages.column(name).to_pylist() for name in names), strict=True)


def facts_at(log: CommitLog, phy_offset: int, names: Sequence[str] = FACTS) -> tuple[Any, ...]:
    """Read these columns of the message at an offset; all None where none begins."""
    return next(facts_of(log.messages([phy_offset], columns=names), names))
