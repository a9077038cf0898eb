"""Resources of a server that clients may use: connections, descriptors, memory, and the time of other clients."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

import wire
from logdex.broker import listener as listening
from logdex.broker.listener import Limits
from logdex.broker.rocketmq import service
from logdex.broker.rocketmq.broker import Broker, StoreView
from logdex.broker.rocketmq.handlers import answer
from logdex.rocketmq import StoreWriter
from serve_client import Client, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from logdex import rocketmq

MAX = {"topic": "T", "queueId": "0"}
PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "1",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "60000",
    "subscription": "*",
    "subVersion": "0",
}


def _send(**fields: str) -> bytes:
    plain = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795260000000", "h": "0"}
    return wire.request(310, plain | fields, b"body")


def _parts(server: rocketmq.Server) -> tuple[listening.Listener, service.BrokerService]:
    assert server.running is not None
    return server.running.listener, server.running.service


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("waited for 20 s")


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with StoreWriter.open(
        root, file_size=1 << 20, queue_file_size=4_000, hash_slots=100, max_entries=400, flush="none"
    ) as writer:
        writer.put_message("T", b"body", keys="a-key")
        writer.put_messages({"topic": ["T"] * 199, "queue_id": [*range(1, 200)], "body": [b"body"] * 199})
        writer.put_messages({"topic": ["Big"] * 8, "queue_id": [0] * 8, "body": [b"x" * 30_000] * 8})
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# Held pulls


def test_a_put_looks_at_the_held_pulls_of_its_queue_only(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, int]] = []
    queue = StoreView.queue

    def look(view: StoreView, topic: str, queue_id: int) -> Any:
        looked.append((topic, queue_id))
        return queue(view, topic, queue_id)

    monkeypatch.setattr(StoreView, "queue", look)

    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        async with client(server) as consumer, client(server) as producer:
            pulls = [wire.request(11, {**PULL, "queueId": str(number)}, opaque=number) for number in range(200)]
            consumer.writer.write(b"".join(pulls))
            await _until(lambda: len(broker.held) == 200)
            looked.clear()
            assert (await producer.ask(_send(e="3")))[0]["code"] == 0
            header, body = await consumer.read()
            assert (header["opaque"], header["code"], len(wire.frames(body))) == (3, 0, 1)
            assert len(broker.held) == 199
        assert {*looked} == {("T", 3)}

    run(test, write=True)


def test_requests_that_wait_take_a_limited_memory(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MOST_KEPT_BYTES", 12_000)

    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        async with client(server) as greedy:
            pulls = [wire.request(11, PULL, b"x" * 4_000, opaque=number) for number in range(3)]
            greedy.writer.write(b"".join(pulls))
            header, _ = await greedy.read()
            assert (header["opaque"], header["code"]) == (2, 2)
            assert len(broker.held) == 2
        await _until(lambda: not broker.held)
        assert broker.held.size == 0

    run(test)


def test_all_clients_share_the_time_of_a_turn() -> None:
    class Frames:
        """A protocol of frames of four bytes, each of which takes 1 ms."""

        def __init__(self) -> None:
            self.now, self.splits = 0.0, 0
            self.taken: list[tuple[Any, bytes]] = []
            self.connected = self.disconnected = Mock()

        def frame_length(self, _: bytes) -> int:
            return 4

        def frames(self, _: Any, data: bytes) -> list[bytes]:
            self.splits += 1
            return [data[at : at + 4] for at in range(0, len(data) - 3, 4)]

        def received(self, connection: Any, frame: bytes) -> None:
            self.now += 0.001
            self.taken.append((connection, frame))

    async def body() -> None:
        frames = Frames()
        listener = listening.Listener(frames)
        listener._loop = asyncio.get_running_loop()
        listener.now = lambda: frames.now  # type: ignore[method-assign]
        connections = [listening.Connection(listener, Mock(), (f"h{number}", 1)) for number in range(20)]
        data = b"".join(b"%04d" % number for number in range(50)) + b"rest"[:3]
        for connection in connections:
            listener.connections.add(connection)
            transport = Mock(spec=asyncio.Transport)
            transport.is_closing.return_value = False
            connection.connection_made(transport)
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
        # The first client has the turn of 10 ms, and each other client one frame.
        assert len(frames.taken) <= 12 + 19
        assert {connection for connection, _ in frames.taken} == {*connections}
        assert listener.received_bytes == 20 * len(data) - 4 * len(frames.taken)
        while len(frames.taken) < 1_000:
            before = len(frames.taken)
            await asyncio.sleep(0)
            assert before < len(frames.taken) <= before + 22 + 19
        assert frames.splits == 20
        for connection in connections:
            assert [int(frame) for each, frame in frames.taken if each is connection] == [*range(50)]
        assert listener.received_bytes == 20 * 3
        connections[0].drop("test")
        assert listener.received_bytes == 19 * 3

    asyncio.run(body())


def test_many_requests_of_one_client_let_others_in(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_TURN_S", 0.0)

    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        async with client(server) as busy, client(server) as other:
            await other.ask(wire.request(30, MAX))
            busy.writer.write(b"".join(wire.request(30, MAX, opaque=number) for number in range(500)))
            header, _ = await other.ask(wire.request(31, MAX, opaque=7))
            assert header["opaque"] == 7
            assert broker.broker.counts['requests_total{code="GET_MAX_OFFSET"}'] < 100
            # All are answered in order.
            assert [(await busy.read())[0]["opaque"] for _ in range(500)] == [*range(500)]

    run(test)


def test_a_slow_search_keeps_no_other_client_waiting_even_after_quick_ones(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        async with client(server) as asker:
            for code, ext in ((202, {"topic": "T"}), (30, MAX)):
                assert (await asker.ask(wire.request(code, ext)))[0]["code"] == 0
            # The next topic may have 65,536 queues.
            assert 202 not in broker.quick

    run(test)


def test_searches_of_one_client_leave_threads_for_others(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def search(broker: Broker, request: Any) -> Any:
        if request.command.ext.get("key") == "slow":
            go_on.wait(20)
        return answer(broker, request)

    monkeypatch.setattr(service, "answer", search)
    query = {"topic": "T", "key": "a-key", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}

    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        async with client(server) as greedy, client(server) as other:
            slow = {**query, "key": "slow"}
            greedy.writer.write(b"".join(wire.request(12, slow, opaque=number) for number in range(10)))
            await _until(lambda: broker.in_threads == service._MOST_OF_CLIENT)
            assert (await other.ask(wire.request(12, query)))[0]["code"] == 0
            assert broker.in_threads == service._MOST_OF_CLIENT
            go_on.set()
            assert {(await greedy.read())[0]["opaque"] for _ in range(10)} == {*range(10)}
            assert not broker.searches

    run(test)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_clients_that_take_nothing_are_dropped_if_too_much_waits_for_all(
    is_encrypted: bool, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    waiting: list[int] = []
    counted: list[tuple[int, int]] = []
    tls = _trusting() if is_encrypted else None

    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        count = listener.count_unsent

        def note(connection: listening.Connection, size: int) -> None:
            transport: Any = connection._transport
            layers = [transport, transport._ssl_protocol._transport] if is_encrypted else [transport]
            counted.append((size, sum(each.get_write_buffer_size() for each in layers)))
            count(connection, size)
            waiting.append(listener.unsent_bytes)

        monkeypatch.setattr(listener, "count_unsent", note)
        async with client(server, tls) as good, client(server, tls) as first, client(server, tls) as second:
            await good.ask(wire.request(30, MAX))
            await _until(lambda: len(listener.connections) == 3)
            for greedy in (first, second):
                greedy.reader._transport.pause_reading()  # type: ignore[attr-defined]
                greedy.writer.write(wire.request(11, {**PULL, "topic": "Big", "queueOffset": "0"}) * 500)
            while len(listener.connections) > 1:
                assert (await good.ask(wire.request(30, MAX)))[0]["code"] == 0
            for greedy in (first, second):
                greedy.writer.transport.abort()

    limits = Limits(unsent_bytes=1 << 30, most_unsent_bytes=1 << 30, all_unsent_bytes=1_000_000)
    run(test, limits=limits, tls=request.getfixturevalue("certificate") if is_encrypted else None)
    assert 0 < max(waiting) <= 1_000_000
    assert all(size == of_layers for size, of_layers in counted)


def test_the_oldest_unfinished_frame_is_dropped_if_there_are_too_many_bytes(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        async with client(server) as old, client(server) as new:
            old.writer.write((16_000_000).to_bytes(4, "big") + bytes(600_000))
            await _until(lambda: listener.received_bytes > 600_000)
            frame = wire.request(30, MAX, bytes(600_000))
            new.writer.write(frame[:-1])
            assert await old.is_closed()
            assert (await new.ask(frame[-1:]))[0]["code"] == 0
        assert listener.received_bytes == 0

    run(test, limits=Limits(received_bytes=1_000_000))


# Connections


def test_an_idle_connection_makes_place_for_a_new_one(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_IDLE_S", (0.0, 1_000.0))

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as useful:
            await useful.ask(wire.request(30, MAX))
            async with client(server) as silent, client(server), client(server) as fourth:
                assert (await fourth.ask(wire.request(30, MAX)))[0]["code"] == 0
                assert await silent.is_closed()
                assert (await useful.ask(wire.request(30, MAX)))[0]["code"] == 0
                async with client(server) as fifth:
                    assert (await fifth.ask(wire.request(30, MAX)))[0]["code"] == 0
                    async with client(server) as sixth:
                        # All other clients have sent something.
                        assert await sixth.is_closed()

    run(test, limits=Limits(connections=3))
    assert len([each for each in caplog.records if "closed for new ones" in each.getMessage()]) == 1


def test_one_address_takes_a_part_of_the_connections(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_IDLE_S", (1_000.0, 1_000.0))

    async def test(server: rocketmq.Server) -> None:
        async with client(server), client(server), client(server) as third:
            assert await third.is_closed()
            host, _, port = server.address.rpartition(":")
            streams = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
            assert (await Client(*streams).ask(wire.request(30, MAX)))[0]["code"] == 0
            streams[1].close()

    run(test, limits=Limits(connections=10, connections_of_address=2))


def test_an_address_may_have_no_connection_at_all(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as refused:
            assert await refused.is_closed()

    run(test, limits=Limits(connections_of_address=0))


def test_clients_without_a_handshake_are_counted_and_timed_out(
    run: Callable[..., None], certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_IDLE_S", (1_000.0, 1_000.0))
    monkeypatch.setattr(listening, "_HANDSHAKE_S", 0.3)

    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        async with client(server), client(server), client(server) as third:
            assert await third.is_closed()
            assert len(listener.connections) == 2
            await _until(lambda: not listener.connections)

    run(test, tls=certificate, limits=Limits(connections=2))


def test_few_handshakes_are_under_way_and_slow_ones_make_place(
    run: Callable[..., None], certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_IDLE_S", (0.0, 1_000.0))
    monkeypatch.setattr(listening, "_HANDSHAKES", 2)
    context = _trusting()

    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        async with client(server) as first, client(server) as second, client(server), client(server):
            for slow in (first, second):
                slow.writer.write(b"\x16")
            await _until(lambda: len(listener.handshakes) == 2)
            async with client(server, context) as asker:
                assert (await asker.ask(wire.request(30, MAX)))[0]["code"] == 0
                assert await first.is_closed()
                # Clients that sent nothing have not started a handshake yet.
                assert len(listener.handshakes) == 1

    run(test, tls=certificate)


def test_a_server_without_descriptors_accepts_again_later(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_ACCEPT_AGAIN_S", 0.02)
    accept, failures = socket.socket.accept, iter(range(3))

    def fail(listening: socket.socket) -> Any:
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    async def test(server: rocketmq.Server) -> None:
        monkeypatch.setattr(socket.socket, "accept", fail)
        async with client(server) as asker:
            assert (await asker.ask(wire.request(30, MAX)))[0]["code"] == 0

    run(test)
    assert next(failures, None) is None
    assert len([each for each in caplog.records if "Too many open files" in each.getMessage()]) == 1


@pytest.fixture
def with_few_descriptors(root: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server that takes messages and may open 128 files, and its process."""
    program = [sys.executable, "-m", "logdex", "serve", str(root), "--write", "--port", "0"]
    with subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -n 128; exec "$@"', "sh", *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        yield found[0], process
        process.kill()


def test_more_connections_than_descriptors_leave_some_for_the_store(
    with_few_descriptors: tuple[str, subprocess.Popen[str]],
) -> None:
    address, process = with_few_descriptors

    def ask(frame: bytes) -> dict[str, Any]:
        producer.sendall(frame)
        head = answer.read(4)
        return wire.split(head + answer.read(int.from_bytes(head, "big")))[0]

    with _connect(address) as producer, producer.makefile("rb") as answer:
        assert ask(_send())["code"] == 0
        idle = [_connect(address) for _ in range(200)]
        assert ask(_send(b="New"))["code"] == 0
        # The message can be read as soon as its queue has a new file.
        header = ask(wire.request(11, {**PULL, "topic": "New", "queueOffset": "0"}))
        assert (header["code"], header["extFields"]["maxOffset"]) == (0, "1")
        for each in idle:
            each.close()
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert said.count("\n") == 1, said
    assert "idle clients are closed for new ones" in said
