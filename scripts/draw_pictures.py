"""Draw the diagrams of the documentation from their descriptions, docs/pictures/*.txt.

    python scripts/draw_pictures.py            # compare; exit 1 if a picture is not that of its description
    python scripts/draw_pictures.py --write    # draw

A description has one thing a line: `title: TEXT`; `row`, which begins a row of boxes; `NAME: HEAD | LINE | LINE`, a box;
`arrow NAME -> NAME: LABEL`, whose label may be missing.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"

_CHARACTER = 7.2
_SMALL_CHARACTER = 6.0
_LINE = 18
_PADDING = 12
_GAP = 76
_EDGE = 20
_INK = "#1f2937"
_FILL = "#eef4fb"
_STROKE = "#4a78a8"

_ARROW = re.compile(r"arrow (\w+) -> (\w+)(?:: (.+))?")


@dataclass
class Box:
    """A box: its lines, the first of them the head; its place is set by the layout."""

    lines: list[str]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels: that of the longest line."""
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        """Height in pixels."""
        return len(self.lines) * _LINE + _PADDING

    @property
    def middle(self) -> tuple[float, float]:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass
class Picture:
    """A diagram: rows of named boxes, and arrows between them."""

    title: str = ""
    rows: list[dict[str, Box]] = field(default_factory=list)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)


def parse(text: str) -> Picture:
    """Return the diagram of a description.

    Raises:
        ValueError: A line is none of the four kinds, or an arrow names a box that does not exist.
    """
    picture = Picture()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line:
            continue
        if arrow := _ARROW.fullmatch(line):
            picture.arrows.append((arrow[1], arrow[2], arrow[3] or ""))
        elif line == "row":
            picture.rows.append({})
        elif line.startswith("title: "):
            picture.title = line.removeprefix("title: ")
        elif picture.rows and ": " in line:
            name, _, content = line.partition(": ")
            picture.rows[-1][name] = Box([part.strip() for part in content.split("|")])
        else:
            raise ValueError(f"line {number}: expected a title, row, box or arrow, found {line!r}")
    names = {name for row in picture.rows for name in row}
    if missing := [name for begin, end, _ in picture.arrows for name in (begin, end) if name not in names]:
        raise ValueError(f"arrow to {missing[0]!r}: there is no such box")
    return picture


def draw(picture: Picture) -> str:
    """Return a diagram as SVG."""
    widths = [sum(box.width for box in row.values()) + _GAP * (len(row) - 1) for row in picture.rows]
    width = max(*widths, len(picture.title) * _CHARACTER) + 2 * _EDGE
    y: float = _EDGE + 2 * _LINE
    for row, row_width in zip(picture.rows, widths, strict=True):
        x = (width - row_width) / 2
        for box in row.values():
            box.x, box.y = x, y
            x += box.width + _GAP
        y += max(box.height for box in row.values()) + _GAP
    height = y - _GAP + _EDGE
    boxes = {name: box for row in picture.rows for name, box in row.items()}
    size = f'width="{width:.0f}" height="{height:.0f}" font-family="monospace" font-size="12" fill="{_INK}"'
    marker = 'id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(picture.title)}" {size}>',
        f'<defs><marker {marker}><path d="M0 0 L10 5 L0 10 z" fill="{_STROKE}"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff" rx="6"/>',
        f'<text x="{width / 2:.0f}" y="{_EDGE + 8}" text-anchor="middle" font-weight="bold">{escape(picture.title)}</text>',
    ]
    for begin, end, label in picture.arrows:
        parts += _arrow(boxes[begin], boxes[end], label)
    for box in boxes.values():
        parts += _box(box)
    return "\n".join([*parts, "</svg>", ""])


def _arrow(begin: Box, end: Box, label: str) -> list[str]:
    if begin.y == end.y:
        (x1, y1), (x2, y2) = (begin.x + begin.width, begin.middle[1]), (end.x, end.middle[1])
    else:
        (x1, y1), (x2, y2) = (begin.middle[0], begin.y + begin.height), (end.middle[0], end.y)
    line = f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{_STROKE}" marker-end="url(#head)"/>'
    if not label:
        return [line]
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    width = len(label) * _SMALL_CHARACTER + 4
    behind = f'<rect x="{x - width / 2:.0f}" y="{y - 8:.0f}" width="{width:.0f}" height="14" fill="#ffffff"/>'
    text = f'<text x="{x:.0f}" y="{y + 3:.0f}" text-anchor="middle" font-size="10">{escape(label)}</text>'
    return [line, behind, text]


def _box(box: Box) -> list[str]:
    x, y = box.middle[0], box.y + _LINE
    texts = [
        f'<text x="{x:.0f}" y="{y + number * _LINE:.0f}" text-anchor="middle"'
        f"{' font-weight=' + chr(34) + 'bold' + chr(34) if number == 0 else ''}>{escape(line)}</text>"
        for number, line in enumerate(box.lines)
    ]
    frame = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
    return [f'<rect {frame} rx="4" fill="{_FILL}" stroke="{_STROKE}"/>', *texts]


def outdated() -> list[Path]:
    """Return the pictures that are not those of their descriptions."""
    return [path for path, svg in _pictures() if not path.exists() or path.read_text(encoding="utf-8") != svg]


def _pictures() -> list[tuple[Path, str]]:
    return [
        (source.with_suffix(".svg"), draw(parse(source.read_text(encoding="utf-8"))))
        for source in sorted(PICTURES.glob("*.txt"))
    ]


def main() -> int:
    """Compare the pictures with their descriptions, or draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw the pictures")
    if parser.parse_args().write:
        for path, svg in _pictures():
            path.write_text(svg, encoding="utf-8")
    stale = outdated()
    for path in stale:
        sys.stderr.write(f"{path}: run python scripts/draw_pictures.py --write\n")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
