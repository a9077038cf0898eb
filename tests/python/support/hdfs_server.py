"""A real HDFS on loopback (Hadoop's mini cluster), in a JVM of its own. `make test-storage` builds it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "storage" / "hdfs" / "target"


class Hdfs:
    """A running name node with one data node."""

    options: dict[str, str] = {}  # noqa: RUF012 -- none are needed without Kerberos

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = f"hdfs://127.0.0.1:{int(self._line())}"

    def put(self, name: str, path: Path) -> str:
        """Copy a file or a directory with its times, and return its URL."""
        self._call("put", name, str(path))
        return f"{self.url}/{name}"

    def delete(self, name: str) -> None:
        """Delete a file or a directory."""
        self._call("delete", name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the server until the end of the block: connections stay, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _call(self, *words: str) -> None:
        if self._process.stdin is None:
            raise ValueError("the server has no pipes")
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        if self._line() != "done":
            raise OSError(f"the server failed at {words}: {self._log.read_text()[-4000:]}")

    def _line(self) -> str:
        if self._process.stdout is None:
            raise ValueError("the server has no pipes")
        if not (line := self._process.stdout.readline()):
            raise OSError(f"the server ended: {self._log.read_text()[-4000:]}")
        return line.rstrip("\n")


@contextmanager
def serve(directory: Path) -> Iterator[Hdfs]:
    """Run HDFS until the end of the block."""
    java = shutil.which("java")
    if java is None or not (FOLDER / "hdfs.jar").exists():
        raise FileNotFoundError(f"{FOLDER / 'hdfs.jar' if java else 'java'} is missing: run `make test-storage`")
    libraries = f"{FOLDER / 'hdfs.jar'}:{FOLDER / 'lib'}/*"
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java, *options, "-cp", libraries, "logdex.storage.Hdfs", str(directory)]
    log = directory / "hdfs.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=directory
        ) as process,
    ):
        try:
            yield Hdfs(process, log)
        finally:
            process.kill()
