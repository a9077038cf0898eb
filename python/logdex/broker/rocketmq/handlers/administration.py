"""Requests of administrators: configuration, statistics of topics, progress of groups, changes of topics and groups.

Source: AdminBrokerProcessor, DefaultRequestProcessor, Broker2Client.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._core import RemotingCommand, __version__
from logdex.broker.rocketmq.broker import PULLED, STORED
from logdex.broker.rocketmq.handlers.consumers import nearest_offset
from logdex.broker.rocketmq.handlers.sends import check_topic_name
from logdex.broker.rocketmq.requests import (
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
from logdex.broker.rocketmq.tables import MOST_QUEUES, Topic, topic_entry
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.errors import GeometryError
from logdex.rocketmq import fastjson
from logdex.rocketmq.broker_config import (
    AUTO_CREATE_TOPIC,
    DELAY_OFFSETS,
    GROUPS,
    RETRY_PREFIX,
    SYSTEM_TOPICS,
    TOPICS,
    TRACE_TOPIC,
)
from logdex.statistics import disk_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex.broker.rocketmq.broker import Broker, StoreView
    from logdex.broker.rocketmq.requests import Request

_NO_VERSION = {"counter": 0, "timestamp": 0}
UNSET = "not set any response code"
"""Remark of some answers of a broker."""
_MOST_UNITS = 1024
_MOST_QUEUES = RemotingCommand.MAX_FRAME >> 7
"""Largest number of queues that fit into the frame of an answer."""
_NEVER = "2147483647"
"""Hours that messages are kept by a server that deletes nothing."""

_FILTER_TYPES = {"SINGLE_TAG", "MULTI_TAG"}
_NEWEST = -1
"""Value of the time that means the end of each queue."""


@handles(RequestCode.GET_ALL_TOPIC_CONFIG, cost=Cost.SLOW)
def topic_configs(broker: Broker, _: Request) -> Answer:
    """Return the configuration of all topics, as the broker stored it."""
    if broker.master is not None:
        return Answer.of(broker.master.topics.content(), ext={})
    table = dict(broker.view.table(TOPICS))
    table |= {name: topic_entry(name, topic) for name, topic in broker.view.topics().items() if name not in table}
    for group in [*broker.clients.consumers]:
        table.setdefault(RETRY_PREFIX + group, topic_entry(RETRY_PREFIX + group, Topic(1, 1)))
    version = broker.view.config(TOPICS).get("dataVersion", _NO_VERSION)
    return Answer.of({"dataVersion": version, "topicConfigTable": table}, ext={})


@handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, cost=Cost.SLOW)
def group_configs(broker: Broker, _: Request) -> Answer:
    """Return the configuration of all groups, as the broker stored it."""
    if broker.master is not None:
        return Answer.of(broker.master.groups.content())
    config = broker.view.config(GROUPS)
    return Answer.of({"dataVersion": _NO_VERSION, "subscriptionGroupTable": {}, **config})


@handles(RequestCode.GET_ALL_CONSUMER_OFFSET, cost=Cost.SLOW)
def all_offsets(broker: Broker, _: Request) -> Answer:
    """Return the offsets of all groups."""
    return Answer.of({"offsetTable": broker.offsets.table()})


@handles(RequestCode.GET_ALL_DELAY_OFFSET)
def delay_offsets(broker: Broker, _: Request) -> Answer:
    """Return the offsets up to which the messages of each delay level were delivered."""
    table = broker.view.table(DELAY_OFFSETS)
    return Answer.of({"offsetTable": {int(level): offset for level, offset in table.items() if level.isdecimal()}})


@handles(RequestCode.GET_BROKER_CONFIG)
def broker_config(broker: Broker, _: Request) -> Answer:
    """Return the properties of the broker that tools need."""
    host, port = broker.address.rpartition(":")[::2]
    master = broker.master
    may_create = master is not None and master.topics.may_create
    properties = {
        "autoCreateSubscriptionGroup": "true",
        "autoCreateTopicEnable": "true" if may_create else "false",
        "brokerClusterName": broker.cluster,
        "brokerIP1": host,
        "brokerId": "0",
        "brokerName": broker.name,
        "brokerPermission": "4" if master is None else "6",
        "brokerRole": "SYNC_MASTER" if broker.is_synchronous else "ASYNC_MASTER",
        "fileReservedTime": _NEVER,
        "filterServerNums": "0",
        "flushDiskType": "SYNC_FLUSH" if master is not None and master.flush == "sync" else "ASYNC_FLUSH",
        "listenPort": port,
        "maxMessageSize": "4194304",
        "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "msgTraceTopicName": TRACE_TOPIC,
        "namesrvAddr": broker.address,
        "slaveReadEnable": "false",
        "storePathRootDir": str(broker.view.store.root),
        "traceOn": "true",
        "traceTopicEnable": "false",
        "useTLS": "false",
    }
    if master is not None and master.retention is not None:
        keeps = master.retention
        properties |= {
            "cleanFileForciblyEnable": "true" if keeps.clean_forcibly else "false",
            "deleteWhen": keeps.delete_when,
            "diskMaxUsedSpaceRatio": f"{keeps.disk_max_used:.0%}".removesuffix("%"),
            "fileReservedTime": f"{keeps.file_reserved_hours:g}",
        }
    if broker.ha_port is not None:
        is_multi = broker.view.store.layout.has_light_queues if master is None else master.multi_dispatch
        own = {"enableMultiDispatch": "true" if is_multi else "false", "haListenPort": str(broker.ha_port)}
        properties |= _file_sizes(broker.view) | own
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return Answer(ext={"version": '{"counter":0,"timestamp":0}'}, body=text.encode(errors="replace"))


def _file_sizes(view: StoreView) -> dict[str, str]:
    """Return the sizes of files, as a slave needs them."""
    sizes = {"mappedFileSizeCommitLog": str(view.log_file_size)}
    try:
        files = [] if view.store.index is None else view.store.index.files
    except GeometryError:
        # No message has a key yet, so the geometry cannot be inferred.
        return sizes
    if files:
        sizes |= {"maxHashSlotNum": str(files[0].hash_slots), "maxIndexNum": str(files[0].max_entries)}
    return sizes


@handles(RequestCode.GET_BROKER_RUNTIME_INFO, cost=Cost.SLOW)
def runtime_info(broker: Broker, _: Request) -> Answer:
    """Return the values that `clusterList` and `brokerStatus` show. Of the waiting requests only sends are counted."""
    log = broker.view.store.commit_log
    begin, end = log.min_offset, log.max_offset
    waits = [
        f"{kind}ThreadPoolQueue{what}" for kind in ("send", "pull", "query") for what in ("Size", "HeadWaitTimeMills")
    ]
    table = dict.fromkeys([*waits, "EndTransactionQueueSize", "pageCacheLockTimeMills", "dispatchBehindBytes"], "0")
    mornings = zip(("YesterdayMorning", "TodayMorning", "TodayNow"), (*broker.mornings, broker.counts), strict=True)
    for when, counts in mornings:
        table |= {f"msgGetTotal{when}": str(counts[PULLED]), f"msgPutTotal{when}": str(counts[STORED])}
    table |= {
        "bootTimestamp": str(broker.started_ms),
        "brokerVersion": str(RemotingCommand.VERSION),
        "brokerVersionDesc": f"logdex-{__version__}",
        "commitLogDiskRatio": "0.0" if broker.view.is_remote else str(disk_ratio(Path(broker.view.store.root))),
        "commitLogMaxOffset": str(end),
        "commitLogMinOffset": str(begin),
        "earliestMessageTimeStamp": str(broker.view.first_time()),
        "getTransferedTps": _rates(broker.pulled.rates),
        "putTps": _rates([0.0] * 3),
        "runtime": f"[ {(time.time_ns() // 1_000_000 - broker.started_ms) // 1000} seconds ]",
    }
    if broker.master is not None and broker.master.statistics is not None:
        done = broker.master.statistics()
        table |= {
            "dispatchBehindBytes": str(done.dispatch_behind_bytes),
            "putMessageAverageSize": str(done.put_bytes / max(1, done.put_messages)),
            "putMessageDistributeTime": "".join(f"{name}:{count} " for name, count in done.put_times.items()),
            "putMessageEntireTimeMax": f"{done.longest_put_ms:.0f}",
            "putMessageSizeTotal": str(done.put_bytes),
            "putMessageTimesTotal": str(done.put_messages),
            "putTps": _rates(done.put_rates),
            "sendThreadPoolQueueSize": str(broker.master.waiting()),
        }
    return Answer.of({"table": table})


def _rates(rates: Sequence[float]) -> str:
    """Return the rates over the last 10, 60 and 600 s as text."""
    return " ".join(map(str, rates))


@handles(RequestCode.GET_TOPIC_STATS_INFO, cost=Cost.MANY)
def topic_stats(broker: Broker, request: Request) -> Answer:
    """Return the bounds of a topic's queues, and the store time of the last message of each."""
    name = request.text("topic")
    topic = broker.topic(name)
    if topic is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    check_queues(max(topic.write_queues, topic.read_queues))
    table: dict[Any, Any] = {}
    present = broker.view.present(name)
    for queue_id in range(max(topic.write_queues, topic.read_queues)):
        begin = end = time_ms = 0
        if queue_id in present:
            begin, end = broker.view.bounds(name, queue_id)
            time_ms = broker.view.stored_at(name, queue_id, end - 1) or 0
        table[broker.queue(name, queue_id)] = {"lastUpdateTimestamp": time_ms, "maxOffset": end, "minOffset": begin}
    return Answer.of({"offsetTable": table})


def check_queues(number: int) -> None:
    """Check that an answer can hold this many queues. A topics file may have any number.

    Raises:
        Refusal: There are too many.
    """
    if number > _MOST_QUEUES:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"more than {_MOST_QUEUES} queues, which fit into no answer")


class _GroupAnswer:
    """Number of queues in an answer about many groups, and a cache of the queues with files."""

    def __init__(self, archive: StoreView) -> None:
        self.queues = 0
        self.present = cache(archive.present)

    def add(self, queues: int) -> None:
        self.queues += queues
        check_queues(self.queues)


def _progress(broker: Broker, group: str, topics: set[str], answered: _GroupAnswer) -> dict[str, Any]:
    table: dict[Any, Any] = {}
    known = broker.clients.consumers.get(group)
    for name in sorted(topics):
        topic = broker.topic(name)
        if topic is None or (known is not None and name not in known.subscriptions):
            continue
        answered.add(topic.read_queues)
        present = answered.present(name)
        for queue_id in range(topic.read_queues):
            offset = max(0, broker.offsets.get(group, name, queue_id) or 0)
            end = time_ms = 0
            if queue_id in present:
                end = broker.view.bounds(name, queue_id)[1]
                time_ms = broker.view.stored_at(name, queue_id, offset - 1) or 0
            queue = {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": time_ms}
            table[broker.queue(name, queue_id)] = queue
    return {"consumeTps": 0.0, "offsetTable": table}


@handles(RequestCode.GET_CONSUME_STATS, cost=Cost.MANY)
def group_progress(broker: Broker, request: Request) -> Answer:
    """Return the progress of a group in one topic or in all."""
    group, topic = request.text("consumerGroup"), request.command.ext.get("topic")
    topics = {topic} if topic else broker.offsets.topics(group)
    return Answer.of(_progress(broker, group, topics, _GroupAnswer(broker.view)))


@handles(RequestCode.GET_BROKER_CONSUME_STATS, cost=Cost.MANY)
def all_progress(broker: Broker, request: Request) -> Answer:
    """Return the progress of all groups in all topics or in the ordered ones."""
    known, only_ordered = broker.topics(), request.is_true("isOrder")
    chosen = {name for name, topic in known.items() if topic.is_ordered or not only_ordered}
    if broker.master is not None:
        groups = {*broker.master.groups.table.entries.copy()}
    else:
        # Not every archive has a table of groups.
        groups = {*broker.view.table(GROUPS), *broker.offsets.all_groups()}
    found = []
    behind, answered = 0, _GroupAnswer(broker.view)
    for group in sorted(groups):
        consumed = sorted(broker.offsets.topics(group) & chosen)
        topics = [_progress(broker, group, {topic}, answered) for topic in consumed]
        found.append({group: topics})
        tables = [table for progress in topics for table in progress["offsetTable"].values()]
        behind += sum(each["brokerOffset"] - each["consumerOffset"] for each in tables)
    return Answer.of({"brokerAddr": broker.address, "consumeStatsList": found, "totalDiff": behind})


@handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, cost=Cost.SLOW)
def groups_of_topic(broker: Broker, request: Request) -> Answer:
    """Return the groups that consume a topic or have consumed it."""
    topic = request.text("topic")
    online = [group for group, known in [*broker.clients.consumers.items()] if topic in known.subscriptions]
    return Answer.of({"groupList": sorted({*online, *broker.offsets.groups(topic)})})


@handles(RequestCode.QUERY_CONSUME_TIME_SPAN, cost=Cost.MANY)
def time_span(broker: Broker, request: Request) -> Answer:
    """Return the store times of a topic's messages, and of the last ones that a group consumed."""
    name, group = request.text("topic"), request.text("group")
    topic = broker.topic(name)
    if topic is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    check_queues(max(topic.write_queues, topic.read_queues))
    spans: list[dict[str, Any]] = []
    present = broker.view.present(name)
    for queue_id in range(max(topic.write_queues, topic.read_queues)):
        if queue_id not in present:
            unknown = dict.fromkeys(("consumeTimeStamp", "maxTimeStamp", "minTimeStamp"), -1)
            spans.append({**unknown, "delayTime": 0, "messageQueue": broker.queue(name, queue_id)})
            continue
        begin, end = broker.view.bounds(name, queue_id)
        offset = broker.offsets.get(group, name, queue_id) or 0
        consumed = broker.view.stored_at(name, queue_id, offset - 1) if offset > 0 and end else None
        first = broker.view.stored_at(name, queue_id, begin) if end else None
        first = -1 if first is None else first
        waiting = broker.view.stored_at(name, queue_id, offset) if begin <= offset < end else None
        spans.append(
            {
                "consumeTimeStamp": first if consumed is None else consumed,
                "delayTime": 0 if waiting is None else max(0, time.time_ns() // 1_000_000 - waiting),
                "maxTimeStamp": broker.view.stored_at(name, queue_id, end - 1) or -1 if end else -1,
                "messageQueue": broker.queue(name, queue_id),
                "minTimeStamp": first,
            }
        )
    return Answer.of({"consumeTimeSpanSet": spans})


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def system_topics(broker: Broker, _: Request) -> Answer:
    """Return the broker's own topics."""
    return Answer.of({"topicList": [*SYSTEM_TOPICS, broker.cluster, broker.name, f"{broker.cluster}_REPLY_TOPIC"]})


@handles(RequestCode.VIEW_BROKER_STATS_DATA)
def statistics(_: Broker, request: Request) -> Answer:
    """Refuse a counter by name: none are kept."""
    name, key = request.text("statsName"), request.text("statsKey")
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


@handles(RequestCode.QUERY_CONSUME_QUEUE, cost=Cost.SEARCH)
def queue_units(broker: Broker, request: Request) -> Answer:
    """Return some units of a queue."""
    topic, queue_id = request.text("topic"), request.integer("queueId", 0, bits=32)
    index, count = request.integer("index", 0), request.integer("count", 0, bits=32)
    found = broker.view.queue(topic, queue_id)
    begin, end = (0, 0) if found is None else found[1].bounds
    if found is None or not begin <= index < end:
        return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
    queue = found[0]
    units = queue.units(index, min(end, index + max(0, min(count, _MOST_UNITS))))
    names = ("phy_offset", "size", "tags_code")
    rows = zip(*(units.column(name).to_pylist() for name in names), strict=True)
    value: dict[str, Any] = {
        "maxQueueIndex": end,
        "minQueueIndex": begin,
        "queueData": [
            {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code} for offset, size, code in rows
        ],
    }
    group = request.command.ext.get("consumerGroup")
    if group is not None:
        known = broker.clients.consumers.get(group)
        subscription = known.subscriptions.get(topic) if known is not None else None
        if subscription is None:
            value["filterData"] = f"{group}@{topic} is not online!"
        else:
            value |= {"filterData": "null", "subscriptionData": subscription.members}
    return Answer.of(value, remark=UNSET)


@handles(RequestCode.UPDATE_AND_CREATE_TOPIC, kind=Kind.CHANGE)
def put_topic(broker: Broker, request: Request) -> Answer:
    """Create or change a topic."""
    name, kind = _changeable(broker, request), request.command.ext.get("topicFilterType", "null")
    if kind not in _FILTER_TYPES:
        raise exception(REMOTING_EXCEPTION, f"topicFilterType = [{kind:.200}] value invalid")
    read, write, perm = (request.integer(each, bits=32) for each in ("readQueueNums", "writeQueueNums", "perm"))
    if not 0 <= read <= MOST_QUEUES or not 0 <= write <= MOST_QUEUES:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"queues of topic[{name}]: expected 0 to {MOST_QUEUES}")
    topic = Topic(read, write, perm, request.integer("topicSysFlag", 0, bits=32))
    broker.require_master().topics.put(name, topic, kind)
    return Answer(remark=UNSET)


@handles(RequestCode.DELETE_TOPIC_IN_BROKER, kind=Kind.CHANGE)
def delete_topic(broker: Broker, request: Request) -> Answer:
    """Remove a topic from the configuration. Its messages and queues stay, unlike a broker's."""
    broker.require_master().topics.remove(_changeable(broker, request))
    return Answer()


@handles(RequestCode.DELETE_TOPIC_IN_NAMESRV, kind=Kind.CHANGE)
def forget_topic(broker: Broker, _: Request) -> Answer:
    """Acknowledge the removal of a topic to the name server: its only broker has removed it already."""
    broker.require_master()
    return Answer()


@handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, kind=Kind.CHANGE, parse=dict)
def put_group(broker: Broker, request: Request) -> Answer:
    """Create or change a group."""
    members = request.content(dict)
    name = members.get("groupName")
    if not isinstance(name, str):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "groupName: expected a name")
    broker.require_master().groups.put(name, members)
    return Answer()


@handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, kind=Kind.CHANGE)
def delete_group(broker: Broker, request: Request) -> Answer:
    """Remove a group, and its offsets if the request wants that."""
    master, name = broker.require_master(), request.text("groupName")
    master.groups.remove(name)
    if request.is_true("removeOffset"):
        broker.offsets.remove(name)
    return Answer()


@handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, cost=Cost.MANY, kind=Kind.CHANGE)
def reset_offsets(broker: Broker, request: Request) -> Answer:
    """Notify the members of a group to go back to a time, or to any offset if forced. They commit the new offsets.

    Source: Broker2Client#resetOffset.
    """
    name, group = request.text("topic"), request.text("group")
    time, is_forced = request.integer("timestamp", 0), request.is_true("isForce")
    topic = broker.topic(name)
    if topic is None:
        remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    check_queues(topic.write_queues)
    table, present = {}, broker.view.present(name)
    for queue_id in range(topic.write_queues):
        offset = broker.offsets.get(group, name, queue_id)
        if offset is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        end = broker.view.bounds(name, queue_id)[1] if queue_id in present else 0
        then = end if time == _NEWEST or not end else nearest_offset(broker.view, name, queue_id, time)
        table[broker.queue(name, queue_id)] = then if is_forced or then < offset else offset
    known = broker.clients.consumers.get(group)
    if known is None:
        remark = f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} Timestamp: {time}"
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    reset: Any = table
    if request.command.language == "CPP":
        reset = [
            {"brokerName": q.broker, "offset": each, "queueId": q.queue_id, "topic": q.topic}
            for q, each in table.items()
        ]
    ext = {"topic": name, "group": group, "timestamp": str(time), "isForce": "false"}
    body = fastjson.dumps({"offsetTable": reset}).encode(errors="replace")
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    return Answer.of({"offsetTable": table}, notices=[Notice(peer, code, ext, body) for peer in [*known.members]])


@handles(RequestCode.CLONE_GROUP_OFFSET, kind=Kind.CHANGE)
def clone_offsets(broker: Broker, request: Request) -> Answer:
    """Copy the offsets of another group in a topic to a group."""
    source, target = request.text("srcGroup"), request.text("destGroup")
    topic = request.command.ext.get("topic", "")
    known = broker.clients.consumers.get(source)
    is_missed = known is not None and known.subscriptions and topic not in known.subscriptions
    if broker.topic(topic) is None or (is_missed and not request.is_true("offline")):
        return Answer()
    if not broker.offsets.clone(source, target, topic):
        raise Refusal(ResponseCode.SYSTEM_BUSY, "too many consumer groups")
    return Answer()


def _changeable(broker: Broker, request: Request) -> str:
    """Return the topic of a request.

    Raises:
        Refusal: The topic is the broker's own, or the name is invalid.
    """
    name = request.command.ext.get("topic", "")
    check_topic_name(name)
    own = {*SYSTEM_TOPICS, AUTO_CREATE_TOPIC, broker.cluster, broker.name, f"{broker.cluster}_REPLY_TOPIC"}
    if name in own or name.startswith("rmq_sys_"):
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic.")
    return name


refuses(
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.TRIGGER_DELETE_FILES,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.RESET_CONSUMER_OFFSET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    kind=Kind.CHANGE,
)
