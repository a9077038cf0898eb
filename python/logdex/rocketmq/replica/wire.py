"""TCP connection to a master. Every wait has a timeout, and a stop ends it at once."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.2
"""Interval at which a wait checks whether it is stopped."""


class StoppedError(Exception):
    """The wait was stopped."""


class Wire:
    """A connection. Its errors name the address."""

    def __init__(self, host: str, port: int, seconds: float, is_stopped: Callable[[], bool]) -> None:
        """Connect to the addresses of the host in turn, with a timeout for each.

        Raises:
            OSError: None of them can be reached.
            StoppedError: `is_stopped` returned True.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_stopped = is_stopped
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise OSError(error.errno, error.strerror, self._address) from None
        failed = self._error(errno.EADDRNOTAVAIL)
        for family, kind, protocol, _, address in found:
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._connect(address, seconds)
            except OSError as error:
                self._socket.close()
                failed = error
            except BaseException:
                self._socket.close()
                raise
            else:
                return
        raise failed

    def _connect(self, address: tuple[object, ...], seconds: float) -> None:
        self._socket.settimeout(0)
        number = self._socket.connect_ex(address)
        if number == errno.EINPROGRESS:
            self._wait(select.POLLOUT, time.monotonic() + seconds)
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise self._error(number)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes, until: float) -> None:
        """Send all of the bytes until a time on the monotonic clock.

        Raises:
            OSError: The connection is broken, or the time is over.
            StoppedError: `is_stopped` returned True.
        """
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)
            except OSError as error:
                raise self._error(error.errno) from None

    def receive_into(self, buffer: memoryview, until: float) -> int:
        """Return how many bytes were received, 0 at the end of the connection. Wait until a time on the monotonic clock.

        Raises:
            TimeoutError: The time is over.
            OSError: The connection is broken.
            StoppedError: `is_stopped` returned True.
        """
        while True:
            try:
                return self._socket.recv_into(buffer)
            except BlockingIOError:
                self._wait(select.POLLIN, until)
            except OSError as error:
                raise self._error(error.errno) from None

    def pause(self, seconds: float) -> None:
        """Wait some seconds or until the connection is broken.

        Raises:
            StoppedError: `is_stopped` returned True.
        """
        with suppress(TimeoutError):
            self._wait(0, time.monotonic() + seconds)

    def _wait(self, event: int, until: float) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while not self._is_stopped():
            left = until - time.monotonic()
            if poll.poll(max(0.0, 1000 * min(_LOOK_S, left))):
                return
            if left <= 0:
                raise self._error(errno.ETIMEDOUT)
        raise StoppedError

    def _error(self, number: int | None) -> OSError:
        number = number or errno.EIO
        return OSError(number, os.strerror(number), self._address)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
