"""The screens of docs/screens show what the commands print."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

HOME = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_screens", HOME / "scripts" / "draw_screens.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


screens: Any = _load()


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
