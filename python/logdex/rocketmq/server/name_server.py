"""Answers of a name server: where topics are, and what the cluster is. All of it is this one server.

Source: DefaultRequestProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.server.exchange import FAQ, Answer, Cost, Refusal, handles

if TYPE_CHECKING:
    from typing import Any

    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Request
    from logdex.rocketmq.server.state import State

_WRITE = 2


def _brokers(state: State) -> dict[str, Any]:
    return {"brokerAddrs": {0: state.address}, "brokerName": state.broker, "cluster": state.cluster}


@handles(Ask.GET_ROUTEINFO_BY_TOPIC, cost=Cost.FILE)
def route(archive: Archive, state: State, request: Request) -> Answer:
    """Answer where a topic is. Nobody may write to an archive: producers then fail before they send."""
    name = request.text("topic")
    topic = state.topic(archive, name)
    if topic is None:
        raise Refusal(Code.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {name}{FAQ}")
    queues = {
        "brokerName": state.broker,
        "perm": topic.perm & ~_WRITE if state.master is None else topic.perm,
        "readQueueNums": topic.read_queues,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }
    return Answer.of({"brokerDatas": [_brokers(state)], "filterServerTable": {}, "queueDatas": [queues]})


@handles(Ask.GET_BROKER_CLUSTER_INFO)
def cluster(_: Archive, state: State, __: Request) -> Answer:
    """Answer which brokers there are."""
    table = {state.broker: _brokers(state)}
    return Answer.of({"brokerAddrTable": table, "clusterAddrTable": {state.cluster: [state.broker]}})


@handles(Ask.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, cost=Cost.SLOW)
def topics(archive: Archive, state: State, _: Request) -> Answer:
    """Answer which topics there are."""
    return Answer.of({"topicList": [*state.topics(archive)]})


@handles(Ask.GET_TOPICS_BY_CLUSTER, cost=Cost.SLOW)
def topics_of_cluster(archive: Archive, state: State, request: Request) -> Answer:
    """Answer which topics a cluster has."""
    return Answer.of({"topicList": [*state.topics(archive)] if request.text("cluster") == state.cluster else []})


@handles(Ask.GET_SYSTEM_TOPIC_LIST_FROM_NS)
def system_topics(_: Archive, state: State, __: Request) -> Answer:
    """Answer which topics are named like a broker or a cluster."""
    return Answer.of({"brokerAddr": state.address, "topicList": [state.cluster, state.broker]})


@handles(Ask.GET_KV_CONFIG)
def key_value(_: Archive, __: State, request: Request) -> Answer:
    """Answer one entry of the configuration by name: there is none."""
    place = f"Namespace: {request.text('namespace')} Key: {request.text('key')}"
    raise Refusal(Code.QUERY_NOT_FOUND, f"No config item, {place}", {})


@handles(Ask.GET_KVLIST_BY_NAMESPACE)
def key_values(_: Archive, __: State, request: Request) -> Answer:
    """Answer a namespace of the configuration: there is none."""
    raise Refusal(Code.QUERY_NOT_FOUND, f"No config item, Namespace: {request.text('namespace')}")


@handles(Ask.GET_NAMESRV_CONFIG)
def config(_: Archive, state: State, __: Request) -> Answer:
    """Answer the properties of the name server."""
    return Answer(body=f"listenPort={state.address.rpartition(':')[2]}\nrocketmqHome=\n".encode())


@handles(Ask.REGISTER_BROKER)
def register(_: Archive, state: State, request: Request) -> Answer:
    """Answer a slave where its master is; no other broker is registered."""
    if state.ha_port is None or request.text("brokerName") != state.broker or not request.integer("brokerId"):
        raise Refusal(Code.SYSTEM_ERROR, "only slaves of this broker are registered, and only if it has a log stream")
    host = state.address.rpartition(":")[0]
    return Answer(ext={"haServerAddr": f"{host}:{state.ha_port}", "masterAddr": state.address})


@handles(Ask.UNREGISTER_BROKER)
def unregister(_: Archive, __: State, ___: Request) -> Answer:
    """Answer a slave that stops."""
    return Answer()
