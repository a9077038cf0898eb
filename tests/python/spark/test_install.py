"""How logdex comes to Spark: formats that need no `register`, and wheels that executors cannot import."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
from logdex import spark as ls

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PYTHON = Path(__file__).resolve().parents[3] / "python"


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=200,
    )


def test_spark_finds_the_formats_without_register(shared_store: Callable[[str], Path], tmp_path: Path) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    done = _run(
        f"""
        import os, sys
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        store = {str(shared_store("basic"))!r}
        places = {{"rocketmq": store, "rocketmq_index": store + "/index", "kafka_log": {str(logs)!r}}}
        print("logdex" in sys.modules, *(spark.read.format(name).load(path).count() for name, path in places.items()))
        from logdex import spark as ls
        ls.register(spark)
        print(*(spark.read.format(name).load(path).count() for name, path in places.items()))
        """
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 2, done.stderr
    assert lines[0][0] == "False"
    assert lines[0][1:] == lines[1]
    assert int(lines[1][0]) == len(golden.rows("basic", "messages"))
    assert all(int(count) > 0 for count in lines[1])


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_modules_that_spark_looks_for_never_fail(missing: str) -> None:
    done = _run(
        f"""
        import sys
        sys.modules[{missing!r}] = None
        import pyspark_logdex, pyspark_logdex_index, pyspark_logdex_kafka
        print(*(hasattr(each, "DefaultSource") for each in (pyspark_logdex, pyspark_logdex_index, pyspark_logdex_kafka)))
        """
    )
    assert done.stdout == "False False False\n", done.stderr


def test_what_pyspark_4_0_lacks_is_asked_for_when_it_is_needed() -> None:
    done = _run(
        """
        import pyspark
        from pyspark.sql import functions
        from pyspark.sql.pandas import functions as pandas_functions
        for module in (functions, pandas_functions):
            vars(module).pop("arrow_udf", None)
        pyspark.__version__ = "4.0.5"
        from logdex import spark as ls
        try:
            ls.query_offset("/data/index")
        except ImportError as error:
            print(error)
        """
    )
    assert done.stdout == "query_offset needs pyspark 4.1, and this is 4.0.5: use lookup\n", done.stderr


def test_rows_are_arranged_without_what_pyspark_4_0_lacks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    df = spark.range(100).selectExpr("99 - id as phy_offset", "id as other")
    for each in type(df).__mro__:
        if "repartitionById" in vars(each):
            monkeypatch.delattr(each, "repartitionById")
    rows = ls.arrange(df, 3).selectExpr("spark_partition_id() as task", "phy_offset").collect()
    assert {row.task for row in rows} == {0, 1, 2}
    assert sorted(row.phy_offset for row in rows) == list(range(100))
    tasks = [row.task for row in sorted(rows, key=lambda row: row.phy_offset)]
    assert tasks == sorted(tasks)


def test_a_wheel_on_the_path_says_what_works(tmp_path: Path) -> None:
    """Spark puts a wheel of --py-files or addPyFile on the path of its workers as it is, a zip file."""
    wheel = tmp_path / "logdex-0.1.0-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for module in (PYTHON / "logdex").rglob("*.py"):
            archive.write(module, module.relative_to(PYTHON))
    done = _run("import logdex.spark", PYTHONPATH=str(wheel))
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {wheel}: Python cannot load the compiled part of logdex out of a wheel or zip file, so --py-files and "
        "addPyFile cannot bring it: install the wheel on each machine, or ship a whole environment with spark.archives "
        "(docs/spark.md)"
    )
