"""Missing and skipped data of plans and tasks: an error, or findings that are logged and sent to the driver.

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
import warnings
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException

from logdex.errors import DamageWarning, LogdexError, UnknownTopicWarning
from logdex.report import Damage, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from logdex._core import CommitLog, PlannedLog

logger = logging.getLogger("logdex.spark")

_SECONDS = 10
_MOST_BYTES = 1 << 20
_MOST_FINDINGS = 1_000


class Address(NamedTuple):
    """The address at which the user's program listens."""

    host: str
    port: int
    token: str


@dataclass(slots=True)
class SparkDamage(Damage):
    """Missing and skipped data of one plan or task."""

    fail_on_data_loss: bool = True
    unknown_topics: dict[str, str] | None = None
    """Requested topics that no directory of the plan has, each with a message; None before the first directory."""

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

    def miss_topics(self, unknown: dict[str, str]) -> None:
        """Record the requested topics that one of the directories does not have."""
        before = self.unknown_topics
        self.unknown_topics = unknown if before is None else {name: before[name] for name in before if name in unknown}

    def __bool__(self) -> bool:
        """Return whether there is a warning to issue."""
        return bool(self.findings or self.unknown_topics)

    def warn(self, stacklevel: int = 2) -> None:
        """Issue the warnings for findings and for unknown topics."""
        super(SparkDamage, self).warn(stacklevel + 1)
        if self.unknown_topics:
            warnings.warn(UnknownTopicWarning("; ".join(self.unknown_topics.values())), stacklevel=stacklevel + 1)

    def lose_all(self, lost: Iterable[tuple[object, str, str]]) -> bool:
        """Add what is gone, as `planned_file_faults` returns it; see `lose`. Return whether there is any."""
        before = len(self.findings)
        for each in lost:
            self.lose(*each)
        return len(self.findings) > before

    def open(self, planned: PlannedLog) -> CommitLog:
        """Return the log of the planned files that this machine has, and lose the others."""
        log, lost = planned.open()
        self.lose_all(lost)
        return log

    @contextmanager
    def losing(self, what: str) -> Iterator[None]:
        """Lose what a block cannot read because a file is missing or shorter by now."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            self.lose(error.filename, what, error.strerror or "no such file")


@dataclass(frozen=True, slots=True)
class DamageReports:
    """Settings of damage reports: lost data is an error or not, and the address of the user's program."""

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
            if damage and not (self.driver and _send(self.driver, damage)):
                damage.warn()


def _show_log() -> None:
    """Write warnings to standard error if no logging is configured: the package's NullHandler would hide them."""
    package = logging.getLogger("logdex")
    if logging.lastResort is not None and not logging.getLogger().handlers:
        package.addHandler(logging.lastResort)


def _send(driver: Address, damage: SparkDamage) -> bool:
    """Send findings to the user's program, and return whether it has taken them."""
    findings = [asdict(each) for each in damage.findings[:_MOST_FINDINGS]]
    message = {"token": driver.token, "findings": findings, "unknown_topics": damage.unknown_topics}
    try:
        with socket.create_connection((driver.host, driver.port), _SECONDS) as connection:
            connection.sendall(json.dumps(message).encode() + b"\n")
            return connection.recv(1) == b"."
    except OSError as error:
        logger.warning("the driver at %s:%d cannot be reached: %s", driver.host, driver.port, error)
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
            damage = SparkDamage(unknown_topics=message["unknown_topics"])
            for each in message["findings"]:
                damage.add(Finding(**each))
            # A filter may make an error of the warning, which would be lost in this thread.
            with suppress(DamageWarning, UnknownTopicWarning):
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
