"""The guides run as they stand, and print what they show."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import run_guides

if TYPE_CHECKING:
    from pathlib import Path


def test_there_is_a_guide_for_every_job() -> None:
    assert {guide.stem for guide in run_guides.GUIDES} >= {
        "find",
        "build",
        "read",
        "check-and-repair",
        "ask-why",
        "write",
        "serve",
        "replicate",
        "lakes",
    }


@pytest.mark.parametrize("guide", run_guides.GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_prints_what_it_shows(guide: Path, tmp_path: Path) -> None:
    _, differences = run_guides.run_guide(guide, tmp_path)
    assert not [(difference.code, difference.shown, difference.printed) for difference in differences]
    assert "```sh" in guide.read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "build")
