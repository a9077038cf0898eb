"""Answers to administrators who change topics and consumer groups.

Source: AdminBrokerProcessor, DefaultRequestProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex.rocketmq import fastjson
from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.server.archive import Topic
from logdex.rocketmq.server.consumers import nearest_offset
from logdex.rocketmq.server.exchange import (
    REMOTING_EXCEPTION,
    Answer,
    Cost,
    Kind,
    Notice,
    Refusal,
    exception,
    handles,
    refuses,
)
from logdex.rocketmq.server.inspection import SYSTEM_TOPICS, UNSET, check_queues
from logdex.rocketmq.server.master import AUTO_CREATE_TOPIC, MOST_QUEUES, master_of
from logdex.rocketmq.server.sends import check_topic_name

if TYPE_CHECKING:
    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Request
    from logdex.rocketmq.server.state import State

_FILTER_TYPES = {"SINGLE_TAG", "MULTI_TAG"}
_NEWEST = -1
"""In place of a time: the end of each queue."""


@handles(Ask.UPDATE_AND_CREATE_TOPIC, kind=Kind.CHANGE)
def put_topic(_: Archive, state: State, request: Request) -> Answer:
    """Make a topic, or change it."""
    name, kind = _changeable(state, request), request.command.ext.get("topicFilterType", "null")
    if kind not in _FILTER_TYPES:
        raise exception(REMOTING_EXCEPTION, f"topicFilterType = [{kind:.200}] value invalid")
    read, write, perm = (request.integer(each, bits=32) for each in ("readQueueNums", "writeQueueNums", "perm"))
    if not 0 <= read <= MOST_QUEUES or not 0 <= write <= MOST_QUEUES:
        raise Refusal(Code.SYSTEM_ERROR, f"queues of topic[{name}]: expected 0 to {MOST_QUEUES}")
    topic = Topic(read, write, perm, request.integer("topicSysFlag", 0, bits=32))
    master_of(state).topics.put(name, topic, kind)
    return Answer(remark=UNSET)


@handles(Ask.DELETE_TOPIC_IN_BROKER, kind=Kind.CHANGE)
def delete_topic(_: Archive, state: State, request: Request) -> Answer:
    """Remove a topic from the configuration. Its messages and queues stay, unlike a broker's."""
    master_of(state).topics.remove(_changeable(state, request))
    return Answer()


@handles(Ask.DELETE_TOPIC_IN_NAMESRV, kind=Kind.CHANGE)
def forget_topic(_: Archive, state: State, __: Request) -> Answer:
    """Answer a name server's part of the removal of a topic: its only broker has removed it."""
    master_of(state)
    return Answer()


@handles(Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, kind=Kind.CHANGE, parse=dict)
def put_group(_: Archive, state: State, request: Request) -> Answer:
    """Make a group, or change it."""
    members = request.content(dict)
    name = members.get("groupName")
    if not isinstance(name, str):
        raise Refusal(Code.SYSTEM_ERROR, "groupName: expected a name")
    master_of(state).groups.put(name, members)
    return Answer()


@handles(Ask.DELETE_SUBSCRIPTIONGROUP, kind=Kind.CHANGE)
def delete_group(_: Archive, state: State, request: Request) -> Answer:
    """Remove a group, and its offsets if the request says so."""
    master, name = master_of(state), request.text("groupName")
    master.groups.remove(name)
    if request.is_true("removeOffset"):
        state.offsets.remove(name)
    return Answer()


@handles(Ask.INVOKE_BROKER_TO_RESET_OFFSET, cost=Cost.MANY, kind=Kind.CHANGE)
def reset_offsets(archive: Archive, state: State, request: Request) -> Answer:
    """Tell the members of a group to go back to a time, or anywhere if it is forced. They commit the offsets.

    Source: Broker2Client#resetOffset.
    """
    name, group = request.text("topic"), request.text("group")
    time, is_forced = request.integer("timestamp", 0), request.is_true("isForce")
    topic = state.topic(archive, name)
    if topic is None:
        remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
        raise Refusal(Code.SYSTEM_ERROR, remark)
    check_queues(topic.write_queues)
    table, present = {}, archive.present(name)
    for queue_id in range(topic.write_queues):
        offset = state.offsets.get(group, name, queue_id)
        if offset is None:
            raise Refusal(Code.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        end = archive.bounds(name, queue_id)[1] if queue_id in present else 0
        then = end if time == _NEWEST or not end else nearest_offset(archive, name, queue_id, time)
        table[state.queue(name, queue_id)] = then if is_forced or then < offset else offset
    known = state.clients.consumers.get(group)
    if known is None:
        remark = f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} Timestamp: {time}"
        raise Refusal(Code.CONSUMER_NOT_ONLINE, remark)
    told: Any = table
    if request.command.language == "CPP":
        told = [
            {"brokerName": q.broker, "offset": each, "queueId": q.queue_id, "topic": q.topic}
            for q, each in table.items()
        ]
    ext = {"topic": name, "group": group, "timestamp": str(time), "isForce": "false"}
    body = fastjson.dumps({"offsetTable": told}).encode(errors="replace")
    code = Ask.RESET_CONSUMER_CLIENT_OFFSET
    return Answer.of({"offsetTable": table}, notices=[Notice(peer, code, ext, body) for peer in [*known.members]])


@handles(Ask.CLONE_GROUP_OFFSET, kind=Kind.CHANGE)
def clone_offsets(archive: Archive, state: State, request: Request) -> Answer:
    """Copy the offsets of another group in a topic to a group."""
    source, target = request.text("srcGroup"), request.text("destGroup")
    topic = request.command.ext.get("topic", "")
    known = state.clients.consumers.get(source)
    is_missed = known is not None and known.subscriptions and topic not in known.subscriptions
    if state.topic(archive, topic) is None or (is_missed and not request.is_true("offline")):
        return Answer()
    if not state.offsets.clone(source, target, topic):
        raise Refusal(Code.SYSTEM_BUSY, "too many consumer groups")
    return Answer()


def _changeable(state: State, request: Request) -> str:
    """Return the topic of a request.

    Raises:
        Refusal: It is the broker's own, or none can have this name.
    """
    name = request.command.ext.get("topic", "")
    check_topic_name(name)
    own = {*SYSTEM_TOPICS, AUTO_CREATE_TOPIC, state.cluster, state.broker, f"{state.cluster}_REPLY_TOPIC"}
    if name in own or name.startswith("rmq_sys_"):
        raise Refusal(Code.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic.")
    return name


refuses(
    Ask.UPDATE_BROKER_CONFIG,
    Ask.TRIGGER_DELETE_FILES,
    Ask.UPDATE_AND_CREATE_ACL_CONFIG,
    Ask.DELETE_ACL_CONFIG,
    Ask.GET_BROKER_CLUSTER_ACL_INFO,
    Ask.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Ask.GET_BROKER_CLUSTER_ACL_CONFIG,
    Ask.RESET_CONSUMER_OFFSET,
    Ask.CLEAN_EXPIRED_CONSUMEQUEUE,
    Ask.CLEAN_UNUSED_TOPIC,
    kind=Kind.CHANGE,
)
