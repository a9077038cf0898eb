"""What a real 4.9.3 broker answered to sends on an empty store, and what `answer` says to the same sends."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex._core import RemotingCommand
from logdex.rocketmq import MessageStore, StoreWriter
from logdex.rocketmq.server.answers import answer
from logdex.rocketmq.server.archive import Archive
from logdex.rocketmq.server.exchange import Answer, Peer, Put, Request
from logdex.rocketmq.server.master import GroupTable, Master, TopicTable
from logdex.rocketmq.server.new_message import StoredMessage
from logdex.rocketmq.server.offsets import ConsumerOffsets
from logdex.rocketmq.server.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VECTORS = wire.vectors("remoting-send")
# The specified differences: no slave is waited for, an offset that is no message's is found out, and Java's line is not known.
NO_SLAVE = {"send-no-slave", "send-slave-silent"}
OWN_REMARK = {"send-back-bad": "look message by offset failed, 5"}


class Broker:
    """A server's protocol over a store that takes messages, without sockets and threads."""

    def __init__(self, root: Path, *, may_create: bool = False) -> None:
        self.writer = StoreWriter.open(root, file_size=1 << 23, hash_slots=100, max_entries=400, services=False)
        self.store = MessageStore.open(root)
        self.archive = Archive(self.store)
        config = self.store.layout.config
        topics = TopicTable(config, "broker-a", "DefaultCluster", 18, {}, may_create=may_create)
        master = Master(topics, GroupTable(config), "127.0.0.1:10911", "none")
        self.state = State("broker-a", "DefaultCluster", "127.0.0.1:10911", ConsumerOffsets([]), master)
        self.peer = Peer("127.0.0.1:60348")

    def ask(self, frame: bytes) -> Answer | None:
        reply = answer(self.archive, self.state, Request(RemotingCommand.decode(frame), self.peer))
        while isinstance(reply, Put):
            (placed,) = self.writer.put_each([reply.message])
            reply = reply.then(placed)
        assert reply is None or isinstance(reply, Answer)
        return reply

    def close(self) -> None:
        self.store.close()
        self.writer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "store")
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The answers to all vectors, in their order, on one store."""
    broker = Broker(tmp_path_factory.mktemp("sends") / "store")
    assert broker.state.master is not None
    broker.state.master.topics.create("SendTopic", 4)
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
        found[vector["name"]] = broker.ask(frame)
        if vector["name"] == "end-pending":
            # The 6 s that the real broker did not answer: the delayed message became due.
            assert broker.writer.deliver_due(time.time_ns() // 1_000_000 + 6_000) == 1
    yield found
    broker.close()


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


def test_a_half_message_has_its_properties_in_the_broker_s_order(broker: Broker) -> None:
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
    assert broker.state.master is not None
    broker.state.master.topics.create("WireTopic", 4)
    assert broker.ask(wire.request(310, ext, b"body 0")) is not None
    assert broker.store.commit_log.stored_frames([0], 1 << 20).endswith(text.encode())


def test_the_frame_for_a_producer_is_the_real_broker_s() -> None:
    (asked,) = [vector for vector in wire.vectors("client-traffic") if vector["requestCode"] == 39]
    _, frame = wire.split(bytes.fromhex(asked["requestHex"]))
    message = StoredMessage.parse(frame)
    assert (message.topic, message.queue_id, message.queue_offset, message.body) == ("WireTopic", 1, 3, b"body 0")
    assert message.msg_id == asked["requestExtFields"]["offsetMsgId"]
    # REAL_TOPIC moves to the front: a Java map has its own order.
    message.properties["REAL_TOPIC"] = message.properties.pop("REAL_TOPIC")
    assert message.frame() == frame
    with pytest.raises(ValueError, match="no message"):
        StoredMessage.parse(frame[:-1])
    with pytest.raises(ValueError, match="no message"):
        StoredMessage.parse(b"")


def test_a_message_that_comes_too_often_is_a_dead_letter(broker: Broker) -> None:
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
        reply = broker.ask(wire.request(310, {**ext, "l": most}, b"again"))
        assert reply is not None
        assert reply.ext is not None
        place = int(reply.ext["msgId"][-16:], 16)
        topics.append(StoredMessage.parse(broker.store.commit_log.stored_frames([place], 1 << 20)).topic)
    assert topics == ["%DLQ%g", "%RETRY%g"]
    assert broker.state.topics(broker.archive)["%DLQ%g"].perm == 6
    refused = broker.ask(wire.request(320, {**ext, "m": "true"}, b""))
    assert refused is not None
    assert refused.code == 13


def _remark(text: str | None) -> str | None:
    """Take away the client's port and Java's line."""
    return None if text is None else re.sub(r"Producer: [0-9.:]+|, (org|logdex)\.[^ ]*$", "...", text)
