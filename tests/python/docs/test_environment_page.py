"""docs/reference/environment.md names each variable that the code reads; the help names each command that changes a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from logdex.cli import main

if TYPE_CHECKING:
    import pytest

HOME = Path(__file__).resolve().parents[3]
PAGE = (HOME / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
_LINE = re.compile(r"environ\b|env::var|configured!\(")
_NAME = re.compile(r'"([A-Z][A-Z0-9]+_?[A-Z0-9_]*)"')
_NOT_READ = {"PYTHONHOME"}
"""Variables that the code only removes from the environment of a child process."""


def _read_in(folder: str, suffix: str) -> set[str]:
    lines = (line for path in (HOME / folder).rglob(f"*{suffix}") for line in path.read_text("utf-8").splitlines())
    return {name for line in lines if _LINE.search(line) for name in _NAME.findall(line)} - _NOT_READ


def test_the_page_names_each_variable_that_the_code_reads() -> None:
    python, rust = _read_in("python/logdex", ".py"), _read_in("src", ".rs")
    assert {"NO_COLOR", "TERM", "DISPLAY", "SPARK_LOCAL_DIRS"} <= python
    assert rust == {"AWS_", "GOOGLE_", "AZURE_"}
    named = set(re.findall(r"`([A-Z][A-Z0-9_]+)\*?`", PAGE))
    assert not (python | rust) - named


def test_the_help_names_the_commands_that_change_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Three commands change a store: `recover` repairs it, `seal` adds an index" in text
    assert "`serve --write` takes messages" in text
