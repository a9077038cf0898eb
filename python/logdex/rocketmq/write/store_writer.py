"""A store that logdex writes: what a broker does with its store, without the broker."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._files import Closing
from logdex.rocketmq.write.input import PutResult, all_properties, joined, no_messages, optional_ms, put_batches
from logdex.rocketmq.write.options import DEFAULT_DELAY_LEVELS, StoreOptions
from logdex.rocketmq.write.parts import StoreParts
from logdex.rocketmq.write.services import store_services

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo
    from os import PathLike
    from typing import NoReturn

    from arro3.core import RecordBatch
    from typing_extensions import Self

    from logdex._types import Body, Compat, Flush, Time
    from logdex.report import Report
    from logdex.rocketmq.write.services import ServiceThread


class StoreWriter(Closing):
    """Puts messages into a store of its own, byte for byte as a 4.9.3 broker does; a broker goes on with it after `close`.

    Open it with `StoreWriter.open`. Puts may come from many threads. While it is open no broker and no other writer takes the
    store; readers (`MessageStore`) may. It belongs to the process that opened it, and does not pickle.

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
        """Open the parts; `open` is the way in."""
        self._root = root.absolute()
        self._process = os.getpid()
        self._closed = False
        self._parts = parts = StoreParts(root, options)
        self._services = store_services(parts) if services else None
        # Neither knows the writer, so one that is forgotten without `close`, or left at the end of the interpreter, ends them.
        self._end = weakref.finalize(self, _abandon, parts, self._services, self._process)

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
    ) -> Self:
        """Open a store for writing, or begin a new one.

        It does what a broker's start does: takes the lock of the store, looks for the end of the log, cuts off from log, queues
        and index what lies behind it, and dispatches what queues and index lack. Other than a broker it refuses to cut
        where sound messages lie behind damage, and what it cuts off cannot come back. Where it refuses, nothing was changed.

        Args:
            root: A store; or a directory that is missing or empty, for a new one.
            file_size: Bytes of a file of the log (mappedFileSizeCommitLog); None: those that are there, else 1 GiB.
            queue_file_size: Bytes of a file of a queue (mappedFileSizeConsumeQueue); None: likewise, 6,000,000.
            batch_queue_file_size: Bytes of a file of a batch queue (5.x); None: likewise, 13,800,000.
            extension_file_size: Bytes of a file of extensions of queues (mappedFileSizeConsumeQueueExt), for queues that have
                them; None: likewise, without.
            hash_slots: Slots of each index file (maxHashSlotNum); None: likewise, 5,000,000.
            max_entries: Entries of each index file plus one (maxIndexNum); None: likewise, 20,000,000.
            zone: Time zone of the names of index files: the broker's, by name or as tzinfo; None: the machine's.
            store_host: The broker, as `ip:port` or `[ipv6]:port`, of messages that name none; it is in their ids.
            delay_levels: The delays of delayed messages (messageDelayLevel).
            flush: When the log goes to the disk: "async", twice a second by a thread; "sync", before a put returns; "none", with
                `flush` and `close`.
            last_exit_ok: How the last writer ended; None: as the file `abort` says, which is there after a crash.
            truncate: Cut the log off at damage, although sound messages lie behind it.
            services: A thread dispatches, delivers scheduled messages, flushes queues and writes the checkpoint, as those of a
                broker do; False: that is done where it is called for, and by `close`.
            begin_phy_offset: Where the log of a new store begins: the first byte of a file.
            compat: "5.5.0" indexes tags, as that broker does; an index that holds messages with tags goes on as it is.

        Raises:
            CorruptFileError: Sound messages lie behind damage; or the table of delay levels cannot be read.
            LockedError: A running broker or another writer holds the store, with the process.
            FileExistsError: The directory is neither a store nor empty.
            GeometryError: Slots and entries were not given and cannot be told from the index files.
            ValueError: Sizes that are not those of the store, or that no store has.
            OSError: The system refuses.
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
        )
        return cls(Path(root), options, services=services)

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

        Args:
            topic: The topic.
            body: The body, which is stored as it is.
            queue_id: The queue of the topic.
            tags: Its tags (property TAGS).
            keys: Its keys (property KEYS): a text with spaces between them, or several texts.
            properties: Further properties.
            delay_level: Park it for the delay of this level, 1 to 18 with the broker's own levels; 0: do not.
            flag: The application's flag.
            uniq_key: The producer's id (property UNIQ_KEY).
            sys_flag: The system's flag, as it is but for the bits of the hosts' lengths. The body must be compressed as it
                says.
            born_timestamp: When the producer made it; None: now.
            born_host: The producer, as `ip:port` or `[ipv6]:port`; None: the store's host.
            store_timestamp: When it was stored, for messages that are restored; None: now.
            store_host: The broker; None: the store's.

        Raises:
            ValueError: It is no message: a topic, a property or a size that a broker would refuse, too.
            OSError: The system refuses; where the disk is full, nothing was written.
        """
        self._check_open()
        result = self._parts.log.put_message(
            topic,
            body,
            all_properties(properties, keys=keys, tags=tags, uniq_key=uniq_key, delay_level=delay_level),
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=optional_ms(born_timestamp, "born_timestamp"),
            born_host=born_host,
            store_timestamp=optional_ms(store_timestamp, "store_timestamp"),
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
            messages: Arrow data with message columns, of which only `topic` is needed, or a mapping of columns. What is put is
                numbered and placed anew: `queue_offset`, `phy_offset`, `msg_id`, `store_size` and `body_crc` are passed over.
                `store_timestamp` is kept where it is given.
            body: "decoded": bodies are plain; "stored": as a log held them, perhaps compressed, as `sys_flag` says.
            park: Park messages with a delay level (property DELAY); False for messages that come from a log, where those
                that wait are parked and the others were delivered.

        Returns:
            A row a message: topic, queue_id, queue_offset, phy_offset, store_timestamp, msg_id, store_size.

        Raises:
            ValueError: A row is no message; of its batch nothing was written.
            TypeError: Neither Arrow data nor a mapping, or a column of another type.
            OSError: The system refuses; where the disk is full, nothing of the batch was written.
        """
        self._check_open()
        batches = put_batches(messages) or [no_messages()]
        try:
            return joined([self._parts.log.put_messages(batch, body=body, park=park) for batch in batches])
        finally:
            self._wake()

    def _wake(self) -> None:
        if self._services is not None:
            self._services.wake()

    # Services

    def dispatch(self) -> int:
        """Tell queues and index of what was put since the last time; give the number of messages.

        Raises:
            OSError: The system refuses; the rest is dispatched by the next call.
        """
        self._check_open()
        return self._parts.dispatch()

    def deliver_due(self, now: Time | None = None) -> int:
        """Put the scheduled messages whose time has come into their own topics; give their number.

        Args:
            now: The time; None: now.

        Raises:
            OSError: The system refuses; what was delivered is not delivered again.
        """
        self._check_open()
        return self._parts.deliver_due(optional_ms(now, "now"))

    def flush(self) -> None:
        """Dispatch all that was put and bring it to the disk: log, queues, index, and the checkpoint that says so.

        Raises:
            OSError: The system refuses.
        """
        self._check_open()
        self._parts.flush()

    # State

    @property
    def root(self) -> Path:
        """The store's root directory, as an absolute path."""
        return self._root

    @property
    def recovered(self) -> Report:
        """What opening found and did: damage at the end of the log, what was cut off and dispatched again."""
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
    def flushed_offset(self) -> int:
        """Offset in the log before which everything is on the disk."""
        return self._parts.log.flushed_offset

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise ValueError("a store that is open for writing belongs to the process that opened it")
        if self._closed:
            raise ValueError("the store is closed for writing")
        self._raise_service_error()

    def _raise_service_error(self) -> None:
        if self._services is not None and self._services.error is not None:
            raise self._services.error

    # End

    def close(self) -> None:
        """Dispatch and flush everything and end as a broker that is shut down; a second call does nothing.

        Raises:
            OSError: The system refuses, now or in the services before. The store is let go all the same, as after a crash.
        """
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._end.detach()
        if self._services is not None:
            self._services.stop()
            if self._services.error is not None:
                self._parts.abandon()
                raise self._services.error
        self._parts.close()

    def __repr__(self) -> str:
        """Name the root."""
        return f"{type(self).__name__}({str(self._root)!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse: who holds the lock of a store cannot be in two places."""
        raise TypeError("a StoreWriter does not pickle: it holds the lock of its store")


def _abandon(parts: StoreParts, services: ServiceThread | None, process: int) -> None:
    """Let a store go that nobody closed; what a forked child has of it is its parent's."""
    if process != os.getpid():
        return
    if services is not None:
        services.stop()
    parts.abandon()
