"""Tables of a server that accepts messages: topics, groups and offsets, their changes, and the writes of their files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex import rocketmq
from logdex._core import replace_file
from logdex.broker.rocketmq import clients, server, service
from logdex.broker.rocketmq.broker import StoreView
from logdex.broker.rocketmq.handlers import consumers
from logdex.broker.rocketmq.requests import HANDLERS
from logdex.broker.rocketmq.tables import ConsumerOffsets, TableWriter
from logdex.rocketmq import StoreWriter, broker_config, fastjson
from serve_client import Client, client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SMALL: dict[str, Any] = {"file_size": 1 << 20, "hash_slots": 100, "max_entries": 400}
MANY = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A new store with one message."""
    root = tmp_path / "store"
    with StoreWriter.open(root, **SMALL) as writer:
        writer.put_message("Old", b"old", keys="k")
    return root


@pytest.fixture
def run(root: Path) -> Callable[..., None]:
    """Return `run(test, **options)`, which runs a coroutine with a server that accepts messages."""

    def run(test: Callable[[rocketmq.Server, Client], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def body() -> None:
            async with rocketmq.serve(root, port=0, write=True, **options) as served, client(served) as asker:
                await test(served, asker)

        asyncio.run(body())

    return run


class Disk:
    """Writes of config files, counted, and delayed or failed by a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[str] = []
        self.error: dict[str, OSError] = {}
        self.begun, self.go, self.done = threading.Event(), threading.Event(), threading.Event()
        self.go.set()
        monkeypatch.setattr(broker_config, "replace_file", self.replace)

    def hold_up(self) -> None:
        self.begun.clear()
        self.go.clear()

    def replace(self, path: Path, content: bytes) -> None:
        if path.suffix == ".json":
            self.begun.set()
            assert self.go.wait(60)
            if path.name in self.error:
                raise self.error[path.name]
            self.writes.append(path.name)
        replace_file(path, content)
        if path.suffix == ".json":
            self.done.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def send(topic: str, opaque: int = 1) -> bytes:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795260000000", "h": "0"}
    return wire.request(310, fields, b"body", opaque=opaque)


def pull(topic: str, offset: int, group: str = "g", tags: str = "*") -> bytes:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32"}
    rest = {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": tags}
    return wire.request(11, {**fields, **rest})


def heartbeat(*groups: Any, opaque: int = 1) -> bytes:
    members = [each if isinstance(each, dict) else {"groupName": each} for each in groups]
    return wire.request(34, {}, json.dumps({"clientID": "c", "consumerDataSet": members}).encode(), opaque=opaque)


def commit(group: str, offset: int) -> bytes:
    return wire.request(15, {"consumerGroup": group, "topic": "Old", "queueId": "0", "commitOffset": str(offset)})


async def answer_to(asker: Client, opaque: int) -> dict[str, Any]:
    """Return the header of the answer to a request; skip notices before it."""
    while True:
        header, _body = await asker.read()
        if header["flag"] & 1 and header["opaque"] == opaque:
            return header


def table(root: Path, file: str) -> dict[str, Any]:
    members = fastjson.loads((root / "config" / file).read_text())
    found: dict[str, Any] = members["topicConfigTable" if file == "topics.json" else "subscriptionGroupTable"]
    return found


# After a crash


def test_a_server_that_starts_after_a_crash_knows_what_was_acknowledged(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    with StoreWriter.open(crashed, services=False, flush="sync", **SMALL) as writer:
        for _ in range(5):
            writer.put_message("T", b"x", keys="k")

        async def body() -> None:
            async with rocketmq.serve(copy, port=0) as served, client(served) as asker:
                header, _body = await asker.ask(wire.request(30, {"topic": "T", "queueId": "0"}))
                assert header["extFields"]["offset"] == "5"
                header, _body = await asker.ask(pull("T", 5))
                assert (header["code"], header["extFields"]["nextBeginOffset"]) == (19, "5")

        # The log has the messages but there are no queues, as after a kill.
        shutil.copytree(crashed, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
        with StoreWriter.open(tmp_path / "copy", **SMALL) as copy:
            asyncio.run(body())


def test_a_server_of_an_open_writer_knows_what_was_put(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter.open(root, **SMALL) as writer:
        # The thread is busy with other work.
        monkeypatch.setattr(writer._services, "wake", lambda: None)
        writer.put_message("T", b"x", keys="k")

        async def body() -> None:
            async with rocketmq.serve(writer, port=0) as served, client(served) as asker:
                header, _body = await asker.ask(wire.request(30, {"topic": "T", "queueId": "0"}))
                assert header["extFields"]["offset"] == "1"

        asyncio.run(body())


def test_what_a_killed_process_of_the_same_number_left_does_not_stop_the_start(
    root: Path, run: Callable[..., None]
) -> None:
    left = [root / f".abort.{os.getpid()}", *(root / "config" / f".{name}.{os.getpid()}" for name in ("topics.json",))]
    (root / "config").mkdir()
    for path in left:
        path.write_bytes(b"half")

    async def test(_: rocketmq.Server, asker: Client) -> None:
        assert (await asker.ask(send("New")))[0]["code"] == 0

    run(test)
    assert "New" in table(root, "topics.json")


# When tables are written


def test_many_new_topics_share_a_write_and_delay_nobody(root: Path, run: Callable[..., None], disk: Disk) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        await asker.ask(send("Known"))
        disk.writes.clear()
        disk.hold_up()
        for number in range(MANY):
            asker.writer.write(send(f"New{number}", number + 10))
        # They wait for the disk; sends of the same client to a known topic do not.
        asker.writer.write(send("Known", 5))
        assert (await answer_to(asker, 5))["code"] == 0
        assert disk.begun.wait(60)
        disk.go.set()
        answers = [(await asker.read())[0] for _ in range(MANY)]
        assert {each["code"] for each in answers} == {0}
        assert [each["opaque"] for each in answers] == [*range(10, MANY + 10)]
        assert disk.writes.count("topics.json") == len(disk.writes) <= 2

    run(test)
    assert {f"New{number}" for number in range(MANY)} <= table(root, "topics.json").keys()


def test_sends_to_a_new_topic_keep_their_order(run: Callable[..., None], disk: Disk) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        disk.hold_up()
        asker.writer.writelines([send("New", number) for number in range(50)])
        assert await asyncio.to_thread(disk.begun.wait, 60)
        asker.writer.writelines([send("New", number) for number in range(50, 100)])
        # The server answers it after it received the previous requests.
        asker.writer.write(wire.request(30, {"topic": "Old", "queueId": "0"}, opaque=MANY))
        assert (await answer_to(asker, MANY))["code"] == 0
        disk.go.set()
        asker.writer.writelines([send("New", number) for number in range(100, MANY)])
        answers = [(await asker.read())[0] for _number in range(MANY)]
        assert [(each["opaque"], each["extFields"]["queueOffset"]) for each in answers] == [
            (number, str(number)) for number in range(MANY)
        ]

    run(test)


def test_a_pull_of_a_new_group_is_held_before_the_group_is_written(run: Callable[..., None], disk: Disk) -> None:
    fields = {"consumerGroup": "new", "topic": "Old", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32"}
    rest = {
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "60000",
        "subVersion": "0",
        "subscription": "*",
    }

    async def test(served: rocketmq.Server, asker: Client) -> None:
        disk.writes.clear()
        disk.hold_up()
        asker.writer.write(wire.request(11, {**fields, **rest}, opaque=3))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        async with client(served) as producer:
            assert (await producer.ask(send("Old")))[0]["code"] == 0
            # The file is not written yet.
            assert (await answer_to(asker, 3))["code"] == 0
        assert "subscriptionGroup.json" not in disk.writes
        disk.go.set()

    run(test)
    assert "subscriptionGroup.json" in disk.writes


def test_sends_that_wait_for_a_table_take_a_limited_memory(
    run: Callable[..., None], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MOST_KEPT_BYTES", 3_000)

    async def test(served: rocketmq.Server, asker: Client) -> None:
        assert served.running is not None
        broker = served.running.service
        disk.hold_up()
        asker.writer.write(b"".join(send(f"New{number}", opaque=number) for number in range(4)))
        refused = [(await asker.read())[0] for _ in range(2)]
        assert [(header["opaque"], header["code"]) for header in refused] == [(2, 2), (3, 2)]
        assert 2_000 < broker.kept_bytes <= 3_000
        disk.go.set()
        answers = [(await asker.read())[0] for _ in range(2)]
        assert [(header["opaque"], header["code"]) for header in answers] == [(0, 0), (1, 0)]
        assert broker.kept_bytes == 0

    run(test)


def test_members_are_told_of_a_heartbeat_that_is_refused_in_part(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: rocketmq.Server, asker: Client) -> None:
        asker.writer.write(heartbeat("g", opaque=2))
        assert (await answer_to(asker, 2))["code"] == 0
        async with client(served) as second:
            second.writer.write(heartbeat("g", "no/group", opaque=3))
            assert (await answer_to(second, 3))["code"] == 1
            assert (await asker.read())[0]["code"] == 40
        assert (await asker.read())[0]["code"] == 40
        monkeypatch.setattr(clients, "_MOST_MEMBERS", 2)
        async with client(served) as third:
            third.writer.write(heartbeat("g", "other", opaque=4))
            assert (await answer_to(third, 4))["code"] == 1
            assert (await asker.read())[0]["code"] == 40

    run(test)


def test_a_client_that_goes_while_its_heartbeat_is_read_joins_no_group(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    handler = HANDLERS[34]
    assert handler.parse is not None
    parse = handler.parse

    def slow(data: dict[str, Any]) -> object:
        begun.set()
        assert go.wait(60)
        return parse(data)

    monkeypatch.setitem(HANDLERS, 34, replace(handler, parse=slow))
    filler = {"groupName": "ghost", "subscriptionDataSet": [{"topic": "T", "subString": "x" * service._LONG_BODY}]}

    async def test(served: rocketmq.Server, asker: Client) -> None:
        assert served.running is not None
        broker = served.running.service
        async with client(served) as dying:
            dying.writer.write(heartbeat(filler))
            assert await asyncio.to_thread(begun.wait, 60)
            dying.writer.transport.abort()
        while len(broker.peers) > 1:
            await asker.ask(commit("g", 0))
        go.set()
        while broker.in_threads:
            await asker.ask(commit("g", 0))
        assert not broker.broker.clients.consumers

    run(test)


def test_many_groups_of_a_heartbeat_share_a_write(root: Path, run: Callable[..., None], disk: Disk) -> None:
    groups = [f"group-{number:060}" for number in range(MANY)]

    async def test(_: rocketmq.Server, asker: Client) -> None:
        disk.writes.clear()
        filler = {"groupName": "filler", "subscriptionDataSet": [{"topic": "T", "subString": "x" * service._LONG_BODY}]}
        asker.writer.write(heartbeat(*groups, filler, opaque=7))
        assert (await answer_to(asker, 7))["code"] == 0
        assert sorted(disk.writes) == ["subscriptionGroup.json", "topics.json"]
        # Some of the notices to the member itself are sent later.
        rest = [(await asker.read())[0]["code"] for _number in range(MANY + 1 - service._NOTICES_TOGETHER)]
        assert {*rest} == {40}
        assert (await asker.ask(wire.request(38, {"consumerGroup": groups[-1]})))[0]["code"] == 0

    run(test)
    assert {*groups} <= table(root, "subscriptionGroup.json").keys()
    assert {f"%RETRY%{group}" for group in groups} <= table(root, "topics.json").keys()


def test_sends_fail_if_their_topic_cannot_be_written(root: Path, run: Callable[..., None], disk: Disk) -> None:
    async def test(served: rocketmq.Server, asker: Client) -> None:
        assert (await asker.ask(send("Known")))[0]["code"] == 0
        disk.error["topics.json"] = OSError(28, "No space left on device", str(root / "config" / "topics.json"))
        for _number in range(2):
            header, _body = await asker.ask(send("New"))
            assert header["code"] == 14
            assert "No space left on device" in header["remark"]
            assert "config/topics.json" in header["remark"]
        assert (await asker.ask(send("Known")))[0]["code"] == 0
        beat = heartbeat("g", opaque=9)
        asker.writer.write(beat)
        assert (await answer_to(asker, 9))["code"] == 1
        assert served.store.queue_ids("New") == []
        disk.error.clear()
        header, _body = await asker.ask(send("New"))
        assert (header["code"], header["extFields"]["queueOffset"]) == (0, "0")

    run(test)
    assert {"New", "%RETRY%g"} <= table(root, "topics.json").keys()


def test_a_stop_tells_that_a_table_cannot_be_written(root: Path, run: Callable[..., None], disk: Disk) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        await asker.ask(commit("g", 1))
        disk.error["topics.json"] = OSError(28, "No space left on device", "topics.json")
        assert (await asker.ask(send("New")))[0]["code"] == 14

    with pytest.raises(OSError, match=r"No space left on device.*topics\.json"):
        run(test)
    assert "Old@g" in (root / "config" / "consumerOffset.json").read_text(), "the other tables are written"


def test_a_table_that_could_not_be_written_is_written_later(
    root: Path, run: Callable[..., None], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SAVE_S", 0.01)

    async def test(_: rocketmq.Server, asker: Client) -> None:
        disk.error["topics.json"] = OSError(5, "Input/output error", "topics.json")
        assert (await asker.ask(send("New")))[0]["code"] == 14
        disk.done.clear()
        disk.error.clear()
        assert await asyncio.to_thread(disk.done.wait, 60)
        assert "New" in table(root, "topics.json")

    run(test)


def test_a_stop_during_a_write_of_offsets_loses_none(
    root: Path, run: Callable[..., None], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SAVE_S", 0.01)
    close = TableWriter.close

    def close_during_write(writer: TableWriter) -> None:
        assert disk.begun.is_set()
        disk.go.set()
        close(writer)

    monkeypatch.setattr(TableWriter, "close", close_during_write)

    async def test(_: rocketmq.Server, asker: Client) -> None:
        disk.hold_up()
        await asker.ask(commit("g", 1))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        # The server stops during a write of the file without this offset.
        await asker.ask(commit("g", 2))

    run(test)
    assert disk.writes.count("consumerOffset.json") == 2
    assert '"Old@g":{0:2' in (root / "config" / "consumerOffset.json").read_text()
    assert not [path for path in (root / "config").iterdir() if path.name.startswith(".")]


# Changes of a table


@pytest.mark.parametrize("name", ["\ud800g", "a b", "a/b", "a\0b", "", " ", "g" * 256, "\u7ec4"])
def test_a_group_that_no_client_can_have_reaches_no_table(name: str, root: Path, run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        asker.writer.write(heartbeat(name, opaque=7) * 2)
        for _number in range(2):
            assert (await answer_to(asker, 7))["code"] == 1
        header, _body = await asker.ask(wire.request(200, {}, json.dumps({"groupName": name}).encode()))
        assert header["code"] == 1
        if "\ud800" not in name:
            header, _body = await asker.ask(pull("Old", 0, name))
            assert header["code"] == 1
        # Other clients are served as before.
        asker.writer.write(heartbeat("good", opaque=8))
        assert (await answer_to(asker, 8))["code"] == 0
        assert (await asker.ask(send("New")))[0]["code"] == 0

    run(test)
    assert "New" in table(root, "topics.json")
    groups = table(root, "subscriptionGroup.json")
    assert "good" in groups
    assert not [each for each in groups if each in (name, name.replace("\ud800", "?"))]


@pytest.mark.parametrize(
    "members",
    [
        {"retryMaxTimes": {"a": 1}},
        {"retryMaxTimes": 1.5},
        {"retryMaxTimes": 1 << 31},
        {"retryMaxTimes": True},
        {"retryQueueNums": "many"},
        {"retryQueueNums": "9" * 31},
        {"retryQueueNums": (1 << 31) - 1},
        {"brokerId": 1 << 63},
        {"consumeEnable": [1]},
        {"consumeEnable": "maybe"},
        {"consumeEnable": 2},
    ],
)
def test_a_group_has_the_types_of_a_broker(members: dict[str, Any], root: Path, run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        header, _body = await asker.ask(wire.request(200, {}, json.dumps({"groupName": "g", **members}).encode()))
        assert header["code"] == 1

    run(test)
    assert "g" not in table(root, "subscriptionGroup.json")


def test_texts_and_null_become_the_types_of_a_broker(root: Path, run: Callable[..., None]) -> None:
    given = {"retryMaxTimes": "4", "consumeEnable": "false", "consumeBroadcastEnable": 1, "brokerId": None, "other": {}}

    async def test(_: rocketmq.Server, asker: Client) -> None:
        header, _body = await asker.ask(wire.request(200, {}, json.dumps({"groupName": "g", **given}).encode()))
        assert header["code"] == 0

    run(test)
    found = table(root, "subscriptionGroup.json")["g"]
    expected = {"retryMaxTimes": 4, "consumeEnable": False, "consumeBroadcastEnable": True, "brokerId": 0}
    assert {name: found[name] for name in expected} == expected
    assert [type(found[name]) for name in expected] == [int, bool, bool, int]
    assert "other" not in found


def test_a_topic_has_a_filter_that_a_broker_knows(root: Path, run: Callable[..., None]) -> None:
    ext = {"topic": "V", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "3", "perm": "6"}

    async def test(_: rocketmq.Server, asker: Client) -> None:
        for kind, code in (("NONSENSE", 1), ("MULTI_TAG", 0)):
            fields = {**ext, "topicFilterType": kind, "topicSysFlag": "0", "order": "false"}
            assert (await asker.ask(wire.request(17, fields)))[0]["code"] == code

    run(test)
    assert table(root, "topics.json")["V"]["topicFilterType"] == "MULTI_TAG"


# Costs of requests


def test_a_body_of_a_million_digits_is_refused_at_once(run: Callable[..., None]) -> None:
    async def test(_: rocketmq.Server, asker: Client) -> None:
        for body in (
            b'{"clientID":' + b"9" * 1_000_000 + b"}",
            b'{"clientID":"' + b'\\"' * 1_000_000,
            b"[" * 1_000_000,
        ):
            header, _body = await asyncio.wait_for(asker.ask(wire.request(34, {}, body)), 5)
            assert header["code"] == 1

    run(test)


def test_more_than_a_client_may_ask_for_is_refused(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "_MOST_QUEUES", 3)
    monkeypatch.setattr(consumers, "_MOST_SUBSCRIPTIONS", 3)
    monkeypatch.setattr(consumers, "_MOST_GROUPS", 3)
    monkeypatch.setattr(clients, "_MOST_TAGS", 3)
    monkeypatch.setattr(clients, "_LONGEST_EXPRESSION", 3)
    monkeypatch.setattr(clients, "_MOST_MEMBERS", 3)
    monkeypatch.setattr(clients, "_MOST_LOCKS", 5)

    def lock(group: str, count: int) -> bytes:
        queues = [{"brokerName": "b", "queueId": number, "topic": "T"} for number in range(count)]
        return wire.request(41, {}, json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": queues}).encode())

    async def test(_: rocketmq.Server, asker: Client) -> None:
        codes = [(await asker.ask(lock(group, count)))[0]["code"] for group, count in (("g", 4), ("g", 3), ("h", 3))]
        assert codes == [1, 0, 1]
        topics = [{"topic": f"T{number}"} for number in range(4)]
        asker.writer.write(heartbeat({"groupName": "g", "subscriptionDataSet": topics}, opaque=5))
        assert (await answer_to(asker, 5))["code"] == 1
        tags = {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "tagsSet": ["a", "b", "c", "d"]}]}
        for groups, code in ((("a", "b", "c", "d"), 1), ((tags,), 1), (("a", "b", "c"), 0), (("d",), 1), (("a",), 0)):
            asker.writer.write(heartbeat(*groups, opaque=6))
            assert (await answer_to(asker, 6))["code"] == code
        await asker.ask(wire.request(35, {"consumerGroup": "a", "clientID": "c"}))
        asker.writer.write(heartbeat("d", opaque=9))
        assert (await answer_to(asker, 9))["code"] == 0
        header, _body = await asker.ask(pull("Old", 0, tags="a||b"))
        assert header["code"] == 23

    run(test)


def test_the_state_of_many_queues_delays_nobody(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    present = StoreView.present

    def slow(view: StoreView, topic: str) -> set[int]:
        begun.set()
        assert go.wait(60)
        return present(view, topic)

    async def test(served: rocketmq.Server, asker: Client) -> None:
        # After a quick answer, the next topic may still have many more queues.
        await asker.ask(wire.request(202, {"topic": "Old"}))
        monkeypatch.setattr(StoreView, "present", slow)
        asker.writer.write(wire.request(202, {"topic": "Old"}, opaque=2))
        assert await asyncio.to_thread(begun.wait, 60)
        async with client(served) as other:
            assert (await other.ask(wire.request(30, {"topic": "Old", "queueId": "0"})))[0]["code"] == 0
        go.set()
        assert (await asker.read())[0]["opaque"] == 2

    run(test)


def test_a_topic_is_configured_for_more_queues_than_it_has(run: Callable[..., None]) -> None:
    fields = {"topic": "Wide", "defaultTopic": "TBW102", "readQueueNums": "2000", "writeQueueNums": "2000", "perm": "6"}

    async def test(_: rocketmq.Server, asker: Client) -> None:
        await asker.ask(wire.request(17, {**fields, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}))
        await asker.ask(send("Wide"))
        # First a held pull returns the message, then the state of the topic counts it.
        header, _body = await asker.ask(pull("Wide", 0))
        while header["code"]:
            header, _body = await asker.ask(pull("Wide", 0))
        _header, body = await asker.ask(wire.request(202, {"topic": "Wide"}))
        offsets = [queue["maxOffset"] for queue in wire.value(body)["offsetTable"].values()]
        assert sorted(offsets) == [0] * 1999 + [1]

    run(test)


def test_all_progress_takes_a_time_that_grows_with_the_groups(run: Callable[..., None]) -> None:
    async def test(served: rocketmq.Server, asker: Client) -> None:
        assert served.running is not None
        broker = served.running.broker
        assert broker.master is not None
        for number in range(20_000):
            broker.master.groups.get(f"g{number}")
            assert broker.offsets.commit(f"g{number}", "Gone", 0, 1)
        # The topic is deleted, so the answer does not contain it.
        _header, body = await asyncio.wait_for(asker.ask(wire.request(317, {"isOrder": "false"})), 30)
        assert body.count(b'{"g') == 20_000

    run(test)


def test_more_queues_than_an_answer_holds_are_refused(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logdex.broker.rocketmq.handlers.administration._MOST_QUEUES", 6)

    async def test(_: rocketmq.Server, asker: Client) -> None:
        await asker.ask(send("Four"))
        for group, code in (("g", 0), ("h", 1)):
            fields = {"consumerGroup": group, "topic": "Four", "queueId": "0", "commitOffset": "0"}
            await asker.ask(wire.request(200, {}, b'{"groupName":"%b"}' % group.encode()))
            await asker.ask(wire.request(15, fields))
            assert (await asker.ask(wire.request(317, {"isOrder": "false"})))[0]["code"] == code

    run(test)


def test_a_topic_of_more_queues_than_an_answer_holds_is_refused(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: rocketmq.Server, asker: Client) -> None:
        assert served.running is not None
        master = served.running.broker.master
        assert master is not None
        # A file may have any number.
        huge = {"readQueueNums": 1 << 30, "writeQueueNums": 1 << 30, "perm": 6, "topicName": "Huge"}
        master.topics.table.put("Huge", huge)
        monkeypatch.setattr(StoreView, "present", lambda *_: pytest.fail("each queue is looked at"))
        group = {"topic": "Huge", "group": "g", "consumerGroup": "g", "timestamp": "0", "isForce": "true"}
        for code in (202, 208, 303, 222):
            header, _body = await asker.ask(wire.request(code, group))
            assert header["code"] == 1
            assert code == 208 or "fit into no answer" in header["remark"]

    run(test)


def test_offsets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdex.broker.rocketmq.tables._MOST_OFFSETS", (3, 5))
    offsets = ConsumerOffsets([{"T@g": {"0": 1}}])
    taken = [offsets.commit("g", "T", queue_id, 5) for queue_id in (0, 1, 2, 3, 2)]
    assert taken == [True, True, True, False, True]
    assert [offsets.commit("g", "U", queue_id, 5) for queue_id in range(3)] == [True, True, False]
    offsets.remove("g")
    assert offsets.commit("g", "T", 3, 5)
