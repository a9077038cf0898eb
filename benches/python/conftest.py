"""Index files for the benchmarks: small ones if nothing is measured (`--benchmark-disable`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benches.report import keys
from benches.report.plan import Plan, geometry
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Return the sizes."""
    scratch = tmp_path_factory.mktemp("index")
    return Plan.trial(scratch) if request.config.option.benchmark_disable else Plan(scratch)


@pytest.fixture(scope="session")
def full(plan: Plan) -> Iterator[IndexFile]:
    """Return a full file of the default geometry."""
    yield from _full(plan.scratch / "1", plan.held)


@pytest.fixture(scope="session")
def small(plan: Plan) -> Iterator[IndexFile]:
    """Return a full file of a million entries."""
    yield from _full(plan.scratch / "2", min(1_000_000, plan.held))


def _full(path: Path, held: int) -> Iterator[IndexFile]:
    with IndexFile.create(path, **geometry(held)) as file:
        file.put_batch(*keys.columns(held))
    with IndexFile.open(path, **geometry(held)) as file:
        yield file
    path.unlink()
