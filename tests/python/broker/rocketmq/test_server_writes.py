"""A server that takes messages: what it stores, whom it tells, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

import wire
from logdex import rocketmq
from logdex.broker.rocketmq import service, tables
from logdex.broker.rocketmq.handlers import transactions
from logdex.broker.rocketmq.handlers.sends import REGION
from logdex.cli import main
from logdex.errors import CorruptFileError, LockedError
from logdex.rocketmq import MessageStore, StoreWriter
from logdex.rocketmq.broker_config import HALF_TOPIC
from serve_client import Client, client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

# A half message that was born three days ago is given up.
AN_HOUR_AGO = str(time.time_ns() // 1_000_000 - 3_600_000)
SEND = {"a": "p", "b": "Orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": AN_HOUR_AGO, "h": "0"}
PULL = {
    "consumerGroup": "g",
    "topic": "Orders",
    "queueId": "1",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "30000",
    "subVersion": "0",
}


def _send(opaque: int = 1, body: bytes = b"body", **fields: Any) -> bytes:
    return wire.request(310, {**SEND, **fields}, body, opaque=opaque)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A new store with small files."""
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=1 << 20, hash_slots=100, max_entries=400) as writer:
        for number in range(3):
            writer.put_message("Old", b"%d" % number, keys=f"k{number}")
    return root


@pytest.fixture
def run(root: Path) -> Callable[..., None]:
    """Return `run(test, **options)`, which runs a coroutine with a server that takes messages."""

    def run(test: Callable[[rocketmq.Server, Client], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def body() -> None:
            async with rocketmq.serve(root, port=0, write=True, **options) as server, client(server) as asker:
                await test(server, asker)

        asyncio.run(body())

    return run


def _stored(root: Path, topic: str = "Orders") -> list[tuple[int, int, bytes]]:
    with MessageStore.open(root) as store:
        found = store.messages(topic).read_all()
        rows = zip(*(found.column(name).to_pylist() for name in ("queue_id", "queue_offset", "body")), strict=True)
        return sorted(rows)


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_what_many_producers_send_is_stored_once(flush: str, append: str, root: Path, run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server, _: Client) -> None:
        async def produce(serial: int) -> None:
            async with client(server) as producer:
                for number in range(5):
                    header, _ = await producer.ask(_send(number, f"{serial}-{number}".encode(), e=str(serial % 4)))
                    assert (header["code"], header["opaque"]) == (0, number)
                    assert header["extFields"]["queueId"] == str(serial % 4)

        await asyncio.gather(*map(produce, range(16)))

    run(test, flush=flush, append=append)
    stored = _stored(root)
    assert sorted(body for _, _, body in stored) == sorted(f"{s}-{n}".encode() for s in range(16) for n in range(5))
    assert [(queue, offset) for queue, offset, _ in stored] == [(q, o) for q in range(4) for o in range(20)]


def test_puts_of_many_share_a_flush(root: Path) -> None:
    with StoreWriter.open(root, flush="sync") as writer:
        calls = []

        async def body() -> None:
            put_each = writer.put_each

            def counted(sent: list[Any], **options: Any) -> Any:
                calls.append(sum(getattr(each, "count", 1) for each in sent))
                return put_each(sent, **options)

            writer.put_each = counted  # type: ignore[method-assign,assignment]
            async with rocketmq.serve(writer, port=0) as server, client(server) as asker:
                asker.writer.write(b"".join(_send(number) for number in range(500)))
                for _ in range(500):
                    assert (await asker.read())[0]["code"] == 0

        asyncio.run(body())
        assert sum(calls) == 500
        assert len(calls) < 250


def test_sends_that_are_taken_together_are_answered_one_by_one(root: Path, run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server, asker: Client) -> None:
        # The first one makes the topic.
        assert (await asker.ask(_send(0, b"first")))[0]["code"] == 0
        bad = _send(2, i="long\x01" + "x" * 32_768)
        frames = [_send(1, b"a"), bad, _send(3, b"b", e="99"), _send(4, b"c"), wire.request(105, {"topic": "Orders"})]
        asker.writer.write(b"".join(frames) + _send(6, b"d")[:-1])
        codes = {}
        for _ in frames:
            header, _body = await asker.read()
            codes[header["opaque"]] = header["code"]
        # The request that is no send has the number 1, too.
        assert codes == {1: 0, 2: 13, 3: 1, 4: 0}
        asker.writer.write(_send(6, b"d")[-1:])
        header, _body = await asker.read()
        assert (header["opaque"], header["code"]) == (6, 0)
        text = (await _metrics(server)).splitlines()
        assert 'logdex_requests_total{code="SEND_MESSAGE_V2"} 6' in text
        assert "logdex_stored_messages_total 4" in text
        assert "logdex_waiting_messages 0" in text

    run(test)
    assert [body for _, _, body in _stored(root)] == [b"first", b"a", b"c", b"d"]


def test_sends_are_refused_for_a_disk_that_is_full(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter.open(root) as writer:
        placed = Mock(wraps=writer.put_each)
        monkeypatch.setattr(writer, "put_each", placed)

        async def body() -> None:
            async with rocketmq.serve(writer, port=0) as server, client(server) as asker:
                assert (await asker.ask(_send(0)))[0]["code"] == 0
                placed.side_effect = OSError(28, "No space left on device")
                header, _body = await asker.ask(_send(1))
                assert (header["code"], header["extFields"]) == (14, REGION)
                assert "No space left" in header["remark"]

        asyncio.run(body())


@pytest.mark.parametrize("wait", ["true", "false"])
def test_a_flush_that_takes_too_long_is_said(
    wait: str, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreWriter, "flushed_offset", property(lambda _: 0))

    async def test(_: rocketmq.Server, asker: Client) -> None:
        header, _body = await asker.ask(_send(i=f"WAIT\x01{wait}"))
        assert header["code"] == (10 if wait == "true" else 0)
        assert header["extFields"]["queueOffset"] == "0"

    run(test, flush="sync", sync_flush_timeout_s=0)


def test_the_disk_is_in_time_as_a_rule(run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        for _number in range(3):
            assert (await asker.ask(_send()))[0]["code"] == 0

    run(test, flush="sync")


def test_runtime_information_is_true(root: Path) -> None:
    with StoreWriter.open(root) as writer:

        async def body() -> None:
            async with rocketmq.serve(writer, port=0) as server, client(server) as asker:
                before = writer.max_offset
                for number in range(5):
                    await asker.ask(_send(number))
                writer.dispatch()
                await asker.ask(wire.request(11, PULL))
                writer.put_message("Other", b"put without the server")
                _, runtime = await asker.ask(wire.request(28))
                table = json.loads(runtime)["table"]
                expected = {
                    "msgPutTotalTodayNow": "5",
                    "msgPutTotalTodayMorning": "0",
                    "putMessageTimesTotal": "6",
                    "putMessageSizeTotal": str(writer.max_offset - before),
                    "sendThreadPoolQueueSize": "0",
                }
                assert {name: table[name] for name in expected} == expected
                assert 0 <= int(table["dispatchBehindBytes"]) <= writer.max_offset - before
                classes = dict(part.rsplit(":", 1) for part in table["putMessageDistributeTime"].split())
                assert sum(map(int, classes.values())) == 6
                assert len(table["putTps"].split()) == len(table["getTransferedTps"].split()) == 3
                assert 0 < float(table["commitLogDiskRatio"]) <= 1

        asyncio.run(body())


def test_members_are_told_to_go_back(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server, asker: Client) -> None:
        ask = {"topic": "Orders", "group": "g", "timestamp": "-1", "isForce": "true"}
        header, _body = await asker.ask(wire.request(222, ask))
        assert (header["code"], header["remark"][:14]) == (1, "[reset-offset]")
        for number in range(3):
            await asker.ask(_send(number))
            # It waits until the message is dispatched.
            assert (await asker.ask(wire.request(11, {**PULL, "queueOffset": str(number)})))[0]["code"] == 0
        header, _body = await asker.ask(wire.request(222, ask))
        assert (header["code"], header["remark"]) == (1, "THe consumer group <g> not exist")
        for queue_id in range(4):
            commit = {"consumerGroup": "g", "topic": "Orders", "queueId": str(queue_id), "commitOffset": "2"}
            await asker.ask(wire.request(15, commit))
        header, _body = await asker.ask(wire.request(222, ask))
        remark = "Consumer not online, so can not reset offset, Group: g Topic: Orders Timestamp: -1"
        assert (header["code"], header["remark"]) == (206, remark)
        async with client(server) as member:
            group = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}
            member.writer.write(
                wire.request(34, {}, json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode())
            )
            assert {(await member.read())[0]["code"] for _ in range(2)} == {40, 0}
            for time, force, offset in (("-1", "true", 3), ("0", "false", 0), ("-1", "false", 2)):
                header, body = await asker.ask(wire.request(222, {**ask, "timestamp": time, "isForce": force}))
                assert header["code"] == 0
                told, same = await member.read()
                assert (told["code"], told["flag"] & 3) == (220, 2)
                assert told["extFields"] == {"topic": "Orders", "group": "g", "timestamp": time, "isForce": "false"}
                assert body == same
                offsets = {json.loads(name)["queueId"]: each for name, each in wire.value(body)["offsetTable"].items()}
                assert offsets[1] == offset
                assert len(offsets) == 4

    run(test)


def test_replies_are_not_supported(run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        for code in (324, 325):
            header, _body = await asker.ask(wire.request(code, SEND))
            assert (header["code"], header["remark"]) == (3, f" request type {code} not supported")

    run(test)


async def _metrics(server: rocketmq.Server) -> str:
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text


def test_a_held_pull_gets_what_is_sent(run: Callable[..., None]) -> None:
    async def test(server: rocketmq.Server, asker: Client) -> None:
        await asker.ask(_send(e="0"))
        async with client(server) as consumer:
            consumer.writer.write(wire.request(11, PULL))
            await asyncio.sleep(0.05)
            begin = asyncio.get_running_loop().time()
            await asker.ask(_send(body=b"awaited"))
            header, body = await consumer.read()
            assert (header["code"], header["extFields"]["nextBeginOffset"]) == (0, "1")
            assert b"awaited" in body
            # Timers alone would take a second.
            assert asyncio.get_running_loop().time() - begin < 0.9

    run(test)


def test_a_delayed_message_comes_later(run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        header, _body = await asker.ask(_send(i="DELAY\x011\x02KEYS\x01k"))
        assert header["code"] == 0
        header, body = await asker.ask(wire.request(11, PULL))
        assert header["code"] == 0
        (frame,) = wire.frames(body)
        text = frame[frame.index(b"REAL_TOPIC") :].decode()
        assert {*text.split("\x02")} == {
            "REAL_TOPIC\x01Orders",
            "REAL_QID\x011",
            "DELAY\x011",
            "KEYS\x01k",
            "CLUSTER\x01DefaultCluster",
        }

    run(test)


def test_config_files_are_those_of_a_broker(root: Path, run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        await asker.ask(_send())
        group = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}
        beat = json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode()
        header: dict[str, Any] = {}
        asker.writer.write(wire.request(34, {}, beat, opaque=7))
        while header.get("opaque") != 7 or not header["flag"] & 1:
            header, _body = await asker.read()
        for queue_id, offset in (("3", "1"), ("0", "5"), ("2", "7")):
            ext = {"consumerGroup": "g", "topic": "Orders", "queueId": queue_id, "commitOffset": offset}
            await asker.ask(wire.request(15, ext))

    run(test)
    config = root / "config"
    assert (config / "consumerOffset.json").read_text() == (
        '{\n\t"offsetTable":{\n\t\t"Orders@g":{0:5,2:7,3:1\n\t\t}\n\t}\n}'
    )
    topics = json.loads((config / "topics.json").read_text())
    # The order of the golden store `basic`, which a broker wrote.
    assert [name for name in topics["topicConfigTable"] if name not in {"Orders", "Old", "%RETRY%g"}] == [
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "broker-a",
        "TBW102",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
    ]
    assert topics["topicConfigTable"].keys() >= {"Orders", "Old", "%RETRY%g"}
    assert topics["topicConfigTable"]["Orders"] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert topics["dataVersion"]["counter"] == 2
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert groups["g"]["retryMaxTimes"] == 16
    assert not (root / "abort").exists()


def test_the_broker_s_files_are_written_as_they_were(store: Callable[[str], Path]) -> None:
    root = store("basic")
    before = {name: (root / "config" / name).read_bytes() for name in ("topics.json", "subscriptionGroup.json")}

    async def body() -> None:
        async with rocketmq.serve(root, port=0, write=True) as server:
            assert server.running is not None
            master = server.running.broker.master
            assert master is not None
            for table in master.tables:
                table.changes += 1
                table.save()

    asyncio.run(body())
    assert {name: (root / "config" / name).read_bytes() for name in before} == before
    assert {name: (root / "config" / f"{name}.bak").read_bytes() for name in before} == before


def test_topics_and_groups_are_made_and_removed(run: Callable[..., None]) -> None:
    new = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "3", "perm": "6"}
    new |= {"topicFilterType": "SINGLE_TAG"}

    async def test(_: rocketmq.Server, asker: Client) -> None:
        async def route(topic: str) -> Any:
            header, body = await asker.ask(wire.request(105, {"topic": topic}))
            return wire.value(body)["queueDatas"][0] if header["code"] == 0 else header["code"]

        assert await route("New") == 17
        assert (await asker.ask(wire.request(17, new)))[0]["code"] == 0
        expected = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 3}
        assert await route("New") == expected
        assert (await asker.ask(_send(b="New", e="3")))[0]["remark"].startswith("request queueId[3] is illegal")
        assert (await asker.ask(wire.request(215, {"topic": "New"})))[0]["code"] == 0
        assert (await asker.ask(wire.request(216, {"topic": "New"})))[0]["code"] == 0
        assert await route("New") == 17
        for topic in ("TBW102", "broker-a", "a b", "", "rmq_sys_x"):
            header, _body = await asker.ask(wire.request(17, {**new, "topic": topic}))
            assert header["code"] == 1, topic
        assert (await asker.ask(wire.request(17, {**new, "readQueueNums": "-1"})))[0]["code"] == 1
        assert (await route("Old"))["readQueueNums"] == 1

        await asker.ask(wire.request(200, {}, b'{"groupName":"mine","retryMaxTimes":3,"else":1}'))
        await asker.ask(
            wire.request(15, {"consumerGroup": "mine", "topic": "Old", "queueId": "0", "commitOffset": "1"})
        )
        _header, body = await asker.ask(wire.request(201))
        assert wire.value(body)["subscriptionGroupTable"]["mine"]["retryMaxTimes"] == 3
        assert (await asker.ask(wire.request(207, {"groupName": "mine", "removeOffset": "true"})))[0]["code"] == 0
        _header, body = await asker.ask(wire.request(201))
        assert "mine" not in wire.value(body)["subscriptionGroupTable"]
        _header, body = await asker.ask(wire.request(43))
        assert wire.value(body) == {"offsetTable": {}}
        assert (await asker.ask(wire.request(200, {}, b"{}")))[0]["code"] == 1

    run(test)


def test_a_server_without_write_takes_nothing(root: Path) -> None:
    async def body() -> None:
        async with rocketmq.serve(root, port=0) as server, client(server) as asker:
            for code in (310, 36, 37, 17, 215, 216, 200, 207):
                assert (await asker.ask(wire.request(code, SEND)))[0]["code"] in (16, 3)

    asyncio.run(body())
    assert not (root / "config" / "topics.json").exists()


def test_topics_are_not_made_if_it_is_forbidden(run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        assert (await asker.ask(_send()))[0]["code"] == 17
        assert (await asker.ask(_send(b="Old", e="0")))[0]["code"] == 0

    run(test, create_topics=False)


def test_the_producer_of_a_half_message_is_asked(root: Path, run: Callable[..., None]) -> None:
    half: dict[str, Any] = {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U1\x02WAIT\x01true"}

    async def test(server: rocketmq.Server, asker: Client) -> None:
        beat = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}'
        assert (await asker.ask(wire.request(34, {}, beat)))[0]["code"] == 0
        header, _ = await asker.ask(_send(**half))
        assert header["extFields"]["queueOffset"] == "0"
        # Its birth is long ago.
        header, body = await asker.read()
        assert (header["code"], header["flag"] & 3) == (39, 2)
        asked = header["extFields"]
        assert (asked["msgId"], asked["transactionId"], asked["tranStateTableOffset"]) == ("U1", "U1", "1")
        assert b"\x06OrdersREAL" not in body
        assert b"\x06Orders" in body
        assert b"TRANSACTION_CHECK_TIMES\x011" in body
        end = {name: asked[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
        end |= {"producerGroup": "p", "commitOrRollback": "8", "fromTransactionCheck": "true"}
        assert (await asker.ask(wire.request(37, end)))[0]["code"] == 0
        header, body = await asker.ask(wire.request(11, PULL))
        assert header["code"] == 0
        assert len(wire.frames(body)) == 1
        assert server.running is not None
        offsets = server.running.broker.offsets
        for _ in range(200):
            if offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2:
                break
            await asyncio.sleep(0.02)
        assert offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2
        assert offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1

    run(test, check_every_s=0.05)
    assert [body for _, _, body in _stored(root)] == [b"body"]


def test_a_half_message_that_nobody_ends_is_given_up(root: Path, run: Callable[..., None]) -> None:

    async def test(server: rocketmq.Server, asker: Client) -> None:
        await asker.ask(_send(f="4", i="TRAN_MSG\x01true\x02PGROUP\x01p"))
        for _ in range(400):
            if ("TRANS_CHECK_MAX_TIME_TOPIC", 0) in server.store.queues():
                return
            await asyncio.sleep(0.02)
        pytest.fail("waited for 8 s")

    run(test, check_every_s=0.02)
    halves = _stored(root, "RMQ_SYS_TRANS_HALF_TOPIC")
    assert len(halves) == 16
    assert len(_stored(root, "TRANS_CHECK_MAX_TIME_TOPIC")) == 1


def test_the_check_of_transactions_survives_a_fault_and_the_limit_of_topics(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "_MOST_NAMES", 0)
    check, faults = service.BrokerService.check_transactions, iter([KeyError("a bug")])

    async def fail_once(broker: service.BrokerService) -> None:
        for fault in faults:
            raise fault
        await check(broker)

    monkeypatch.setattr(service.BrokerService, "check_transactions", fail_once)
    monkeypatch.setattr(transactions, "_MOST_CHECKS", 0)

    async def test(server: rocketmq.Server, asker: Client) -> None:
        # At the limit, no client makes a topic.
        assert (await asker.ask(_send()))[0]["code"] == 2
        await asker.ask(_send(b="Old", e="0", f="4", i="TRAN_MSG\x01true\x02PGROUP\x01p"))
        for _ in range(400):
            if ("TRANS_CHECK_MAX_TIME_TOPIC", 0) in server.store.queues():
                return
            await asyncio.sleep(0.02)
        pytest.fail("waited for 8 s")

    run(test, check_every_s=0.02)
    assert "a bug" in caplog.text


def test_half_messages_are_checked_with_a_limited_memory(
    root: Path, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_MOST_BYTES", 10_000)
    looked: list[tuple[int, int, bool]] = []
    look = transactions.look_at_halves

    def note(*arguments: Any) -> transactions.Checks:
        checks = look(*arguments)
        looked.append((len(checks.renewed), checks.half_offset, checks.is_cut))
        return checks

    monkeypatch.setattr(service, "look_at_halves", note)

    async def test(server: rocketmq.Server, asker: Client) -> None:
        assert server.running is not None
        half: dict[str, Any] = {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01p"}
        for _ in range(5):
            assert (await asker.ask(_send(body=b"x" * 6_000, **half)))[0]["code"] == 0
        broker = server.running.service
        seen: dict[str, str] = {}
        while seen.get("offset") != "5":
            seen = (await asker.ask(wire.request(30, {"topic": HALF_TOPIC, "queueId": "0"})))[0]["extFields"]
        await broker.check_transactions()

    run(test, check_every_s=1000)
    # The renewed ones were stored by the same check, and wait for the next one.
    assert looked == [(2, 2, True), (2, 4, True), (1, 5, False)]
    assert len(_stored(root, HALF_TOPIC)) == 10


@pytest.mark.parametrize("services", [False, True])
def test_a_writer_that_cannot_be_followed_leaves_no_thread(services: bool, root: Path) -> None:
    threads = {*threading.enumerate()}

    async def refused(writer: StoreWriter) -> None:
        with pytest.raises(ValueError, match="services=False"):
            await rocketmq.serve(writer, port=0).start()

    async def closed_first(writer: StoreWriter) -> None:
        server = rocketmq.serve(writer, port=0)
        await server.start()
        writer.close()
        await server.stop()
        assert server._writer is None

    with StoreWriter.open(root, services=services) as writer:
        asyncio.run((closed_first if services else refused)(writer))
    assert {*threading.enumerate()} <= threads


def test_wrong_uses_are_refused(root: Path, tmp_path: Path) -> None:
    with MessageStore.open(root) as store, pytest.raises(ValueError, match="only reads"):
        rocketmq.serve(store, write=True)
    with pytest.raises(ValueError, match="offsets"):
        rocketmq.serve(root, write=True, offsets=tmp_path / "o")

    async def start() -> None:
        server = rocketmq.serve(root, port=0, write=True)
        await server.start()
        await server.stop()

    with StoreWriter.open(root), pytest.raises(LockedError):
        asyncio.run(start())
    (root / "config").mkdir(exist_ok=True)
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        (root / "config" / name).write_text("{")
        with pytest.raises(CorruptFileError, match=name):
            asyncio.run(start())
        (root / "config" / name).unlink()
    asyncio.run(start())


def test_the_command_takes_messages_until_a_signal_comes(root: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "logdex",
        "serve",
        str(root),
        "--port",
        "0",
        "--write",
        "--flush",
        "sync",
        "--file-reserved-hours",
        "72",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        address = json.loads(served.stdout.readline())["address"]

        async def send() -> None:
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            assert (await Client(reader, writer).ask(_send()))[0]["code"] == 0
            writer.close()

        asyncio.run(send())
        served.send_signal(signal.SIGTERM)
        assert served.wait(20) == 0
    assert not (root / "abort").exists()
    assert [body for _, _, body in _stored(root)] == [b"body"]


def test_the_command_passes_its_options_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[rocketmq.ServeOptions] = []

    def served(_: object, options: rocketmq.ServeOptions) -> None:
        given.append(options)
        raise ValueError("not now")

    monkeypatch.setattr("logdex.cli.commands.serve.Server", served)
    names = [
        "--bind",
        "h",
        "--port",
        "1",
        "--advertise",
        "h:2",
        "--broker-name",
        "b",
        "--cluster",
        "c",
        "--ha-port",
        "3",
    ]
    writing = [
        "--write",
        "--append",
        "pool",
        "--flush",
        "sync",
        "--sync-flush-timeout",
        "0.5",
        "--check-every",
        "9",
        "--no-create-topics",
    ]
    files = ["--tls-cert", "cert", "--access-key", "keys", "--file-reserved-hours", "7", "--sync-slaves"]
    assert main(["serve", str(root), *names, *writing, *files]) == 2
    assert main(["serve", str(root), "--offsets", "file"]) == 2
    expected = rocketmq.ServeOptions(
        host="h",
        port=1,
        advertise="h:2",
        write=True,
        flush="sync",
        retention=rocketmq.Retention(file_reserved_hours=7),
        create_topics=False,
        check_every_s=9,
        tls=("cert", "cert"),
        acl="keys",
        broker_name="b",
        cluster="c",
        ha_port=3,
        sync_slaves=True,
        sync_flush_timeout_s=0.5,
        append="pool",
    )
    assert given == [expected, rocketmq.ServeOptions(offsets="file")]


def test_a_full_disk_refuses_sends_and_serves_the_rest(
    root: Path, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(total=100, used=50, free=50)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)

    async def test(server: rocketmq.Server, asker: Client) -> None:
        assert (await asker.ask(_send()))[0]["code"] == 0
        _, config = await asker.ask(wire.request(26))
        shown = dict(line.split("=", 1) for line in config.decode().splitlines())
        names = ("fileReservedTime", "deleteWhen", "diskMaxUsedSpaceRatio", "cleanFileForciblyEnable")
        assert [shown[name] for name in names] == ["48", "04", "75", "false"]
        _, runtime = await asker.ask(wire.request(28))
        assert json.loads(runtime)["table"]["msgPutTotalTodayNow"] == "1"
        disk.used, disk.free = 95, 5
        writer = server._writer
        assert writer is not None
        writer.delete_expired()
        refused, _ = await asker.ask(_send())
        assert refused["code"] == 14
        assert refused["remark"].startswith("service not available now. It may be caused by one of the following")
        assert "the disk is 95% full" in refused["remark"]
        pulled, _ = await asker.ask(wire.request(33, {"offset": "0"}))
        assert pulled["code"] == 0
        disk.used, disk.free = 50, 50
        writer.delete_expired()
        assert (await asker.ask(_send()))[0]["code"] == 0

    run(test, retention=rocketmq.Retention(file_reserved_hours=48, clean_forcibly=False))
    assert len(_stored(root)) == 2
