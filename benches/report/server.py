"""Programs that answer each question with one JSON line: the native rounds and the JVM with the real broker's classes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from types import TracebackType

    from .plan import Plan

HOME = Path(__file__).resolve().parents[2]
JAR = HOME / "tests" / "interop" / "target" / "interop.jar"
KAFKA_JAR = HOME / "tests" / "interop" / "kafka" / "target" / "interop-kafka.jar"


class Server:
    """A running program; a context manager. Its standard error goes to `log`."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """Ask one question and wait for the answer.

        Raises:
            RuntimeError: The program could not answer, or is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **question}, default=str).encode("ascii") + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        decoded: dict[str, Any] = json.loads(answer) if answer else {"error": self._log.read_text()[-4000:]}
        if "error" in decoded:
            raise RuntimeError(f"{op}: {decoded['error']}")
        return decoded

    def seconds(self, op: str, **question: Any) -> float:
        """Ask a question and return only its time."""
        return float(self.ask(op, **question)["seconds"])

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def native(scratch: Path, *, for_this_cpu: bool = False) -> Server:
    """Build and start benches/rounds.rs, for every x86-64 as the wheel is, or for the processor of this machine."""
    command = ["cargo", "bench", "--locked", "--no-run", "--bench", "rounds", "--message-format", "json"]
    environment = dict(os.environ)
    if for_this_cpu:
        command += ["--target-dir", str(HOME / "target" / "this-cpu")]
        environment["RUSTFLAGS"] = f"{environment.get('RUSTFLAGS', '')} -C target-cpu=native".strip()
    lines = _output(command, environment).splitlines()
    programs = [message["executable"] for message in map(json.loads, lines) if message.get("executable")]
    return Server([programs[-1], "serve"], scratch / f"native-{for_this_cpu}.log")


def jvm(scratch: Path) -> Server:
    """Build and start the driver of the real classes of RocketMQ 4.9.3, with a heap that holds all keys as strings."""
    return _java(scratch, "tests/interop", JAR, ["-Xmx6g", "-XX:+UseG1GC"])


def kafka_jvm(scratch: Path) -> Server:
    """Build and start the driver of the real classes of Kafka 3.9.2."""
    return _java(scratch, "tests/interop/kafka", KAFKA_JAR, ["-Xmx2g", "-XX:+UseG1GC"])


def package(project: str) -> None:
    """Build programs over real classes, from their Maven project.

    Raises:
        FileNotFoundError: Maven is missing.
    """
    if shutil.which("mvn") is None:
        raise FileNotFoundError("mvn is missing: Maven fetches the real broker's classes ('apt install maven')")
    _output(["mvn", "-q", "-B", "-ntp", "-f", f"{project}/pom.xml", "package"], os.environ)


def _java(scratch: Path, project: str, jar: Path, options: list[str]) -> Server:
    package(project)
    options += [f"-Duser.home={scratch}", f"-Djava.io.tmpdir={scratch}"]
    return Server(["java", *options, "-jar", str(jar)], scratch / "jvm.log")


def all_three(stack: ExitStack, plan: Plan) -> tuple[Server, Server, Server]:
    """Start the JVM, the native program, and the native program for this processor (in a short run the usual one)."""
    return (
        stack.enter_context(jvm(plan.scratch)),
        stack.enter_context(native(plan.scratch)),
        stack.enter_context(native(plan.scratch, for_this_cpu=not plan.short)),
    )


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}\n{done.stdout[-4000:]}")
    return done.stdout
