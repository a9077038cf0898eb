"""The real clients, tools, name server and broker, from wire/: a process each, asked line by line."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

FOLDER = Path(__file__).parent / "wire" / "target"
ANSWER_SECONDS = 240
_OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref", "jdk.internal.misc")
"""Packages into which RocketMQ 4.9.3 reaches, which a JDK 17 allows only to those who ask."""


class Lines:
    """A process that answers a JSON object a line; a context manager."""

    def __init__(self, name: str, home: Path, command: list[str], **environment: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log = home / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,
                env={**os.environ, **environment, "HOME": str(home)},
            )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def read(self) -> str:
        """Return the next line of the program.

        Raises:
            RuntimeError: It ended, or said nothing for minutes.
        """
        assert self._process.stdout is not None
        watch = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watch.start()
        try:
            line = self._process.stdout.readline().decode()
        finally:
            watch.cancel()
        if not line:
            raise RuntimeError(f"{self.name} said nothing: {self._log.read_text()[-4000:]}")
        return line

    def ask(self, question: object) -> dict[str, Any]:
        """Ask something, and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode("ascii") + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.read())
        return answer

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program(Lines):
    """A JVM with one of the programs of wire/."""

    def __init__(
        self, name: str, home: Path, *arguments: str, options: tuple[str, ...] = (), zone: str = "UTC"
    ) -> None:
        java = shutil.which("java")
        if java is None or not (FOLDER / "wire.jar").exists():
            raise FileNotFoundError(f"{FOLDER / 'wire.jar' if java else 'java'} is missing: run `make interop`")
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>", encoding="utf-8")
        opened = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        command = [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            f"-Duser.timezone={zone}",
            f"-Duser.home={home}",
            f"-Djava.io.tmpdir={home}",
            f"-Drocketmq.home.dir={home}",
            "-Drocketmq.remoting.version=399",
            *opened,
            *options,
            "-cp",
            f"{FOLDER / 'wire.jar'}:{FOLDER / 'lib'}/*",
            f"logdex.wire.{name}",
            *arguments,
        ]
        super().__init__(name, home, command)


def free_ports(number: int) -> list[int]:
    """Return ports of which a broker can take each with the one after it and the one two before it.

    They are below those that the system gives to outgoing connections, which would take a neighbour at any moment.
    """
    found: list[int] = []
    while len(found) < number:
        port = random.randrange(12_000, 30_000)
        if all(abs(port - other) > 8 for other in found) and all(map(_is_free, (port - 2, port, port + 1))):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def start_broker(home: Path, root: Path, **properties: object) -> tuple[Program, str, str]:
    """Start a real name server and broker over a store; return the program and both addresses."""
    names, port = free_ports(2)
    given = [f"{name}={value}" for name, value in properties.items()]
    program = Program("Servers", home, f"namesrv={names}", f"port={port}", f"dir={root}", *given)
    if program.read().strip() != "ready":
        raise RuntimeError("the broker does not start")
    return program, f"127.0.0.1:{names}", f"127.0.0.1:{port}"
