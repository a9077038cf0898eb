"""Puts and lookups key by key from Python.

    pytest benches/python --benchmark-only

Files are warm; keys are those of the Rust benches. No figure decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benches.report import keys
from benches.report.plan import MAX_NUM, geometry
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from benches.report.plan import Plan

PUTS = 200_000
ASKED = 50_000


@pytest.mark.benchmark(group="put")
def test_put_key(benchmark: BenchmarkFixture, plan: Plan, tmp_path: Path) -> None:
    puts = min(PUTS, plan.held)
    rows = list(zip(*(column.to_pylist() for column in keys.columns(puts)), strict=True))

    def setup() -> tuple[tuple[IndexFile], dict[str, object]]:
        path = tmp_path / "1"
        path.unlink(missing_ok=True)
        return (IndexFile.create(path, **geometry(puts)),), {}

    def put(file: IndexFile) -> int:
        with file:
            for key, phy_offset, store_timestamp in rows:
                file.put_key(key, phy_offset, store_timestamp)
            return len(file)

    benchmark.extra_info["keys"] = puts
    assert benchmark.pedantic(put, setup=setup, rounds=5) == puts  # type: ignore[no-untyped-call]


@pytest.mark.benchmark(group="select")
def test_select_phy_offset_in_a_million(benchmark: BenchmarkFixture, plan: Plan, small: IndexFile) -> None:
    _select(benchmark, small, min(ASKED, plan.asked))


@pytest.mark.benchmark(group="select")
def test_select_phy_offset_in_a_full_file(benchmark: BenchmarkFixture, plan: Plan, full: IndexFile) -> None:
    _select(benchmark, full, min(ASKED, plan.asked))


def _select(benchmark: BenchmarkFixture, file: IndexFile, asked: int) -> None:
    texts = keys.asked(len(file), asked, 0, present=True).to_pylist()

    def select() -> int:
        return sum(len(file.select_phy_offset(key, MAX_NUM)) for key in texts)

    benchmark.extra_info["keys"] = asked
    assert benchmark(select) >= asked
