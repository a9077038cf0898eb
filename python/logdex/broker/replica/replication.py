"""A slave of a running broker: it follows the master's log and acknowledges what is on the disk.

Source: HAService.HAClient, SlaveSynchronize. Beyond what a slave of 4.9.3 does, it drops a silent master, stops if copy and
master differ, and requests whether the master's log still has what comes next.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._core import CommitLog, local_path, read_file
from logdex.broker.replica.master import ConnectionLostError, LogStream, MasterClient, MasterState, StoppedError
from logdex.errors import CorruptFileError, GeometryError
from logdex.report import Report
from logdex.rocketmq import fastjson
from logdex.rocketmq.broker_config import OFFSETS, members_of, parse_offsets, write_table
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.write.options import StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.source import OFFSET_NAME

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from logdex._types import Progress
    from logdex.broker.replica.master import MasterState
    from logdex.rocketmq.broker_config import ConfigName


_GEOMETRY = ("hash_slots", "max_entries")

_log = logging.getLogger(__name__)


class StoreCopy:
    """A store that is written from a master's log. It ends with a whole message, so a broker and `MessageStore` read it."""

    def __init__(self, root: Path, master: MasterState) -> None:
        """Open a copy where it stopped, or begin one where the master's log begins.

        Raises:
            CorruptFileError: The copy is damaged where the master's log does not reach any more.
            LockedError: A running broker or another writer holds the store.
            FileExistsError: The directory is neither a store nor empty.
            ValueError: The files of the copy have another size than the master's.
            OSError: An I/O error.
        """
        self.layout = StoreLayout(root, root / "commitlog")
        options = StoreOptions(
            file_size=master.file_size,
            begin_phy_offset=master.min_offset,
            flush="none",
            **self._sizes(master.store_options),
        )
        try:
            self._parts = self._open(options, master)
        except CorruptFileError as error:
            offset = self._log_offset(error)
            if offset is None or offset < master.min_offset:
                raise
            _log.warning("%s; the copy is truncated there, and the master sends the rest again", error)
            self._parts = self._open(replace(options, truncate=True), master)

    def _open(self, options: StoreOptions, master: MasterState) -> StoreParts:
        try:
            return StoreParts(self.layout.root, options)
        except GeometryError:
            # The index files do not show their geometry, because no message had a key.
            slots, entries = (master.store_options.get(name) for name in _GEOMETRY)
            return StoreParts(self.layout.root, replace(options, hash_slots=slots, max_entries=entries))

    def _sizes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that new files need; files that exist keep their sizes."""
        kept = [*(_GEOMETRY if any(self.layout.index.glob("*")) else ())]
        kept += ["queue_file_size", "extension_file_size"] if any(self.layout.queues.glob("*/*/*")) else []
        return {name: value for name, value in options.items() if name not in kept}

    def _log_offset(self, error: CorruptFileError) -> int | None:
        """Return the offset of the log at which an error found damage; None if it is about another file."""
        path = Path(error.path)
        is_log = path.parent.name == "commitlog" and OFFSET_NAME.fullmatch(path.name)
        return int(path.name) + error.offset if is_log else None

    @property
    def recovered(self) -> Report:
        """Report of the recovery when the copy was opened."""
        return self._parts.recovered

    @property
    def begin(self) -> int:
        """Offset of the first byte of the log."""
        return self._parts.min_offset

    @property
    def end(self) -> int:
        """Offset after the last message. After `sync`, all before it is on the disk."""
        return self._parts.log.wrote_offset

    def append(self, data: bytearray) -> tuple[int, int]:
        """Append the whole frames at the beginning of the master's bytes; see `CommitLogWriter.append_frames`."""
        return self._parts.log.append_frames(data)

    def sync(self) -> None:
        """Wait until everything that was appended is on the disk."""
        self._parts.log.flush()

    def dispatch(self) -> int:
        """Dispatch what was appended to queues and index, so that readers see it; return the number of messages."""
        return self._parts.dispatch()

    def flush_queues(self) -> None:
        """Flush the queues to the disk."""
        self._parts.flush_queues()

    def write_checkpoint(self) -> None:
        """Dispatch, flush log and queues, and write the checkpoint."""
        self._parts.write_checkpoint()

    def last_message(self) -> tuple[int, bytes] | None:
        """Return the stored bytes of the last message and its offset; None if there are no messages. It reads the last file.

        Raises:
            CorruptFileError: Its checksum is wrong: the copy is damaged.
        """
        end, file_size = self.end, self._parts.log.file_size
        with CommitLog.open(self.layout.commit_log) as log:
            begin = max(self.begin, (end - 1) // file_size * file_size)
            offset: int | None = None
            for batch in log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=("phy_offset",), check_crc=False):
                if batch.num_rows:
                    offset = batch.column("phy_offset")[-1].as_py()
            if offset is None:
                return None
            frame = log.stored_frames([offset], end - offset)
            if not frame:
                path, at = log.place(offset)
                raise CorruptFileError(path, at, "a last message with the checksum that it states", "another checksum")
            return offset, frame

    def close(self) -> None:
        """Dispatch and flush everything, and close as a broker that is shut down.

        Raises:
            OSError: An I/O error. The store is closed nevertheless, as after a crash.
        """
        self._parts.close()

    def abandon(self) -> None:
        """Close after an error, and ignore further errors."""
        with suppress(Exception):
            self._parts.close()


def write_tables(config: Path, bodies: Mapping[ConfigName, bytes]) -> None:
    """Write the master's tables into their files if they differ. A body that is not the table only gets a warning.

    Offsets of consumers are merged: groups that the master deleted stay.

    Raises:
        OSError: An I/O error.
    """
    for table, body in bodies.items():
        path = config / table.file
        old = read_file(path) if path.exists() else b""
        content = _merged(old, body) if table is OFFSETS else body
        if _members(table, content) is None:
            _log.warning("%s: expected this table of the master, found %.80r", table.file, body)
        elif content != old:
            write_table(path, content)


def _members(table: ConfigName, content: bytes) -> dict[str, Any] | None:
    """Return the members of a file's content; None if they lack the table."""
    try:
        members = members_of(content.decode())
    except ValueError:
        return None
    return members if isinstance(members.get(table.name), dict) else None


def _merged(old: bytes, body: bytes) -> bytes:
    """Return the offsets of the master, with those that only the copy has."""
    before, members = _members(OFFSETS, old), _members(OFFSETS, body)
    if before is None or members is None or before[OFFSETS.name].keys() <= members[OFFSETS.name].keys():
        return body
    try:
        offsets = parse_offsets(before[OFFSETS.name]) | parse_offsets(members[OFFSETS.name])
    except ValueError:
        return body
    members[OFFSETS.name] = {f"{topic}@{group}": queues for (topic, group), queues in offsets.items()}
    return fastjson.dumps(members).encode(errors="replace")


RETRY_S = 5.0
"""Seconds between two tries to reach the master."""
GIVE_UP_S = 60.0
"""Time without the master after which a copy with `once` gives up."""
TABLES_S = 10.0
"""Seconds between two requests for the master's tables and bounds."""
DISPATCH_S = 0.1
QUEUES_S = 1.0
CHECKPOINT_S = 60.0


def replicate(
    master: str,
    directory: str | os.PathLike[str],
    *,
    once: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Copy the store of a running broker, and follow it as its slave.

    The log is copied byte for byte, then its queues and index are built. The broker's topics, groups and offsets are copied
    into `config`. `MessageStore` may read the copy while it is written. A copy goes on where it stopped.

    Args:
        master: The address of the broker, `host:port` (listenPort, 10911 by default). The port of the log stream (haListenPort)
            is requested, and must be reachable on the same host.
        directory: The copy: a store that was copied from this broker, or a directory that is missing or empty.
        once: Return when the copy has all that the broker had at the start. Otherwise it follows the broker until an exception,
            such as KeyboardInterrupt, ends it; the copy is closed in any case.
        progress: Called with the bytes of the log that were copied, and those that the broker had at that moment. An exception
            that it raises ends the copy.

    Returns:
        A report without findings. Checked: log_bytes and messages that came, end_phy_offset of the copy, and master_end, that of
        the broker's log at the start.

    Raises:
        CorruptFileError: The broker's log does not continue the copy; `path` is the broker's address, and `offset` the place in
            the log. Or the broker sends impossible numbers, or the copy is damaged.
        LockedError: A running broker or another writer holds the directory.
        FileExistsError: The directory is neither a store nor empty.
        ValueError: No address, or the files of the copy have another size than the broker's.
        OSError: The broker cannot be reached, or an I/O error. With `once`: no log data arrived for 60 s.

    Example:
        >>> from logdex import rocketmq
        >>> rocketmq.replicate("127.0.0.1:10911", "/backup/store", once=True)  # doctest: +SKIP
    """
    return Replication(master, directory, once=once, progress=progress).run()


class Replication:
    """One run of `replicate`, which another thread can stop."""

    def __init__(
        self, master: str, directory: str | os.PathLike[str], *, once: bool = False, progress: Progress | None = None
    ) -> None:
        self._master = MasterClient(master, self._is_over)
        self._root = local_path(directory)
        self._once = once
        self._progress = progress
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._messages = 0
        self._master_end = 0
        self._is_complete = False
        self._ended = threading.Event()
        self._grown = 0.0
        """Time of the last received messages, on the monotonic clock."""

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._ended.is_set()

    def stop(self) -> None:
        """Make `run` close the copy and return. Any thread and any signal handler may call this."""
        self._stop.set()

    @property
    def is_complete(self) -> bool:
        """True if the copy has all that the broker had at the start."""
        return self._is_complete

    def run(self) -> Report:
        """Copy until the end or `stop`, and return the report; see `replicate`."""
        try:
            # In this order, every offset in the tables is before the end of the log.
            tables, state = self._master.tables(), self._master.state()
        except StoppedError:
            return Report([], {"log_bytes": 0, "messages": 0})
        self._master_end = target = state.max_offset
        if state.role == "SYNC_MASTER":
            _log.warning(
                "%s is a SYNC_MASTER: its sends wait until this copy has them on its disk, and fail with "
                "FLUSH_SLAVE_TIMEOUT while it is slow; copy from a slave to leave them alone",
                self._master.address,
            )
        copy = StoreCopy(self._root, state)
        begin = copy.end
        try:
            self._tell_recovered(copy)
            write_tables(copy.layout.config, tables)
            self._run(copy, state, begin)
            self._messages += copy.dispatch()
        except BaseException:
            copy.abandon()
            raise
        end = copy.end
        copy.close()
        counts = {"log_bytes": end - begin, "messages": self._messages}
        return Report([], {**counts, "end_phy_offset": end, "master_end": target})

    def _tell_recovered(self, copy: StoreCopy) -> None:
        self._messages += copy.recovered.checked.get("messages_dispatched", 0)
        for finding in copy.recovered.findings:
            _log.warning("%s; the copy was truncated there, and the master sends the rest again", finding)

    def _run(self, copy: StoreCopy, state: MasterState, begin: int) -> None:
        services = (
            _Service(lambda: self._dispatch(copy), DISPATCH_S),
            _Service(copy.flush_queues, QUEUES_S),
            _Service(copy.write_checkpoint, CHECKPOINT_S),
        )
        threads = [
            threading.Thread(target=self._serve, args=(services,), name="logdex-dispatch"),
            threading.Thread(
                target=self._serve, args=((_Service(lambda: self._ask(copy), TABLES_S),),), name="logdex-tables"
            ),
        ]
        for thread in threads:
            thread.start()
        try:
            self._grown = time.monotonic()
            with suppress(StoppedError):
                self._follow(copy, state, begin)
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
        self._raise_failure()

    # Threads

    def _serve(self, services: tuple[_Service, ...]) -> None:
        """Call services at their intervals until the copy ends. The first failure ends the copy."""
        try:
            while not self._ended.wait(max(0.0, min(service.due for service in services) - time.monotonic())):
                for service in services:
                    if service.due <= time.monotonic():
                        service.call()
                        service.put_off()
        except StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 -- raised by the thread that copies
            self._failure = self._failure or error

    def _dispatch(self, copy: StoreCopy) -> None:
        self._messages += copy.dispatch()

    def _ask(self, copy: StoreCopy) -> None:
        """Copy the master's tables, and compare its bounds with the copy."""
        try:
            tables = {} if self._once else self._master.tables()
            before = copy.end
            state = self._master.state()
        except OSError as error:
            _log.warning("the tables of the master are not copied: %s", error)
            return
        self._master_end = state.max_offset
        self._check_bounds(state, before, copy.end)
        write_tables(copy.layout.config, tables)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # The log

    def _follow(self, copy: StoreCopy, state: MasterState, begin: int) -> None:
        """Copy the log over one connection after the other."""
        target = state.max_offset
        while not self._stop.is_set():
            before = copy.end
            self._check_bounds(state, before, before)
            try:
                self._check_last_message(copy, state)
                if self._is_done(copy, target):
                    break
                self._stream(copy, state, begin, target)
            except ConnectionLostError as error:
                if self._once and self._is_stuck():
                    raise
                _log.warning("%s; it is tried again", error)
                state = self._ask_again() or state

    def _ask_again(self) -> MasterState | None:
        """Wait until the master answers again and return its state; None if the copy is stopped."""
        since = time.monotonic()
        while not self._stop.wait(RETRY_S):
            self._raise_failure()
            try:
                return self._master.state()
            except OSError as error:
                if self._once and time.monotonic() - since > GIVE_UP_S:
                    raise
                _log.warning("%s; it is tried again", error)
        return None

    def _is_stuck(self) -> bool:
        return time.monotonic() - self._grown > GIVE_UP_S

    def _is_done(self, copy: StoreCopy, target: int) -> bool:
        self._raise_failure()
        self._is_complete = self._is_complete or copy.end >= target
        return self._stop.is_set() or (self._once and self._is_complete)

    def _stream(self, copy: StoreCopy, state: MasterState, begin: int, target: int) -> None:
        # A master sends a slave without a log only its newest file. Its log begins with the first byte of a size below 2^24.
        asked = copy.end or int(state.max_offset > 0)
        log = bytearray(asked - copy.end)
        stream = LogStream(self._master.host, state.ha_port, asked, state.file_size, self._is_over)
        try:
            stream.report(asked)
            needed = 0
            while not self._is_done(copy, target):
                if self._once and self._is_stuck():
                    expected = f"the log up to offset {target}, found nothing after {copy.end} for {GIVE_UP_S:.0f} s"
                    raise ConnectionLostError(f"{self._master.address}: expected {expected}")
                try:
                    stream.receive(log)
                except CorruptFileError:
                    self._append(copy, log)
                    raise
                if log and len(log) >= needed:
                    needed = self._append(copy, log)
                    stream.report(copy.end or asked)
                elif stream.is_report_due:
                    stream.report(copy.end or asked)
                if self._progress is not None:
                    self._progress(copy.end - begin, max(self._master_end, copy.end) - begin)
        finally:
            stream.close()

    def _append(self, copy: StoreCopy, log: bytearray) -> int:
        """Append whole frames and bring them to the disk; return the bytes that the next one needs."""
        try:
            taken, needed = copy.append(log)
        except CorruptFileError as error:
            raise CorruptFileError(self._master.address, copy.end, error.expected, error.found) from None
        del log[:taken]
        if taken:
            self._grown = time.monotonic()
        copy.sync()
        return needed

    # Checks

    def _check_bounds(self, state: MasterState, before: int, end: int) -> None:
        """Raise if the master's log does not reach the copy's end, as it was before and after the request to the master."""
        if end < state.min_offset:
            expected = f"the log from offset {end} on, where the copy ends"
            found = f"a log that begins at offset {state.min_offset}; begin a new copy"
            raise CorruptFileError(self._master.address, end, expected, found)
        if before > state.max_offset:
            expected = f"a log up to offset {before}, as the copy has it"
            found = f"a log that ends at offset {state.max_offset}: the broker has lost what the copy has"
            raise CorruptFileError(self._master.address, state.max_offset, expected, found)

    def _check_last_message(self, copy: StoreCopy, state: MasterState) -> None:
        """Raise if the master has another message where the copy has its last one: they are different logs."""
        last = copy.last_message()
        if last is None or last[0] < state.min_offset:
            return
        offset, frame = last
        try:
            found = self._master.message(offset)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        if found != frame:
            what = "no message" if found is None else "another message"
            expected = f"the last message of the copy, {len(frame)} bytes"
            raise CorruptFileError(self._master.address, offset, expected, f"{what}: the copy is that of another log")


@dataclass(slots=True)
class _Service:
    """A call that is repeated."""

    call: Callable[[], object]
    pause_s: float
    due: float = field(init=False)
    """When it is called next, by the clock that never steps."""

    def __post_init__(self) -> None:
        self.put_off()

    def put_off(self) -> None:
        """Call it again after its pause."""
        self.due = time.monotonic() + self.pause_s
