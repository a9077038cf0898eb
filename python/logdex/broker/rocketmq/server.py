"""The server: its options, start and stop, and its periodic tasks."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arro3.core import RecordBatchReader

from logdex._core import SendTable, delay_levels_ms, local_path
from logdex.broker.listener import Limits, Listener
from logdex.broker.replica.log_server import LogServer
from logdex.broker.rocketmq.broker import Broker, Master, StoreView
from logdex.broker.rocketmq.handlers.sends import ILLEGAL_MESSAGE, REGION
from logdex.broker.rocketmq.handlers.transactions import CHECK_EVERY_S
from logdex.broker.rocketmq.service import BrokerService, read_access_keys
from logdex.broker.rocketmq.tables import ConsumerOffsets, GroupTable, TableWriter, TopicTable
from logdex.broker.wire import ResponseCode
from logdex.rocketmq.broker_config import LIGHT_OFFSETS, OFFSETS, read_members
from logdex.rocketmq.store import MessageStore
from logdex.rocketmq.write.store_writer import StoreWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any, TypeAlias

    from typing_extensions import Self

    from logdex._core import CommitLog
    from logdex._types import Append, Flush
    from logdex.broker.rocketmq.tables import Saving
    from logdex.rocketmq.write.options import StoreOptions
    from logdex.rocketmq.write.retention import Retention

    Tls: TypeAlias = "ssl.SSLContext | tuple[str | os.PathLike[str], str | os.PathLike[str]]"

_log = logging.getLogger(__name__)

FLUSH_TIMEOUT_S = 5.0
"""Time that producers wait for the disk (syncFlushTimeout)."""
SLAVE_TIMEOUT_S = 3.0
"""Time that producers wait for a slave (slaveTimeout)."""
_VIP = 2
"""A broker also listens this far below its port (the VIP channel). Its slaves request the topics there."""
_LOOK_S = 1.0
_SAVE_S = 5.0
_GRACE_S = 5.0
_ANY_HOST = {"0.0.0.0", "::", ""}  # noqa: S104 -- refused without an address for clients


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `serve`, by the same names."""

    host: str = "127.0.0.1"
    port: int = 10911
    advertise: str | None = None
    write: bool = False
    flush: Flush = "async"
    retention: Retention | None = None
    create_topics: bool = True
    check_every_s: float = CHECK_EVERY_S
    offsets: str | os.PathLike[str] | None = None
    tls: Tls | None = None
    acl: str | os.PathLike[str] | dict[str, str] | None = field(default=None, repr=False)
    broker_name: str | None = None
    cluster: str | None = None
    limits: Limits | None = None
    ha_port: int | None = None
    sync_slaves: bool = False
    sync_flush_timeout_s: float = FLUSH_TIMEOUT_S
    append: Append = "write"

    def __post_init__(self) -> None:
        """Check the options that do not depend on the store.

        Raises:
            ValueError: An option has a value that no server has.
        """
        if self.host in _ANY_HOST and self.advertise is None:
            raise ValueError(
                f"advertise: expected HOST:PORT that clients reach, because host={self.host!r} is every address"
            )
        if self.advertise is not None and not self.advertise.rpartition(":")[2].isdecimal():
            raise ValueError(f"advertise={self.advertise!r}: expected HOST:PORT")
        if not 0 <= self.sync_flush_timeout_s < float("inf"):
            raise ValueError(f"sync_flush_timeout_s={self.sync_flush_timeout_s}: expected seconds, 0 or more")

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> ServeOptions:
        """Return the options that a mapping has; its other members are ignored."""
        return cls(**{each.name: named[each.name] for each in fields(cls) if each.name in named})

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """Context of a server with a certificate and a key; None: no TLS."""
        if self.tls is None or isinstance(self.tls, ssl.SSLContext):
            return self.tls
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.tls)
        return context


@dataclass(frozen=True, slots=True)
class Running:
    """The parts of a server that runs."""

    listener: Listener
    service: BrokerService
    broker: Broker
    tables: TableWriter
    repeated: list[asyncio.Task[None]]


class Server:
    """A broker and its name server on one port, over a store. Use it with `async with`.

    Without `write` it takes no messages: nothing in the store is created, locked or changed, so the store's own broker may
    run. Offsets that consumers commit are kept in memory, or in a file of their own.
    """

    def __init__(self, store: str | os.PathLike[str] | MessageStore | StoreWriter, options: ServeOptions) -> None:
        self._is_master = options.write or isinstance(store, StoreWriter)
        if options.sync_slaves and (options.ha_port is None or not self._is_master):
            raise ValueError("sync_slaves: expected with ha_port, for a server that takes messages")
        if options.write and isinstance(store, MessageStore):
            raise ValueError("write: expected the path of a store, or an open StoreWriter; a MessageStore only reads")
        if self._is_master and options.offsets is not None:
            raise ValueError("offsets: a server that takes messages keeps them in the store, as a broker does")
        self._given = store
        self._options = options
        self._offsets = None if options.offsets is None else Path(local_path(options.offsets))
        self._slaves: LogServer | None = None
        self._address: str | None = None
        self._store: MessageStore | None = None
        self._writer: StoreWriter | None = None
        self.running: Running | None = None

    @property
    def address(self) -> str:
        """The address that clients take as that of the name server and the broker: `host:port`.

        Raises:
            ValueError: The server was not started.
        """
        if self._address is None:
            raise ValueError("the server was not started")
        return self._address

    @property
    def store(self) -> MessageStore:
        """The store that is served.

        Raises:
            ValueError: The server was not started.
        """
        if self._store is None:
            raise ValueError("the server was not started")
        return self._store

    async def start(self) -> None:
        """Open the store if a path was given, and listen.

        Raises:
            OSError: There is no store, the address is in use, or an I/O error.
            CorruptFileError: The file of offsets or of access keys is corrupt.
            ValueError: The server is running.
        """
        if self.running is not None:
            raise ValueError("the server runs already")
        given = self._given
        if isinstance(given, StoreWriter):
            self._writer = given
        elif self._is_master and not isinstance(given, MessageStore):
            self._writer = StoreWriter.open(
                given, flush=self._options.flush, retention=self._options.retention, append=self._options.append
            )
        try:
            if isinstance(given, StoreWriter):
                # Answers are read from the files, so they need the messages that were put before.
                given.flush()
            self._store = given if isinstance(given, MessageStore) else MessageStore.open(_root(given))
            await self._start(self._store)
        except BaseException:
            self._close_store()
            raise

    async def _start(self, store: MessageStore) -> None:
        view, writer, options = StoreView(store), self._writer, self._options
        acl = options.acl
        keys = acl if acl is None or isinstance(acl, dict) else read_access_keys(local_path(acl))
        tables = [view.table(table) for table in (OFFSETS, LIGHT_OFFSETS)]
        own_file = None
        if writer is not None:
            own_file = store.layout.config / OFFSETS.file
            # Like a broker, the server does not start with a file that it cannot read.
            read_members(own_file)
        offsets = ConsumerOffsets(tables, self._offsets, own_file)
        name, cluster = view.names()
        name, cluster = options.broker_name or name, options.cluster or cluster
        broker = Broker(view, name, cluster, "", offsets)
        if writer is not None:
            broker.master = self._master(view, writer.options, name, cluster)
        advertised = None if writer is None or options.advertise is None else await _resolved(options.advertise)
        table_writer = TableWriter(asyncio.get_running_loop())
        if writer is None:
            service = BrokerService(broker, keys)
        elif writer.options.flush == "sync":
            put_each = partial(writer.put_each, flush_timeout_s=options.sync_flush_timeout_s)
            service = BrokerService(
                broker, keys, put_each, partial(getattr, writer, "flushed_offset"), tables=table_writer
            )
        else:
            service = BrokerService(broker, keys, writer.put_each, tables=table_writer)
        listener = Listener(service, options.limits)
        try:
            if writer is not None:
                # This must happen before the first pull can wait.
                writer.follow(partial(_call_soon, asyncio.get_running_loop(), service.grown))
            host, port = await listener.start(options.host, options.port, options.tls_context)
        except BaseException:
            service.close()
            table_writer.close()
            raise
        bound = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        broker.address = self._address = options.advertise or bound
        repeated = [asyncio.create_task(_repeat(service, broker, table_writer))]
        self.running = Running(listener, service, broker, table_writer, repeated)
        # This must happen before the first await, so that no request was answered yet.
        if broker.master is not None and writer is not None:
            broker.master = replace(
                broker.master,
                store_host=advertised or bound,
                statistics=writer.statistics,
                waiting=service.waiting,
            )
            refused = (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL_MESSAGE)
            broker.master.topics.sends = SendTable(cluster, broker.master.store_host, REGION, *refused)
            repeated.append(asyncio.create_task(_check_transactions(service, options.check_every_s)))
        else:
            _warn_of_addresses(store, broker.address)
        try:
            await self._serve_slaves(broker, service, listener, (host, port))
        except BaseException:
            await self.stop()
            raise

    def _master(self, view: StoreView, store: StoreOptions, name: str, cluster: str) -> Master:
        """Return the topics and groups of a server that takes messages. It has no address yet."""
        config, levels = view.store.layout.config, len(delay_levels_ms(store.delay_levels))
        may_create = self._options.create_topics
        topics = TopicTable(config, name, cluster, levels, view.topics(), may_create=may_create)
        is_multi = bool(store.multi_dispatch)
        return Master(topics, GroupTable(config), "", store.flush, store.retention, multi_dispatch=is_multi)

    async def _serve_slaves(
        self, broker: Broker, service: BrokerService, listener: Listener, bound: tuple[str, int]
    ) -> None:
        """Listen for slaves: on the port of the log stream, and on the port where they request the topics."""
        if self._options.ha_port is None:
            return
        view = broker.view
        if view.is_remote:
            raise ValueError(f"ha_port: expected a store on this machine, found {view.store.root}")
        writer, log = self._writer, view.store.commit_log
        end = _KeptEnd(log) if writer is None else partial(getattr, writer, "committed_offset")
        file_size = view.log_file_size if writer is None else writer.file_size
        wrote = None if writer is None else partial(getattr, writer, "max_offset")
        slaves = LogServer(log, file_size, end, wrote)
        broker.is_synchronous = self._options.sync_slaves
        service.serve_slaves(slaves, SLAVE_TIMEOUT_S if self._options.sync_slaves else None)
        host, port = bound
        try:
            await listener.start(host, port - _VIP, self._options.tls_context)
        except (OSError, ValueError) as error:
            what = "a slave of 4.9.3 requests the topics there, logdex replicate does not"
            _log.warning("port %s: %s; %s", port - _VIP, error, what)
        self._slaves = slaves
        broker.ha_port = await slaves.start(host, self._options.ha_port)

    async def stop(self) -> None:
        """Stop accepting clients, send the remaining answers, and write the tables. A second call does nothing.

        Raises:
            OSError: A table cannot be written: topics, groups, or offsets of consumers.
        """
        if self.running is None:
            return
        running, self.running = self.running, None
        for task in running.repeated:
            task.cancel()
        try:
            await running.service.drain(_GRACE_S)
            if self._slaves is not None:
                await self._slaves.stop()
                self._slaves = None
            await running.listener.stop(_GRACE_S)
        finally:
            running.service.close()
            running.tables.close()
            try:
                _save_all(running.broker)
            finally:
                self._close_store()

    def _close_store(self) -> None:
        if self._store is not None and self._store is not self._given:
            self._store.close()
        if self._writer is not None:
            if self._writer is self._given:
                self._writer.follow(None)
            else:
                self._writer.close()
            self._writer = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def serve(
    store: str | os.PathLike[str] | MessageStore | StoreWriter,
    host: str = "127.0.0.1",
    port: int = 10911,
    *,
    advertise: str | None = None,
    write: bool = False,
    flush: Flush = "async",
    retention: Retention | None = None,
    create_topics: bool = True,
    check_every_s: float = CHECK_EVERY_S,
    offsets: str | os.PathLike[str] | None = None,
    tls: Tls | None = None,
    acl: str | os.PathLike[str] | dict[str, str] | None = None,
    broker_name: str | None = None,
    cluster: str | None = None,
    limits: Limits | None = None,
    ha_port: int | None = None,
    sync_slaves: bool = False,
    sync_flush_timeout_s: float = FLUSH_TIMEOUT_S,
    append: Append = "write",
) -> Server:
    """Serve a store to RocketMQ's clients and tools: a broker and its name server on one port.

    Args:
        store: The path of a store, or an open one. One that was opened with `compat` is served with that broker's answers. An
            open `StoreWriter` takes messages, with its own options, and stays open.
        host: The address to listen on.
        port: The port; 0: any free one.
        advertise: The address that clients connect to, `HOST:PORT`; None: the address that the server listens on.
        write: Also take messages: a broker for tests, restores and small jobs. The path may be a new store. While the server
            runs, no broker can open the store.
        flush: For `write`: "sync": a message is on the disk before its producer gets the answer; "async": the log is flushed
            twice a second.
        retention: For `write` with a path: when files are deleted, and how full the disk may be; None: nothing is deleted.
        create_topics: For `write`: create topics for producers that request it (autoCreateTopicEnable).
        check_every_s: For `write`: seconds between two checks of half messages with an open transaction
            (transactionCheckInterval).
        offsets: A file for the offsets that consumers commit; None: they are kept in memory. Those of the store are read in
            any case.
        tls: Certificate and key files, or a context: only TLS is spoken then. None: no TLS.
        acl: A file with access keys (`accessKey: A` and `secretKey: S`, as in tools.yml), or a dict of them: requests must be
            signed then. None: requests need no signature.
        broker_name: The broker's name; None: as the store's topics.json shows it, else `broker-a`.
        cluster: The cluster's name; None: likewise, `DefaultCluster`.
        limits: Limits on what clients may use; None: the defaults.
        ha_port: Let slaves follow, of 4.9.3 and `replicate`: the port of the log stream (haListenPort); 0: any free one. Nothing
            authenticates or encrypts it. A slave of 4.9.3 also needs `port` - 2.
        sync_slaves: For `write`: producers wait until a slave has their messages (SYNC_MASTER), for at most 3 s (slaveTimeout).
        sync_flush_timeout_s: For `write` with `flush="sync"`: seconds that producers wait for the disk (syncFlushTimeout). After
            it they get FLUSH_DISK_TIMEOUT: the message is stored, but a power loss may remove it.
        append: For `write` with a path: where messages are appended, as for `StoreWriter.open`.

    Returns:
        A server that is not started: use it with `async with`, or call `start` and `stop`.

    Raises:
        ValueError: `advertise` is no address, or is needed; or `write` with something else than a path or a writer.

    Example:
        >>> import asyncio
        >>> from logdex import rocketmq
        >>> async def main():
        ...     async with rocketmq.serve("/var/lib/rocketmq/store", port=0) as server:
        ...         print(server.address)
        ...         await asyncio.sleep(3600)
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    options = locals()
    return Server(options.pop("store"), ServeOptions(**options))


class _KeptEnd:
    """The end of a log whose broker may run, cached for a second. Any thread may call it."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._end = (0.0, log.max_offset)

    def __call__(self) -> int:
        if self._end[0] < time.monotonic():
            self._end = (time.monotonic() + _LOOK_S, self._log.max_offset)
        return self._end[1]


async def _repeat(service: BrokerService, broker: Broker, tables: TableWriter) -> None:
    while True:
        await asyncio.sleep(_SAVE_S)
        try:
            broker.begin_day(date.today())  # noqa: DTZ011 -- the broker's own day
            service.drop_silent()
            # This includes tables whose last write failed. An error is logged.
            tables.save(_tables(broker), lambda _: None)
        except Exception:  # noqa: BLE001 -- logged
            # A bug in logdex must not end the task.
            _log.exception("the clients are not checked, or the tables not saved")


def _tables(broker: Broker) -> list[Saving]:
    return [*(broker.master.tables if broker.master is not None else ()), broker.offsets]


def _save_all(broker: Broker) -> None:
    """Write all tables, also if one of them fails, and then raise its error."""
    with ExitStack() as stack:
        for table in _tables(broker):
            stack.callback(table.save)


async def _check_transactions(service: BrokerService, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await service.check_transactions()
        except Exception:  # noqa: BLE001 -- logged
            # The next check processes the same messages.
            _log.exception("the half messages are not checked")


def _call_soon(
    loop: asyncio.AbstractEventLoop,
    call: Callable[[list[tuple[str, int, int]]], None],
    grown: list[tuple[str, int, int]],
) -> None:
    # A loop that has ended needs no call.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, grown)


async def _resolved(advertise: str) -> str:
    """Return an address in the form of messages, which hold no host names."""
    host, _, port = advertise.rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(error.errno, error.strerror, advertise) from None
    address = str(found[0][4][0])
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _root(store: str | os.PathLike[str] | StoreWriter) -> str | os.PathLike[str]:
    return store.root if isinstance(store, StoreWriter) else store


def _warn_of_addresses(store: MessageStore, address: str) -> None:
    """Warn if offset ids in the store name another address than the server's. Tools connect to the address in an id."""
    log = store.commit_log
    heads = RecordBatchReader.from_stream(
        log.scan(begin_phy_offset=log.min_offset, columns=("store_host",), batch_size=1)
    )
    own = next((batch.column(0)[0].as_py() for batch in heads if batch.num_rows), None)
    if own is not None and own != address:
        _log.warning(
            "offset ids of this store name the broker %s: queryMsgById connects there, and not to %s", own, address
        )
