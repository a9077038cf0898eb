"""Client of the Java driver in src/: one JVM that answers with the real RocketMQ store classes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

JAR = Path(__file__).parent / "target" / "interop.jar"

FOREVER = 2**63 - 1
"""End of an open time range."""

ANSWER_SECONDS = 120
"""Seconds without an answer after which the JVM is killed."""


class Driver:
    """A JVM that answers questions one by one; a context manager.

    What it writes by itself (logs under user.home, temporary files) goes to `home`.
    """

    def __init__(self, home: Path, zone: str = "UTC") -> None:
        java = shutil.which("java")
        if java is None or not JAR.exists():
            raise FileNotFoundError(
                f"{JAR if java else 'java'} is missing: run `make interop`, which needs JDK 17 and Maven"
            )
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "driver.log"
        with self._log.open("ab") as log:
            self._jvm = subprocess.Popen(
                [
                    java,
                    "-Xmx2g",
                    "-XX:+UseSerialGC",
                    f"-Duser.timezone={zone}",
                    f"-Duser.home={home}",
                    f"-Djava.io.tmpdir={home}",
                    "-jar",
                    str(JAR),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,
            )

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """Ask one question and wait for the answer.

        Raises:
            RuntimeError: The operation failed in the JVM, or the JVM is gone.
        """
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        line = json.dumps({"op": op, **question}, default=str).encode("ascii") + b"\n"
        watch = threading.Timer(ANSWER_SECONDS, self._jvm.kill)
        watch.start()
        try:
            self._jvm.stdin.write(line)
            self._jvm.stdin.flush()
            answer = self._jvm.stdout.readline()
        finally:
            watch.cancel()
        if not answer:
            raise RuntimeError(f"{op}: the JVM gave no answer: {self._log.read_text()[-4000:]}")
        decoded: dict[str, Any] = json.loads(answer)
        if "error" in decoded:
            raise RuntimeError(f"{op}: {decoded['error']}")
        return decoded

    def query(self, op: str, questions: Iterable[Question]) -> dict[str, Any]:
        """Ask many questions of an index service or a store in one line."""
        topics, keys, max_num, begin, end = zip(*questions, strict=True)
        return self.ask(op, topics=topics, keys=keys, max_num=max_num, begin=begin, end=end)

    @property
    def pid(self) -> int:
        """The process."""
        return self._jvm.pid

    def kill(self) -> None:
        """Kill the JVM as `kill -9` does: it closes nothing."""
        self._jvm.kill()
        self._jvm.wait()

    def close(self) -> None:
        """End the JVM. An open store is not shut down; use `store_stop` for that."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self._jvm.stdin.close()
        try:
            self._jvm.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.wait()
        self._jvm.stdout.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Question = tuple[str, str, int, int, int]
"""Topic, key, maximum number of offsets, begin and end in ms (both inclusive)."""


def index_config(hash_slots: int, max_entries: int) -> dict[str, int]:
    """Return the store properties that give index files their geometry."""
    return {"maxHashSlotNum": hash_slots, "maxIndexNum": max_entries}
