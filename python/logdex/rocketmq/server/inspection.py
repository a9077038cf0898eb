"""Answers to administrators: configuration, statistics of topics, progress of groups, units of queues.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._core import RemotingCommand, __version__
from logdex.errors import GeometryError
from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.server.archive import RETRY_PREFIX
from logdex.rocketmq.server.exchange import Answer, Cost, Refusal, handles
from logdex.rocketmq.server.state import PULLED, STORED
from logdex.rocketmq.write.retention import disk_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Request
    from logdex.rocketmq.server.state import State

_NO_VERSION = {"counter": 0, "timestamp": 0}
UNSET = "not set any response code"
"""The remark that a broker leaves in some answers."""
_MOST_UNITS = 1024
_MOST_QUEUES = RemotingCommand.MAX_FRAME >> 7
"""Largest number of queues in an answer: a frame cannot hold more."""
_NEVER = "2147483647"
"""The longest time in hours: nothing is deleted."""
SYSTEM_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "BenchmarkTest",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "TBW102",
    "SELF_TEST_TOPIC",
)
_TOPIC = {"order": False, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}


@handles(Ask.GET_ALL_TOPIC_CONFIG, cost=Cost.SLOW)
def topic_configs(archive: Archive, state: State, _: Request) -> Answer:
    """Answer the configuration of all topics, as the broker stored it."""
    if state.master is not None:
        return Answer.of(state.master.topics.content(), ext={})
    table = dict(archive.table("topics.json", "topicConfigTable"))
    for name, topic in archive.topics().items():
        numbers = {"readQueueNums": topic.read_queues, "writeQueueNums": topic.write_queues}
        if name not in table:
            table[name] = {**_TOPIC, "topicName": name, **numbers}
    for group in [*state.clients.consumers]:
        name = RETRY_PREFIX + group
        table.setdefault(name, {**_TOPIC, "topicName": name, "writeQueueNums": 1})
    version = archive.config("topics.json").get("dataVersion", _NO_VERSION)
    return Answer.of({"dataVersion": version, "topicConfigTable": table}, ext={})


@handles(Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, cost=Cost.SLOW)
def group_configs(archive: Archive, state: State, _: Request) -> Answer:
    """Answer the configuration of all groups, as the broker stored it."""
    if state.master is not None:
        return Answer.of(state.master.groups.content())
    config = archive.config("subscriptionGroup.json")
    return Answer.of({"dataVersion": _NO_VERSION, "subscriptionGroupTable": {}, **config})


@handles(Ask.GET_ALL_CONSUMER_OFFSET, cost=Cost.SLOW)
def all_offsets(_: Archive, state: State, __: Request) -> Answer:
    """Answer the offsets of all groups."""
    return Answer.of({"offsetTable": state.offsets.table()})


@handles(Ask.GET_ALL_DELAY_OFFSET)
def delay_offsets(archive: Archive, _: State, __: Request) -> Answer:
    """Answer up to where each delay level was delivered."""
    table = archive.table("delayOffset.json", "offsetTable")
    return Answer.of({"offsetTable": {int(level): offset for level, offset in table.items() if level.isdecimal()}})


@handles(Ask.GET_BROKER_CONFIG)
def broker_config(archive: Archive, state: State, __: Request) -> Answer:
    """Answer the properties of the broker: those that tools need."""
    host, _, port = state.address.rpartition(":")
    master = state.master
    may_create = master is not None and master.topics.may_create
    properties = {
        "autoCreateSubscriptionGroup": "true",
        "autoCreateTopicEnable": "true" if may_create else "false",
        "brokerClusterName": state.cluster,
        "brokerIP1": host,
        "brokerId": "0",
        "brokerName": state.broker,
        "brokerPermission": "4" if master is None else "6",
        "brokerRole": "SYNC_MASTER" if state.is_synchronous else "ASYNC_MASTER",
        "fileReservedTime": _NEVER,
        "filterServerNums": "0",
        "flushDiskType": "SYNC_FLUSH" if master is not None and master.flush == "sync" else "ASYNC_FLUSH",
        "listenPort": port,
        "maxMessageSize": "4194304",
        "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
        "namesrvAddr": state.address,
        "slaveReadEnable": "false",
        "storePathRootDir": str(archive.store.root),
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
    if state.ha_port is not None:
        is_multi = archive.store.layout.has_light_queues if master is None else master.multi_dispatch
        own = {"enableMultiDispatch": "true" if is_multi else "false", "haListenPort": str(state.ha_port)}
        properties |= _file_sizes(archive) | own
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return Answer(ext={"version": '{"counter":0,"timestamp":0}'}, body=text.encode(errors="replace"))


def _file_sizes(archive: Archive) -> dict[str, str]:
    """Return the sizes of files, as a slave needs them."""
    sizes = {"mappedFileSizeCommitLog": str(archive.log_file_size)}
    try:
        files = [] if archive.store.index is None else archive.store.index.files
    except GeometryError:
        # No message has a key yet, so the files do not show them.
        return sizes
    if files:
        sizes |= {"maxHashSlotNum": str(files[0].hash_slots), "maxIndexNum": str(files[0].max_entries)}
    return sizes


@handles(Ask.GET_BROKER_RUNTIME_INFO, cost=Cost.SLOW)
def runtime_info(archive: Archive, state: State, _: Request) -> Answer:
    """Answer what `clusterList` and `brokerStatus` show. Of what waits only messages that are put are counted."""
    log = archive.store.commit_log
    begin, end = log.min_offset, log.max_offset
    waits = [
        f"{kind}ThreadPoolQueue{what}" for kind in ("send", "pull", "query") for what in ("Size", "HeadWaitTimeMills")
    ]
    table = dict.fromkeys([*waits, "EndTransactionQueueSize", "pageCacheLockTimeMills", "dispatchBehindBytes"], "0")
    mornings = zip(("YesterdayMorning", "TodayMorning", "TodayNow"), (*state.mornings, state.counts), strict=True)
    for when, counts in mornings:
        table |= {f"msgGetTotal{when}": str(counts[PULLED]), f"msgPutTotal{when}": str(counts[STORED])}
    table |= {
        "bootTimestamp": str(state.started_ms),
        "brokerVersion": str(RemotingCommand.VERSION),
        "brokerVersionDesc": f"logdex-{__version__}",
        "commitLogDiskRatio": "0.0" if archive.is_remote else str(disk_ratio(Path(archive.store.root))),
        "commitLogMaxOffset": str(end),
        "commitLogMinOffset": str(begin),
        "earliestMessageTimeStamp": str(archive.first_time()),
        "getTransferedTps": _rates(state.pulled.rates),
        "putTps": _rates([0.0] * 3),
        "runtime": f"[ {(time.time_ns() // 1_000_000 - state.started_ms) // 1000} seconds ]",
    }
    if state.master is not None and state.master.statistics is not None:
        done = state.master.statistics()
        table |= {
            "dispatchBehindBytes": str(done.dispatch_behind_bytes),
            "putMessageAverageSize": str(done.put_bytes / max(1, done.put_messages)),
            "putMessageDistributeTime": "".join(f"{name}:{count} " for name, count in done.put_times.items()),
            "putMessageEntireTimeMax": f"{done.longest_put_ms:.0f}",
            "putMessageSizeTotal": str(done.put_bytes),
            "putMessageTimesTotal": str(done.put_messages),
            "putTps": _rates(done.put_rates),
            "sendThreadPoolQueueSize": str(state.master.waiting()),
        }
    return Answer.of({"table": table})


def _rates(rates: Sequence[float]) -> str:
    """Return how many a second there were in the last 10, 60 and 600 s."""
    return " ".join(map(str, rates))


@handles(Ask.GET_TOPIC_STATS_INFO, cost=Cost.MANY)
def topic_stats(archive: Archive, state: State, request: Request) -> Answer:
    """Answer the bounds of a topic's queues, and the store time of the last message of each."""
    name = request.text("topic")
    topic = state.topic(archive, name)
    if topic is None:
        raise Refusal(Code.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    check_queues(max(topic.write_queues, topic.read_queues))
    table: dict[Any, Any] = {}
    present = archive.present(name)
    for queue_id in range(max(topic.write_queues, topic.read_queues)):
        begin = end = time_ms = 0
        if queue_id in present:
            begin, end = archive.bounds(name, queue_id)
            time_ms = archive.stored_at(name, queue_id, end - 1) or 0
        table[state.queue(name, queue_id)] = {"lastUpdateTimestamp": time_ms, "maxOffset": end, "minOffset": begin}
    return Answer.of({"offsetTable": table})


def check_queues(number: int) -> None:
    """Check that an answer can hold so many queues. A file of topics may have any number.

    Raises:
        Refusal: It cannot.
    """
    if number > _MOST_QUEUES:
        raise Refusal(Code.SYSTEM_ERROR, f"more than {_MOST_QUEUES} queues, which fit into no answer")


class _GroupAnswer:
    """State of an answer about many groups: its number of queues, and the queues of each topic that have files."""

    def __init__(self, archive: Archive) -> None:
        self.queues = 0
        self.present = cache(archive.present)

    def add(self, queues: int) -> None:
        self.queues += queues
        check_queues(self.queues)


def _progress(archive: Archive, state: State, group: str, topics: set[str], answered: _GroupAnswer) -> dict[str, Any]:
    table: dict[Any, Any] = {}
    known = state.clients.consumers.get(group)
    for name in sorted(topics):
        topic = state.topic(archive, name)
        if topic is None or (known is not None and name not in known.subscriptions):
            continue
        answered.add(topic.read_queues)
        present = answered.present(name)
        for queue_id in range(topic.read_queues):
            offset = max(0, state.offsets.get(group, name, queue_id) or 0)
            end = time_ms = 0
            if queue_id in present:
                end = archive.bounds(name, queue_id)[1]
                time_ms = archive.stored_at(name, queue_id, offset - 1) or 0
            queue = {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": time_ms}
            table[state.queue(name, queue_id)] = queue
    return {"consumeTps": 0.0, "offsetTable": table}


@handles(Ask.GET_CONSUME_STATS, cost=Cost.MANY)
def group_progress(archive: Archive, state: State, request: Request) -> Answer:
    """Answer how far a group is, in one topic or in all."""
    group, topic = request.text("consumerGroup"), request.command.ext.get("topic")
    topics = {topic} if topic else state.offsets.topics(group)
    return Answer.of(_progress(archive, state, group, topics, _GroupAnswer(archive)))


@handles(Ask.GET_BROKER_CONSUME_STATS, cost=Cost.MANY)
def all_progress(archive: Archive, state: State, request: Request) -> Answer:
    """Answer how far all groups are, in all topics or in the ordered ones."""
    known, only_ordered = state.topics(archive), request.is_true("isOrder")
    chosen = {name for name, topic in known.items() if topic.is_ordered or not only_ordered}
    if state.master is not None:
        groups = {*state.master.groups.table.entries.copy()}
    else:
        # Not every archive has a table of groups.
        groups = {*archive.table("subscriptionGroup.json", "subscriptionGroupTable"), *state.offsets.all_groups()}
    found = []
    behind, answered = 0, _GroupAnswer(archive)
    for group in sorted(groups):
        consumed = sorted(state.offsets.topics(group) & chosen)
        topics = [_progress(archive, state, group, {topic}, answered) for topic in consumed]
        found.append({group: topics})
        tables = [table for progress in topics for table in progress["offsetTable"].values()]
        behind += sum(each["brokerOffset"] - each["consumerOffset"] for each in tables)
    return Answer.of({"brokerAddr": state.address, "consumeStatsList": found, "totalDiff": behind})


@handles(Ask.QUERY_TOPIC_CONSUME_BY_WHO, cost=Cost.SLOW)
def groups_of_topic(_: Archive, state: State, request: Request) -> Answer:
    """Answer the groups that consume a topic, or have."""
    topic = request.text("topic")
    online = [group for group, known in [*state.clients.consumers.items()] if topic in known.subscriptions]
    return Answer.of({"groupList": sorted({*online, *state.offsets.groups(topic)})})


@handles(Ask.QUERY_CONSUME_TIME_SPAN, cost=Cost.MANY)
def time_span(archive: Archive, state: State, request: Request) -> Answer:
    """Answer the store times of a topic's messages, and of those that a group consumed last."""
    name, group = request.text("topic"), request.text("group")
    topic = state.topic(archive, name)
    if topic is None:
        raise Refusal(Code.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    check_queues(max(topic.write_queues, topic.read_queues))
    spans: list[dict[str, Any]] = []
    present = archive.present(name)
    for queue_id in range(max(topic.write_queues, topic.read_queues)):
        if queue_id not in present:
            unknown = dict.fromkeys(("consumeTimeStamp", "maxTimeStamp", "minTimeStamp"), -1)
            spans.append({**unknown, "delayTime": 0, "messageQueue": state.queue(name, queue_id)})
            continue
        begin, end = archive.bounds(name, queue_id)
        offset = state.offsets.get(group, name, queue_id) or 0
        consumed = archive.stored_at(name, queue_id, offset - 1) if offset > 0 and end else None
        first = archive.stored_at(name, queue_id, begin) if end else None
        first = -1 if first is None else first
        waiting = archive.stored_at(name, queue_id, offset) if begin <= offset < end else None
        spans.append(
            {
                "consumeTimeStamp": first if consumed is None else consumed,
                "delayTime": 0 if waiting is None else max(0, time.time_ns() // 1_000_000 - waiting),
                "maxTimeStamp": archive.stored_at(name, queue_id, end - 1) or -1 if end else -1,
                "messageQueue": state.queue(name, queue_id),
                "minTimeStamp": first,
            }
        )
    return Answer.of({"consumeTimeSpanSet": spans})


@handles(Ask.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def system_topics(_: Archive, state: State, __: Request) -> Answer:
    """Answer which topics are the broker's own."""
    return Answer.of({"topicList": [*SYSTEM_TOPICS, state.cluster, state.broker, f"{state.cluster}_REPLY_TOPIC"]})


@handles(Ask.VIEW_BROKER_STATS_DATA)
def statistics(_: Archive, __: State, request: Request) -> Answer:
    """Answer that nothing is counted."""
    name, key = request.text("statsName"), request.text("statsKey")
    raise Refusal(Code.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


@handles(Ask.QUERY_CONSUME_QUEUE, cost=Cost.SEARCH)
def queue_units(archive: Archive, state: State, request: Request) -> Answer:
    """Answer some units of a queue, of one file of it."""
    topic, queue_id = request.text("topic"), request.integer("queueId", 0, bits=32)
    index, count = request.integer("index", 0), request.integer("count", 0, bits=32)
    found = archive.queue(topic, queue_id)
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
        known = state.clients.consumers.get(group)
        subscription = known.subscriptions.get(topic) if known is not None else None
        if subscription is None:
            value["filterData"] = f"{group}@{topic} is not online!"
        else:
            value |= {"filterData": "null", "subscriptionData": subscription.members}
    return Answer.of(value, remark=UNSET)
