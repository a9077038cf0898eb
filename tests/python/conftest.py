"""Fixtures of all Python tests. The data they unpack is described in tests/golden/README.md."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# No deadline: two cores shared with Spark make single examples slow without any fault of the code.
settings.register_profile("logdex", deadline=None, print_blob=True)
settings.load_profile("logdex")

# Sessions of Spark are short here: to optimise their code takes longer than to run it. This is a third of their processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed of the generated tests, so that a failure can be repeated elsewhere."""
    return f"hypothesis seed: {config.getoption('--hypothesis-seed')}"


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: `store(case)` unpacks a golden store and gives its root; every call a fresh copy."""
    copies = iter(range(1_000))

    def unpack(case: str) -> Path:
        return golden.unpack(case, _folder(tmp_path, case, next(copies)))

    return unpack


@pytest.fixture
def damaged_store(tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: `damaged_store(name)` unpacks and damages a golden store and gives its root."""
    copies = iter(range(1_000))

    def unpack(name: str) -> Path:
        return golden.unpack_damaged(name, _folder(tmp_path, f"damaged-{name}", next(copies)))

    return unpack


def _folder(tmp_path: Path, name: str, copy: int) -> Path:
    folder = tmp_path / f"{name}-{copy}"
    folder.mkdir()
    return folder
