"""Equal spans of time for a picture, with lengths that a person would choose."""

from __future__ import annotations

from dataclasses import dataclass

from logdex._core import time_text

_MOST = 60
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_WORDS = (
    (100, "100 ms"),
    (_SECOND, "second"),
    (10 * _SECOND, "10 seconds"),
    (_MINUTE, "minute"),
    (10 * _MINUTE, "10 minutes"),
    (_HOUR, "hour"),
    (6 * _HOUR, "6 hours"),
    (_DAY, "day"),
    (7 * _DAY, "week"),
    (30 * _DAY, "30 days"),
    (360 * _DAY, "360 days"),
)


@dataclass(frozen=True, slots=True)
class Spans:
    """`number` spans of `length` ms from `begin` on; `word` is the length of one in words."""

    begin: int
    length: int
    number: int
    word: str

    def begins(self) -> list[int]:
        """Return where each span begins, in ms."""
        return [self.begin + at * self.length for at in range(self.number)]

    def titles(self) -> list[str]:
        """Return the start of each span as text."""
        return [(time_text(begin) or "").replace(".000Z", "Z") for begin in self.begins()]

    def ticks(self) -> list[str]:
        """Return the words below the first, a middle and the last span."""
        titles = self.titles()
        return [titles[at] for at in sorted({0, self.number // 2, self.number - 1})]


def spans_of(first: int, last: int) -> Spans | None:
    """Return spans that hold two times in ms; None if the spans would be too long."""
    for length, word in _WORDS:
        begin = first // length * length
        number = (last - begin) // length + 1
        if number <= _MOST:
            return Spans(begin, length, max(number, 1), word)
    return None
