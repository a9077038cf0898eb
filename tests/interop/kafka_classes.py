"""A JVM that answers with the real Kafka classes, one question at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

JAR = Path(__file__).parent / "kafka" / "target" / "interop-kafka.jar"


class Classes:
    """A JVM that answers with the real classes."""

    def __init__(self, home: Path) -> None:
        java = shutil.which("java")
        if java is None or not JAR.exists():
            raise FileNotFoundError(f"{JAR if java else 'java'} is missing: run `make interop`")
        self._log = home / "driver.log"
        with self._log.open("ab") as log:
            self._jvm = subprocess.Popen(
                [java, "-Xmx1g", "-XX:+UseSerialGC", "-jar", str(JAR)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,
            )

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps({"op": op, **question}, default=str).encode("ascii") + b"\n")
        self._jvm.stdin.flush()
        answer = self._jvm.stdout.readline()
        if not answer:
            raise RuntimeError(f"{op}: no answer: {self._log.read_text()[-4000:]}")
        decoded: dict[str, Any] = json.loads(answer)
        if "error" in decoded:
            raise RuntimeError(f"{op}: {decoded['error']}")
        return decoded

    def __enter__(self) -> Classes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.close()
        self._jvm.wait(timeout=30)
        self._jvm.stdout.close()
