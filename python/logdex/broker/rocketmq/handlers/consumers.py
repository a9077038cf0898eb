"""Requests of consumers and about them: offsets, heartbeats, members of groups, locks of queues.

Source: ConsumerManageProcessor, ClientManageProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from logdex._core import RemotingCommand
from logdex.broker.rocketmq.clients import TAG, ConsumerData, Member
from logdex.broker.rocketmq.requests import Answer, Cost, Forward, Refusal, handles, integer_in, objects_in, text_in
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.rocketmq.fastjson import MessageQueue
from logdex.rocketmq.message import offset_in_msg_id

if TYPE_CHECKING:
    from logdex.broker.rocketmq.broker import Broker, StoreView
    from logdex.broker.rocketmq.clients import ConsumerGroup
    from logdex.broker.rocketmq.requests import Request

_MOST_GROUPS = 4_096
"""Largest number of consumer groups, and of producer groups, in a heartbeat."""
_MOST_SUBSCRIPTIONS = 16_384
"""Largest number of subscriptions in all groups of a heartbeat."""
_MOST_QUEUES = 16_384
"""Largest number of queues in a lock request."""
_OLDEST_ASKED = 62
"""V3_1_8_SNAPSHOT: the first version of clients that report what they run."""


def _place(request: Request) -> tuple[str, int]:
    return request.text("topic"), request.integer("queueId", bits=32)


@handles(RequestCode.GET_MAX_OFFSET, cost=Cost.FILE)
def max_offset(broker: Broker, request: Request) -> Answer:
    """Return the end of a queue, exclusive."""
    return Answer(ext={"offset": str(broker.view.bounds(*_place(request))[1])})


@handles(RequestCode.GET_MIN_OFFSET, cost=Cost.FILE)
def min_offset(broker: Broker, request: Request) -> Answer:
    """Return the start of a queue."""
    return Answer(ext={"offset": str(broker.view.bounds(*_place(request))[0])})


@handles(RequestCode.GET_EARLIEST_MSG_STORETIME, cost=Cost.FILE)
def earliest_time(broker: Broker, request: Request) -> Answer:
    """Return the store time of the first message of a queue."""
    topic, queue_id = _place(request)
    time = broker.view.stored_at(topic, queue_id, broker.view.bounds(topic, queue_id)[0])
    return Answer(ext={"timestamp": str(-1 if time is None else time)})


@handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, cost=Cost.SEARCH)
def offset_by_time(broker: Broker, request: Request) -> Answer:
    """Return the offset of the message that is nearest to a time, as a broker does."""
    return Answer(ext={"offset": str(nearest_offset(broker.view, *_place(request), request.integer("timestamp")))})


def nearest_offset(view: StoreView, topic: str, queue_id: int, time: int) -> int:
    """Return the offset of the message that is nearest to a time, by the times of messages, not of files."""
    found = view.queue(topic, queue_id)
    if found is None:
        return 0
    queue, (begin, end) = found[0], found[1].bounds
    offset = queue.offset_by_time(time)
    if not view.compat and begin < end:
        before = queue.offset_by_time(time, boundary="upper")
        times = [queue.store_timestamp(each) for each in (before, min(offset, end - 1))]
        distances = [1 << 64 if each is None else abs(each - time) for each in times]
        offset = before if distances[0] <= distances[1] else offset
    return offset


@handles(RequestCode.QUERY_CONSUMER_OFFSET, cost=Cost.FILE)
def consumer_offset(broker: Broker, request: Request) -> Answer:
    """Return the offset of a group. A group without one starts at 0 if the queue does."""
    group, (topic, queue_id) = request.text("consumerGroup"), _place(request)
    offset = broker.offsets.get(group, topic, queue_id)
    if offset is None and broker.view.bounds(topic, queue_id)[0] > 0:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {}
        )
    return Answer(ext={"offset": str(offset or 0)})


@handles(RequestCode.UPDATE_CONSUMER_OFFSET)
def commit(broker: Broker, request: Request) -> Answer:
    """Commit the offset of a group."""
    group, (topic, queue_id) = request.text("consumerGroup"), _place(request)
    if not broker.offsets.commit(group, topic, queue_id, request.integer("commitOffset")):
        raise Refusal(ResponseCode.SYSTEM_BUSY, "too many consumer groups", {})
    return Answer(ext={})


class _Heartbeat(NamedTuple):
    client_id: str | None
    consumers: list[ConsumerData]
    producers: list[str]


def _heartbeat(data: dict[str, Any]) -> _Heartbeat:
    try:
        client_id = data.get("clientID")
        consumers = [ConsumerData.of_heartbeat(each) for each in objects_in(data, "consumerDataSet")]
        producers = [text_in(each, "groupName") for each in objects_in(data, "producerDataSet")]
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"heartbeat: {error}") from None
    if max(len(consumers), len(producers)) > _MOST_GROUPS:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"heartbeat: expected at most {_MOST_GROUPS} groups")
    if sum(len(each.subscriptions) for each in consumers) > _MOST_SUBSCRIPTIONS:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"heartbeat: expected at most {_MOST_SUBSCRIPTIONS} subscriptions")
    return _Heartbeat(None if client_id is None else str(client_id), consumers, producers)


@handles(RequestCode.HEART_BEAT, parse=_heartbeat)
def heartbeat(broker: Broker, request: Request) -> Answer:
    """Record the groups and subscriptions of a client. The members of a changed group are notified before the answer."""
    data, command = request.content(_heartbeat), request.command
    member = Member(data.client_id, command.language, command.version, broker.now())
    notices = []
    try:
        for consumer in data.consumers:
            if broker.master is not None:
                broker.master.take_group(consumer.group, is_unit=consumer.is_unit)
            notices += broker.clients.join(consumer.group, request.peer, member, consumer)
        for group in data.producers:
            broker.clients.produce(group, request.peer, member)
    except (Refusal, ValueError) as error:
        refused = error if isinstance(error, Refusal) else Refusal(ResponseCode.SYSTEM_ERROR, f"heartbeat: {error}")
        # The client has joined the groups before.
        refused.answer.notices = notices
        raise refused from None
    return Answer(notices=notices)


@handles(RequestCode.UNREGISTER_CLIENT)
def unregister(broker: Broker, request: Request) -> Answer:
    """Remove a client from a group."""
    ext = request.command.ext
    group, producers = ext.get("consumerGroup", ""), ext.get("producerGroup", "")
    return Answer(ext={}, notices=broker.clients.leave(request.peer, group, producers))


@handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
def members(broker: Broker, request: Request) -> Answer:
    """Return the client ids of a group."""
    group = request.text("consumerGroup")
    known = broker.clients.consumers.get(group)
    if known is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
    return Answer.of({"consumerIdList": [member.client_id for member in known.members.values()]}, ext={})


def _queues(data: dict[str, Any]) -> tuple[str, str, list[MessageQueue]]:
    try:
        given = objects_in(data, "mqSet") if data.get("mqSet") else []
        # A set, so that a repeated queue counts once.
        queues = [
            *dict.fromkeys(
                MessageQueue(
                    text_in(each, "brokerName"), integer_in("queueId", each.get("queueId")), text_in(each, "topic")
                )
                for each in given
            )
        ]
        found = text_in(data, "consumerGroup"), text_in(data, "clientId"), queues
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if len(queues) > _MOST_QUEUES:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"mqSet: expected at most {_MOST_QUEUES} queues, found {len(queues)}")
    return found


@handles(RequestCode.LOCK_BATCH_MQ, parse=_queues)
def lock(broker: Broker, request: Request) -> Answer:
    """Lock queues for a consumer that keeps their order; return the locked ones."""
    group, client_id, queues = request.content(_queues)
    return Answer.of({"lockOKMQSet": broker.clients.lock(group, client_id, queues, broker.now())})


@handles(RequestCode.UNLOCK_BATCH_MQ, parse=_queues)
def unlock(broker: Broker, request: Request) -> Answer:
    """Release locks."""
    broker.clients.unlock(*request.content(_queues))
    return Answer()


@handles(RequestCode.CHECK_CLIENT_CONFIG, parse=dict)
def check_client(_: Broker, request: Request) -> Answer:
    """Check whether a subscription can be served."""
    subscription = request.content(dict).get("subscriptionData")
    kind = subscription.get("expressionType") if isinstance(subscription, dict) else None
    if kind not in (None, "", TAG):
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}")
    return Answer()


def _connections(members: dict[Any, Member]) -> list[dict[str, Any]]:
    return [
        _without_nulls(
            {
                "clientAddr": peer.address,
                "clientId": member.client_id,
                "language": member.language,
                "version": member.version,
            }
        )
        for peer, member in [*members.items()]
    ]


def _without_nulls(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _online(broker: Broker, group: str) -> ConsumerGroup:
    known = broker.clients.consumers.get(group)
    if known is None:
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    return known


@handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, cost=Cost.SLOW)
def consumer_connections(broker: Broker, request: Request) -> Answer:
    """Return the members of a group and their subscriptions."""
    known = _online(broker, request.text("consumerGroup"))
    return Answer.of(
        _without_nulls(
            {
                "connectionSet": _connections(known.members),
                "consumeFromWhere": known.from_where,
                "consumeType": known.consume_type,
                "messageModel": known.message_model,
                "subscriptionTable": {topic: each.members for topic, each in [*known.subscriptions.items()]},
            }
        )
    )


@handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, cost=Cost.SLOW)
def producer_connections(broker: Broker, request: Request) -> Answer:
    """Return the producers of a group."""
    group = request.text("producerGroup")
    known = broker.clients.producers.get(group)
    if not known:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return Answer.of({"connectionSet": _connections(known)})


def _ask(broker: Broker, request: Request, ext: dict[str, str], body: bytes) -> Forward:
    """Forward a request to the member that it names."""
    group, client_id = request.text("consumerGroup"), request.text("clientId")
    known = broker.clients.consumers.get(group)
    for peer, member in known.members.items() if known is not None else ():
        if member.client_id == client_id:
            if member.version < _OLDEST_ASKED:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"The Consumer <{client_id}> Version <{member.version}> too low to finish",
                )
            return Forward(peer, request.command.code, ext, body, f"<{group}> <{client_id}>")
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")


@handles(RequestCode.GET_CONSUMER_RUNNING_INFO)
def running_info(broker: Broker, request: Request) -> Forward:
    """Request from a consumer what it runs."""
    return _ask(broker, request, request.command.ext, b"")


@handles(RequestCode.CONSUME_MESSAGE_DIRECTLY)
def consume_directly(broker: Broker, request: Request) -> Forward:
    """Send one message to a consumer, which consumes it."""
    ext = {**request.command.ext, "brokerName": broker.name}
    try:
        offset = offset_in_msg_id(request.text("msgId"))
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
    # The offset may have any value, but Java's are 64 bits.
    frame = broker.view.store.commit_log.stored_frames([offset & (1 << 63) - 1], RemotingCommand.MAX_FRAME >> 1)
    return _ask(broker, request, ext, frame)
