"""Requests to the name server: routes of topics, the cluster. This one server is all of the cluster.

Source: DefaultRequestProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.broker.rocketmq.requests import FAQ, Answer, Cost, Refusal, handles
from logdex.broker.wire import RequestCode, ResponseCode

if TYPE_CHECKING:
    from typing import Any

    from logdex.broker.rocketmq.broker import Broker
    from logdex.broker.rocketmq.requests import Request

_WRITE = 2


def _brokers(broker: Broker) -> dict[str, Any]:
    return {"brokerAddrs": {0: broker.address}, "brokerName": broker.name, "cluster": broker.cluster}


@handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, cost=Cost.FILE)
def route(broker: Broker, request: Request) -> Answer:
    """Return the route of a topic. An archive has no permission to write, so producers fail before they send."""
    name = request.text("topic")
    topic = broker.topic(name)
    if topic is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {name}{FAQ}")
    queues = {
        "brokerName": broker.name,
        "perm": topic.perm & ~_WRITE if broker.master is None else topic.perm,
        "readQueueNums": topic.read_queues,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }
    return Answer.of({"brokerDatas": [_brokers(broker)], "filterServerTable": {}, "queueDatas": [queues]})


@handles(RequestCode.GET_BROKER_CLUSTER_INFO)
def cluster(broker: Broker, _: Request) -> Answer:
    """Return the brokers of the cluster: this one."""
    table = {broker.name: _brokers(broker)}
    return Answer.of({"brokerAddrTable": table, "clusterAddrTable": {broker.cluster: [broker.name]}})


@handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, cost=Cost.SLOW)
def topics(broker: Broker, _: Request) -> Answer:
    """Return the names of all topics."""
    return Answer.of({"topicList": [*broker.topics()]})


@handles(RequestCode.GET_TOPICS_BY_CLUSTER, cost=Cost.SLOW)
def topics_of_cluster(broker: Broker, request: Request) -> Answer:
    """Return the names of the topics of a cluster."""
    return Answer.of({"topicList": [*broker.topics()] if request.text("cluster") == broker.cluster else []})


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
def system_topics(broker: Broker, _: Request) -> Answer:
    """Return the topics that are named like the cluster and the broker."""
    return Answer.of({"brokerAddr": broker.address, "topicList": [broker.cluster, broker.name]})


@handles(RequestCode.GET_KV_CONFIG)
def key_value(_: Broker, request: Request) -> Answer:
    """Refuse a key of the configuration: this name server keeps none."""
    place = f"Namespace: {request.text('namespace')} Key: {request.text('key')}"
    raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, {place}", {})


@handles(RequestCode.GET_KVLIST_BY_NAMESPACE)
def key_values(_: Broker, request: Request) -> Answer:
    """Refuse a namespace of the configuration: this name server keeps none."""
    raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.text('namespace')}")


@handles(RequestCode.GET_NAMESRV_CONFIG)
def config(broker: Broker, _: Request) -> Answer:
    """Return the properties of the name server."""
    return Answer(body=f"listenPort={broker.address.rpartition(':')[2]}\nrocketmqHome=\n".encode())


@handles(RequestCode.REGISTER_BROKER)
def register(broker: Broker, request: Request) -> Answer:
    """Return the addresses of the master to a slave. Other brokers are refused."""
    if broker.ha_port is None or request.text("brokerName") != broker.name or not request.integer("brokerId"):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, "only slaves of this broker are registered, and only if it has a log stream"
        )
    host = broker.address.rpartition(":")[0]
    return Answer(ext={"haServerAddr": f"{host}:{broker.ha_port}", "masterAddr": broker.address})


@handles(RequestCode.UNREGISTER_BROKER)
def unregister(_: Broker, __: Request) -> Answer:
    """Acknowledge that a slave stops."""
    return Answer()
