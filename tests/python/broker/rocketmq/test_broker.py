"""Answers of the default mode, where they are better than a broker's, and of an archive as such."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import golden
import wire
from logdex._core import RemotingCommand
from logdex.broker.rocketmq.broker import Broker, StoreView
from logdex.broker.rocketmq.handlers import answer
from logdex.broker.rocketmq.requests import HANDLERS, Answer, Cost, Forward, Hold, Peer, Request, handles
from logdex.broker.rocketmq.tables import ConsumerOffsets
from logdex.broker.wire import RequestCode
from logdex.errors import CorruptFileError
from logdex.rocketmq import MessageStore
from logdex.rocketmq.broker_config import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VECTORS = {vector["name"]: vector for vector in wire.vectors("remoting-read")}
FOREVER = str(2**63 - 1)
TO_CLIENTS = {
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
}


class Asked:
    """A broker and a client."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets | None = None) -> None:
        view = StoreView(store)
        name, cluster = view.names()
        self.broker = Broker(view, name, cluster, "127.0.0.1:10911", offsets or ConsumerOffsets([]))
        self.peer = Peer("127.0.0.1:5")

    def reply(self, code: int, body: bytes = b"", peer: Peer | None = None, **ext: object) -> Any:
        command = RemotingCommand.decode(wire.request(code, {name: str(value) for name, value in ext.items()}, body))
        return answer(self.broker, Request(command, peer or self.peer))

    def answer(self, code: int, body: bytes = b"", **ext: Any) -> Answer:
        reply = self.reply(code, body, **ext)
        assert isinstance(reply, Answer)
        return reply

    def pull(self, topic: str, queue_id: int, offset: int, **ext: Any) -> Any:
        fields: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15000,
            "subscription": "*",
            "subVersion": 0,
        }
        return self.reply(11, **{**fields, **ext})

    def heartbeat(self, client_id: str, group: str, topic: str, peer: Peer | None = None, version: int = 1) -> Any:
        subscription = {"topic": topic, "subString": "*", "subVersion": version}
        consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
        body = json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()
        return self.reply(34, body, peer)


@pytest.fixture
def asked(store: Callable[[str], Path]) -> Iterator[Asked]:
    with MessageStore.open(store("basic")) as opened:
        yield Asked(opened)


def _vector(name: str) -> tuple[dict[str, Any], bytes]:
    vector = VECTORS[name]
    return vector["requestExtFields"], wire.split(bytes.fromhex(vector["responseHex"]))[1]


@pytest.mark.parametrize("name", ["key", "key-max-2", "key-time"])
def test_a_query_returns_only_messages_that_carry_the_key_each_once(name: str, asked: Asked) -> None:
    asked_for, body = _vector(name)
    rows = {row["physicalOffset"]: row for row in golden.rows("basic", "messages")}
    begin, end = int(asked_for["beginTimestamp"]), int(asked_for["endTimestamp"])
    carry = [
        offset
        for offset, row in sorted(rows.items())
        if row["topic"] == asked_for["topic"]
        and "BB" in (row["keys"] or "").split(" ")
        and begin <= row["storeTimestamp"] <= end
    ]
    found = [int.from_bytes(frame[28:36], "big") for frame in wire.frames(asked.answer(12, **asked_for).body)]
    assert found == carry[-int(asked_for["maxNum"]) :]
    assert found
    theirs = [int.from_bytes(frame[28:36], "big") for frame in wire.frames(body)]
    # A broker also sends messages of other keys with the hash, some of them twice, in place of older ones.
    assert name != "key" or (len(theirs) > len({*theirs}) and {*theirs} - {*carry})


def test_a_unique_key_is_found_although_the_clients_time_zone_is_another(asked: Asked) -> None:
    asked_for, body = _vector("key-unique")
    late = str(int(asked_for["beginTimestamp"]) + 8 * 3_600_000)
    assert asked.answer(12, **{**asked_for, "beginTimestamp": late}).body == body
    assert asked.answer(12, **{**asked_for, "beginTimestamp": late, "_UNIQUE_KEY_QUERY": "false"}).code == 22


def test_a_view_in_the_middle_of_a_message_finds_nothing(asked: Asked) -> None:
    for offset in (40805, -1, 2**62):
        refused = asked.answer(33, offset=offset)
        assert (refused.code, refused.remark) == (1, f"can not find message by the offset, {offset}")


def test_an_offset_by_time_does_not_depend_on_the_times_of_files(asked: Asked) -> None:
    root = asked.broker.view.store.root
    for file in root.glob("consumequeue/*/*/*"):
        file.touch()
    for name in ("search-0", "search-1", "search-2", "search-3"):
        vector = VECTORS[name]
        assert asked.answer(29, **vector["requestExtFields"]).ext == vector["responseExtFields"]


def test_sends_and_changes_are_refused(asked: Asked) -> None:
    sends = (10, 310, 320, 324, 325, 36, 37)
    changes = (17, 25, 27, 200, 207, 212, 215, 222, 306, 314, 316, 50, 51, 52, 53, 54)
    for code in (*sends, *changes):
        refused = asked.answer(code)
        assert (refused.code, refused.body) == (16, b"")
    assert asked.answer(9999).code == 3


def test_nobody_may_write_to_any_route(asked: Asked) -> None:
    topics = wire.value(asked.answer(206).body)["topicList"]
    assert len(topics) > 15
    for topic in topics:
        (queues,) = wire.value(asked.answer(105, topic=topic).body)["queueDatas"]
        assert queues["perm"] & 2 == 0


def test_a_missing_field_is_named(asked: Asked) -> None:
    refused = asked.answer(30, topic="BBTopic")
    assert (refused.code, "the custom field <queueId> is null" in str(refused.remark)) == (1, True)


def test_a_number_is_what_java_takes_for_one(asked: Asked) -> None:
    for text in ("x", "", "1_0", " 1", str(2**31), "1.5", "0x1", "\u0661x", "\u0661" * 5000):
        refused = asked.answer(30, topic="BBTopic", queueId=text)
        assert refused.code == 1
        assert str(refused.remark).startswith(f'java.lang.NumberFormatException: For input string: "{text:.64}"')
    # Java accepts the digits of all scripts.
    for text in ("1", "+1", "001", "\u0661", "+\u0661", "\uff11"):
        assert asked.answer(30, topic="BBTopic", queueId=text).ext == {"offset": "41"}


def test_a_pull_waits_at_the_end_and_commits_at_once(asked: Asked) -> None:
    held = asked.pull("BBTopic", 1, 41, sysFlag=7, commitOffset=12)
    assert held == Hold("BBTopic", 1, 41, 15.0)
    assert asked.answer(14, consumerGroup="g", topic="BBTopic", queueId=1).ext == {"offset": "12"}
    assert asked.pull("BBTopic", 1, 41, sysFlag=6, suspendTimeoutMillis=10**12).seconds == 60.0
    assert asked.pull("BBTopic", 1, 41, sysFlag=6, suspendTimeoutMillis=-1).seconds == 0.0


def test_a_pull_beyond_the_queue_is_told_where_to_go_on(asked: Asked) -> None:
    moved = asked.pull("BBTopic", 1, 42)
    assert (moved.code, moved.remark, moved.ext["nextBeginOffset"]) == (21, "OFFSET_OVERFLOW_BADLY", "0")
    moved = asked.pull("BBTopic", 1, -1)
    assert (moved.code, moved.remark, moved.ext["nextBeginOffset"]) == (21, "OFFSET_TOO_SMALL", "0")


def test_a_pull_takes_at_most_32_messages_of_one_file(asked: Asked) -> None:
    ends = [asked.pull("TopicTest", 0, offset, maxMsgNums=1000).ext["nextBeginOffset"] for offset in (0, 32, 50)]
    assert ends == ["32", "50", "82"]


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_an_expression_without_tags_is_refused(expression: str, asked: Asked) -> None:
    assert asked.pull("BBTopic", 1, 0, subscription=expression).code == 23


def test_an_older_subscription_is_refused(asked: Asked) -> None:
    asked.heartbeat("c", "g", "BBTopic", version=5)
    assert asked.pull("BBTopic", 1, 0, sysFlag=0, subVersion=5).code == 0
    refused = asked.pull("BBTopic", 1, 0, sysFlag=0, subVersion=6)
    assert (refused.code, refused.remark) == (25, "the consumer's subscription not latest")


def test_a_subscription_without_hashes_uses_its_tags(asked: Asked) -> None:
    subscription = {"topic": "BBTopic", "subString": "TagB || TagF", "tagsSet": ["TagB", "TagF"]}
    body = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [subscription]}]})
    assert asked.answer(34, body.encode()).code == 0
    assert asked.pull("BBTopic", 1, 0, sysFlag=0).body == _vector("pull-tag")[1]


def test_members_are_told_when_their_group_changes(asked: Asked) -> None:
    first, second = asked.peer, Peer("127.0.0.1:6")
    assert [each.peer for each in asked.heartbeat("a", "g", "BBTopic").notices] == [first]
    assert asked.heartbeat("a", "g", "BBTopic").notices == []
    assert [each.peer for each in asked.heartbeat("b", "g", "BBTopic", second).notices] == [first, second]
    assert wire.value(asked.answer(38, consumerGroup="g").body) == {"consumerIdList": ["a", "b"]}
    assert [each.peer for each in asked.heartbeat("b", "g", "AaTopic", second).notices] == [first, second]
    assert [each.peer for each in asked.reply(35, peer=second, clientID="b", consumerGroup="g").notices] == [first]
    assert wire.value(asked.answer(38, consumerGroup="g").body) == {"consumerIdList": ["a"]}
    asked.broker.clients.leave(first)
    assert asked.answer(38, consumerGroup="g").code == 1


def test_a_group_with_a_heartbeat_has_a_retry_topic(asked: Asked) -> None:
    assert asked.answer(105, topic="%RETRY%g").code == 17
    asked.heartbeat("a", "g", "%RETRY%g")
    assert asked.answer(105, topic="%RETRY%g").code == 0
    assert "%RETRY%g" in wire.value(asked.answer(206).body)["topicList"]
    assert asked.pull("%RETRY%g", 0, 0, sysFlag=0).code == 19


def test_a_lock_belongs_to_one_client_until_it_expires(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(Broker, "now", staticmethod(lambda: now))
    queue = {"brokerName": "broker-a", "queueId": 1, "topic": "BBTopic"}

    def lock(client: str, code: int = 41) -> Any:
        body = json.dumps({"clientId": client, "consumerGroup": "g", "mqSet": [queue]}).encode()
        reply = asked.answer(code, body)
        return wire.value(reply.body)["lockOKMQSet"] if reply.body else None

    assert (lock("a"), lock("a"), lock("b")) == ([queue], [queue], [])
    now = 161.0
    assert (lock("b"), lock("a")) == ([queue], [])
    assert lock("a", 42) is None
    assert lock("a") == []
    assert lock("b", 42) is None
    assert lock("a") == [queue]


def test_a_member_is_asked_what_it_runs(asked: Asked) -> None:
    asked.heartbeat("a", "g", "BBTopic")
    forward = asked.reply(307, consumerGroup="g", clientId="a")
    assert isinstance(forward, Forward)
    assert (forward.peer, forward.code, forward.ext) == (asked.peer, 307, {"consumerGroup": "g", "clientId": "a"})
    refused = asked.answer(307, consumerGroup="g", clientId="b")
    assert (refused.code, refused.remark) == (1, "The Consumer <g> <b> not online")
    message = wire.frames(_vector("view")[1])[0]
    direct = asked.reply(309, consumerGroup="g", clientId="a", msgId="7F00000100002A9F0000000000009F64")
    assert (direct.body, direct.ext["brokerName"]) == (message, "broker-a")
    assert asked.answer(309, consumerGroup="g", clientId="a", msgId="x").code == 1


def test_bodies_that_are_none_are_refused(asked: Asked) -> None:
    bodies = (
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"consumerDataSet":1}',
        b'{"clientID":"a","consumerDataSet":[{}]}',
        b"[" * 99_999,
    )
    for code in (34, 41, 42, 46):
        for body in bodies[:4]:
            assert asked.answer(code, body).code == 1
    assert [asked.answer(34, body).code for body in bodies] == [1] * len(bodies)
    wrong = {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": "x", "codeSet": [2**40]}]}
    assert asked.answer(34, json.dumps({"clientID": "c", "consumerDataSet": [wrong]}).encode()).code == 1


_GROUP = {"groupName": "g", "subscriptionDataSet": [{"topic": "T"}]}
_QUEUE = {"brokerName": "b", "queueId": 1, "topic": "T"}


@pytest.mark.parametrize(
    ("code", "body", "remark"),
    [
        (34, {"consumerDataSet": 5}, "heartbeat: consumerDataSet: expected a list, found 5"),
        (34, {"consumerDataSet": None}, "heartbeat: consumerDataSet: expected a list, found null"),
        (34, {"consumerDataSet": ["g"]}, "heartbeat: consumerDataSet: expected a list of objects, found 'g'"),
        (34, {"consumerDataSet": [{}]}, "heartbeat: groupName: expected a text, found nothing"),
        (34, {"producerDataSet": [[]]}, "heartbeat: producerDataSet: expected a list of objects, found a list"),
        (34, {"subscriptionDataSet": {}}, "heartbeat: subscriptionDataSet: expected a list, found an object"),
        (34, {"subscriptionDataSet": [{}]}, "heartbeat: topic: expected a text, found nothing"),
        (34, {"subVersion": [1]}, "heartbeat: subVersion: expected an integer, found a list"),
        (34, {"subVersion": "new"}, "heartbeat: subVersion: expected an integer, found 'new'"),
        (34, {"tagsSet": 7}, "heartbeat: tagsSet: expected a list, found 7"),
        (34, {"codeSet": ["a"]}, "heartbeat: codeSet: expected an integer, found 'a'"),
        (34, {"codeSet": [2**40]}, "heartbeat: codeSet: expected 32-bit integers"),
        (
            34,
            {"messageModel": 9},
            "heartbeat: messageModel: expected one of BROADCASTING, CLUSTERING, or 0 to 1, found 9",
        ),
        (41, {"mqSet": 1, "consumerGroup": "g", "clientId": "c"}, "mqSet: expected a list, found 1"),
        (42, {"mqSet": [_QUEUE], "clientId": "c"}, "consumerGroup: expected a text, found nothing"),
        (41, {"mqSet": [_QUEUE | {"queueId": None}]}, "queueId: expected an integer, found null"),
    ],
)
def test_a_wrong_type_in_a_body_is_named(code: int, body: dict[str, Any], remark: str, asked: Asked) -> None:
    """The remark names the member, what was expected and what was found."""
    subscription = body if body.keys() & {"subVersion", "tagsSet", "codeSet"} else {}
    if subscription:
        body = {"consumerDataSet": [_GROUP | {"subscriptionDataSet": [{"topic": "T"} | subscription]}]}
    elif body.keys() & {"subscriptionDataSet", "messageModel"}:
        body = {"consumerDataSet": [_GROUP | body]}
    refused = asked.answer(code, json.dumps(body).encode())
    assert (refused.code, refused.remark) == (1, remark)
    assert not asked.broker.clients.consumers


def test_sql_is_not_supported(asked: Asked) -> None:
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": {"expressionType": "SQL92"}}).encode()
    assert asked.answer(46, body).code == 1
    assert asked.answer(46, b'{"clientId":"c","group":"g","subscriptionData":{"expressionType":"TAG"}}').code == 0


def test_each_code_has_one_handler_and_only_questions_may_need_a_thread() -> None:
    assert HANDLERS.keys() == {*RequestCode} - TO_CLIENTS
    with pytest.raises(ValueError, match="one handler for each code"):
        handles(RequestCode.CHECK_TRANSACTION_STATE, RequestCode.PULL_MESSAGE)(lambda *_: None)
    assert HANDLERS.keys() == {*RequestCode} - TO_CLIENTS
    # A thread that answers must only read the state: this one tells clients, which change the offsets themselves.
    for_masters = {code for code, each in HANDLERS.items() if each.answer is not each.answer_of_archive}
    slow = {code for code in for_masters if HANDLERS[code].cost > Cost.QUICK}
    assert slow == {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET}


def test_every_request_code_has_an_answer(asked: Asked) -> None:
    for code in {*RequestCode} - TO_CLIENTS:
        assert asked.reply(code).code in {0, 1, 16, 22}


def test_progress_of_ordered_topics_only(asked: Asked) -> None:
    asked.answer(15, consumerGroup="g", topic="BBTopic", queueId=1, commitOffset=3)
    lists = [wire.value(asked.answer(317, isOrder=order).body) for order in ("false", "true")]
    assert [each["totalDiff"] for each in lists] == [37 + 38 + 31, 0]


def test_committed_offsets_are_kept_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    offsets = ConsumerOffsets([{"T@G": {"0": 3}, "T@H": {"0": 4}}, {"T@G": {"0": 9}}], file)
    offsets.save()
    assert not file.exists()
    assert offsets.commit("G", "T", 0, 5)
    offsets.save()
    assert file.read_bytes() == b'{"offsetTable":{"T@G":{0:5},"T@H":{0:4}}}'
    file.write_bytes(file.read_bytes() + b" ")
    offsets.save()
    assert file.read_bytes().endswith(b"} "), "nothing is new"
    again = ConsumerOffsets([{"T@G": {"0": 3}}], file)
    assert (again.get("G", "T", 0), again.get("H", "T", 0), again.get("G", "T", 1)) == (5, 4, None)
    assert (again.topics("G"), again.groups("T"), again.groups("U")) == ({"T"}, {"G", "H"}, set())
    file.write_text('{"offsetTable":{"T@G":[1]}}')
    with pytest.raises(CorruptFileError, match=r"offsets\.json"):
        ConsumerOffsets([], file)


def test_a_queue_that_lost_its_begin_has_no_offset_for_a_new_group(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("rolled")) as opened:
        asked = Asked(opened)
        lost = [place for place in opened.queues() if opened.queue(*place).min_offset > 0]
        assert lost
        topic, queue_id = lost[0]
        assert asked.answer(14, consumerGroup="new", topic=topic, queueId=queue_id).code == 22
        begin = opened.queue(topic, queue_id).min_offset
        moved = asked.pull(topic, queue_id, 0)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (21, str(begin))


def test_a_store_without_config_is_served(store: Callable[[str], Path]) -> None:
    root = store("sync")
    with MessageStore.open(root) as opened:
        asked = Asked(opened)
        topics = wire.value(asked.answer(206).body)["topicList"]
        assert sorted(topics) == opened.topics
        assert (asked.broker.name, asked.broker.cluster) == ("broker-a", "DefaultCluster")
        for topic, queue_id in opened.queues():
            assert asked.pull(topic, queue_id, opened.queue(topic, queue_id).min_offset).code == 0


def test_a_damaged_config_file_is_replaced_by_its_backup(store: Callable[[str], Path], caplog: Any) -> None:
    root = store("basic")
    (root / "config" / "topics.json").write_bytes(b"{")
    with MessageStore.open(root) as opened:
        assert "BBTopic" in StoreView(opened).table(TOPICS)
    assert "topics.json: not used" in caplog.text
