"""The log stream of a server: what slaves get, and which are dropped. The slaves here speak the protocol by hand."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

import golden
import master
import wire
from logdex import rocketmq
from logdex.broker.replica import log_server
from logdex.broker.replica.log_server import LogServer
from logdex.broker.rocketmq import service
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter
from serve_client import client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

END = 313_165
FILE = 65_536
SEND = {"a": "p", "b": "Orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795260000000", "h": "0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack("basic", tmp_path_factory.mktemp("master"))


class Slave:
    """A slave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def report(self, offset: int) -> None:
        self._writer.write(struct.pack(">q", offset))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def frame(self, seconds: float = 10) -> tuple[int, bytes]:
        head = await asyncio.wait_for(self._reader.readexactly(12), seconds)
        offset, size = struct.unpack(">qi", head)
        return offset, await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self._reader.read(), 10) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def slave(port: int) -> AsyncIterator[Slave]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Slave(reader, writer)
    finally:
        writer.close()


@pytest.fixture
def run(root: Path) -> Callable[[Callable[[LogServer, int], Coroutine[Any, Any, None]]], None]:
    """Return `run(test)`, which runs a coroutine with a log server over the store `basic` and its port."""

    def run(test: Callable[[LogServer, int], Coroutine[Any, Any, None]]) -> None:
        async def body() -> None:
            with CommitLog.open(root / "commitlog") as log:
                server = LogServer(log, FILE, lambda: END)
                port = await server.start("127.0.0.1", 0)
                try:
                    await test(server, port)
                finally:
                    await server.stop()

        asyncio.run(body())

    return run


@pytest.mark.parametrize(("report", "begin"), [(0, 0), (1, 1), (FILE, FILE), (70_001, 70_001), (END - 3, END - 3)])
def test_a_slave_gets_the_log_from_its_report_on(report: int, begin: int, run: Callable[..., None], root: Path) -> None:
    _, log, _ = master.log_of(root)

    async def test(server: LogServer, port: int) -> None:
        async with slave(port) as asker:
            asker.report(report)
            at, got = begin, b""
            while at < END:
                offset, piece = await asker.frame()
                assert offset == at
                # No frame is longer, and none is of two files.
                assert 0 < len(piece) <= 32_768
                assert offset // FILE == (offset + len(piece) - 1) // FILE
                got += piece
                at += len(piece)
            assert got == log[begin:]
            asker.report(END)
            assert await server.wait_for(END, 10)
            assert (server.slaves, server.acknowledged, server.is_near) == (1, END, True)

    run(test)


def test_a_report_in_pieces_is_one(run: Callable[..., None]) -> None:
    async def test(_: LogServer, port: int) -> None:
        async with slave(port) as asker:
            asker.send(bytes.fromhex("0000000000"))
            await asyncio.sleep(0.05)
            asker.send(bytes.fromhex("011171"))
            assert (await asker.frame())[0] == 70_001

    run(test)


@pytest.mark.parametrize("reports", [[END + 1], [END, END + 1], [-5], [FILE, -1], [1 << 40]])
def test_a_report_outside_of_the_log_closes_the_connection_and_acknowledges_nothing(
    reports: list[int], run: Callable[..., None]
) -> None:
    async def test(server: LogServer, port: int) -> None:
        async with slave(port) as asker:
            for report in reports:
                asker.report(report)
                await asyncio.sleep(0.02)
            assert await asker.is_closed() or len(reports) > 1
            assert server.acknowledged <= END
            await asyncio.sleep(0.1)
            assert server.slaves == 0

    run(test)


def test_a_slave_below_the_minimum_is_closed_and_an_empty_one_gets_everything(
    store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    root = store("basic")
    (root / "commitlog" / f"{0:020}").unlink()

    async def test() -> None:
        with CommitLog.open(root / "commitlog") as log:
            server = LogServer(log, FILE, lambda: END)
            port = await server.start("127.0.0.1", 0)
            for _ in range(3):
                async with slave(port) as asker:
                    asker.report(100)
                    assert await asker.is_closed()
            async with slave(port) as asker:
                asker.report(0)
                assert (await asker.frame())[0] == FILE
            await server.stop()

    asyncio.run(test())
    # A slave of 4.9.3 connects again and again.
    (text,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (
        text
        == f"slave 127.0.0.1: report 100 of a log that begins at {FILE}: what it needs next was deleted, so it needs a new copy"
    )


def test_reports_look_at_no_file_and_delay_no_stop(root: Path) -> None:
    class Counting:
        """A log that counts how often its files are looked at for the minimum."""

        def __init__(self, log: CommitLog) -> None:
            self.files, self.looks = log.files, 0

        @property
        def min_offset(self) -> int:
            self.looks += 1
            return 0

    async def test() -> None:
        with CommitLog.open(root / "commitlog") as log:
            counting = Counting(log)
            server = LogServer(cast("CommitLog", counting), FILE, lambda: END)
            port = await server.start("127.0.0.1", 0)
            async with slave(port) as asker:
                asker.send(struct.pack(">q", FILE) * 3_000)
                asker.report(END)
                assert await server.wait_for(END, 20)
                asker.send(struct.pack(">q", END) * 50_000)
                await asyncio.sleep(0)
                await asyncio.wait_for(server.stop(), 10)
            assert counting.looks <= 2

    asyncio.run(test())


def test_an_idle_master_sends_heartbeats_and_drops_silent_slaves(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_server, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(log_server, "SILENT_S", 0.5)
    monkeypatch.setattr(log_server, "LOOK_S", 0.02)

    async def test(server: LogServer, port: int) -> None:
        async with slave(port) as silent, slave(port) as asker:
            # Nothing is sent before the first report.
            asker.report(END)
            for _ in range(12):
                assert await asker.frame() == (END, b"")
                asker.report(END)
            assert await silent.is_closed()
            assert server.slaves == 1
            while (await asyncio.wait({asyncio.ensure_future(asker.frame())}, timeout=2))[0].pop().exception() is None:
                pass
        assert server.slaves == 0

    run(test)


def test_a_served_store_is_copied(root: Path, tmp_path: Path) -> None:
    async def test() -> dict[str, int]:
        async with rocketmq.serve(root, port=0, ha_port=0) as server:
            return (await asyncio.to_thread(rocketmq.replicate, server.address, tmp_path / "copy", once=True)).checked

    assert asyncio.run(test())["end_phy_offset"] == END
    files = sorted(file.name for file in (root / "commitlog").iterdir())
    assert len(files) == 5
    for name in files:
        assert (tmp_path / "copy" / "commitlog" / name).read_bytes() == (root / "commitlog" / name).read_bytes()
    with MessageStore.open(tmp_path / "copy") as copy:
        assert copy.verify().ok
        assert copy.index is not None
        assert copy.index.files[0].max_entries == 256


def test_producers_wait_for_a_slave(tmp_path: Path) -> None:
    """Codes 11, 0 (WAIT=false), 12, 0, as of a SYNC_MASTER."""
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=FILE, hash_slots=100, max_entries=400) as writer:
        writer.put_message("Old", b"first", keys="first")

    async def test() -> list[int]:
        codes = []
        options: dict[str, Any] = {"write": True, "ha_port": 0, "sync_slaves": True}
        async with rocketmq.serve(root, port=0, **options) as server, client(server) as asker:

            async def send(**fields: str) -> int:
                header, _ = await asker.ask(wire.request(310, {**SEND, **fields}, b"body"))
                assert header["extFields"]["queueId"] == "1"
                return int(header["code"])

            _, config = await asker.ask(wire.request(26, {}))
            assert b"brokerRole=SYNC_MASTER" in config
            port = int(config.split(b"haListenPort=")[1].split()[0])
            codes += [await send(), await send(i="WAIT\x01false\x02")]
            async with slave(port) as follower:
                follower.report(0)
                offset, piece = await follower.frame()
                end = offset + len(piece)
                follower.report(end)
                slow = asyncio.create_task(send())
                offset, piece = await follower.frame()
                assert offset == end
                await asyncio.sleep(0.05)
                assert not slow.done()
                follower.report(end + len(piece))
                codes += [await slow, await send()]
        return codes

    assert asyncio.run(test()) == [11, 0, 0, 12]


def test_sends_that_wait_for_a_slave_take_a_limited_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=FILE, hash_slots=100, max_entries=400) as writer:
        writer.put_message("Old", b"first", keys="first")
    monkeypatch.setattr(service, "_MOST_KEPT_BYTES", 1_500)

    async def test() -> None:
        options: dict[str, Any] = {"write": True, "ha_port": 0, "sync_slaves": True}
        async with rocketmq.serve(root, port=0, **options) as server, client(server) as asker:
            assert server.running is not None
            broker = server.running.service
            _, config = await asker.ask(wire.request(26, {}))
            async with slave(int(config.split(b"haListenPort=")[1].split()[0])) as follower:
                follower.report(0)
                offset, piece = await follower.frame()
                follower.report(offset + len(piece))
                for opaque in (5, 6):
                    asker.writer.write(wire.request(310, {**SEND, "b": "Old", "e": "0"}, b"body", opaque=opaque))
                # The second message is stored, but nothing more may wait.
                header, _ = await asker.read()
                assert (header["opaque"], header["code"]) == (6, 12)
                assert 1_000 < broker.kept_bytes <= 1_500
                end = broker.slaves.end if broker.slaves is not None else 0
                follower.report(end)
                header, _ = await asker.read()
                assert (header["opaque"], header["code"]) == (5, 0)
                assert broker.kept_bytes == 0

    asyncio.run(test())


def test_ports_of_slaves_are_refused_where_they_make_no_sense(root: Path) -> None:
    with pytest.raises(ValueError, match="sync_slaves: expected with ha_port"):
        rocketmq.serve(root, ha_port=0, sync_slaves=True)
    with pytest.raises(ValueError, match="sync_slaves: expected with ha_port"):
        rocketmq.serve(root, write=True, sync_slaves=True)


def test_a_wait_for_a_slave_is_for_what_was_put_and_is_not_readable_yet(store: Callable[[str], Path]) -> None:
    async def test() -> None:
        with CommitLog.open(store("basic") / "commitlog") as log:
            server = LogServer(log, FILE, lambda: END - 50, lambda: END)
            port = await server.start("127.0.0.1", 0)
            async with slave(port) as asker:
                asker.report(END - 50)
                assert await server.wait_for(END - 50, 60)
                assert not await server.wait_for(server.end, 0.01)
            await server.stop()

    asyncio.run(test())
