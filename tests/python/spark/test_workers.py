"""What goes wrong in workers: another Python, too little address space; and the extra that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from logdex.errors import LogdexError
from logdex.rocketmq import IndexFile
from logdex.spark import workers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


def run(program: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own: it starts a session with other settings."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
        timeout=120,
    )


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Python that has no packages."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False)
    return str(directory / "bin" / "python")


def session(python: str) -> SparkSession:
    """Stand in for a local session whose workers would run a Python."""
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", pythonExec=python)))


def test_the_drivers_python_is_right() -> None:
    workers.check_worker_python(session(sys.executable))


def test_a_python_without_logdex_is_named_with_the_remedy(bare_python: str) -> None:
    with pytest.raises(LogdexError) as caught:
        workers.check_worker_python(session(bare_python))
    message = str(caught.value)
    assert "\n" not in message
    assert bare_python in message
    assert "No module named" in message
    assert f"PYSPARK_PYTHON={sys.executable}" in message


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(LogdexError, match="no /nowhere/python"):
        workers.check_worker_python(session("/nowhere/python"))


def test_register_says_so_before_any_job(bare_python: str) -> None:
    done = run(
        """
        from pyspark.sql import SparkSession
        from logdex import spark as ls
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        try:
            ls.register(spark)
        except Exception as error:
            print(type(error).__name__, error)
        """,
        {"PYSPARK_PYTHON": bare_python},
    )
    assert done.stdout.startswith(
        f"LogdexError Spark starts its Python workers with {bare_python}, which cannot run logdex"
    )
    assert done.stdout.count("\n") == 1


def test_missing_pyspark_says_how_to_install_it() -> None:
    done = run(
        """
        import sys
        sys.modules["pyspark"] = None
        try:
            import logdex.spark
        except ImportError as error:
            print(error)
        """
    )
    assert (
        done.stdout.strip()
        == "logdex.spark needs pyspark, which this Python lacks: pip install 'pyspark>=4.0' 'pyarrow>=18' 'pandas>=2.2'"
    )


@pytest.mark.large
def test_works_where_files_cannot_be_mapped(tmp_path: Path) -> None:
    """A worker's address space is limited to less than one index file of the default size."""
    path = tmp_path / "20260101000000000"
    with IndexFile.create(path) as file:
        file.put_batch(["T#a", "T#b", "T#a"], [1, 2, 3], [1000, 2000, 3000])
    done = run(
        f"""
        import os, sys
        from pathlib import Path
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as sf
        from logdex import spark as ls
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.executor.pyspark.memory", "1g")
            .getOrCreate()
        )
        ls.register(spark)
        keys = spark.createDataFrame([("T", "a"), ("T", "b")], "topic string, key string").coalesce(1)

        def limited(batches):
            import resource
            from logdex.spark import workers
            soft, _ = resource.getrlimit(resource.RLIMIT_AS)
            service = workers.index_service(Path({str(tmp_path)!r}), hash_slots=5_000_000, max_entries=20_000_000)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1 if soft == -1 else soft))
            workers._opened.clear()
            service = workers.index_service(Path({str(tmp_path)!r}), hash_slots=5_000_000, max_entries=20_000_000)
            import pyarrow as pa
            for batch in batches:
                modes = [f"{{soft}} {{service.files[0].access}}"] * batch.num_rows
                lists = pa.array(service.query_batch(batch.column(0), batch.column(1)))
                yield pa.RecordBatch.from_arrays([pa.array(modes), lists], names=["how", "offsets"])

        for row in keys.mapInArrow(limited, "how string, offsets array<bigint>").collect():
            print(row.how, row.offsets)
        found = ls.lookup(keys, {str(tmp_path)!r}).orderBy("key", sf.desc("phy_offset")).collect()
        print([tuple(row) for row in found])
        """
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[0].endswith("pread [3, 1]")
    assert lines[1].endswith("pread [2]")
    assert lines[0].split()[0] == str(1 << 30)
    assert lines[2] == "[('T', 'a', 3), ('T', 'a', 1), ('T', 'b', 2)]"
