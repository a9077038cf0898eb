"""What a real 4.9.3 broker answered to sends on an empty store, and what `answer` says to the same sends."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex.rocketmq import MessageStore, StoreWriter
from logdex.rocketmq.server.answers import answer
from logdex.rocketmq.server.archive import Archive
from logdex.rocketmq.server.exchange import Answer, Peer, Put, Request
from logdex.rocketmq.server.frame import decode
from logdex.rocketmq.server.master import GroupTable, Master, TopicTable
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
        reply = answer(self.archive, self.state, Request(decode(frame), self.peer))
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


def _remark(text: str | None) -> str | None:
    """Take away the client's port and Java's line."""
    return None if text is None else re.sub(r"Producer: [0-9.:]+|, (org|logdex)\.[^ ]*$", "...", text)
