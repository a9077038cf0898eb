"""The README, the quick start and the guides have no long sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[3]
PAGES = [
    HOME / "README.md",
    HOME / "docs" / "index.md",
    HOME / "docs" / "install.md",
    HOME / "docs" / "quickstart.md",
    HOME / "docs" / "concepts.md",
    HOME / "docs" / "kafka.md",
    HOME / "docs" / "spark.md",
    *sorted((HOME / "docs" / "guides").glob("*.md")),
]
MOST_WORDS = 30

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")


def sentences(page: str) -> list[str]:
    """Return the sentences of a Markdown page; headings, table cells and code blocks are none, code in a line is one word."""
    text = _LINK.sub(r"\1", _CODE.sub("code", _FENCE.sub("\n\n", page)))
    lines = [line.strip() for line in text.splitlines()]
    prose = [re.sub(r"^([-*]|\d+\.) ", "", line) for line in lines if line and line[0] not in "|#<"]
    return [sentence for line in prose for sentence in re.split(r"(?<=[.?!])\s", line)]


def test_sentences_are_found() -> None:
    page = "# Head\n\nOne `a b c`. Two [three](x.md): four\n\n```sh\nlong code\n```\n\n| a | b |\n"
    assert sentences(page) == ["One code.", "Two three: four"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_sentence_is_long(page: Path) -> None:
    found = sentences(page.read_text(encoding="utf-8"))
    assert found
    assert [sentence for sentence in found if len(sentence.split()) > MOST_WORDS] == []
