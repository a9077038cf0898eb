"""Writing a store without a broker."""

from __future__ import annotations

import atexit
import logging
import operator
import threading
import time
import weakref
from contextlib import suppress
from datetime import datetime, timezone
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from logdex._core import DEFAULT_DELAY_LEVELS, fork_generation, local_path, time_ms
from logdex._files import Closing
from logdex._types import check_int64
from logdex.errors import WriteFailedError
from logdex.rocketmq.write.options import StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.statistics import WriterStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import tzinfo
    from os import PathLike
    from pathlib import Path
    from typing import NoReturn

    from arro3.core import RecordBatch
    from typing_extensions import Self

    from logdex._types import Append, Body, Compat, Flush, Time
    from logdex.rocketmq.write.recovery import RecoveryReport
    from logdex.rocketmq.write.retention import Deleted, Retention

_PAUSE_SECONDS = 0.005
_RETRY_SECONDS = 1.0
_COMMIT_SECONDS = 0.2
"""commitIntervalCommitLog."""
_CLEAN_SECONDS = 10.0
"""cleanResourceInterval."""

_log = logging.getLogger(__name__)


class PutResult(NamedTuple):
    """The place of a message that was put, by the names of the message columns.

    A delayed message waits under the topic `SCHEDULE_TOPIC_XXXX`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    msg_id: str
    store_size: int


class WriterState(NamedTuple):
    """The state of a store that is written: what is wrong, and since when.

    "retrying": a service met an error that may pass, and tries again every second; puts go on. "failed": a write or an fsync
    failed; every later put, flush and close raises the error.
    """

    status: Literal["open", "retrying", "failed", "closed"]
    error: Exception | None = None
    since: datetime | None = None


class StoreWriter(Closing):
    """Writes a store, byte for byte as a 4.9.3 broker does; a broker can load it after `close`.

    Open it with `StoreWriter.open`. Any thread may put. While it is open, no broker and no other writer can open the store;
    readers (`MessageStore`) can. It works only in the process that opened it, and does not pickle.

    Example:
        >>> import tempfile
        >>> from logdex.rocketmq import MessageStore, StoreWriter
        >>> root = tempfile.mkdtemp()
        >>> with StoreWriter.open(root, file_size=65536, hash_slots=100, max_entries=400) as writer:
        ...     print(writer.put_message("Orders", b"two shirts", keys="order-1001").queue_offset)
        0
        >>> with MessageStore.open(root) as store:
        ...     print(store.find("Orders", "order-1001")[0].body)
        b'two shirts'
    """

    def __init__(self, root: Path, options: StoreOptions, *, services: bool) -> None:
        self._root = root.absolute()
        self._process = fork_generation()
        self._closed = False
        with suppress(Empty):
            while True:
                _dropped.get_nowait().stop()
        self._parts = parts = StoreParts(root, options)
        self._services = _Services(parts) if services else None
        # Neither refers to the writer, so a writer that is collected ends them.
        self._end = weakref.finalize(self, _abandon, parts, self._services, self._process)
        self._end.atexit = False
        if self._services is not None:
            self._services.start()

    @classmethod
    def open(
        cls,
        root: str | PathLike[str],
        *,
        file_size: int | None = None,
        queue_file_size: int | None = None,
        batch_queue_file_size: int | None = None,
        extension_file_size: int | None = None,
        hash_slots: int | None = None,
        max_entries: int | None = None,
        zone: str | tzinfo | None = None,
        store_host: str = "127.0.0.1:10911",
        delay_levels: str = DEFAULT_DELAY_LEVELS,
        flush: Flush = "async",
        last_exit_ok: bool | None = None,
        truncate: bool = False,
        services: bool = True,
        begin_phy_offset: int = 0,
        compat: Compat | None = None,
        max_message_size: int = 4 << 20,
        retention: Retention | None = None,
        multi_dispatch: bool | None = None,
        append: Append = "write",
        warm: bool = False,
        lock_memory: bool = False,
    ) -> Self:
        """Open a store for writing, or begin a new one.

        It does what a broker's start does: it takes the lock of the store, finds the end of the log, truncates log, queues and
        index there, and dispatches what queues and index lack. But it raises an error if there are valid messages after damage,
        and what it removes cannot come back. If it raises an error, nothing was changed.

        Args:
            root: A store; or, for a new one, a directory that is missing or empty.
            file_size: Bytes of a file of the log (mappedFileSizeCommitLog); None: as the existing files, else 1 GiB.
            queue_file_size: Bytes of a file of a queue (mappedFileSizeConsumeQueue); None: as the existing files, else 6,000,000.
            batch_queue_file_size: Bytes of a file of a batch queue (5.x); None: as the existing files, else 13,800,000.
            extension_file_size: Bytes of an extension file of a queue (mappedFileSizeConsumeQueueExt), for queues with such
                files; None: as the existing files, else no extension files.
            hash_slots: Slots of each index file (maxHashSlotNum); None: as the existing files, else 5,000,000.
            max_entries: Entries of each index file plus one (maxIndexNum); None: as the existing files, else 20,000,000.
            zone: Time zone of the names of index files: the broker's, by name or as tzinfo; None: the machine's.
            store_host: The broker of messages that name none, as `ip:port` or `[ipv6]:port`; it is part of their ids.
            delay_levels: The delays of delayed messages (messageDelayLevel).
            flush: When the log is flushed to the disk: "async", twice a second by a thread; "sync", before a put returns; "none",
                by `flush` and `close`.
            last_exit_ok: Whether the last writer closed the store; None: it did if there is no file `abort`.
            truncate: Truncate the log at damage even if there are valid messages after it.
            services: A thread dispatches, delivers scheduled messages, flushes queues and writes the checkpoint, as a broker
                does; False: the methods for it, and `close`, do that.
            begin_phy_offset: Offset at which the log of a new store begins: the first byte of a file.
            compat: The release of the broker that is going to load the store; None: 4.9.3. Messages that it refuses or could not
                read are refused: later releases take inner batches, more compression types and retry topics of 128 to 255 bytes.
                "5.5.0" indexes tags, too. An index that already holds messages with tags stays as it is.
            max_message_size: Bytes of the longest message that the broker takes (maxMessageSize).
            retention: When files are deleted, and how full the disk may be; None: nothing is deleted.
            multi_dispatch: Also dispatch messages to the queues that the property INNER_MULTI_DISPATCH names (enableMultiDispatch
                and enableLmq). A producer can name any topic there and so creates queues. None: True if the broker of the store
                left `config/lmqConsumerOffset.json` (enableLmq), else False.
            append: Where puts append; the files are the same. "write": to the file, by a system call; "mapped": to a map of the
                file, as a broker does by default, while a thread prepares the next file; "pool": to a buffer in memory, which a
                thread commits to the file every 200 ms (transientStorePoolEnable). With "pool" readers, and queues and index,
                lack what is not committed, and a killed process loses it, unless `flush="sync"`.
            warm: For "mapped": bring the pages of the next file into memory before they are needed (warmMapedFileEnable).
            lock_memory: For "mapped" and "pool": lock maps or buffers in memory; RLIMIT_MEMLOCK must allow it.

        Raises:
            CorruptFileError: There are valid messages after damage; or the table of delay levels cannot be read.
            LockedError: A running broker or another writer holds the store; it has the process id.
            FileExistsError: The directory is neither a store nor empty.
            GeometryError: Slots and entries were not given and cannot be inferred from the index files.
            ValueError: Sizes that are invalid or differ from those of the store; a new store in a broker's directory.
            OSError: An I/O error.
        """
        options = StoreOptions(
            file_size=file_size,
            queue_file_size=queue_file_size,
            batch_queue_file_size=batch_queue_file_size,
            extension_file_size=extension_file_size,
            hash_slots=hash_slots,
            max_entries=max_entries,
            zone=zone,
            store_host=store_host,
            delay_levels=delay_levels,
            flush=flush,
            last_exit_ok=last_exit_ok,
            truncate=truncate,
            begin_phy_offset=begin_phy_offset,
            compat=compat,
            max_message_size=max_message_size,
            retention=retention,
            multi_dispatch=multi_dispatch,
            append=append,
            warm=warm,
            lock_memory=lock_memory,
        )
        return cls(local_path(root), options, services=services)

    # Puts

    def put_message(
        self,
        topic: str,
        body: bytes = b"",
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        flag: int = 0,
        uniq_key: str | None = None,
        sys_flag: int = 0,
        born_timestamp: Time | None = None,
        born_host: str | None = None,
        store_timestamp: Time | None = None,
        store_host: str | None = None,
    ) -> PutResult:
        """Put one message. For many, `put_messages` is much faster.

        The body is stored as it is; `sys_flag` must name its compression. `keys`, one text with spaces between the keys or
        several texts, `tags` and `uniq_key` become the properties KEYS, TAGS and UNIQ_KEY. A `delay_level`, 1 to 18 with the
        default levels, parks the message for the delay of that level; 0 does not. Hosts are `ip:port` or `[ipv6]:port`, by
        default the store's; times are by default now. A `store_timestamp` is for messages that are restored.

        Raises:
            ValueError: A topic, a property, a flag or a size that the broker would refuse, too; see `compat` of `open`.
            OSError: An I/O error; if the disk is full, nothing was written.
            WriteFailedError: A write or an fsync failed, now or before; the writer is over.
        """
        self._check_open()
        self._parts.check_disk()
        result = self._parts.log.put_message(
            topic,
            body,
            _all_properties(properties, keys=keys, tags=tags, uniq_key=uniq_key, delay_level=delay_level),
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=_optional_ms(born_timestamp, "born_timestamp"),
            born_host=born_host,
            store_timestamp=_optional_ms(store_timestamp, "store_timestamp"),
            store_host=store_host,
        )
        self._wake()
        return PutResult._make(result)

    def put_messages(
        self,
        messages: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        *,
        body: Body = "decoded",
        park: bool = True,
    ) -> RecordBatch:
        """Put messages in their order.

        Args:
            messages: Arrow data with message columns, of which only `topic` is needed, or a mapping of columns. The messages get
                new places: `queue_offset`, `phy_offset`, `msg_id`, `store_size` and `body_crc` are ignored. A `store_timestamp`
                is kept.
            body: "decoded": bodies are plain; "stored": as a log holds them, perhaps compressed, by `sys_flag`.
            park: Park messages with a delay level (property DELAY). False for messages from a log: they were parked there.

        Returns:
            One row for each message: topic, queue_id, queue_offset, phy_offset, store_timestamp, msg_id, store_size.

        Raises:
            ValueError: A row is no message; nothing of its batch was written.
            TypeError: Neither Arrow data nor a mapping, or a column of another type.
            OSError: An I/O error; if the disk is full, nothing of the batch was written.
            WriteFailedError: A write or an fsync failed, now or before; the writer is over.
        """
        self._check_open()
        self._parts.check_disk()
        try:
            return self._parts.log.put_messages(messages, body=body, park=park)
        finally:
            self._wake()

    def put_each(self, sent: Sequence[Any], *, flush_timeout_s: float | None = None) -> list[Any]:
        """Put what several producers sent: messages and batches, each as a broker takes it.

        `logdex.rocketmq.serve` calls it. With `flush="sync"` one flush serves all of them.

        Args:
            sent: Objects with the attributes of a message, or plain sends; see `logdex._core.CommitLogWriter.put_each`.
            flush_timeout_s: With `flush="sync"`, the longest time to wait for the disk (syncFlushTimeout); None: no limit.
                `flushed_offset` shows what is on the disk then.

        Returns:
            For each object: queue_offset, phy_offset and msg_id of its messages; or the reason, if no log takes one. For plain
            sends: the frames of their answers, and the number of messages that were put.

        Raises:
            OSError: An I/O error; if the disk is full, nothing was written.
            WriteFailedError: A write or an fsync failed, now or before; the writer is over.
        """
        self._check_open()
        self._parts.check_disk()
        try:
            return self._parts.log.put_each(sent, flush_timeout_s=flush_timeout_s)
        finally:
            self._wake()

    def follow(self, seen: Callable[[list[tuple[str, int, int]]], None] | None) -> None:
        """Show readers each message as soon as it is dispatched, and call `seen` then, in the service thread.

        `seen` is called with the queues that grew: topic, queue id, and queue offset of the next message. None: readers see
        messages within a second again. It needs the service thread.

        Raises:
            ValueError: The writer was opened with `services=False`.
        """
        if seen is not None:
            self._check_open()
            if self._services is None:
                raise ValueError("services=False: expected a writer with its thread")
        if self._services is not None:
            self._services.seen = seen

    def _wake(self) -> None:
        if self._services is not None:
            self._services.wake()

    # Services

    def dispatch(self) -> int:
        """Dispatch what was put to queues and index; return the number of messages.

        Raises:
            OSError: An I/O error; the next call dispatches the rest, unless it is a WriteFailedError.
        """
        self._check_open()
        self._parts.log.commit()
        return self._parts.dispatch()

    def deliver_due(self, now: Time | None = None) -> int:
        """Put the scheduled messages that are due, by default now, into their own topics; return their number.

        Raises:
            OSError: An I/O error; what was delivered is not delivered again.
        """
        self._check_open()
        self._parts.log.commit()
        return self._parts.deliver_due(_optional_ms(now, "now"))

    def flush(self) -> None:
        """Dispatch what was put, flush log, queues and index to the disk, and write the checkpoint.

        Raises:
            OSError: An I/O error.
        """
        self._check_open()
        self._parts.flush()

    def delete_expired(self, reserved_hours: float | None = None) -> Deleted:
        """Delete the log files to which nothing was written for some hours, and the queue and index files that follow.

        The newest file of the log, of each queue and of the index stays. It is safe at any hour, and in a crash at any point.
        Messages that wait for their delivery go with their log file, as at a broker.

        Args:
            reserved_hours: The age; None: that of the option `retention`, and the oldest files whatever their age if the disk is
                too full.

        Raises:
            ValueError: The store was opened without `retention`, and no age was given; or the age is below 0.
            OSError: An I/O error; the next call deletes the rest.
        """
        self._check_open()
        return self._parts.delete_expired(reserved_hours)

    # State

    @property
    def root(self) -> Path:
        """The store's root directory, as an absolute path."""
        return self._root

    @property
    def options(self) -> StoreOptions:
        """The options that it was opened with."""
        return self._parts.options

    @property
    def recovered(self) -> RecoveryReport:
        """The result of opening: damage at the end of the log, what was truncated and dispatched again."""
        return self._parts.recovered

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the log."""
        self._check_open()
        return self._parts.min_offset

    @property
    def max_offset(self) -> int:
        """Offset in the log after the last message."""
        return self._parts.log.wrote_offset

    @property
    def committed_offset(self) -> int:
        """Offset in the log up to which readers see messages: `max_offset`, except with `append="pool"`."""
        return self._parts.log.committed_offset

    @property
    def file_size(self) -> int:
        """Bytes of a file of the log."""
        return self._parts.log.file_size

    @property
    def flushed_offset(self) -> int:
        """Offset in the log up to which everything is on the disk."""
        return self._parts.log.flushed_offset

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def state(self) -> WriterState:
        """The state of the writer: it can go on, or the error and since when."""
        failure = self._parts.failure
        if failure is not None:
            return WriterState("failed", *failure)
        if self._closed:
            return WriterState("closed")
        return WriterState("open") if self._services is None else self._services.state

    def statistics(self) -> WriterStatistics:
        """Return what the writer did since it was opened, and what it has still to do.

        Raises:
            OSError: The use of the disk cannot be read.
        """
        self._check_open()
        log = self._parts.log
        behind = max(0, log.wrote_offset - self._parts.dispatched_offset)
        return WriterStatistics.of(log.counter, self._root, behind=behind)

    def _check_open(self) -> None:
        if self._process != fork_generation():
            raise ValueError("a store opened for writing belongs to the process that opened it")
        if self._closed:
            raise ValueError("the store is closed for writing")
        self._parts.check()

    # End

    def close(self) -> None:
        """Dispatch and flush everything and close as a broker that is shut down; a second call does nothing.

        If an exception interrupts it, the store is left as after a crash.

        Raises:
            WriteFailedError: A write or an fsync failed, now or before. The store is closed all the same, as after a crash.
            OSError: An I/O error. The store is closed all the same, as after a crash.
        """
        if self._process != fork_generation() or self._parts.released:
            return
        self._closed = True
        if self._services is not None:
            self._services.stop()
        self._parts.close()
        self._end.detach()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._root)!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse: only one object can hold the lock of a store."""
        raise TypeError("a StoreWriter cannot be pickled: it holds the lock of its store")


def _all_properties(
    properties: Mapping[str, str] | None,
    *,
    keys: str | Iterable[str] | None,
    tags: str | None,
    uniq_key: str | None,
    delay_level: int,
) -> list[tuple[str, str]]:
    """Return the properties of a message, including those that have their own arguments."""
    given = dict(properties) if properties else {}
    if keys is not None and not isinstance(keys, str):
        keys = " ".join(keys)
    given |= {name: text for name, text in (("KEYS", keys), ("TAGS", tags), ("UNIQ_KEY", uniq_key)) if text}
    if delay_level:
        check_int64(delay_level=delay_level)
        if delay_level < 0:
            raise ValueError(f"delay_level={delay_level}: expected 0 or more")
        # True is level 1.
        given["DELAY"] = str(operator.index(delay_level))
    return list(given.items())


def _optional_ms(value: Time | None, name: str) -> int | None:
    """Return a time in ms; None stays None. `name` is the argument in errors."""
    return None if value is None else time_ms(value, name=name)


_dropped: SimpleQueue[_Services] = SimpleQueue()
"""The services of writers that were not closed. `open` waits for them, so that their stores can be opened again at once."""


def _abandon(parts: StoreParts, services: _Services | None, process: int) -> None:
    """Release a store that was not closed; in a forked child it belongs to the parent.

    The cyclic collector may call this in any thread at any line. So it takes no lock and waits for no thread: a running service
    thread releases the store itself, after its current call.
    """
    if process == fork_generation():
        if services is None or not services.end():
            parts.abandon()
        else:
            _dropped.put(services)


class _Services:
    """A thread that dispatches after puts, and at intervals delivers, flushes queues, saves offsets and checkpoint, and cleans.

    It tries again after an error that may pass, and ends with the first failed write or fsync.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        # Only this queue is safe in a finalizer, which may run in the thread that waits for it.
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._woken = self._stopped = self._serving = self._abandoned = False
        self._failing: dict[str, WriterState] = {}
        self._process = fork_generation()
        self._thread: threading.Thread | None = None
        self.seen: Callable[[list[tuple[str, int, int]]], None] | None = None
        """The call after messages were dispatched and are visible to readers. It raises nothing."""
        self._seen_offset = 0

    @property
    def state(self) -> WriterState:
        """The error that is tried again for the longest time, if there is one."""
        return next(iter([*self._failing.values()]), WriterState("open"))

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="logdex-store", daemon=True)
        # A daemon thread that is in Rust when the interpreter ends would abort the process.
        atexit.register(self.stop)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread to dispatch."""
        if not self._woken:
            self._woken = True
            self._signals.put(None)

    def end(self) -> bool:
        """Make the thread abandon the store after its current call; return whether it will."""
        self._abandoned = self._stopped = True
        self._signals.put(None)
        return self._serving

    def stop(self) -> None:
        """End the thread after its current call and wait for it; a forked child has no thread."""
        if self._process == fork_generation():
            self._stopped = True
            self._signals.put(None)
            if self._thread is not None and self._thread.is_alive():
                self._thread.join()
            with suppress(OSError):
                # When the interpreter ends, nobody else does.
                self._parts.log.commit()
            atexit.unregister(self.stop)

    def _run(self) -> None:
        self._serving = True
        try:
            self._serve()
        finally:
            # In this order: `end` sets one and then reads the other, so one of the two abandons the store.
            self._serving = False
            if self._abandoned:
                self._parts.abandon()

    def _serve(self) -> None:
        parts = self._parts
        # Seconds until a service is called again.
        pauses: dict[Callable[[], object], float] = {parts.flush_queues: 1.0, parts.save_delay_offsets: 10.0}
        pauses |= {parts.deliver_due: 0.1, parts.write_checkpoint: 60.0}
        due = {call: time.monotonic() + seconds for call, seconds in pauses.items()}
        if parts.options.retention is not None:
            pauses[parts.clean], due[parts.clean] = _CLEAN_SECONDS, 0.0
        while self._goes_on():
            with suppress(Empty):
                self._signals.get(timeout=max(0.0, min(due.values()) - time.monotonic()))
            if self._woken:
                self._woken = False
                due.setdefault(parts.dispatch, 0.0)
            for call in [call for call, at in due.items() if at <= time.monotonic() and self._goes_on()]:
                passed = self._try(call)
                if passed and call in (parts.dispatch, parts.deliver_due):
                    self._let_see()
                if passed and call == parts.dispatch:
                    del due[call]
                    if parts.options.append == "pool" and parts.log.wrote_offset > parts.dispatched_offset:
                        # The rest is not committed yet.
                        due[call] = time.monotonic() + _COMMIT_SECONDS
                    # Without a pause single puts would be dispatched one by one, and compete for the interpreter lock.
                    time.sleep(_PAUSE_SECONDS)
                else:
                    due[call] = time.monotonic() + max(pauses.get(call, 0.0), 0.0 if passed else _RETRY_SECONDS)

    def _let_see(self) -> None:
        """Report that messages were dispatched."""
        # Another thread may take it away meanwhile.
        seen = self.seen
        if seen is None:
            return
        if self._parts.log.wrote_offset > self._parts.dispatched_offset:
            # Delivered messages wait to be dispatched.
            self.wake()
        dispatched = self._parts.dispatched_offset
        if dispatched > self._seen_offset and self._try(lambda: seen(self._parts.show_queues()), "show_queues"):
            self._seen_offset = dispatched

    def _goes_on(self) -> bool:
        return not self._stopped and self._parts.failure is None

    def _try(self, call: Callable[[], object], name: str | None = None) -> bool:
        """Call a service; return whether it passed."""
        name = name or call.__name__
        try:
            call()
        except WriteFailedError as error:
            _log.error("%s: %s", name, error)
            return False
        except Exception as error:  # noqa: BLE001 -- a passing error is tried again, and logged
            if name not in self._failing:
                _log.warning("%s: %s; it is tried again every second", name, error)
                self._failing[name] = WriterState("retrying", error, datetime.now(timezone.utc))
            return False
        if self._failing.pop(name, None) is not None:
            _log.warning("%s passes again", name)
        return True
