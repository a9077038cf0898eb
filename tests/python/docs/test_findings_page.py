"""docs/findings.md lists the kinds of findings and the causes, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logdex._core import finding_kinds
from logdex.report import MEANINGS, SEVERITIES, Finding
from logdex.rocketmq.explain import CAUSES

HOME = Path(__file__).resolve().parents[3]
PAGE = (HOME / "docs" / "findings.md").read_text(encoding="utf-8")


def test_the_kinds_are_those_of_the_page() -> None:
    sections = PAGE.split("\n## ")[1:]
    tables = "\n".join(section for section in sections if not section.startswith("Causes"))
    assert sorted(set(re.findall(r"^\| `([a-z-]+)` \|", tables, re.MULTILINE))) == finding_kinds()


def test_a_finding_has_a_kind_of_the_page() -> None:
    with pytest.raises(ValueError, match="unknown-kind"):
        Finding("f", 0, "unknown-kind", "", "")


def test_each_kind_has_the_severity_of_the_page() -> None:
    section = PAGE.split("## How bad a finding is")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", section, re.MULTILINE)[1:]
    assert {severity: meaning for severity, meaning, _ in rows} == MEANINGS
    listed = [(kind, severity) for severity, _, kinds in rows for kind in re.findall(r"`([a-z-]+)`", kinds)]
    assert sorted(kind for kind, _ in listed) == finding_kinds()
    assert dict(listed) == SEVERITIES
    assert Finding("f", 0, "log-frame", "", "").severity == "lost"


def test_the_causes_are_those_of_the_page() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", PAGE.split("## Causes")[1].split("\n## ")[0], re.MULTILINE)
    assert dict(listed) == CAUSES


def test_no_cell_of_the_tables_about_missing_data_is_silent() -> None:
    sections = [part for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE) if "says about missing data" in part[:60]]
    assert len(sections) == 3
    for section in sections:
        rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
        assert len(rows) >= 5
        assert {len(row) for row in rows} == {len(rows[0])}
        assert all(cell.strip() for row in rows for cell in row)
