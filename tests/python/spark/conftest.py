"""One Spark session for all tests here, and stores of real brokers to read."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import golden
import object_store

pytest.importorskip("pyspark", reason="logdex.spark needs the extra `spark`")

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session of two cores that retries a failed task once."""
    from logdex import spark as ls  # noqa: PLC0415 - after the check for pyspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2, 2]")
        .appName("logdex tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    ls.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[object_store.ObjectStore]:
    """Return an S3 server for all tests."""
    with object_store.serve() as running:
        yield running


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the unpacked store of a golden case, one copy for all tests: nobody may change it."""
    unpacked: dict[str, Path] = {}

    def unpack(case: str) -> Path:
        if case not in unpacked:
            unpacked[case] = golden.unpack(case, tmp_path_factory.mktemp(case))
        return unpacked[case]

    return unpack
