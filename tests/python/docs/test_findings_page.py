"""docs/findings.md lists every kind of finding and every cause that the sources know, and no other cause."""

from __future__ import annotations

import re
from pathlib import Path

from logdex.rocketmq.explanation import CAUSES

HOME = Path(__file__).resolve().parents[3]
PAGE = (HOME / "docs" / "findings.md").read_text(encoding="utf-8")
_KIND = re.compile(r'"((?:file|log|queue|index|entry|slot|header|time|begin|end|prev|not)-[a-z-]+)"')
# Words of that shape which are no kinds: causes, and what a salvaging scan says of a message.
_NO_KINDS = {*CAUSES, "time-back"}


def test_every_kind_is_listed() -> None:
    kinds: set[str] = set()
    for path in [
        *(HOME / "python/logdex/rocketmq").glob("*_check.py"),
        *(HOME / "python/logdex/hash_index").glob("*.py"),
    ]:
        kinds |= set(_KIND.findall(path.read_text(encoding="utf-8")))
    for path in (HOME / "src" / "rocketmq").rglob("*.rs"):
        text = path.read_text(encoding="utf-8")
        kinds |= set(re.findall(r'\.find\([^;]*?"([a-z]+-[a-z-]+)"', text))
    kinds -= _NO_KINDS
    assert len(kinds) > 10
    assert {kind for kind in kinds if f"`{kind}`" not in PAGE} == set()


def test_the_causes_are_those_of_the_page() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", PAGE.split("## Causes")[1].split("\n## ")[0], re.MULTILINE)
    assert dict(listed) == CAUSES
