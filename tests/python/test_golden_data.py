"""The golden data is whole: what the cases say about their own files holds for the unpacked stores."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

import golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("case", golden.STORES)
def test_store_unpacks_to_the_listed_files(case: str, store: Callable[[str], Path]) -> None:
    root = store(case)
    listed = golden.info(case)["files"]
    assert listed
    found = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    assert found == {entry["path"] for entry in listed}
    for entry in listed:
        file = root / entry["path"]
        assert hashlib.sha256(file.read_bytes()).hexdigest() == entry["sha256"], entry["path"]
        assert file.stat().st_mtime_ns // 1_000_000 == entry["mtimeMs"], entry["path"]


@pytest.mark.parametrize("name", golden.DAMAGED)
def test_damage_changes_the_store(
    name: str, store: Callable[[str], Path], damaged_store: Callable[[str], Path]
) -> None:
    healthy, damaged = (_content(root) for root in (store("basic"), damaged_store(name)))
    changed = {file for file in healthy.keys() | damaged.keys() if healthy.get(file) != damaged.get(file)}
    paths = {patch["path"] for patch in golden.damaged(name)["patches"]}
    assert changed
    assert all(any(file == path or file.startswith(f"{path}/") for path in paths) for file in changed)


@pytest.mark.parametrize("name", golden.INDEX_FILES)
def test_index_file_has_the_listed_parts(name: str) -> None:
    case, content = golden.index_file(name), golden.index_file_bytes(name)
    slots_end = 40 + 4 * case["hashSlotNum"]
    parts = {"header": content[:40], "slots": content[40:slots_end], "entries": content[slots_end:], "file": content}
    assert case["sha256"] == {"size": len(content)} | {k: hashlib.sha256(v).hexdigest() for k, v in parts.items()}


def test_all_cases_are_known() -> None:
    folders = {entry.name for entry in golden.ROOT.iterdir() if entry.is_dir()}
    assert folders == {*golden.STORES, "damaged", "indexfile"}
    assert (len(golden.STORES), len(golden.DAMAGED), len(golden.INDEX_FILES)) == (11, 27, 24)


def _content(root: Path) -> dict[str, bytes]:
    return {f.relative_to(root).as_posix(): f.read_bytes() if f.is_file() else b"a folder" for f in root.rglob("*")}
