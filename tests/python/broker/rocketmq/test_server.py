"""The server with its sockets: what it sends, what clients may do to it, and how it stops."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import golden
import wire
from logdex import rocketmq
from logdex._core import RemotingCommand
from logdex._types import MAX_INT64
from logdex.broker import listener as listening
from logdex.broker.listener import Limits
from logdex.broker.rocketmq import service
from logdex.broker.rocketmq.broker import Broker, StoreView
from logdex.broker.rocketmq.handlers import answer
from logdex.broker.rocketmq.requests import Answer, Forward, Hold, Peer, Request
from logdex.broker.rocketmq.tables import ConsumerOffsets
from serve_client import Client, client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VECTORS = wire.vectors("remoting-read")
BY_NAME = {vector["name"]: vector for vector in VECTORS}
MAX = {"topic": "BBTopic", "queueId": "1"}
PULL_END = {**BY_NAME["pull-hold"]["requestExtFields"], "suspendTimeoutMillis": "60000"}


def _parts(server: rocketmq.Server) -> tuple[listening.Listener, service.BrokerService]:
    assert server.running is not None
    return server.running.listener, server.running.service


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("waited for 20 s")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack("basic", tmp_path_factory.mktemp("served"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look at its clients often."""
    monkeypatch.setattr(listening, "_TICK_S", 0.02)
    monkeypatch.setattr(service, "_LOOK_S", 0.02)


def test_requests_of_one_connection_are_answered(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            for name in ("route-absent", "max", "pull", "key-unique", "view", "topic-stats-absent", "stats-none"):
                vector = BY_NAME[name]
                header, body = await asker.ask(bytes.fromhex(vector["requestHex"]))
                real, real_body = wire.split(bytes.fromhex(vector["responseHex"]))
                for member in ("code", "opaque", "extFields", "remark"):
                    assert header.get(member) == real.get(member), name
                assert body == real_body

    run(test)


def test_an_answer_in_parts_does_not_wait_for_the_client_s_acknowledgement(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            await asker.ask(wire.request(30, MAX))
            (connection,) = _parts(server)[0].connections
            assert connection._accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(test)


def test_several_requests_are_under_way(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            frames = [wire.request(30, MAX, opaque=n) for n in range(100)]
            asker.writer.write(wire.request(11, PULL_END, opaque=1000) + b"".join(frames))
            assert sorted([(await asker.read())[0]["opaque"] for _ in frames]) == [*range(100)]
            _, broker = _parts(server)
            assert len(broker.held) == 1

    run(test)


def test_a_held_pull_ends_with_its_time(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            begin = asyncio.get_running_loop().time()
            header, _ = await asker.ask(wire.request(11, {**PULL_END, "suspendTimeoutMillis": "200"}))
            assert (header["code"], header["remark"]) == (19, "OFFSET_OVERFLOW_ONE")
            assert 0.19 < asyncio.get_running_loop().time() - begin < 5

    run(test)


@pytest.mark.usefixtures("quick")
def test_a_held_pull_gets_what_the_broker_of_the_store_adds(root: Path, tmp_path: Path) -> None:
    whole = root / "consumequeue" / "BBTopic" / "1" / f"{0:020}"
    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    unit = whole.read_bytes()[40 * 20 : 41 * 20]
    queue = copy / "consumequeue" / "BBTopic" / "1" / f"{0:020}"
    content = queue.read_bytes()
    queue.write_bytes(content[: 40 * 20] + bytes(len(content) - 40 * 20))

    async def body() -> None:
        async with rocketmq.serve(copy, port=0) as server, client(server) as asker:
            asker.writer.write(wire.request(11, {**PULL_END, "queueOffset": "40"}))
            await _until(lambda: len(_parts(server)[1].held) == 1)
            with queue.open("r+b") as file:
                file.seek(40 * 20)
                file.write(unit)
            header, frames = await asker.read()
            assert (header["code"], header["extFields"]["nextBeginOffset"]) == (0, "41")
            assert len(wire.frames(frames)) == 1

    asyncio.run(body())


def test_members_are_told_before_the_answer(run: Callable[..., None]) -> None:
    frame = bytes.fromhex(BY_NAME["heartbeat"]["requestHex"])

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as first:
            assert [(await first.ask(frame))[0]["code"], (await first.read())[0]["code"]] == [40, 0]
            async with client(server) as second:
                second.writer.write(frame)
                told, _ = await first.read()
                assert (told["code"], told["flag"], told["extFields"]) == (40, 2, {"consumerGroup": "vec-group"})
            told, _ = await first.read()
            assert told["code"] == 40
            _, body = await first.ask(wire.request(38, {"consumerGroup": "vec-group"}))
            assert wire.value(body) == {"consumerIdList": ["127.0.0.1@vec"]}

    run(test)


def test_a_consumer_answers_for_the_server(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_FORWARD_S", 0.1)

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as consumer, client(server) as tool:
            consumer.writer.write(bytes.fromhex(BY_NAME["heartbeat"]["requestHex"]))
            await consumer.read()
            await consumer.read()
            question = wire.request(307, {"consumerGroup": "vec-group", "clientId": "127.0.0.1@vec"}, opaque=8)
            tool.writer.write(question)
            asked, _ = await consumer.read()
            assert asked["code"] == 307
            consumer.writer.write(wire.request(0, None, b"running", opaque=asked["opaque"], flag=1))
            header, body = await tool.read()
            assert (header["code"], header["opaque"], body) == (0, 8, b"running")
            # An answer to nothing is passed over.
            consumer.writer.write(wire.request(0, None, b"running", opaque=99, flag=1))
            late, _ = await tool.ask(question)
            assert (late["code"], "timeout" in late["remark"]) == (207, True)

    run(test)


def test_one_way_requests_get_no_answer(run: Callable[..., None]) -> None:
    commit = {"consumerGroup": "g", **MAX, "commitOffset": "7"}

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            asker.writer.write(wire.request(15, commit, flag=2) + wire.request(9999, flag=2) + wire.request(12, flag=2))
            header, _ = await asker.ask(wire.request(14, {"consumerGroup": "g", **MAX}, opaque=5))
            assert (header["opaque"], header["extFields"]) == (5, {"offset": "7"})

    run(test)


def test_metrics_are_text(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            await asker.ask(wire.request(30, MAX))
        async with client(server) as browser:
            browser.writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            text = (await browser.reader.read()).decode()
            assert text.startswith("HTTP/1.1 200 OK\r\n")
            assert 'logdex_requests_total{code="GET_MAX_OFFSET"} 1\n' in text
            assert "logdex_held_pulls 0\n" in text

    run(test)


def test_requests_are_logged_as_one_line_each(run: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            await asker.ask(wire.request(105, {"topic": "a\nb"}))

    with caplog.at_level("INFO", "logdex.rocketmq.server.requests"):
        run(test)
    (line,) = [each.getMessage() for each in caplog.records if each.name.endswith(".requests")]
    assert "GET_ROUTEINFO_BY_TOPIC {'topic': 'a\\nb'} -> 17" in line
    assert "\n" not in line


def test_the_log_of_requests_shows_no_keys_and_signatures(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    (signed, *_) = wire.vectors("acl")
    signature = signed["requestExtFields"]["Signature"] if "requestExtFields" in signed else None
    frame = bytes.fromhex(signed["requestHex"])
    signature = signature or wire.split(frame)[0]["extFields"]["Signature"]

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            await asker.ask(frame)
            await asker.ask(wire.request(30, {**MAX, "AccessKey": signed["accessKey"], "Signature": "wrong-one"}))
            await asker.ask(wire.request(30, {**MAX, "AccessKey": "unknown-key", "SecurityToken": "a-token"}))

    with caplog.at_level("INFO", "logdex.rocketmq.server.requests"):
        run(test, acl={signed["accessKey"]: signed["secretKey"]})
    lines = [each.getMessage() for each in caplog.records if each.name.endswith(".requests")]
    assert len(lines) == 3
    assert "Check signature failed for accessKey=***" in lines[1]
    secrets = (signed["accessKey"], signed["secretKey"], signature, "wrong-one", "unknown-key", "a-token")
    assert not [(secret, line) for secret in secrets for line in lines if secret in line]


def test_unsigned_requests_are_refused(run: Callable[..., None]) -> None:
    (signed, *_) = wire.vectors("acl")

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            header, _ = await asker.ask(bytes.fromhex(signed["requestHex"]))
            assert (header["code"], header["extFields"]) == (0, {"offset": "41"})
            header, _ = await asker.ask(wire.request(30, MAX))
            assert (header["code"], "AclException" in header["remark"]) == (1, True)

    run(test, acl={signed["accessKey"]: signed["secretKey"]})


def test_tls_is_spoken_with_a_certificate(run: Callable[..., None], certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def test(server: rocketmq.Server) -> None:
        async with client(server, context) as asker:
            header, _ = await asker.ask(wire.request(30, MAX))
            assert header["extFields"] == {"offset": "41"}
        async with client(server) as plain:
            plain.writer.write(wire.request(30, MAX))
            assert await plain.is_closed()
        async with client(server, context) as asker:
            assert (await asker.ask(wire.request(30, MAX)))[0]["code"] == 0

    run(test, tls=certificate)


def test_the_advertised_address_is_in_the_route(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        assert server.address == "archive.example:10911"
        listener, _ = _parts(server)
        host, port = listener.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        _, body = await Client(reader, writer).ask(wire.request(105, {"topic": "BBTopic"}))
        assert wire.value(body)["brokerDatas"][0]["brokerAddrs"] == {"0": "archive.example:10911"}
        writer.close()

    run(test, advertise="archive.example:10911")


def test_names_may_be_given(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            _, body = await asker.ask(wire.request(106))
            assert wire.value(body)["clusterAddrTable"] == {"C": ["B"]}

    run(test, broker_name="B", cluster="C")


def test_wrong_options_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="advertise"):
        rocketmq.serve(root, "0.0.0.0")  # noqa: S104 -- refused
    with pytest.raises(ValueError, match="HOST:PORT"):
        rocketmq.serve(root, advertise="archive")
    with pytest.raises(ValueError, match="not started"):
        _ = rocketmq.serve(root).address

    async def start(**options: Any) -> None:
        await rocketmq.serve(**options, port=0).start()

    with pytest.raises(FileNotFoundError):
        asyncio.run(start(store=root / "none"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(start(store=root, acl=root / "none"))


def test_an_open_store_stays_open(root: Path) -> None:
    with rocketmq.MessageStore.open(root) as store:

        async def body() -> None:
            server = rocketmq.serve(store, port=0)
            await server.start()
            with pytest.raises(ValueError, match="runs already"):
                await server.start()
            await server.stop()
            await server.stop()

        asyncio.run(body())
        assert store.topics


def test_reading_changes_no_byte_of_the_store(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("basic")
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()}
    offsets = tmp_path / "offsets.json"

    async def body() -> None:
        async with rocketmq.serve(root, port=0, offsets=offsets) as server, client(server) as asker:
            for vector in VECTORS:
                if vector["name"] != "pull-hold":
                    asker.writer.write(bytes.fromhex(vector["requestHex"]))
            for _ in range(len(VECTORS)):
                await asker.read()

    asyncio.run(body())
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()} == before
    kept = wire.value(offsets.read_bytes())["offsetTable"]
    assert kept["BBTopic@vec-pull"] == {"1": 17}
    assert kept["order_events@grp-c"] == {"0": 16, "1": 20, "2": 19, "3": 18}


@pytest.mark.usefixtures("quick")
def test_an_idle_client_is_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as idle:
            await idle.ask(wire.request(30, MAX))
            assert await idle.is_closed()

    run(test, limits=Limits(idle_s=0.1))


@pytest.mark.usefixtures("quick")
def test_a_client_that_trickles_a_frame_is_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as slow:
            slow.writer.write(wire.request(30, MAX)[:-1])
            assert await slow.is_closed()

    run(test, limits=Limits(slow_s=0.1))


@pytest.mark.usefixtures("quick")
def test_a_client_that_reads_nothing_is_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, broker = _parts(server)
        async with client(server) as slow:
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            question = wire.request(11, {**PULL_END, "queueOffset": "0"})
            slow.writer.write(question * 20_000)
            await _until(lambda: not listener.connections)
            # It stopped reading requests long before it had answered all.
            assert broker.broker.counts['requests_total{code="PULL_MESSAGE"}'] < 10_000
            slow.writer.transport.abort()

    run(test, limits=Limits(slow_s=0.3, unsent_bytes=10_000))


def test_a_client_that_asks_for_more_than_it_takes_is_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        async with client(server) as greedy:
            greedy.reader._transport.pause_reading()  # type: ignore[attr-defined]
            greedy.writer.write(wire.request(11, {**PULL_END, "queueOffset": "0"}) * 20_000)
            await _until(lambda: not listener.connections)
            greedy.writer.transport.abort()

    run(test, limits=Limits(unsent_bytes=1 << 30, most_unsent_bytes=100_000))


def test_more_clients_than_allowed_are_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        async with client(server) as first:
            assert (await first.ask(wire.request(30, MAX)))[0]["code"] == 0
            async with client(server) as second:
                assert await second.is_closed()
        listener, _ = _parts(server)
        await _until(lambda: not listener.connections)
        async with client(server) as third:
            assert (await third.ask(wire.request(30, MAX)))[0]["code"] == 0

    run(test, limits=Limits(connections=1))


def test_unfinished_frames_take_a_limited_memory(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, _ = _parts(server)
        async with client(server) as big:
            big.writer.write((16_000_000).to_bytes(4, "big") + bytes(2_000_000))
            assert await big.is_closed()
        assert listener.received_bytes == 0

    run(test, limits=Limits(received_bytes=1_000_000))


def test_too_many_held_pulls_are_refused(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MOST_HELD", 2)

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            asker.writer.write(b"".join(wire.request(11, PULL_END, opaque=n) for n in range(3)))
            header, _ = await asker.read()
            assert (header["opaque"], header["code"]) == (2, 2)

    run(test)


def test_too_many_searches_are_refused(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MOST_IN_THREADS", 0)

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            header, _ = await asker.ask(bytes.fromhex(BY_NAME["key"]["requestHex"]))
            assert header["code"] == 2

    run(test)


@pytest.mark.usefixtures("quick")
def test_a_client_that_dies_leaves_nothing(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, broker = _parts(server)
        async with client(server) as dying:
            dying.writer.write(bytes.fromhex(BY_NAME["heartbeat"]["requestHex"]))
            await dying.read()
            dying.writer.write(wire.request(11, PULL_END) * 50 + bytes.fromhex(BY_NAME["key"]["requestHex"]) * 50)
            await _until(lambda: len(broker.held) == 50)
            dying.writer.transport.abort()
        await _until(lambda: not (listener.connections or broker.held or broker.in_threads))
        assert not broker.broker.clients.consumers
        assert not broker.peers
        assert not broker.connections

    run(test)


def test_a_fault_of_the_server_is_an_answer(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(service, "answer", broken)

    async def test(server: rocketmq.Server) -> None:
        async with client(server) as asker:
            header, _ = await asker.ask(wire.request(30, MAX))
            assert (header["code"], header["remark"]) == (1, "KeyError: 'a bug'")

    run(test)
    assert "Traceback" in caplog.text


def _flipped(frame: bytes) -> list[bytes]:
    return [
        frame[:at] + bytes([frame[at] ^ mask]) + frame[at + 1 :] for at in range(len(frame)) for mask in (0x01, 0xFF)
    ]


def test_each_request_with_each_byte_flipped_has_an_answer(root: Path) -> None:
    with rocketmq.MessageStore.open(root) as store:
        broker = Broker(StoreView(store), "b", "c", "127.0.0.1:1", ConsumerOffsets([]))
        answered = refused = 0
        for vector in VECTORS:
            for frame in _flipped(bytes.fromhex(vector["requestHex"])):
                try:
                    if RemotingCommand.frame_length(frame[:4]) != len(frame):
                        continue
                    command = RemotingCommand.decode(frame)
                except ValueError:
                    refused += 1
                    continue
                reply = answer(broker, Request(command, Peer("127.0.0.1:2")))
                assert isinstance(reply, Answer | Hold | Forward)
                answered += 1
        assert answered > 9_000
        assert refused > 5_000


@pytest.mark.usefixtures("quick")
def test_each_request_with_each_byte_flipped_leaves_the_server_whole(run: Callable[..., None]) -> None:
    sentinel = wire.request(30, MAX, opaque=424242)

    async def test(server: rocketmq.Server) -> None:
        host, _, port = server.address.rpartition(":")
        asker: Client | None = None
        closed = 0
        for vector in VECTORS:
            frame = bytes.fromhex(vector["requestHex"])
            for at in range(4, len(frame)):
                if asker is None:
                    asker = Client(*await asyncio.open_connection(host, int(port)))
                mask = 0xFF if at % 2 else 0x01
                asker.writer.write(frame[:at] + bytes([frame[at] ^ mask]) + frame[at + 1 :] + sentinel)
                try:
                    while (await asker.read())[0]["opaque"] != 424242:
                        pass
                except (asyncio.IncompleteReadError, ConnectionError):
                    asker.writer.close()
                    asker = None
                    closed += 1
        assert closed > 1_000
        if asker is not None:
            asker.writer.close()
        listener, broker = _parts(server)
        await _until(lambda: not (listener.connections or broker.held or broker.in_threads))
        async with client(server) as last:
            header, body = await last.ask(bytes.fromhex(BY_NAME["pull"]["requestHex"]))
            assert (header["code"], len(body)) == (0, 771)
        assert listener.received_bytes == 0

    run(test)


@pytest.mark.usefixtures("quick")
def test_each_request_with_a_flipped_length_is_dropped(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server) -> None:
        listener, broker = _parts(server)
        for vector in VECTORS:
            frame = bytes.fromhex(vector["requestHex"])
            for at in range(4):
                async with client(server) as asker:
                    asker.writer.write(frame[:at] + bytes([frame[at] ^ 0xFF]) + frame[at + 1 :])
                    assert at or await asker.is_closed()
        await _until(lambda: not (listener.connections or broker.held or broker.in_threads))

    run(test, limits=Limits(slow_s=0.1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal_comes(number: signal.Signals, root: Path, tmp_path: Path) -> None:
    offsets, log = tmp_path / "offsets.json", tmp_path / "requests.log"
    options = ["--port", "0", "--offsets", str(offsets), "--request-log", str(log), "--json"]
    program = [sys.executable, "-m", "logdex", "serve", str(root), *options]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as served:
        assert served.stdout is not None
        said = json.loads(served.stdout.readline())
        host, _, port = said["address"].rpartition(":")

        async def body() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            commit = wire.request(15, {"consumerGroup": "g", **MAX, "commitOffset": "7"})
            assert (await Client(reader, writer).ask(commit))[0]["code"] == 0
            served.send_signal(number)
            assert await reader.read() == b""
            writer.close()

        asyncio.run(body())
        assert served.wait(20) == 0
    assert wire.value(offsets.read_bytes())["offsetTable"]["BBTopic@g"] == {"1": 7}
    assert "UPDATE_CONSUMER_OFFSET" in log.read_text()


def test_a_queue_that_grows_while_it_is_opened_is_not_kept(root: Path) -> None:
    opened, growing = threading.Event(), threading.Event()

    class Growing(dict[Any, Any]):
        """Cached queues, of which one grows during an insertion."""

        def __setitem__(self, key: Any, value: Any) -> None:
            if threading.current_thread() is not grower:
                opened.set()
                # Without a lock, the other thread is done by now.
                growing.wait(0.2)
            super().__setitem__(key, value)

    with rocketmq.MessageStore.open(root) as store:
        view = StoreView(store)
        view._queues = Growing()

        def grow() -> None:
            assert opened.wait(60)
            view.forget_bounds([("BBTopic", 1)])
            growing.set()

        grower = threading.Thread(target=grow)
        grower.start()
        assert view.queue("BBTopic", 1) is not None
        grower.join()
        # What was opened before the growth is not kept after it.
        assert not view._queues


def test_a_fault_in_a_poll_of_queues_does_not_end_the_polls(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)

        def broken(*_: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(StoreView, "bounds", broken)
        # The pull of this queue is answered, and its answer shows the error.
        assert broker._ends([("BBTopic", 1)]) == [("BBTopic", 1, MAX_INT64)]

    run(test)
    assert "a bug" in caplog.text


def test_a_fault_after_the_work_of_a_thread_lets_the_client_go_on(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(server: rocketmq.Server) -> None:
        _, broker = _parts(server)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        finish, faults = broker._finish, iter([KeyError("a bug"), KeyError("a bug")])

        def fail(*arguments: Any) -> None:
            for fault in faults:
                raise fault
            finish(*arguments)

        monkeypatch.setattr(broker, "_finish", fail)
        async with client(server) as asker:
            slow = wire.request(202, {"topic": "BBTopic"})
            asker.writer.write(slow * 2)
            assert (await asker.ask(wire.request(202, {"topic": "BBTopic"}, opaque=7)))[0]["opaque"] == 7
        assert not broker.searches

    run(test)


def test_the_options_are_the_keywords_of_serve() -> None:
    parameters = inspect.signature(rocketmq.serve).parameters.values()
    options = {field.name: (field.type, field.default) for field in dataclasses.fields(rocketmq.ServeOptions)}
    assert {each.name: (each.annotation, each.default) for each in parameters if each.name != "store"} == options
    assert "secret" not in repr(rocketmq.ServeOptions(acl={"key": "secret"}))
