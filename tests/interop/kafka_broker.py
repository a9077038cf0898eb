"""A real Kafka broker without ZooKeeper, on ports of this machine alone."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_TARGET = Path(__file__).parent / "kafka" / "target"
JARS = _TARGET / "lib"
RELEASES = {"3.9.2": JARS, "4.3.1": _TARGET / "lib-4.3.1"}
"""The classes of each release."""
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
"""Warnings and errors go to `broker.log`."""
_CLUSTER = "bG9nZGV4LWludGVyb3AtMQ"


class Broker:
    """A broker that is also its own controller. A topic is created by its first record; `settings` are defaults of topics.

    A second broker in the same home continues where the first one stopped. `prepare` is called with the formatted log directory,
    before the broker starts.
    """

    def __init__(
        self, home: Path, release: str = "3.9.2", prepare: Callable[[Path], object] | None = None, /, **settings: object
    ) -> None:
        java = shutil.which("java")
        jars = RELEASES[release]
        if java is None or not jars.is_dir():
            raise FileNotFoundError(f"{jars if java else 'java'} is missing: run `make interop`")
        port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.log_dir = home / "logs"
        properties = {
            "node.id": 1,
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        file = home / "broker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="ascii")
        command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_LOGGING, "-cp", f"{jars}/*"]
        tool = [*command, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER, "-c", str(file)]
        subprocess.run(tool, check=True, capture_output=True, cwd=home)
        if prepare is not None:
            prepare(self.log_dir)
        with (home / "broker.log").open("ab") as log:
            self._jvm = subprocess.Popen([*command, "kafka.Kafka", str(file)], stdout=log, stderr=log, cwd=home)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jvm.terminate()
        try:
            self._jvm.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.wait(timeout=30)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
