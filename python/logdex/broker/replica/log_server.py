"""The stream of a log to slaves (HA protocol), as a master sends it. `LogStream` in `master` is the other side.

Source: HAConnection, HAService. Unlike a master of 4.9.3 this one sends an empty slave everything, and closes a connection whose
report is outside of the log: a report beyond its end would acknowledge bytes that no slave has.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from logdex.broker.replica.master import HEADER, REPORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._core import CommitLog

FRAME_BYTES = 32_768
"""Largest number of bytes in a frame (haTransferBatchSize)."""
HEARTBEAT_S = 5.0
"""Longest time between two frames to a slave (haSendHeartbeatInterval)."""
SILENT_S = 20.0
"""Time without a report after which a slave is dropped (haHousekeepingInterval)."""
FALL_BEHIND_BYTES = 256 << 20
"""Missing bytes above which a slave does not count as available (haSlaveFallbehindMax)."""
LOOK_S = 0.1
"""Seconds between two polls of the end of the log."""
_FRAMES = 32
"""Frames that are read at once."""
_CONNECTIONS = 64

_log = logging.getLogger(__name__)


class LogServer:
    """Sends a log to the slaves that connect. Every method but `wake` is called by the thread of the event loop."""

    def __init__(
        self, log: CommitLog, file_size: int, end: Callable[[], int], wrote: Callable[[], int] | None = None
    ) -> None:
        """Serve a log in files of this size.

        `end` returns the offset up to which it can be read, `wrote` that after the last message, by default the same. Any thread
        may call them.
        """
        self._log = log
        self._end = end
        self._wrote = wrote or end
        self._file_size = file_size
        self._files: dict[int, Path] = {}
        """Files by the offset of their first byte. The cache may have deleted files and lack new ones."""
        self._warned: set[str] = set()
        """Hosts of slaves for which a warning was logged that they need a new copy."""
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._grown = asyncio.Event()
        self._reported = asyncio.Event()
        self.slaves = 0
        """Connections, from their first moment on."""
        self.acknowledged = 0
        """The greatest end of a copy that a slave reported. A slave that is gone still counts."""

    @property
    def end(self) -> int:
        """The end of the log, some of which may not be readable yet."""
        return self._wrote()

    @property
    def is_near(self) -> bool:
        """True if a slave is connected, and has nearly all of the log (haSlaveFallbehindMax)."""
        return self.slaves > 0 and self._end() - self.acknowledged < FALL_BEHIND_BYTES

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            OSError: The address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the connections, and listen no more."""
        if self._server is None:
            return
        self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks])
        self._server = None

    def wake(self) -> None:
        """Send new messages now, and not at the next poll. Any thread may call this."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._grown.set)

    async def wait_for(self, offset: int, seconds: float) -> bool:
        """Wait until a slave has everything before an offset, for at most this many seconds; return whether it has."""
        assert self._loop is not None  # noqa: S101 -- it was started
        until = self._loop.time() + seconds
        while self.acknowledged < offset:
            left = until - self._loop.time()
            if left <= 0:
                return False
            self._reported.clear()
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._reported.wait(), left)
        return True

    # A connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- for the type checker
        address = writer.get_extra_info("peername") or ("?",)
        if len(self._tasks) >= _CONNECTIONS:
            _log.warning("slave %s: dropped: too many connections", address)
            writer.transport.abort()
            return
        self._tasks.add(task)
        self.slaves += 1
        try:
            begin = await self._first_report(reader, str(address[0]))
            _log.info("slave %s: takes the log from offset %s on", address, begin)
            reports = asyncio.create_task(self._read_reports(reader))
            sends = asyncio.create_task(self._send(writer, begin))
            try:
                done, _ = await asyncio.wait({reports, sends}, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            finally:
                for each in (reports, sends):
                    each.cancel()
                # Before Python 3.12 a wait_for that has its result loses the cancellation; the end of the connection stays.
                writer.transport.abort()
                await asyncio.gather(reports, sends, return_exceptions=True)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
            _log.info("slave %s: dropped: %s", address, str(error) or "no report in time")
        except asyncio.CancelledError:
            pass
        finally:
            self.slaves -= 1
            self._tasks.discard(task)
            self._reported.set()
            writer.transport.abort()

    async def _report(self, reader: asyncio.StreamReader) -> int:
        """Return the next report; raise ValueError if it is beyond the log."""
        (offset,) = REPORT.unpack(await asyncio.wait_for(reader.readexactly(REPORT.size), SILENT_S))
        if not 0 <= offset <= (end := self._end()):
            raise ValueError(f"report {offset} of a log that ends at {end}")
        return int(offset)

    async def _first_report(self, reader: asyncio.StreamReader, host: str) -> int:
        begin = await self._report(reader)
        # Only here, because the minimum needs a listing of the log, and a slave reports each frame.
        if begin and begin < (minimum := self._log.min_offset):
            text = f"report {begin} of a log that begins at {minimum}"
            if host not in self._warned:
                # The protocol has no errors: a slave of 4.9.3 connects again and again.
                self._warned.add(host)
                _log.warning("slave %s: %s: what it needs next was deleted, so it needs a new copy", host, text)
            raise ValueError(text)
        self._acknowledge(begin)
        return begin or self._log.min_offset

    async def _read_reports(self, reader: asyncio.StreamReader) -> None:
        while True:
            self._acknowledge(await self._report(reader))

    def _acknowledge(self, offset: int) -> None:
        if offset > self.acknowledged and offset <= self._end():
            self.acknowledged = offset
            self._reported.set()

    async def _send(self, writer: asyncio.StreamWriter, position: int) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            self._grown.clear()
            frames, position = await loop.run_in_executor(None, self._frames, position)
            if not frames and loop.time() - last >= HEARTBEAT_S:
                frames = HEADER.pack(position, 0)
            if frames:
                writer.write(frames)
                await writer.drain()
                last = loop.time()
            else:
                with suppress(TimeoutError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._grown.wait(), LOOK_S)

    def _frames(self, position: int) -> tuple[bytes, int]:
        """Return some frames from a position on, and the position after them; they end with a file, and with the log."""
        start = position - position % self._file_size
        end = min(self._end(), start + self._file_size, position + _FRAMES * FRAME_BYTES)
        if position >= end:
            return b"", position
        data = self._read(start, position - start, end - position)
        frames = []
        for at in range(0, len(data), FRAME_BYTES):
            piece = data[at : at + FRAME_BYTES]
            frames += [HEADER.pack(position + at, len(piece)), piece]
        return b"".join(frames), position + len(data)

    def _read(self, start: int, at: int, count: int) -> bytes:
        if start not in self._files:
            self._files = {int(path.name): path for path in map(Path, self._log.files)}
        path = self._files.get(start)
        if path is None:
            raise FileNotFoundError(f"the log has no file of offset {start} any more")
        with path.open("rb") as file:
            return os.pread(file.fileno(), count, at)
