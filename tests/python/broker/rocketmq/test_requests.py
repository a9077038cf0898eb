"""Codes of a real 4.9.3 broker for fields that are numbers or not numbers, and for unusual requests.

The broker and `logdex serve --write` received the same requests, each with its own store.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex import rocketmq
from serve_client import client

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from serve_client import Client

TEXTS = (
    *("-1", "0", "1", "3", "4", "99", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("abc", "", " 1", "+1", "1.0", "0x1", "1e3", "00", "\u0661"),
)
# The broker's code for each text; after a slash the code of logdex if docs/compat.md lists the difference.
CODES = {
    (310, "e"): "0 0 0 0 1 1 1 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (310, "d"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (310, "f"): "0/13 0 0 0 0 0/13 0/13 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (310, "g"): "0 0 0 0 0 0 0 0 0 0 1 0 1 1 1 0 1 1 1 0 0",
    (310, "h"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (310, "j"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (310, "l"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (11, "queueId"): "1 0 0 0 1 1 1 1 1 1 1 1 1 1 1 0 1 1 1 0 0",
    (11, "queueOffset"): "21 0 0 0 0 21 21 21 21 21 1 21 1 1 1 0 1 1 1 0 0",
    (11, "maxMsgNums"): "1 0 0 0 0 0 1/0 1 1 1 1 1 1 1 1 0 1 1 1 0 0",
    (11, "sysFlag"): "0 24 24 24 0 24 0 1 24 1 1 1 1 1 1 24 1 1 1 24 24",
    (11, "commitOffset"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (11, "suspendTimeoutMillis"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (11, "subVersion"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (29, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (29, "timestamp"): "0 0 0 0 0 0 0 0 0 0 1 0 1 1 1 0 1 1 1 0 0",
    (30, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (31, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (32, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (12, "maxNum"): "1 22 0 0 0 0 1/0 1 1 1 1 1 1 1 1 0 1 1 1 22 0",
    (12, "beginTimestamp"): "0 0 0 0 0 0 0 0 0 22 1 0 1 1 1 0 1 1 1 0 0",
    (12, "endTimestamp"): "22 22 22 22 22 22 22 22 22 0 1 22 1 1 1 22 1 1 1 22 22",
    (33, "offset"): "1 0 0/1 1 1 1 1 1 1 1 1 1 1 1 1 0/1 1 1 1 0 0/1",
    (15, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (15, "commitOffset"): "0 0 0 0 0 0 0 0 0 0 1 0 1 1 1 0 1 1 1 0 0",
    (14, "queueId"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (36, "offset"): "1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 1",
    (36, "delayLevel"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (36, "maxReconsumeTimes"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (17, "readQueueNums"): "0/1 0 0 0 0 0 0/1 1 0/1 1 1 1 1 1 1 0 1 1 1 0 0",
    (17, "perm"): "0 0 0 0 0 0 0 1 0 1 1 1 1 1 1 0 1 1 1 0 0",
    (17, "topicSysFlag"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (321, "queueId"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (321, "index"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    (321, "count"): "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
}
SEND = {"a": "p", "b": "A", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1790000000000", "h": "0", "i": "K\x01v"}
SEND |= {"j": "0", "k": "false", "l": "16", "m": "false"}
PULL = {"consumerGroup": "g", "topic": "A", "queueId": "1", "queueOffset": "3", "maxMsgNums": "32", "sysFlag": "4"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
PLACE = {"topic": "A", "queueId": "1"}
TOPIC = {"topic": "V", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "3", "perm": "6"}
TOPIC |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
BACK = {"offset": "0", "group": "bg", "delayLevel": "1", "originMsgId": "x", "originTopic": "A"}
BACK |= {"unitMode": "false", "maxReconsumeTimes": "3"}
END = {"producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8", "msgId": "m"}
BASES = {
    310: SEND,
    11: PULL,
    12: {"topic": "A", "key": "k7", "maxNum": "10", "beginTimestamp": "0", "endTimestamp": str(1 << 62)},
    14: {**PLACE, "consumerGroup": "cg"},
    15: {**PLACE, "consumerGroup": "cg", "commitOffset": "7"},
    17: TOPIC,
    29: {**PLACE, "timestamp": "1790000000000"},
    30: PLACE,
    31: PLACE,
    32: PLACE,
    33: {"offset": "0"},
    36: BACK,
    321: {**PLACE, "index": "0", "count": "5", "consumerGroup": "hg"},
}
BODY = {310: b"x"}
# Fields that the broker requires: without one it answers 1. Without one of the others it answers 0.
NEEDED = {
    310: {*"abcdefgh"},
    11: {"consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"},
    12: {"maxNum", "beginTimestamp", "endTimestamp"},
    14: {"queueId"},
    15: {"queueId", "commitOffset"},
    17: {"topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType"},
    29: {"topic", "queueId", "timestamp"},
    30: {"topic", "queueId"},
    31: {"topic", "queueId"},
    32: {"topic", "queueId"},
    33: {"offset"},
    36: {"offset", "group", "delayLevel"},
    321: {"topic"},
}
# Fields that a broker treats as the name "null" or as a missing key: docs/compat.md.
NULLS = {(12, "topic"), (12, "key"), (14, "consumerGroup"), (14, "topic"), (15, "consumerGroup"), (15, "topic")}
NUMBER = "java.lang.NumberFormatException: For input string: "
REMOTING = "org.apache.rocketmq.remoting.exception.RemotingCommandException: "
ILLEGAL = "the message is illegal, maybe msg body or properties length not matched. "
ILLEGAL += "msg body length limit 128k, msg properties length limit 32k."
SUBSCRIPTION = {"classFilterMode": False, "codeSet": [2112], "expressionType": "TAG", "subString": "Aa"}
SUBSCRIPTION |= {"subVersion": 5, "tagsSet": ["Aa"], "topic": "A"}
CONSUMER = {
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "consumeType": "CONSUME_PASSIVELY",
    "groupName": "hg",
    "messageModel": "CLUSTERING",
    "subscriptionDataSet": [SUBSCRIPTION],
    "unitMode": False,
}
QUEUE = {"brokerName": "broker-a", "queueId": 0, "topic": "A"}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _heartbeat(group: str, **members: object) -> bytes:
    return _json({"clientID": "c", "consumerDataSet": [{**CONSUMER, "groupName": group, **members}]})


def _batch(body: bytes) -> bytes:
    return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"


# A request with its fields and body; then the code and the start of the remark of the answer.
UNUSUAL: Sequence[tuple[str, int, dict[str, str], bytes, int, str | None]] = (
    ("delay-text", 310, {**SEND, "i": "DELAY\x01abc"}, b"x", 1, NUMBER + '"abc"'),
    ("delay-space", 310, {**SEND, "i": "DELAY\x01 1"}, b"x", 1, NUMBER + '" 1"'),
    ("delay-big", 310, {**SEND, "i": "DELAY\x012147483648"}, b"x", 1, NUMBER + '"2147483648"'),
    ("delay-negative", 310, {**SEND, "i": "DELAY\x01-1"}, b"x", 0, None),
    ("batch", 320, {**SEND, "m": "true"}, _batch(b"x"), 0, None),
    ("batch-retry", 320, {**SEND, "b": "%RETRY%zz", "m": "true"}, _batch(b"x"), 0, None),
    ("batch-dead", 320, {**SEND, "b": "%DLQ%zz", "m": "true"}, _batch(b"x"), 0, None),
    ("batch-delay", 320, {**SEND, "i": "DELAY\x011", "m": "true"}, _batch(b"x"), 13, ILLEGAL),
    ("batch-half", 320, {**SEND, "f": "4", "m": "true"}, _batch(b"x"), 13, ILLEGAL),
    # The broker answers 1 with an exception.
    ("batch-empty", 320, {**SEND, "m": "true"}, b"", 13, ILLEGAL),
    ("batch-cut", 320, {**SEND, "m": "true"}, _batch(b"xxxx")[:-3], 13, ILLEGAL),
    (
        "sql",
        11,
        {**PULL, "expressionType": "SQL92"},
        b"",
        1,
        "The broker does not support consumer to filter message by SQL92",
    ),
    (
        "kind",
        11,
        {**PULL, "expressionType": "tag"},
        b"",
        1,
        "The broker does not support consumer to filter message by tag",
    ),
    ("filter-type", 17, {**TOPIC, "topicFilterType": "x"}, b"", 1, REMOTING + "topicFilterType = [x] value invalid"),
    ("end-state", 37, {**END, "commitOrRollback": "5"}, b"", 1, REMOTING + "commitOrRollback field wrong"),
    ("end-group", 37, END, b"", 1, "The producer group wrong"),
    ("group-off", 200, {}, _json({"groupName": "off", "consumeEnable": False}), 0, None),
    ("pull-off", 11, {**PULL, "consumerGroup": "off"}, b"", 16, "subscription group no permission, off"),
    ("heartbeat", 34, {}, _json({"clientID": "me@1", "consumerDataSet": [CONSUMER]}), 0, None),
    ("heartbeat-empty", 34, {}, b"{}", 0, None),
    ("heartbeat-nulls", 34, {}, b'{"clientID":"x","consumerDataSet":null}', 1, None),
    ("heartbeat-no-id", 34, {}, _json({"consumerDataSet": [CONSUMER]}), 0, None),
    (
        "heartbeat-constant",
        34,
        {},
        _json({"clientID": "c", "consumerDataSet": [{**CONSUMER, "groupName": "we", "consumeType": "NO"}]}),
        0,
        None,
    ),
    ("heartbeat-far", 34, {}, _heartbeat("far", consumeType=7), 1, None),
    ("heartbeat-object", 34, {}, _heartbeat("object", consumeType={"a": 1}), 1, None),
    ("heartbeat-numbers", 34, {}, _heartbeat("n", consumeType=1, messageModel=1, consumeFromWhere=4), 0, None),
    ("group-alone", 200, {}, _json({"groupName": "bc", "consumeBroadcastEnable": False}), 0, None),
    ("heartbeat-all", 34, {}, _heartbeat("bc", messageModel="BROADCASTING"), 0, None),
    (
        "pull-all",
        11,
        {**PULL, "consumerGroup": "bc", "sysFlag": "0"},
        b"",
        16,
        "the consumer group[bc] can not consume by broadcast way",
    ),
    ("queue-unknown", 321, {"topic": "NoSuch", "queueId": "1"}, b"", 0, "Index 0 of 1@NoSuch is not exist!"),
    ("queue-negative", 321, {"topic": "A", "queueId": "-1", "index": "3"}, b"", 0, "Index 3 of -1@A is not exist!"),
    ("commit", 15, {**PLACE, "consumerGroup": "cg", "commitOffset": "5"}, b"", 0, None),
    ("clone", 314, {"srcGroup": "cg", "destGroup": "cg2", "topic": "A", "offline": "false"}, b"", 0, None),
    # The broker answers 0. The first one names no topic, and the second one overflows.
    ("back-blank", 36, {**BACK, "group": "a b"}, b"", 1, "the specified group[a b] contains illegal characters"),
    ("queue-far", 321, {**PLACE, "index": str(-1 << 63)}, b"", 0, f"Index {-1 << 63} of 1@A is not exist!"),
    ("queue-all", 321, {**PLACE, "index": "28", "count": "2147483647"}, b"", 0, "not set any response code"),
    ("pull-moved", 11, {**PULL, "queueOffset": "99"}, b"", 21, "OFFSET_OVERFLOW_BADLY"),
    ("delete", 215, {"topic": "V"}, b"", 0, None),
    ("lock-no-group", 41, {}, _json({"clientId": "x", "mqSet": [QUEUE]}), 1, None),
    # No broker limits them.
    ("tags-long", 11, {**PULL, "subscription": "Aa||" * 16_385}, b"", 23, "parse the consumer's subscription failed"),
    (
        "lock-long",
        41,
        {},
        _json({"clientId": "x", "consumerGroup": "g", "mqSet": [QUEUE] * 80_000}),
        1,
        "com.alibaba.fastjson.JSONException: a body of ",
    ),
)


async def _prepare(asker: Client) -> None:
    header, _ = await asker.ask(wire.request(17, {**TOPIC, "topic": "A", "readQueueNums": "4", "writeQueueNums": "4"}))
    assert header["code"] == 0
    for number in range(120):
        tag = "AaBB"[number % 2 * 2 :][:2]
        properties = f"KEYS\x01k{number} all\x02TAGS\x01{tag}\x02UNIQ_KEY\x01U{number}\x02WAIT\x01true"
        frame = wire.request(310, {**SEND, "e": str(number % 4), "i": properties}, f"body{number}".encode())
        assert (await asker.ask(frame))[0]["code"] == 0
    await asyncio.wait_for(_dispatched(asker), 20)


async def _dispatched(asker: Client) -> None:
    """Wait until queues and index have the messages."""
    for queue_id in range(4):
        place = {"topic": "A", "queueId": str(queue_id)}
        while (await asker.ask(wire.request(30, place)))[0]["extFields"] != {"offset": "30"}:
            pass
    while await _code(asker, 12, {**BASES[12], "key": "k119"}):
        pass


async def _code(asker: Client, code: int, ext: dict[str, str]) -> int:
    header, _ = await asker.ask(wire.request(code, ext, BODY.get(code, b"")))
    answer: int = header["code"]
    return answer


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Check the codes for all texts of all fields and the answers to the unusual requests, with one store."""
    root: Path = tmp_path_factory.mktemp("fields") / "store"
    with rocketmq.StoreWriter.open(root, file_size=1 << 20, hash_slots=1000, max_entries=4000):
        pass
    found: dict[Any, Any] = {}

    async def ask_all() -> None:
        async with rocketmq.serve(root, port=0, write=True) as server, client(server) as asker:
            await _prepare(asker)
            for code, base in BASES.items():
                found[code, None] = await _code(asker, code, base)
                for field in base:
                    rest = {name: value for name, value in base.items() if name != field}
                    found[code, field, None] = await _code(asker, code, rest)
                    if (code, field) in CODES:
                        found[code, field] = [await _code(asker, code, {**base, field: text}) for text in TEXTS]
            for name, code, ext, body, *_ in UNUSUAL:
                found[name] = await asker.ask(wire.request(code, ext, body))
                while not found[name][0]["flag"] & 1:
                    found[name] = await asker.read()
            for name, code, ext in (
                ("members", 38, {"consumerGroup": "hg"}),
                ("connections", 203, {"consumerGroup": "we"}),
                ("numbers", 203, {"consumerGroup": "n"}),
                ("topics", 206, {}),
                ("events", 30, {"topic": "OFFSET_MOVED_EVENT", "queueId": "0"}),
                ("cloned", 14, {**PLACE, "consumerGroup": "cg2"}),
            ):
                found[name] = await asker.ask(wire.request(code, ext))
            locked = _json({"clientId": "me", "consumerGroup": "h2", "mqSet": [QUEUE, QUEUE]})
            found["locked"] = await asker.ask(wire.request(41, {}, locked))

    asyncio.run(ask_all())
    return found


@pytest.mark.parametrize(("code", "field"), CODES)
def test_a_number_gets_the_code_of_the_broker(code: int, field: str, answers: dict[Any, Any]) -> None:
    assert answers[code, None] == 0
    expected = [int(each.rpartition("/")[2]) for each in CODES[code, field].split()]
    assert dict(zip(TEXTS, answers[code, field], strict=True)) == dict(zip(TEXTS, expected, strict=True))


@pytest.mark.parametrize("code", NEEDED)
def test_the_fields_that_the_broker_needs_are_needed(code: int, answers: dict[Any, Any]) -> None:
    missing = {field: answers[code, field, None] for field in BASES[code]}
    needed = NEEDED[code] | {field for number, field in NULLS if number == code}
    assert missing == {field: int(field in needed) for field in BASES[code]}


@pytest.mark.parametrize(("name", "code", "remark"), [(each[0], *each[4:]) for each in UNUSUAL])
def test_an_unusual_request_is_answered_as_by_the_broker(
    name: str, code: int, remark: str | None, answers: dict[Any, Any]
) -> None:
    header, _ = answers[name]
    assert header["code"] == code
    if code == 0 or remark is not None:
        assert str(header.get("remark")).startswith(str(remark))


def test_clients_and_queues_are_told_as_by_the_broker(answers: dict[Any, Any]) -> None:
    assert wire.value(answers["members"][1]) == {"consumerIdList": [None]}
    connections = wire.value(answers["connections"][1])
    assert connections.keys() == {"connectionSet", "consumeFromWhere", "messageModel", "subscriptionTable"}
    numbers = wire.value(answers["numbers"][1])
    assert [numbers[name] for name in ("consumeType", "messageModel", "consumeFromWhere")] == [
        *("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    ]
    assert wire.value(answers["locked"][1]) == {"lockOKMQSet": [QUEUE]}
    assert answers["cloned"][0]["extFields"] == {"offset": "5"}


def test_units_of_a_queue_are_those_that_were_asked_for(answers: dict[Any, Any]) -> None:
    assert answers["queue-far"][1] == b""
    found = wire.value(answers["queue-all"][1])
    # Some of the sends above went to this queue.
    assert len(found["queueData"]) == found["maxQueueIndex"] - 28 > 1


def test_no_reader_stores_anything(answers: dict[Any, Any]) -> None:
    assert answers["events"][0]["extFields"] == {"offset": "0"}


def test_a_topic_that_was_deleted_is_in_no_list(answers: dict[Any, Any]) -> None:
    topics = wire.value(answers["topics"][1])["topicList"]
    assert "A" in topics
    assert "V" not in topics
