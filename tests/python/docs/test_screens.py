"""The screens of docs/screens show what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import draw_screens as screens
import pytest

HOME = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", screens.COMMANDS)
def test_a_screen_shows_what_is_printed(name: str) -> None:
    drawn = screens.draw(screens.run(screens.COMMANDS[name]))
    assert drawn == (screens.SCREENS / f"{name}.svg").read_text(encoding="utf-8"), "`make guides` draws it anew"


def test_every_screen_is_shown() -> None:
    page = (HOME / "docs" / "screens.md").read_text(encoding="utf-8")
    assert (
        set(re.findall(r"screens/(\w+)\.svg", page))
        == set(screens.COMMANDS)
        == {"info", "find", "explain", "verify", "stats"}
    )
    assert "screens/stats.png" in page


def test_a_screen_holds_all_that_was_printed() -> None:
    drawn = screens.draw([("echo '<&>'", ["<&>", "x" * 400])])
    assert "&lt;&amp;&gt;" in drawn
    assert drawn.count("x" * 10) * 10 >= 390
