"""The stream of a master's log (HA protocol), as its slave reads it.

```text
slave to master, at any time:   offset i64                          the end of its copy: where to begin, then what it has
master to slave:                offset i64, size i32, size bytes    the log from this offset on; size 0: a heartbeat
```

All integers are big-endian; there is no greeting, no version and no checksum. The master cuts its log anywhere, so a message may
begin in one frame and end in the next. Source: HAConnection, HAService.HAClient.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from logdex.errors import CorruptFileError
from logdex.rocketmq.replica.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = struct.Struct(">qi")
REPORT = struct.Struct(">q")
SILENT_S = 20.0
"""A master sends something every 5 s. After so long without a byte it is gone."""
REPORT_S = 5.0
"""Seconds between two reports; after 20 s without one a master closes the connection."""
WAIT_S = 0.5
"""How long a call waits for bytes."""
_RECEIVE_BYTES = 4 << 20


class ConnectionLostError(ConnectionError):
    """The connection to the master is closed, silent or broken; another one may go on."""


class LogStream:
    """A connection to a master that sends its log from one offset on."""

    def __init__(self, host: str, port: int, begin: int, file_size: int, is_stopped: Callable[[], bool]) -> None:
        """Connect, and ask for the log from an offset on, or with 0 for the newest file.

        Raises:
            ConnectionLostError: The master cannot be reached.
            StoppedError: `is_stopped` returned True. Every call may raise it.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._position = begin
        self._file_size = file_size
        self._left = 0
        self._unread = bytearray()
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._heard = self._reported = time.monotonic()
        try:
            self._wire = Wire(host, port, SILENT_S, is_stopped)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None

    def report(self, offset: int) -> None:
        """Tell the master the end of the copy: everything before it is acknowledged.

        Raises:
            ConnectionLostError: The master cannot be reached.
        """
        try:
            self._wire.send(REPORT.pack(offset), time.monotonic() + SILENT_S)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        self._reported = time.monotonic()

    @property
    def is_report_due(self) -> bool:
        """Whether the last report is so old that the master needs another one."""
        return self._reported + REPORT_S <= time.monotonic()

    def receive(self, log: bytearray) -> None:
        """Wait a moment for bytes of the log, and append them.

        Raises:
            ConnectionLostError: The master closed the connection, or sent nothing for 20 s.
            CorruptFileError: The bytes are not the log from the next offset on.
        """
        try:
            count = self._wire.receive_into(self._buffer, time.monotonic() + WAIT_S)
        except TimeoutError:
            if self._heard + SILENT_S <= time.monotonic():
                raise ConnectionLostError(f"{self._address}: silent for {SILENT_S:.0f} s") from None
            return
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        if not count:
            raise ConnectionLostError(f"{self._address}: the master closed the connection")
        self._heard = time.monotonic()
        self._take(self._buffer[:count], log)

    def _take(self, received: memoryview, log: bytearray) -> None:
        """Take the headers out of what was received."""
        at = 0
        while at < len(received):
            if self._left:
                piece = received[at : at + self._left]
                log += piece
                self._left -= len(piece)
                self._position += len(piece)
                at += len(piece)
                continue
            piece = received[at : at + HEADER.size - len(self._unread)]
            self._unread += piece
            at += len(piece)
            if len(self._unread) == HEADER.size:
                offset, size = HEADER.unpack(self._unread)
                self._unread.clear()
                self._check(offset, size)
                self._left = size

    def _check(self, offset: int, size: int) -> None:
        if offset != self._position:
            raise CorruptFileError(
                self._address,
                self._position,
                f"the log from offset {self._position} on, where the copy ends",
                f"offset {offset}",
            )
        if not 0 <= size <= self._file_size:
            expected = f"0 to {self._file_size} bytes, those of a file of the log"
            raise CorruptFileError(self._address, offset, expected, f"{size} bytes")

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()
