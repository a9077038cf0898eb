"""docs/compat.md has a row for every fault, and names tests that exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from logdex.rocketmq import index_service

ROOT = Path(__file__).resolve().parents[3]
COMPAT = (ROOT / "docs" / "compat.md").read_text()
FILES = {
    "golden": "tests/python/rocketmq/test_index_service_golden.py",
    "store": "tests/python/rocketmq/test_store.py",
}


def rows() -> dict[str, list[str]]:
    found = re.findall(r"^\| (B\d+) \|(.*)\|$", COMPAT, re.MULTILINE)
    return {number: [cell.strip() for cell in cells.split("|")] for number, cells in found}


def test_every_fault_has_a_row() -> None:
    assert list(rows()) == [f"B{number}" for number in range(1, 36)]
    words = ("written alike", "answered differently", "not applicable", "alike")
    for number, (_, _, answer, _) in rows().items():
        assert any(word in answer.lower() for word in words), number


@pytest.mark.parametrize("number", rows())
def test_the_tests_that_a_row_names_exist(number: str) -> None:
    cell = rows()[number][3]
    paths = [ROOT / (FILES["golden"] if cell.startswith("golden") else FILES["store"])]
    for part in re.findall(r"(golden|store)?\s*`([^`]*)`", cell):
        label, name = part
        module, _, test = name.partition("::")
        if module:
            # Names of single golden cases are in parentheses.
            if not module.startswith("test_"):
                assert (ROOT / "tests" / "golden" / "rocketmq" / module).is_dir() or list(
                    (ROOT / "tests" / "golden" / "rocketmq").rglob(f"{module}.json*")
                ), name
                continue
            paths = list((ROOT / "tests" / "python").rglob(f"{module}.py"))
        elif label:
            paths = [ROOT / FILES[label]]
        assert any(not test or f"def {test}(" in path.read_text() for path in paths), name


def test_the_example_of_the_class_runs() -> None:
    finder = doctest.DocTestFinder(recurse=False)
    examples = [test for test in finder.find(index_service.IndexService, "IndexService") if test.examples]
    assert examples
    for example in examples:
        assert doctest.DocTestRunner().run(example).failed == 0
