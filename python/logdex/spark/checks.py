"""The commonest first trap, said before the job: workers that start with another Python than the driver's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from logdex.errors import LogdexError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROBE = "import logdex._core, pyarrow, pyspark, sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
_PROBE_SECONDS = 60


def check_worker_python(spark: SparkSession) -> None:
    """Make sure that the Python of the session's workers can run logdex.

    The workers run what `PYSPARK_PYTHON` said when the session began, else `python3` from the path, and not the
    interpreter of the driver. Where that is another one, it is started once to see whether it has logdex.

    Raises:
        LogdexError: It cannot run logdex; the message says which it is and how to set it.
    """
    worker = worker_python(spark)
    if worker is None:
        return
    found = shutil.which(worker)
    # Not resolved: a virtual environment's python is a link to a python without its packages.
    if found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent:
        return
    # A worker on another machine may have a path that this one lacks; it cannot be asked from here.
    if found is None and not _is_local(spark):
        return
    problem = f"there is no {worker} on the path" if found is None else _problem(found)
    if problem:
        raise LogdexError(_advice(found or worker, problem))


def worker_python(spark: SparkSession) -> str | None:
    """Give the command that starts the session's Python workers; None where it cannot be known (Spark Connect)."""
    try:
        context = spark.sparkContext
    except PySparkException:
        # A Connect session has its context on the server, which says so in its own errors.
        return None
    return str(context.pythonExec)


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


@lru_cache(maxsize=8)
def _problem(python: str) -> str:
    """Start a Python and tell why it cannot run logdex; empty when it can."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    try:
        done = subprocess.run(  # noqa: S603 - the command is the one that Spark itself is about to start
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not start: {error}"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with status {done.returncode}"]
        return last[0]
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.stdout != ours:
        return f"it is Python {done.stdout} and the driver is Python {ours}"
    return ""


def _advice(python: str, problem: str) -> str:
    return (
        f"Spark starts its Python workers with {python}, which cannot run logdex ({problem}): set the environment variable "
        f"PYSPARK_PYTHON={sys.executable} before the Spark session is created"
    )
