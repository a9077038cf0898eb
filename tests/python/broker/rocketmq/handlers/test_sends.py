"""What a real 4.9.3 broker answered to sends on an empty store, and what `answer` says to the same sends."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex._core import RemotingCommand, Sends, SendTable, frame_of, remoting_frames, stored_message
from logdex.broker.rocketmq.broker import Broker, Master, StoreView
from logdex.broker.rocketmq.handlers import answer
from logdex.broker.rocketmq.handlers.sends import ILLEGAL_MESSAGE, REGION, PutService
from logdex.broker.rocketmq.requests import Answer, NewMessage, Peer, Put, Request
from logdex.broker.rocketmq.tables import ConsumerOffsets, GroupTable, TopicTable
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = wire.vectors("remoting-send")
# The specified differences: no slave is waited for, an offset that is no message's is found out, and Java's line is not known.
NO_SLAVE = {"send-no-slave", "send-slave-silent"}
OWN_REMARK = {"send-back-bad": "look message by offset failed, 5"}


class Server:
    """A server's protocol over a store that takes messages, without sockets and threads."""

    def __init__(self, root: Path, *, may_create: bool = False) -> None:
        self.writer = StoreWriter.open(root, file_size=1 << 23, hash_slots=100, max_entries=400, services=False)
        self.store = MessageStore.open(root)
        config = self.store.layout.config
        topics = TopicTable(config, "broker-a", "DefaultCluster", 18, {}, may_create=may_create)
        master = Master(topics, GroupTable(config), "127.0.0.1:10911", "none")
        self.broker = Broker(
            StoreView(self.store), "broker-a", "DefaultCluster", "127.0.0.1:10911", ConsumerOffsets([]), master
        )
        self.peer = Peer("127.0.0.1:60348")

    def ask(self, frame: bytes) -> Answer | None:
        reply = answer(self.broker, Request(RemotingCommand.decode(frame), self.peer))
        while isinstance(reply, Put):
            (placed,) = self.writer.put_each([reply.message])
            reply = reply.then(placed)
        assert reply is None or isinstance(reply, Answer)
        return reply

    def close(self) -> None:
        self.store.close()
        self.writer.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "store")
    yield server
    server.close()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The answers to all vectors, in their order, on one store."""
    server = Server(tmp_path_factory.mktemp("sends") / "store")
    assert server.broker.master is not None
    server.broker.master.topics.create("SendTopic", 4)
    found = {}
    for vector in VECTORS:
        if vector["name"] == "send-too-big":
            # Its body is not in the file.
            frame = wire.request(310, vector["requestExtFields"], b"x" * vector["requestBodyLength"])
        else:
            frame = bytes.fromhex(vector["requestHex"])
        if vector["name"] == "send-queue--1":
            # The broker took queue 1.
            frame = frame.replace(b'"e":"-1"', b'"e":"01"')
        found[vector["name"]] = server.ask(frame)
        if vector["name"] == "end-pending":
            # The 6 s that the real broker did not answer: the delayed message became due.
            assert server.writer.deliver_due(time.time_ns() // 1_000_000 + 6_000) == 1
    yield found
    server.close()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_answer_is_that_of_the_real_broker(vector: dict[str, Any], answers: dict[str, Any]) -> None:
    name, reply = vector["name"], answers[vector["name"]]
    if "response" in vector and vector["response"] in (None, "none within 6 s"):
        assert name in ("send-oneway", "end-pending", "acl-config-off")
        assert reply is None or name != "end-pending"
        return
    assert reply.code == (0 if name in NO_SLAVE else vector["responseCode"])
    remark = OWN_REMARK.get(name, vector["responseRemark"])
    assert _remark(reply.remark) == _remark(remark)
    given = vector["responseExtFields"]
    assert reply.ext == given


def test_all_vectors_are_compared(answers: dict[str, Any]) -> None:
    assert len(answers) == len(VECTORS) == 33
    places = [reply.ext["msgId"] for reply in answers.values() if reply and reply.ext and "msgId" in reply.ext]
    # The place of each message says how long those before it are.
    assert len(places) == 15


def test_a_half_message_has_its_properties_in_the_broker_s_order(server: Server) -> None:
    (asked,) = [vector for vector in wire.vectors("client-traffic") if vector["requestCode"] == 39]
    _, frame = wire.split(bytes.fromhex(asked["requestHex"]))
    text = frame[frame.index(b"REAL_TOPIC") :].decode().replace("TRANSACTION_CHECK_TIMES\x011\x02", "")
    fields = "KEYS\x01txu\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01FD0000000000000000000000000000025CC54E0E2F2A6EDC98EF0016"
    fields += "\x02WAIT\x01false\x02PGROUP\x01wire-tx\x02TAGS\x01TagA"
    ext = {
        "a": "wire-tx",
        "b": "WireTopic",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "4",
        "g": "1",
        "h": "0",
        "i": fields,
    }
    assert server.broker.master is not None
    server.broker.master.topics.create("WireTopic", 4)
    assert server.ask(wire.request(310, ext, b"body 0")) is not None
    assert server.store.commit_log.stored_frames([0], 1 << 20).endswith(text.encode())


def test_the_frame_for_a_producer_is_the_real_broker_s() -> None:
    (asked,) = [vector for vector in wire.vectors("client-traffic") if vector["requestCode"] == 39]
    _, frame = wire.split(bytes.fromhex(asked["requestHex"]))
    message = stored_message(frame)
    assert (message.topic, message.queue_id, message.queue_offset, message.body) == ("WireTopic", 1, 3, b"body 0")
    assert message.msg_id == asked["requestExtFields"]["offsetMsgId"]
    # REAL_TOPIC moves to the front: a Java map has its own order.
    message.properties["REAL_TOPIC"] = message.properties.pop("REAL_TOPIC")
    assert frame_of(message) == frame
    with pytest.raises(ValueError, match="no message"):
        stored_message(frame[:-1])
    with pytest.raises(ValueError, match="no message"):
        stored_message(b"")


PLAIN = {"a": "p", "b": "Known", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "17", "h": "5"}
LONG = "x" * 32_768
ALIKE = [
    PLAIN,
    {**PLAIN, "i": "", "j": "2", "k": "true", "l": "16", "m": "false"},
    {**PLAIN, "i": "KEYS\x01k1 k2\x02WAIT\x01true\x02UNIQ_KEY\x017F00\x02TAGS\x01TagA"},
    {**PLAIN, "i": "TAGS\x01a\x02\x01v\x02n\x01\x02none\x02WAIT\x01false\x02TAGS\x01b\x01c\x02CLUSTER\x01other\x02"},
    {**PLAIN, "i": "DELAY\x010\x02TRAN_MSG\x01false\x02INNER_MULTI_DISPATCH\x01Other,%LMQ%z", "f": "1"},
    {**PLAIN, "e": "+3", "g": "-9", "h": "-2147483648", "j": "007", "f": "1", "l": "-1"},
    {**PLAIN, "i": '\u8ba2\u5355\x01\u20ac \U0001f600\x02q\x01"\\\n'},
    {**PLAIN, "i": f"long\x01{LONG}"},
]
OTHERS = [
    {name: value for name, value in PLAIN.items() if name != "g"},
    {**PLAIN, "b": "Unknown"},
    {**PLAIN, "e": "-1"},
    {**PLAIN, "e": "4"},
    {**PLAIN, "e": "\u0661"},
    {**PLAIN, "f": "4"},
    {**PLAIN, "d": "x"},
    {**PLAIN, "f": " 1"},
    {**PLAIN, "g": "9223372036854775808"},
    {**PLAIN, "h": "99999999999"},
    {**PLAIN, "j": "x"},
    {**PLAIN, "l": ""},
    {**PLAIN, "m": "True"},
    {**PLAIN, "i": "DELAY\x011"},
    {**PLAIN, "i": "TRAN_MSG\x01TRUE"},
]


def _table(server: Server) -> SendTable:
    assert server.broker.master is not None
    server.broker.master.topics.create("Known", 4)
    table = SendTable(server.broker.cluster, server.broker.master.store_host, REGION, 13, ILLEGAL_MESSAGE)
    table.learn("Known", 4)
    return table


def _stored(server: Server) -> list[bytes]:
    """Return the frames of the log without their store times."""
    log = server.store.commit_log
    data = b"".join(Path(path).read_bytes() for path in log.files)[: server.writer.max_offset]
    return [frame[:56] + frame[64:] for frame in wire.frames(data)]


@pytest.mark.parametrize("binary", [False, True])
def test_plain_sends_are_stored_and_answered_as_single_ones(binary: bool, tmp_path: Path, server: Server) -> None:
    make = wire.binary_request if binary else wire.request
    sent = [make(310, ext, opaque=number) for number, ext in enumerate(ALIKE)]
    if not binary:
        sent[1] = wire.request(310, ALIKE[1], b"body \x00\xff" * 100, opaque=1)
    together = Server(tmp_path / "together")
    (sends,) = remoting_frames(b"".join(sent), _table(together), together.peer.host)
    assert isinstance(sends, Sends)
    assert (sends.count, len(sends)) == (len(ALIKE), len(b"".join(sent)))
    (placed,) = together.writer.put_each([sends])
    answers = []
    _table(server)
    for frame in sent:
        reply = server.ask(frame)
        assert reply is not None
        answers.append(RemotingCommand.decode(frame).answer(reply.code, reply.ext, reply.body, reply.remark))
    assert placed == (b"".join(answers), len(ALIKE) - 1)
    # No log takes the last one.
    assert wire.split(answers[-1])[0]["code"] == 13
    assert _stored(together) == _stored(server)
    assert len(_stored(server)) == len(ALIKE) - 1
    refusals = sends.refusals(14, "not now", REGION)
    first = RemotingCommand.decode(sent[0]).answer(14, dict(REGION), b"", "not now")
    assert refusals.startswith(first)
    assert len(refusals) == len(first) * len(sent)
    together.close()


@pytest.mark.parametrize("ext", OTHERS)
def test_a_send_with_a_question_is_a_frame(ext: dict[str, str], server: Server) -> None:
    frame, plain = wire.request(310, ext), wire.request(310, PLAIN)
    found = remoting_frames(plain + frame + plain + plain, _table(server), "127.0.0.1:1")
    assert [each if isinstance(each, bytes) else each.count for each in found] == [1, frame, 2]


@pytest.mark.parametrize("name", ["remoting-send", "client-traffic", "acl"])
def test_recorded_requests_are_plain_sends_if_they_are_of_that_kind(name: str, server: Server) -> None:
    table = _table(server)
    table.learn("WireTopic", 4)
    table.learn("SendTopic", 4)
    kinds = set()
    for vector in wire.vectors(name):
        if vector["name"] == "send-too-big":
            # Its body is not in the file.
            continue
        frame = bytes.fromhex(vector["requestHex"])
        (found,) = remoting_frames(frame, table)
        kinds.add(type(found))
        if isinstance(found, Sends):
            assert vector.get("requestCode", 310) == 310
        else:
            assert found == frame
    assert bytes in kinds
    assert Sends in kinds or name == "acl"


def test_an_answer_is_no_send_and_a_one_way_send_has_no_answer(server: Server) -> None:
    table = _table(server)
    answered, one_way = (wire.request(310, PLAIN, flag=flag) for flag in (1, 2))
    assert remoting_frames(answered, table) == [answered]
    (sends,) = remoting_frames(one_way * 3, table)
    assert server.writer.put_each([sends]) == [(b"", 3)]


def test_a_topic_is_forgotten(server: Server) -> None:
    table, frame = _table(server), wire.request(310, PLAIN)
    table.forget("Known")
    assert remoting_frames(frame, table) == [frame]
    table.learn("Known", 1)
    assert remoting_frames(frame, table) == [frame]


def test_frames_are_split_where_they_end() -> None:
    frame = wire.request(105, {"topic": "T"})
    other = wire.request(34, {}, b"body")
    assert remoting_frames(frame + other + frame[:-1]) == [frame, other]
    assert remoting_frames(frame + b"GET / HT") == [frame]
    assert remoting_frames(b"") == remoting_frames(frame[:3]) == []
    with pytest.raises(ValueError, match="frame of length"):
        remoting_frames(b"GET / HT")


def test_a_message_that_comes_too_often_is_a_dead_letter(server: Server) -> None:
    ext = {
        "a": "p",
        "b": "%RETRY%g",
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "j": "3",
        "l": "3",
    }
    topics = []
    for most in ("3", "4"):
        reply = server.ask(wire.request(310, {**ext, "l": most}, b"again"))
        assert reply is not None
        assert reply.ext is not None
        place = int(reply.ext["msgId"][-16:], 16)
        topics.append(stored_message(server.store.commit_log.stored_frames([place], 1 << 20)).topic)
    assert topics == ["%DLQ%g", "%RETRY%g"]
    assert server.broker.topics()["%DLQ%g"].perm == 6
    refused = server.ask(wire.request(320, {**ext, "m": "true"}, b""))
    assert refused is not None
    assert refused.code == 13


def test_the_largest_number_of_times_is_followed_by_the_smallest(server: Server) -> None:
    sent = server.ask(wire.request(310, {**PLAIN, "b": "%RETRY%g", "e": "0", "j": "2147483647"}, b"again"))
    assert sent is not None
    assert sent.ext is not None
    place = str(int(sent.ext["msgId"][-16:], 16))
    end = server.writer.max_offset
    back = {"group": "g", "offset": place, "delayLevel": "0", "originTopic": "T", "originMsgId": ""}
    reply = server.ask(wire.request(36, back))
    assert reply is not None
    assert reply.code == 0
    assert stored_message(server.store.commit_log.stored_frames([end], 1 << 20)).reconsume_times == -(1 << 31)


def test_a_fault_in_a_put_does_not_end_the_thread() -> None:
    def put_each(together: list[Any]) -> list[Any]:
        if together[0].topic == "fault":
            raise TypeError("no message")
        return ["fine"]

    async def put(topic: str) -> Any:
        done = asyncio.get_running_loop().create_future()
        message = NewMessage(
            topic=topic, queue_id=0, body=b"", properties={}, born_timestamp=1, born_host=None, store_host="127.0.0.1:1"
        )
        service.put(message, done.set_result)
        return await asyncio.wait_for(done, 10)

    loop = asyncio.new_event_loop()
    service = PutService(loop, put_each)
    fault = loop.run_until_complete(put("fault"))
    assert str(fault) == "TypeError: no message"
    assert loop.run_until_complete(put("other")) == "fine"
    service.close()
    loop.close()


def _remark(text: str | None) -> str | None:
    """Take away the client's port and Java's line."""
    return None if text is None else re.sub(r"Producer: [0-9.:]+|, (org|logdex)\.[^ ]*$", "...", text)
