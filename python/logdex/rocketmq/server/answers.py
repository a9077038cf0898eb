"""The answer to each request. No sockets here: a server passes requests in and sends what comes out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.server import changes, consumers, inspection, messages, name_server, sends, transactions
from logdex.rocketmq.server.exchange import Answer, Refusal

if TYPE_CHECKING:
    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Handler, Reply, Request
    from logdex.rocketmq.server.state import State

_log = logging.getLogger(__name__)

_TABLE: dict[int, Handler] = {
    **name_server.TABLE,
    **messages.TABLE,
    **consumers.TABLE,
    **inspection.TABLE,
}
_WRITES: dict[int, Handler] = {**sends.TABLE, **transactions.TABLE, **changes.TABLE}
"""What only a server that takes messages does."""

_SENDS = {
    Ask.SEND_MESSAGE,
    Ask.SEND_MESSAGE_V2,
    Ask.SEND_BATCH_MESSAGE,
    Ask.SEND_REPLY_MESSAGE,
    Ask.SEND_REPLY_MESSAGE_V2,
    Ask.CONSUMER_SEND_MSG_BACK,
    Ask.END_TRANSACTION,
}
_CHANGES = {
    Ask.UPDATE_AND_CREATE_TOPIC,
    Ask.UPDATE_BROKER_CONFIG,
    Ask.TRIGGER_DELETE_FILES,
    Ask.UPDATE_AND_CREATE_ACL_CONFIG,
    Ask.DELETE_ACL_CONFIG,
    Ask.GET_BROKER_CLUSTER_ACL_INFO,
    Ask.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Ask.GET_BROKER_CLUSTER_ACL_CONFIG,
    Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Ask.DELETE_SUBSCRIPTIONGROUP,
    Ask.RESET_CONSUMER_OFFSET,
    Ask.DELETE_TOPIC_IN_BROKER,
    Ask.DELETE_TOPIC_IN_NAMESRV,
    Ask.INVOKE_BROKER_TO_RESET_OFFSET,
    Ask.CLEAN_EXPIRED_CONSUMEQUEUE,
    Ask.CLONE_GROUP_OFFSET,
    Ask.CLEAN_UNUSED_TOPIC,
}

SLOW = frozenset(
    {
        Ask.QUERY_MESSAGE,
        Ask.SEARCH_OFFSET_BY_TIMESTAMP,
        Ask.VIEW_MESSAGE_BY_ID,
        Ask.GET_BROKER_RUNTIME_INFO,
        Ask.GET_TOPIC_STATS_INFO,
        Ask.GET_CONSUME_STATS,
        Ask.GET_BROKER_CONSUME_STATS,
        Ask.QUERY_CONSUME_TIME_SPAN,
        Ask.QUERY_CONSUME_QUEUE,
        Ask.INVOKE_BROKER_TO_RESET_OFFSET,
        Ask.GET_CONSUMER_CONNECTION_LIST,
        Ask.GET_PRODUCER_CONNECTION_LIST,
        Ask.GET_ALL_TOPIC_CONFIG,
        Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Ask.GET_ALL_CONSUMER_OFFSET,
        Ask.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Ask.GET_TOPICS_BY_CLUSTER,
        Ask.QUERY_TOPIC_CONSUME_BY_WHO,
    }
)
"""Requests that search or read much. They only read the state, so another thread may answer them."""
ADAPTS = frozenset(
    {
        Ask.QUERY_MESSAGE,
        Ask.SEARCH_OFFSET_BY_TIMESTAMP,
        Ask.VIEW_MESSAGE_BY_ID,
        Ask.QUERY_CONSUME_QUEUE,
    }
)
"""Requests that are one search: if the last one was quick, the next one needs no thread. Clients choose the cost of others."""
OF_MANY = frozenset(
    {
        Ask.GET_TOPIC_STATS_INFO,
        Ask.GET_CONSUME_STATS,
        Ask.GET_BROKER_CONSUME_STATS,
        Ask.QUERY_CONSUME_TIME_SPAN,
        Ask.INVOKE_BROKER_TO_RESET_OFFSET,
    }
)
"""Requests that read each queue of a topic or of all groups."""
SLOW_IF_REMOTE = frozenset(
    {
        Ask.PULL_MESSAGE,
        Ask.QUERY_CONSUMER_OFFSET,
        Ask.GET_MAX_OFFSET,
        Ask.GET_MIN_OFFSET,
        Ask.GET_EARLIEST_MSG_STORETIME,
        Ask.GET_ROUTEINFO_BY_TOPIC,
    }
)
"""Requests that read files, which takes long if the store is not on this machine."""


def answer(store: Archive, state: State, request: Request) -> Reply:
    """Return what a request is told; None if nothing, not even an error."""
    code = request.command.code
    try:
        return _answer(store, state, request, code)
    except Refusal as refusal:
        return refusal.answer
    except (OSError, ValueError, OverflowError) as error:
        # A broker tells the class and the text of an error as well.
        _log.warning("request %s of %s: %r", code, request.peer.address, error)
        return Answer(code=Code.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _answer(store: Archive, state: State, request: Request, code: int) -> Reply:
    if code in _TABLE:
        return _TABLE[code](store, state, request)
    if state.master is not None and code in _WRITES:
        return _WRITES[code](store, state, request)
    if code in _SENDS and state.master is None:
        raise Refusal(Code.NO_PERMISSION, f"the broker[{state.address}] sending message is forbidden")
    if code in _CHANGES:
        what = "is an archive, which takes no changes" if state.master is None else "takes no such change"
        raise Refusal(Code.NO_PERMISSION, f"the broker[{state.address}] {what}")
    raise Refusal(Code.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
