"""Answers that hold messages: pulls, queries by key, and the view of one message. Frames are sent as the log holds them.

Source: PullMessageProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logdex._core import RemotingCommand
from logdex._types import MIN_INT64
from logdex.hash_index.query import Milliseconds
from logdex.rocketmq.remoting_codes import Ask, Code
from logdex.rocketmq.server.clients import BROADCASTING, TAG, Subscription
from logdex.rocketmq.server.exchange import FAQ, Answer, Cost, Hold, Refusal, exception, handles
from logdex.rocketmq.server.state import PULLED

if TYPE_CHECKING:
    from logdex._core import IndexHeader
    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Request
    from logdex.rocketmq.server.state import State

_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
_MOST_MESSAGES, _MOST_BYTES = 32, 262_144
"""What one pull returns at most (maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory)."""
_LONGEST_HOLD_S = 60.0
_MOST_FOUND = 64
"""The most messages of a query (maxMsgsNumBatch)."""
_MOST_OF_UNIQUE_KEY = 32
_BODY_BYTES = RemotingCommand.MAX_FRAME - 4096
"""What fits into a frame beside its header. Clients close the connection at a longer one."""
_ZONES_MS = 27 * 3_600_000
"""The most by which a client's time zone may differ from that of the client whose id it asks for."""

_CODES = {
    "FOUND": Code.SUCCESS,
    "NO_MATCHED_MESSAGE": Code.PULL_RETRY_IMMEDIATELY,
    "MESSAGE_WAS_REMOVING": Code.PULL_RETRY_IMMEDIATELY,
    "OFFSET_FOUND_NULL": Code.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_ONE": Code.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": Code.PULL_OFFSET_MOVED,
    "OFFSET_TOO_SMALL": Code.PULL_OFFSET_MOVED,
}


@handles(Ask.PULL_MESSAGE, cost=Cost.FILE)
def pull(archive: Archive, state: State, request: Request) -> Answer | Hold:
    """Answer the next messages of a queue, or let the consumer wait for one."""
    group, name = request.text("consumerGroup"), request.text("topic")
    queue_id, offset = request.integer("queueId", bits=32), request.integer("queueOffset")
    max_num, flags = request.integer("maxMsgNums", bits=32), request.integer("sysFlag", bits=32)
    wait_ms = request.integer("suspendTimeoutMillis") if flags & _SUSPEND else 0
    _check_group(state, group, flags)
    topic = state.topic(archive, name)
    if topic is None:
        raise Refusal(Code.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}", {})
    if not topic.is_readable:
        raise Refusal(Code.NO_PERMISSION, f"the topic[{name}] pulling message is forbidden", {})
    if not 0 <= queue_id < topic.read_queues:
        allowed = f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{request.peer.address}]"
        raise Refusal(Code.SYSTEM_ERROR, f"queueId[{queue_id}] is illegal, topic:[{name}] {allowed}", {})
    codes = _wanted_codes(state, request, group, name, flags)
    if flags & _COMMIT and request.may_hold:
        commit_offset = request.integer("commitOffset")
        if not state.offsets.commit(group, name, queue_id, commit_offset):
            raise Refusal(Code.SYSTEM_BUSY, "too many consumer groups", {})

    found = _look(archive, name, queue_id, offset, min(max_num, _MOST_MESSAGES), codes)
    state.counts[PULLED] += found.messages
    state.pulled.add(found.messages)
    code = _CODES.get(found.status, Code.PULL_OFFSET_MOVED if offset else Code.PULL_NOT_FOUND)
    if code == Code.PULL_NOT_FOUND and flags & _SUSPEND and request.may_hold:
        return Hold(name, queue_id, offset, min(max(wait_ms, 0) / 1000, _LONGEST_HOLD_S))
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(found.next_offset),
        "minOffset": str(found.begin),
        "maxOffset": str(found.end),
    }
    return Answer(code=code, remark=found.status, ext=ext, body=found.frames)


def _check_group(state: State, group: str, flags: int) -> None:
    """Create a group that does not exist.

    Raises:
        Refusal: The group may not consume, or not in broadcast mode.
    """
    if state.master is None:
        return
    config, known = state.master.groups.get(group), state.clients.consumers.get(group)
    if config.get("consumeEnable") is False:
        raise Refusal(Code.NO_PERMISSION, f"subscription group no permission, {group}", {})
    is_broadcast = known is not None and known.message_model == BROADCASTING
    if is_broadcast and not flags & _SUBSCRIPTION and config.get("consumeBroadcastEnable") is False:
        remark = f"the consumer group[{group}] can not consume by broadcast way"
        raise Refusal(Code.NO_PERMISSION, remark, {})


class _Found(NamedTuple):
    """What a look at a queue found."""

    status: str
    next_offset: int = 0
    begin: int = 0
    end: int = 0
    frames: bytes = b""
    messages: int = 0


def _look(archive: Archive, topic: str, queue_id: int, offset: int, max_num: int, codes: list[int] | None) -> _Found:  # noqa: PLR0917 -- a request's fields
    """Return messages, or why there are none.

    Source: DefaultMessageStore#getMessage.
    """
    found = archive.queue(topic, queue_id)
    begin, end = (0, 0) if found is None else found[1].bounds
    if found is None or not end:
        return _Found("NO_MESSAGE_IN_QUEUE")
    if offset < begin:
        return _Found("OFFSET_TOO_SMALL", begin, begin, end)
    if offset == end:
        return _Found("OFFSET_OVERFLOW_ONE", offset, begin, end)
    if offset > end:
        # COMPAT(rocketmq DefaultMessageStore#getMessage): to the beginning of a queue that has lost nothing yet.
        return _Found("OFFSET_OVERFLOW_BADLY", end if begin else 0, begin, end)
    if max_num < 0:
        raise exception("java.lang.IllegalArgumentException", f"Illegal Capacity: {max_num}")
    frames, messages, next_offset, status = found[1].pull(offset, max_num=max_num, max_bytes=_MOST_BYTES, codes=codes)
    return _Found(status, next_offset, begin, end, frames, messages)


def _wanted_codes(state: State, request: Request, group: str, topic: str, flags: int) -> list[int] | None:
    """Return the hashes of the tags that a consumer wants; None: all."""
    wanted = _subscription(state, request, group, topic, flags)
    if wanted.kind != TAG:
        raise Refusal(Code.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {wanted.kind}", {})
    return wanted.wanted_codes


def _subscription(state: State, request: Request, group: str, topic: str, flags: int) -> Subscription:
    if flags & _SUBSCRIPTION:
        ext = request.command.ext
        try:
            return Subscription.parse(topic, ext.get("subscription"), ext.get("expressionType") or TAG)
        except ValueError:
            raise Refusal(Code.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed", {}) from None
    known = state.clients.consumers.get(group)
    if known is None:
        raise Refusal(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}", {})
    subscription = known.subscriptions.get(topic)
    if subscription is None:
        raise Refusal(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}", {})
    if subscription.version < request.integer("subVersion"):
        raise Refusal(Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest", {})
    return subscription


@handles(Ask.QUERY_MESSAGE, cost=Cost.SEARCH)
def query(archive: Archive, _: State, request: Request) -> Answer:
    """Answer the messages that carry a key, oldest first.

    They are checked against the log. With compat they are what the index has for the hash, as often as it has it.
    """
    topic, key = request.text("topic"), request.text("key")
    max_num = request.integer("maxNum", bits=32)
    begin, end = request.integer("beginTimestamp"), request.integer("endTimestamp")
    is_unique = request.text("_UNIQUE_KEY_QUERY", "false") == "true"
    max_num = min(_MOST_OF_UNIQUE_KEY if is_unique else max_num, _MOST_FOUND)
    if max_num < 0:
        raise exception("java.lang.IllegalArgumentException", f"Illegal Capacity: {max_num}")
    find = _candidates if archive.compat else _verified
    frames = find(archive, topic, key, max_num, (begin, end))
    if not frames and is_unique:
        frames = find(archive, topic, key, max_num, (max(begin - _ZONES_MS, MIN_INT64), end))
    newest = (_newest_loaded(archive) if archive.compat else archive.keys().newest) if frames else None
    ext = {
        "indexLastUpdatePhyoffset": str(newest.end_phy_offset if newest else 0),
        "indexLastUpdateTimestamp": str(newest.end_timestamp if newest else 0),
    }
    if not frames:
        remark = "can not find message, maybe time range not correct"
        return Answer(code=Code.QUERY_NOT_FOUND, remark=remark, ext=ext)
    return Answer(ext=ext, body=frames)


def _verified(archive: Archive, topic: str, key: str, max_num: int, times: tuple[int, int]) -> bytes:
    begin, end = times
    return archive.keys().stored_frames(topic, key, begin=begin, end=end, max_num=max_num, max_bytes=_BODY_BYTES)


def _newest_loaded(archive: Archive) -> IndexHeader | None:
    """COMPAT(rocketmq IndexService#queryOffset): the file that was loaded last counts as the newest."""
    index = archive.store.index
    return index.files[-1].header if index is not None and index.files else None


def _candidates(archive: Archive, topic: str, key: str, max_num: int, times: tuple[int, int]) -> bytes:
    """COMPAT(rocketmq DefaultMessageStore#queryMessage): neither topic nor key of a candidate are checked."""
    index = archive.store.index
    if index is None:
        return b""
    found = index.query_offset(topic, key, max_num, *map(Milliseconds, times))
    return archive.store.commit_log.stored_frames(found.phy_offsets, _BODY_BYTES)


@handles(Ask.VIEW_MESSAGE_BY_ID, cost=Cost.SEARCH)
def view(archive: Archive, _: State, request: Request) -> Answer:
    """Answer the message at an offset of the log."""
    offset = request.integer("offset")
    frame = archive.store.commit_log.stored_frames([offset], _BODY_BYTES)
    if not frame:
        raise Refusal(Code.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return Answer(body=frame)
