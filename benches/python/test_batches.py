"""Batches from Python: the fixed cost of a call, and batches of 16,384 keys, also in two threads.

    pytest benches/python --benchmark-only

Files are warm; keys are those of the Rust benches. No figure decides anything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from benches.report import keys
from benches.report.plan import BATCH, MAX_NUM, geometry
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from benches.report.plan import Plan

PUTS = 2_000_000


@pytest.mark.benchmark(group="one call")
def test_select_batch_of_one_key(benchmark: BenchmarkFixture, small: IndexFile) -> None:
    assert len(benchmark(small.select_batch, keys.held(1))) == 1


@pytest.mark.benchmark(group="one call")
def test_put_batch_of_no_row(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    row = keys.columns(1)
    with IndexFile.create(tmp_path / "1", **geometry(1_000)) as file:
        assert benchmark(file.put_batch, *row, start=1) == 0


@pytest.mark.benchmark(group="put")
def test_put_batches(benchmark: BenchmarkFixture, plan: Plan, tmp_path: Path) -> None:
    puts = min(PUTS, plan.held)
    columns = keys.columns(puts)
    batches = [tuple(column.slice(first, BATCH) for column in columns) for first in range(0, puts, BATCH)]

    def setup() -> tuple[tuple[IndexFile], dict[str, object]]:
        path = tmp_path / "1"
        path.unlink(missing_ok=True)
        return (IndexFile.create(path, **geometry(puts)),), {}

    def put(file: IndexFile) -> int:
        with file:
            return sum(file.put_batch(*batch) for batch in batches)

    benchmark.extra_info["keys"] = puts
    assert benchmark.pedantic(put, setup=setup, rounds=5) == puts  # type: ignore[no-untyped-call]


@pytest.mark.benchmark(group="select")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("present", [True, False], ids=["present", "absent"])
def test_select_batches(benchmark: BenchmarkFixture, plan: Plan, full: IndexFile, present: bool, threads: int) -> None:  # noqa: FBT001
    asked = min(16 * BATCH, plan.asked)
    column = keys.asked(plan.held, asked, 0, present=present)
    batches = [column.slice(first, BATCH) for first in range(0, asked, BATCH)]

    def select(some: list[Any]) -> int:
        return sum(len(pa.array(full.select_batch(batch, max_num=MAX_NUM)).flatten()) for batch in some)

    with ThreadPoolExecutor(threads) as pool:
        shares = [batches[first::threads] for first in range(threads)]
        found = benchmark(lambda: sum(pool.map(select, shares)))
    benchmark.extra_info["keys"] = asked
    assert found >= asked if present else found < asked / 20
