"""The README's Python examples run as they stand, on a real store in place of the reader's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from document_shell import run_shell

import golden_kafka
from logdex.rocketmq import IndexFile, index_key

HOME = Path(__file__).resolve().parents[3]

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (HOME / page).read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = _blocks("README.md")


def _run(block: str, replacements: dict[str, str]) -> dict[str, Any]:
    for written, meant in replacements.items():
        assert written in block
        block = block.replace(written, meant)
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102 - our own text
    return names


def test_find(store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = store("basic")
    _run(BLOCKS[0], {"/var/lib/rocketmq/store": str(root), "Orders": "order_events", "order-1001": "Aa"})
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_find_on_the_first_page(store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    block = _blocks("docs/index.md")[0]
    _run(block, {"/var/lib/rocketmq/store": str(store("basic")), "Orders": "order_events", "order-1001": "Aa"})
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_lazy_frame(store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    _run(BLOCKS[1], {"/var/lib/rocketmq/store": str(store("basic")), "Orders": "order_events"})
    assert "len" in capsys.readouterr().out


def test_index_file(tmp_path: Path) -> None:
    _run(BLOCKS[3], {"/tmp/": f"{tmp_path}/"})  # noqa: S108 - what the README says
    with IndexFile.open(tmp_path / "20260101000000000", hash_slots=1_000, max_entries=4_000) as index:
        assert index.select_phy_offset(index_key("Orders", "order-1001")) == [4096]


def test_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    index = tmp_path / "key-index"
    _run(BLOCKS[4], {"/var/kafka-logs": str(root), '"orders"': '"cod-none"', "/tmp/key-index": str(index)})  # noqa: S108
    assert sum(map(int, capsys.readouterr().out.split())) == sum(
        row["topic"] == "cod-none" for row in golden_kafka.rows("codecs", "records")
    )
    assert sorted(path.name for path in index.iterdir()) == ["cod-none-0", "cod-none-1"]


def test_the_page_on_kafka(tmp_path: Path) -> None:
    """Its blocks in their order, but for the one on Spark; tests/python/spark has that."""
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    for path in root.glob("cod-none-*"):
        path.rename(root / path.name.replace("cod-none", "orders"))
    meant = {"/tmp/": tmp_path, "/var/kafka-logs": root, "/var/": tmp_path}  # noqa: S108 - what the page says
    page = (HOME / "docs" / "kafka.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    ran = 0
    for kind, written in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        code = written
        for before, after in meant.items():
            code = code.replace(before, f"{after}/" if before.endswith("/") else str(after))
        if kind == "sh":
            run_shell(f"set -e\n{code.replace('-2h', '-9999d').replace('order-1001', 'key-1')}", tmp_path, columns=80)
        elif "spark" not in code:
            exec(compile(code, "kafka.md", "exec"), names)  # noqa: S102 - our own text
        ran += 1
    assert ran >= 9


def test_linked_files_are_there() -> None:
    """In the README and in the pages that it leads to."""
    links = 0
    for page in (HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page} links to {target}"
            links += 1
    assert links > len(BLOCKS)
