"""Run some commands on a real broker's store and draw their output as screens, for docs/screens.md and README.md.

    python scripts/draw_screens.py            # compare; exit 1 if a screen shows another output
    python scripts/draw_screens.py --write    # draw; with matplotlib also the charts of `stats`

The store is that of examples/store. A screen is the output of a command; long lines are wrapped.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

from document_shell import run_shell

HOME = Path(__file__).resolve().parents[1]
SCREENS = HOME / "docs" / "screens"
PICTURE = SCREENS / "stats.png"
STORE = HOME / "examples" / "store" / "store.tar.xz"

_BREAK = """\
cp -r store broken
printf '\\140' | dd of=broken/commitlog/00000000000000065536 bs=1 seek=33198 conv=notrunc status=none"""
"""Damages a byte of a message's body."""


@dataclass(frozen=True)
class Screen:
    """The commands, and the set-up before them."""

    commands: tuple[str, ...]
    before: str = ""


COMMANDS = {
    "info": Screen(("logdex info store | head -17",)),
    "find": Screen(
        ("logdex find store AaTopic BB --max 2 --body", "logdex find store '*' 7F00000102E64E0E2F2A6B2E6D810000")
    ),
    "explain": Screen(("logdex explain store AaTopic tx-unknow",)),
    "verify": Screen(("logdex verify store", "logdex verify broken"), _BREAK),
    "stats": Screen(("logdex stats store | head -24",)),
}

_COLUMNS = 150
_FONT = 13
_CHARACTER = 7.8
_LINE = 18
_EDGE = 18
_BAR = 30

# Attributes rather than a style sheet: every viewer knows them.
_TEXT = f"""font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace' font-size="{_FONT}" """
_LOOKS = {
    "prompt": 'fill="#7fc97f" font-weight="bold"',
    "typed": 'fill="#ffffff" font-weight="bold"',
    "word": 'fill="#f2c14e" font-weight="bold"',
    "bar": 'fill="#6ea8fe"',
}

# Causes and kinds of findings, ours and theirs; bars of a picture.
_MARKED = re.compile(
    r"(?P<word>(?<=^  )[a-z]+(?:-[a-z]+)+(?=:)|\b(?:log-frame|prev-index|index-entry|queue-\w+)\b)|(?P<bar>#{2,})"
)


def run(screen: Screen) -> list[tuple[str, list[str]]]:
    """Run the commands of a screen; give each with the lines that it prints.

    Raises:
        subprocess.CalledProcessError: A command failed.
    """
    with tempfile.TemporaryDirectory(prefix="logdex-screen-") as folder:
        directory = Path(folder)
        shell = partial(run_shell, directory=directory, columns=_COLUMNS)
        shell(f"tar -xf '{STORE}'")
        shell(screen.before)
        return [(command, shell(command).splitlines()) for command in screen.commands]


def draw(printed: list[tuple[str, list[str]]]) -> str:
    """Draw commands and what they print as a terminal, in SVG."""
    longest = max(len(line) for command, lines in printed for line in (f"$ {command}", *lines))
    columns = min(_COLUMNS, longest)
    rows: list[tuple[str, int]] = []
    for command, lines in printed:
        if rows:
            rows.append(("", 0))
        rows.append((f"{_look('prompt', '$')} {_look('typed', command)}", len(command) + 2))
        rows += [(_marked(part), len(part)) for line in lines for part in _broken(line)]
    width = round(columns * _CHARACTER + 2 * _EDGE)
    height = _BAR + len(rows) * _LINE + _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2026"/>',
        *(
            f'<circle cx="{_EDGE + 18 * at}" cy="16" r="5" fill="{colour}"/>'
            for at, colour in enumerate(("#e0655c", "#e3b34b", "#6cbf63"))
        ),
        f'<g {_TEXT}fill="#d4d7dd">',
        *(
            f'<text x="{_EDGE}" y="{_BAR + _LINE * (at + 1) - 5}" textLength="{length * _CHARACTER:.0f}" '
            f'xml:space="preserve">{row}</text>'
            for at, (row, length) in enumerate(rows)
            if row
        ),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _look(kind: str, text: str) -> str:
    """Colour words by their kind."""
    return f"<tspan {_LOOKS[kind]}>{escape(text)}</tspan>"


def _broken(line: str) -> list[str]:
    """Wrap a long line."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, drop_whitespace=False) or [""]


def _marked(line: str) -> str:
    """Colour the words to look for."""
    parts = []
    end = 0
    for found in _MARKED.finditer(line):
        parts += [escape(line[end : found.start()]), _look(found.lastgroup or "", found.group())]
        end = found.end()
    return "".join([*parts, escape(line[end:])])


def stale(folder: Path = SCREENS) -> list[str]:
    """Return the names of the screens that show another output than the commands print."""
    files = {name: folder / f"{name}.svg" for name in COMMANDS}
    return [
        name
        for name, file in files.items()
        if not file.exists() or file.read_text(encoding="utf-8") != draw(run(COMMANDS[name]))
    ]


def write(folder: Path = SCREENS) -> None:
    """Draw all screens, and with matplotlib the charts of `stats`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, screen in COMMANDS.items():
        (folder / f"{name}.svg").write_text(draw(run(screen)), encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        sys.stderr.write(f"{PICTURE.name} is not drawn: it needs matplotlib\n")
        return
    run(Screen((f"logdex stats store --plot '{folder / PICTURE.name}'",)))


def main() -> int:
    """Compare, or draw."""
    parser = argparse.ArgumentParser(description="Draw what some commands print.")
    parser.add_argument("--write", action="store_true", help="draw the screens")
    if parser.parse_args().write:
        write()
        return 0
    names = stale()
    for name in names:
        sys.stderr.write(f"docs/screens/{name}.svg shows another output; `make guides` draws it\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
