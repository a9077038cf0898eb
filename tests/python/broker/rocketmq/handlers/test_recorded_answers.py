"""What a real 4.9.3 name server and broker answered over the store `basic`, and what `answer` says over the same store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import golden
import wire
from logdex._core import RemotingCommand
from logdex.broker.rocketmq.broker import Broker, StoreView
from logdex.broker.rocketmq.handlers import answer
from logdex.broker.rocketmq.requests import Answer, Hold, Peer, Request
from logdex.broker.rocketmq.tables import ConsumerOffsets
from logdex.rocketmq import MessageStore
from logdex.rocketmq.broker_config import LIGHT_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = wire.vectors("remoting-read")

# The specified differences of an archive: nobody may write, and queues without a configuration are topics, too.
ONLY_ON_DISK = {"%LMQ%a", "%LMQ%b", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The answers to all vectors, in their order, over one broker."""
    root = golden.unpack("basic", tmp_path_factory.mktemp("wire"))
    with MessageStore.open(root, compat="4.9.3") as store:
        view = StoreView(store)
        name, cluster = view.names()
        offsets = ConsumerOffsets([view.table(LIGHT_OFFSETS)])
        broker = Broker(view, name, cluster, "127.0.0.1:10911", offsets)
        peer = Peer("127.0.0.1:42220")
        found = {}
        for vector in VECTORS:
            request = Request(RemotingCommand.decode(bytes.fromhex(vector["requestHex"])), peer)
            reply = answer(broker, request)
            if isinstance(reply, Hold):
                assert vector["name"] == "pull-hold"
                assert reply.seconds == 3.0
                reply = answer(broker, Request(request.command, peer, may_hold=False))
            assert isinstance(reply, Answer)
            found[vector["name"]] = (request, reply)
        yield found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_answer_is_that_of_the_real_program(vector: dict[str, Any], answers: dict[str, Any]) -> None:
    request, reply = answers[vector["name"]]
    header, body = wire.split(bytes.fromhex(vector["responseHex"]))
    assert reply.code == header["code"]
    assert _remark(reply.remark) == _remark(header.get("remark"))
    assert reply.ext == header.get("extFields")
    if not body.startswith(b"{"):
        assert reply.body == body
    else:
        assert _comparable(vector["name"], wire.value(reply.body)) == _comparable(vector["name"], wire.value(body))
    encoded, sent = wire.split(request.command.answer(reply.code, reply.ext, reply.body, reply.remark))
    assert (encoded["opaque"], encoded["flag"], sent) == (header["opaque"], header["flag"], reply.body)
    assert [(each.code, each.ext) for each in reply.notices] == [
        (told["code"], told["extFields"])
        for told, _ in (wire.split(bytes.fromhex(each)) for each in vector.get("pushedBefore", []))
    ]


def test_all_vectors_are_compared(answers: dict[str, Any]) -> None:
    assert len(answers) == len(VECTORS) == 62


def _remark(text: str | None) -> str | None:
    return None if text is None else re.sub(r"consumer:\[/[0-9.:]+\]", "consumer:[...]", text)


def _comparable(name: str, value: Any) -> Any:
    """Take away what the specification lets differ: order, data versions, the clock, and what an archive is."""
    if name.startswith("route"):
        for queue in value["queueDatas"]:
            queue["perm"] &= 4
    if "topicList" in value:
        value["topicList"] = sorted({*value["topicList"]} - ONLY_ON_DISK)
    if "topicConfigTable" in value:
        value["topicConfigTable"] = {k: v for k, v in value["topicConfigTable"].items() if k not in ONLY_ON_DISK}
    for span in value.get("consumeTimeSpanSet", []):
        for member in [*span]:
            if member.endswith("Str"):
                del span[member]
    return value
