"""Fixtures of the tests against the real broker's classes, and the lines that they print at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import golden
from rocketmq_driver import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_LINES = pytest.StashKey[list[str]]()
_SPARK_KAFKA = Path(__file__).parent / "spark" / "target" / "lib"
"""Spark's own Kafka source."""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A JVM with the real classes, in the zone UTC."""
    with Driver(tmp_path_factory.mktemp("jvm")) as jvm:
        yield jvm


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with the formats of logdex and Spark's own Kafka source."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the other tests need no Spark

    from logdex import spark as ls  # noqa: PLC0415

    if not _SPARK_KAFKA.is_dir():
        raise FileNotFoundError(f"{_SPARK_KAFKA} is missing: run `make interop`")
    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.jars", ",".join(map(str, sorted(_SPARK_KAFKA.glob("*.jar")))))
        .getOrCreate()
    )
    ls.register(session)
    yield session
    session.stop()


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    """Return `store(case)`, which unpacks a golden store and returns its root."""

    def unpack(case: str) -> Path:
        folder = tmp_path / case
        folder.mkdir()
        return golden.unpack(case, folder)

    return unpack


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that stores a line to print at the end of the run, independent of pytest's capture."""
    return request.config.stash.setdefault(_LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the lines that the tests stored."""
    lines = config.stash.get(_LINES, [])
    if lines:
        terminalreporter.section("against the real RocketMQ 4.9.3 and Kafka 3.9.2 classes")
        for line in lines:
            terminalreporter.write_line(line)
