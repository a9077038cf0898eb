"""Fixtures of the Kafka tests: the log directories of tests/golden/kafka, unpacked once for the whole run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import golden_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def _contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return length and modification time of everything below a folder: nothing that reads may change them."""
    return {
        file.relative_to(folder).as_posix(): (file.stat().st_size if file.is_file() else 0, file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="session")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a factory: `kafka_logs(case)` gives the log directory of a case, shared by all tests, for reading.

    At the end it checks that reading made no file and changed none.
    """
    root = tmp_path_factory.mktemp("kafka")
    before: dict[str, dict[str, tuple[int, int]]] = {}

    def unpacked(case: str) -> Path:
        if case not in before:
            (root / case).mkdir()
            golden_kafka.unpack(case, root / case)
            before[case] = _contents(root / case)
        return root / case

    yield unpacked
    for case, contents in before.items():
        assert _contents(root / case) == contents, case
    shutil.rmtree(root)


@pytest.fixture
def kafka_copy(tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: `kafka_copy(case)` gives a fresh copy of a case's log directory, which a test may change."""
    copies = iter(range(1_000))

    def unpack(case: str) -> Path:
        folder = tmp_path / f"{case}-{next(copies)}"
        folder.mkdir()
        return golden_kafka.unpack(case, folder)

    return unpack
