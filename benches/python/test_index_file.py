"""Batches beside one-by-one calls on one index file of the default geometry.

    pytest benches/python -o addopts= --import-mode=importlib

Keys come from the generator that the Rust benches use too; files are warm. No figure decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

ROWS = 200_000
T0 = 1_700_000_000_000
MASK = (1 << 64) - 1


def keys(count: int) -> list[str]:
    state, made = 20_260_321, []
    for _ in range(count):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) & MASK
        made.append(f"TopicTest#7F000001{state:016X}")
    return made


KEYS = keys(ROWS)
OFFSETS = [200 * n for n in range(ROWS)]
TIMES = [T0 + n for n in range(ROWS)]
COLUMNS = pa.array(KEYS), pa.array(OFFSETS, pa.int64()), pa.array(TIMES, pa.int64())


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], tuple[tuple[IndexFile], dict[str, object]]]:
    """Give a new file to each round; making it is not measured."""

    def setup() -> tuple[tuple[IndexFile], dict[str, object]]:
        path = tmp_path / "20260321000000000"
        path.unlink(missing_ok=True)
        return (IndexFile.create(path),), {}

    return setup


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexFile]:
    with IndexFile.create(tmp_path_factory.mktemp("index") / "20260321000000000") as file:
        file.put_batch(*COLUMNS)
        yield file


@pytest.mark.benchmark(group="put")
def test_put_batch(
    benchmark: BenchmarkFixture, fresh: Callable[[], tuple[tuple[IndexFile], dict[str, object]]]
) -> None:
    def put(file: IndexFile) -> int:
        return file.put_batch(*COLUMNS)

    benchmark.extra_info["rows"] = ROWS
    assert benchmark.pedantic(put, setup=fresh, rounds=5) == ROWS  # type: ignore[no-untyped-call]


@pytest.mark.benchmark(group="put")
def test_put_key(benchmark: BenchmarkFixture, fresh: Callable[[], tuple[tuple[IndexFile], dict[str, object]]]) -> None:
    def put(file: IndexFile) -> int:
        for key, offset, time in zip(KEYS, OFFSETS, TIMES, strict=True):
            file.put_key(key, offset, time)
        return len(file)

    benchmark.extra_info["rows"] = ROWS
    assert benchmark.pedantic(put, setup=fresh, rounds=5) == ROWS  # type: ignore[no-untyped-call]


@pytest.mark.benchmark(group="select")
def test_select_batch(benchmark: BenchmarkFixture, filled: IndexFile) -> None:
    benchmark.extra_info["rows"] = ROWS
    found = benchmark(filled.select_batch, COLUMNS[0])
    assert len(found) == ROWS


@pytest.mark.benchmark(group="select")
def test_select_phy_offset(benchmark: BenchmarkFixture, filled: IndexFile) -> None:
    def select() -> int:
        return sum(len(filled.select_phy_offset(key)) for key in KEYS)

    benchmark.extra_info["rows"] = ROWS
    assert benchmark(select) >= ROWS
