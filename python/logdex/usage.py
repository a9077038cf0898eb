"""Messages and bytes of a log, by topic, queue and day."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

By: TypeAlias = Literal["topic", "queue", "day"]

_DAY_MS = 86_400_000


class Usage(NamedTuple):
    """Number and bytes of the messages of a topic, of one of its queues, or of a day in UTC."""

    topic: str | None
    queue_id: int | None
    day: date | None
    messages: int
    log_bytes: int


def check_by(by: str) -> None:
    """Raise `ValueError` if the argument is not one of the words of `By`."""
    if by not in get_args(By):
        raise ValueError(f"by={by!r}: expected one of {', '.join(get_args(By))}")


def days(
    begin: int, end: int, time_at: Callable[[int], int | None], offset_at: Callable[[int], int | None]
) -> Iterator[tuple[date | None, int, int]]:
    """Cut a range of offsets at the midnights between its messages.

    `time_at` returns the time in ms of the message at an offset; `offset_at` the offset of the first message at a time or
    later. After a message without a time the rest has no day.
    """
    while begin < end:
        time = time_at(begin)
        if time is None:
            yield None, begin, end
            return
        number = time // _DAY_MS
        following = offset_at((number + 1) * _DAY_MS)
        # The loop must also advance if the clock was set back.
        until = end if following is None else min(end, max(following, begin + 1))
        yield datetime.fromtimestamp(number * 86_400, timezone.utc).date(), begin, until
        begin = until


def grouped(parts: Iterable[Usage], by: By) -> list[Usage]:
    """Add up parts by topic, by topic and queue, or by day; sorted."""
    sums: dict[tuple[str | None, int | None, date | None], tuple[int, int]] = {}
    for part in parts:
        key = {
            "topic": (part.topic, None, None),
            "queue": (part.topic, part.queue_id, None),
            "day": (None, None, part.day),
        }[by]
        messages, log_bytes = sums.get(key, (0, 0))
        sums[key] = messages + part.messages, log_bytes + part.log_bytes
    return [Usage(*key, *sums[key]) for key in sorted(sums, key=lambda key: tuple(map(_sortable, key)))]


def _sortable(value: object) -> tuple[bool, object]:
    return value is None, value
