"""Pictures as SVG, made here: bars over time, shares, histograms, and strips that map a range of bytes.

A picture has shapes only. Words are next to it as HTML, so they keep their size on a narrow screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from logdex._core import time_text
from logdex.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


_WIDTH = 960
_HEIGHT = 160
COLOURS = 8
"""Classes `c0` to `c7` of the style sheet."""


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one colour of bars; `colour` is one of `COLOURS`."""

    name: str
    values: Sequence[float]
    colour: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its words: the title, the ends of its axes, and its colours."""

    svg: Markup
    label: str
    most: str
    ticks: Sequence[str]
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a strip: a range, the class of its colour, and its name."""

    begin: float
    end: float
    kind: str
    title: str


def bars(series: Sequence[Series], ticks: Sequence[str], label: str, titles: Sequence[str]) -> Chart:
    """Return bars, one place a title, with the series upon each other."""
    places = len(titles)
    sums = [sum(each.values[at] for each in series) for at in range(places)]
    most = max(sums, default=0)
    width = _WIDTH / max(places, 1)
    shapes = []
    for at, title in enumerate(titles):
        bottom = float(_HEIGHT)
        for each in series:
            height = _HEIGHT * each.values[at] / most if most else 0
            if not height:
                continue
            # A bar of one message among millions is still seen.
            height = max(height, 1.0)
            bottom -= height
            text = f"{title}: {each.values[at]:,.0f} {each.name}"
            shapes.append(_rectangle(at * width + width * 0.08, bottom, width * 0.84, height, f"c{each.colour}", text))
    return Chart(_svg(shapes, label, _WIDTH, _HEIGHT, "bars"), label, f"{most:,.0f}", ticks, series)


def histogram(counts: Sequence[tuple[int, float, float]], label: str) -> Chart:
    """Return bars of (place, count, expected count), with a mark at each expected count."""
    most = max((max(count, expected) for _, count, expected in counts), default=0)
    width = _WIDTH / max(len(counts), 1)
    shapes = []
    for at, (place, count, expected) in enumerate(counts):
        height = max(_HEIGHT * count / most, 1.0) if most and count else 0
        if height:
            text = f"{place}: {count:,.0f}"
            shapes.append(_rectangle(at * width + width * 0.1, _HEIGHT - height, width * 0.8, height, "c0", text))
        if most and expected:
            top = _HEIGHT - _HEIGHT * expected / most
            text = f"{place}: {expected:,.0f} expected"
            shapes.append(_rectangle(at * width, top - 1.5, width, 3, "mark", text))
    ticks = [f"{counts[at][0]:,}" for at in sorted({0, len(counts) // 2, len(counts) - 1})] if counts else []
    return Chart(_svg(shapes, label, _WIDTH, _HEIGHT, "bars"), label, f"{most:,.0f}", ticks, ())


def strip(lanes: Sequence[tuple[str, Sequence[Piece]]], begin: float, end: float, label: str) -> Markup:
    """Return lanes over a range of bytes, each with its coloured pieces."""
    height, gap = 22, 6
    scale = _WIDTH / max(end - begin, 1)
    shapes = []
    for number, (_, pieces) in enumerate(lanes):
        top = number * (height + gap)
        for piece in pieces:
            low = (max(piece.begin, begin) - begin) * scale
            # Damage of a few bytes in a file of a gigabyte is still seen.
            width = max((min(piece.end, end) - max(piece.begin, begin)) * scale, 3.0)
            shapes.append(_rectangle(min(low, _WIDTH - width), top, width, height, piece.kind, piece.title))
    return _svg(shapes, label, _WIDTH, len(lanes) * (height + gap) - gap, "strip")


def share(part: float, colour: str = "c0") -> Markup:
    """Return a bar for a cell of a table; `part` is from 0 to 1. The number is next to it."""
    bar = _rectangle(0, 0, max(100 * part, 0.5 if part else 0), 10, colour, None)
    return Markup(
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(bar)


def _rectangle(x: float, y: float, width: float, height: float, kind: str, title: str | None) -> Markup:  # noqa: PLR0917
    told = Markup() if title is None else Markup("<title>{}</title>").format(printable(title))
    shape = '<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="{}">{}</rect>'
    return Markup(shape).format(x, y, width, height, kind, told)  # noqa: S704 -- a constant


def _svg(shapes: Sequence[Markup], label: str, width: float, height: float, kind: str) -> Markup:
    head = '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    return Markup(head).format(kind, width, height, printable(label), Markup().join(shapes))  # noqa: S704 -- a constant


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
