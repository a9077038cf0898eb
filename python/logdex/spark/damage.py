"""What plans and tasks miss or pass over: an error, or findings that are logged and sent to the driver.

Spark plans and reads a data source in other processes than the user's program, and gives it neither accumulators nor metrics. So
`logdex.spark.register` starts a server in the user's program, which warns of what plans and tasks send. If a task cannot reach
it, or the format was not registered by that call, the findings are in the worker's log only.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
import socket
import socketserver
import threading
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException

from logdex._core import plan_files, planned_file_faults
from logdex.errors import DamageWarning, LogdexError
from logdex.report import Damage, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from logdex.rocketmq import CommitLog

logger = logging.getLogger("logdex.spark")

_SECONDS = 10
_MOST_BYTES = 1 << 20
_MOST_FINDINGS = 1_000

PlannedFile = tuple["str | Path", int, "int | None"]
"""A file as `logdex._core.plan_files` describes it: a copy on another machine has the same length and first bytes."""


class Address(NamedTuple):
    """Where the user's program listens."""

    host: str
    port: int
    token: str


@dataclass(slots=True)
class SparkDamage(Damage):
    """What one plan or task misses or passes over."""

    fail_on_data_loss: bool = True

    def lose(self, path: object, expected: str, found: str) -> None:
        """Add data that is gone.

        Raises:
            LogdexError: The option `failOnDataLoss` is not false.
        """
        finding = Finding(str(path), 0, "file-gap", expected, f"{found} on {socket.gethostname()}")
        if self.fail_on_data_loss:
            raise LogdexError(
                f"{finding}: it was deleted or truncated since the read was planned, or driver and workers do not see the same "
                "files; read again. A format continues with what is left by the option failOnDataLoss=false"
            )
        self.add(finding)

    def present(self, files: Sequence[PlannedFile]) -> list[Path]:
        """Return the paths of the planned files that this machine has, and lose the others."""
        # JSON makes lists of tuples.
        faults = dict(planned_file_faults([(path, size, head) for path, size, head in files]))
        sizes = {Path(path): size for path, size, _ in files}
        for path, found in faults.items():
            self.lose(path, f"the file as it was planned, of {sizes[path]} bytes", found)
        return [path for path in sizes if path not in faults]

    @contextmanager
    def losing(self, what: str) -> Iterator[None]:
        """Lose what a block cannot read because a file is missing or shorter by now."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            self.lose(error.filename, what, error.strerror or "no such file")


class PlannedLog(NamedTuple):
    """Files of a commit log that a reader needs, and the last file of the log that holds messages, by its begin.

    `last_message` is the last message in that file, if the reader needs it: a shorter copy of the file does not have it.
    """

    files: Sequence[PlannedFile]
    last_file: int
    last_message: int | None

    @classmethod
    def of(cls, log: CommitLog) -> PlannedLog:
        """Return all files of a log."""
        files = [(str(path), size, head) for path, size, head in plan_files(log.files)]
        return cls(files, log.last_file, log.last_message)

    def part(self, first: int, last: int) -> PlannedLog:
        """Return some of the files, by their numbers."""
        files = self.files[first:last]
        is_last = any(int(Path(path).name) == self.last_file for path, _, _ in files)
        return PlannedLog(files, self.last_file, self.last_message if is_last else None)

    def open(self, log: CommitLog, damage: SparkDamage) -> CommitLog:
        """Return the part of a log that a worker has of the planned files; the rest is lost."""
        part = log.part(
            damage.present([(path, size, head) for path, size, head in self.files]), self.last_file, self.last_message
        )
        if self.last_message is not None and part.message(self.last_message) is None:
            expected = f"the log up to the message at offset {self.last_message}"
            damage.lose(self.files[-1][0], expected, f"its end at {part.max_offset}")
        return part


@dataclass(frozen=True, slots=True)
class DamageReports:
    """How a read reports damage: whether lost data is an error, and where the user's program listens."""

    fail_on_data_loss: bool = True
    driver: Address | None = None

    @contextmanager
    def collect(self) -> Iterator[SparkDamage]:
        """Collect the findings of a plan or task, and report them at its end."""
        _show_log()
        damage = SparkDamage(fail_on_data_loss=self.fail_on_data_loss)
        try:
            yield damage
        finally:
            if damage.findings and not (self.driver and _send(self.driver, damage.findings)):
                damage.warn()


def _show_log() -> None:
    """Write warnings to standard error if no logging is configured: the package's NullHandler would hide them."""
    package = logging.getLogger("logdex")
    if logging.lastResort is not None and not logging.getLogger().handlers:
        package.addHandler(logging.lastResort)


def _send(driver: Address, findings: Sequence[Finding]) -> bool:
    """Send findings to the user's program, and return whether it has taken them."""
    message = {"token": driver.token, "findings": [asdict(each) for each in findings[:_MOST_FINDINGS]]}
    try:
        with socket.create_connection((driver.host, driver.port), _SECONDS) as connection:
            connection.sendall(json.dumps(message).encode() + b"\n")
            return connection.recv(1) == b"."
    except OSError as error:
        logger.warning("the driver at %s:%d cannot be told: %s", driver.host, driver.port, error)
        return False


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    token = ""


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SECONDS
    server: _Server

    def handle(self) -> None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            message = json.loads(self.rfile.readline(_MOST_BYTES))
            if not hmac.compare_digest(message["token"], self.server.token):
                return
            damage = Damage()
            for each in message["findings"]:
                damage.add(Finding(**each))
            # A filter may make an error of the warning, which nobody would see in this thread.
            with suppress(DamageWarning):
                damage.warn()
            self.wfile.write(b".")


def driver_address(spark: SparkSession) -> Address | None:
    """Return where this program listens, from now on; None in a Connect session, whose cluster may not reach it."""
    try:
        settings = spark.sparkContext.getConf()
    except PySparkException:
        return None
    host = settings.get("spark.driver.host") or "localhost"
    return _listen(host, settings.get("spark.driver.bindAddress") or host)


@cache
def _listen(host: str, bind_address: str) -> Address:
    server = _Server((bind_address, 0), _Handler)
    server.token = secrets.token_hex()
    threading.Thread(target=server.serve_forever, name="logdex-damage", daemon=True).start()
    return Address(host, server.server_address[1], server.token)
