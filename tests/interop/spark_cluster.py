"""A Spark standalone cluster on this machine: a master, and workers that share no directory."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 90
_HOST = "127.0.0.1"


@contextlib.contextmanager
def standalone(directory: Path, workers: int) -> Iterator[str]:
    """Run a cluster of workers of one core each, and return its URL. Each worker has a directory of its own."""
    with contextlib.closing(socket.socket()) as bound:
        bound.bind((_HOST, 0))
        url = f"spark://{_HOST}:{bound.getsockname()[1]}"
    with contextlib.ExitStack() as running:
        master = directory / "master"
        running.enter_context(
            _started("master.Master", master, "--host", _HOST, "--port", url.rpartition(":")[2], "--webui-port", "0")
        )
        _wait(master, "New state: ALIVE")
        for number in range(workers):
            own = directory / f"worker-{number}"
            words = [
                "--host",
                _HOST,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(own / "work"),
            ]
            running.enter_context(_started("worker.Worker", own, *words, url))
        for number in range(workers):
            _wait(directory / f"worker-{number}", "Successfully registered with master")
        yield url


@contextlib.contextmanager
def _started(name: str, directory: Path, *words: str) -> Iterator[None]:
    """Run a part of the cluster in a directory, with its temporary files and its log there."""
    home = Path(pyspark.__file__).parent
    for each in ("tmp", "local"):
        (directory / each).mkdir(parents=True)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_LOG_DIR": str(directory),
        "SPARK_NO_DAEMONIZE": "1",
        "TMPDIR": str(directory / "tmp"),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _wait(directory: Path, text: str) -> None:
    """Wait until a log says a text."""
    deadline = time.monotonic() + _SECONDS
    while text not in (said := (directory / "log").read_text(errors="replace")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{directory.name} did not say {text!r}: {said[-2000:]}")
        time.sleep(0.2)
