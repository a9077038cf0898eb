"""Requests for messages: pulls and pulls that wait, queries by key, the view of one message. Messages are sent as stored.

Source: PullMessageProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from logdex._core import RemotingCommand
from logdex._types import MIN_INT64
from logdex.broker.rocketmq.broker import PULLED
from logdex.broker.rocketmq.clients import BROADCASTING, TAG, Subscription
from logdex.broker.rocketmq.requests import FAQ, Answer, Cost, Hold, Refusal, exception, handles
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.hash_index.query import Milliseconds

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from logdex._core import IndexHeader
    from logdex.broker.listener import Connection
    from logdex.broker.rocketmq.broker import Broker, StoreView
    from logdex.broker.rocketmq.requests import Request

_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
_MOST_MESSAGES, _MOST_BYTES = 32, 262_144
"""Limits of one pull (maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory)."""
_LONGEST_HOLD_S = 60.0
_MOST_FOUND = 64
"""The most messages of a query (maxMsgsNumBatch)."""
_MOST_OF_UNIQUE_KEY = 32
_BODY_BYTES = RemotingCommand.MAX_FRAME - 4096
"""Largest body of a frame, next to its header. Clients close the connection at a longer frame."""
_ZONES_MS = 27 * 3_600_000
"""Largest difference between the time zones of the client that queries an id and the client that created it."""

_CODES = {
    "FOUND": ResponseCode.SUCCESS,
    "NO_MATCHED_MESSAGE": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "MESSAGE_WAS_REMOVING": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "OFFSET_FOUND_NULL": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_ONE": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_TOO_SMALL": ResponseCode.PULL_OFFSET_MOVED,
}

_Key = TypeVar("_Key")
_log = logging.getLogger(__name__)
_AT_ONCE = 32
"""Pulls that are answered in one turn of the event loop, so that other clients do not wait longer."""


@handles(RequestCode.PULL_MESSAGE, cost=Cost.FILE)
def pull(broker: Broker, request: Request) -> Answer | Hold:
    """Return the next messages of a queue, or make the consumer wait for one."""
    group, name = request.text("consumerGroup"), request.text("topic")
    queue_id, offset = request.integer("queueId", bits=32), request.integer("queueOffset")
    max_num, flags = request.integer("maxMsgNums", bits=32), request.integer("sysFlag", bits=32)
    wait_ms = request.integer("suspendTimeoutMillis") if flags & _SUSPEND else 0
    _check_group(broker, group, flags)
    topic = broker.topic(name)
    if topic is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}", {})
    if not topic.is_readable:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] pulling message is forbidden", {})
    if not 0 <= queue_id < topic.read_queues:
        allowed = f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{request.peer.address}]"
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"queueId[{queue_id}] is illegal, topic:[{name}] {allowed}", {})
    codes = _wanted_codes(broker, request, group, name, flags)
    if flags & _COMMIT and request.may_hold:
        commit_offset = request.integer("commitOffset")
        if not broker.offsets.commit(group, name, queue_id, commit_offset):
            raise Refusal(ResponseCode.SYSTEM_BUSY, "too many consumer groups", {})

    found = _look(broker.view, name, queue_id, offset, min(max_num, _MOST_MESSAGES), codes)
    broker.counts[PULLED] += found.messages
    broker.pulled.add(found.messages)
    code = _CODES.get(found.status, ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND)
    if code == ResponseCode.PULL_NOT_FOUND and flags & _SUSPEND and request.may_hold:
        return Hold(name, queue_id, offset, min(max(wait_ms, 0) / 1000, _LONGEST_HOLD_S))
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(found.next_offset),
        "minOffset": str(found.begin),
        "maxOffset": str(found.end),
    }
    return Answer(code=code, remark=found.status, ext=ext, body=found.frames)


def _check_group(broker: Broker, group: str, flags: int) -> None:
    """Create a group that does not exist.

    Raises:
        Refusal: The group may not consume, or not in broadcast mode.
    """
    if broker.master is None:
        return
    config, known = broker.master.groups.get(group), broker.clients.consumers.get(group)
    if config.get("consumeEnable") is False:
        raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}", {})
    is_broadcast = known is not None and known.message_model == BROADCASTING
    if is_broadcast and not flags & _SUBSCRIPTION and config.get("consumeBroadcastEnable") is False:
        remark = f"the consumer group[{group}] can not consume by broadcast way"
        raise Refusal(ResponseCode.NO_PERMISSION, remark, {})


class _Found(NamedTuple):
    """The result of reading a queue."""

    status: str
    next_offset: int = 0
    begin: int = 0
    end: int = 0
    frames: bytes = b""
    messages: int = 0


def _look(view: StoreView, topic: str, queue_id: int, offset: int, max_num: int, codes: list[int] | None) -> _Found:  # noqa: PLR0917 -- a request's fields
    """Return messages, or why there are none.

    Source: DefaultMessageStore#getMessage.
    """
    found = view.queue(topic, queue_id)
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


def _wanted_codes(broker: Broker, request: Request, group: str, topic: str, flags: int) -> list[int] | None:
    """Return the hashes of the tags that a consumer wants; None: all."""
    wanted = _subscription(broker, request, group, topic, flags)
    if wanted.kind != TAG:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {wanted.kind}", {}
        )
    return wanted.wanted_codes


def _subscription(broker: Broker, request: Request, group: str, topic: str, flags: int) -> Subscription:
    if flags & _SUBSCRIPTION:
        ext = request.command.ext
        try:
            return Subscription.parse(topic, ext.get("subscription"), ext.get("expressionType") or TAG)
        except ValueError:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed", {}
            ) from None
    known = broker.clients.consumers.get(group)
    if known is None:
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}", {})
    subscription = known.subscriptions.get(topic)
    if subscription is None:
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}", {})
    if subscription.version < request.integer("subVersion"):
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest", {})
    return subscription


@handles(RequestCode.QUERY_MESSAGE, cost=Cost.SEARCH)
def query(broker: Broker, request: Request) -> Answer:
    """Return the messages that carry a key, oldest first.

    They are checked against the log. With compat they are all candidates of the index, unchecked and repeated.
    """
    topic, key = request.text("topic"), request.text("key")
    max_num = request.integer("maxNum", bits=32)
    begin, end = request.integer("beginTimestamp"), request.integer("endTimestamp")
    is_unique = request.text("_UNIQUE_KEY_QUERY", "false") == "true"
    max_num = min(_MOST_OF_UNIQUE_KEY if is_unique else max_num, _MOST_FOUND)
    if max_num < 0:
        raise exception("java.lang.IllegalArgumentException", f"Illegal Capacity: {max_num}")
    find = _candidates if broker.view.compat else _verified
    frames = find(broker.view, topic, key, max_num, (begin, end))
    if not frames and is_unique:
        frames = find(broker.view, topic, key, max_num, (max(begin - _ZONES_MS, MIN_INT64), end))
    newest = (_newest_loaded(broker.view) if broker.view.compat else broker.view.keys().newest) if frames else None
    ext = {
        "indexLastUpdatePhyoffset": str(newest.end_phy_offset if newest else 0),
        "indexLastUpdateTimestamp": str(newest.end_timestamp if newest else 0),
    }
    if not frames:
        remark = "can not find message, maybe time range not correct"
        return Answer(code=ResponseCode.QUERY_NOT_FOUND, remark=remark, ext=ext)
    return Answer(ext=ext, body=frames)


def _verified(view: StoreView, topic: str, key: str, max_num: int, times: tuple[int, int]) -> bytes:
    begin, end = times
    return view.keys().stored_frames(topic, key, begin=begin, end=end, max_num=max_num, max_bytes=_BODY_BYTES)


def _newest_loaded(view: StoreView) -> IndexHeader | None:
    """COMPAT(rocketmq IndexService#queryOffset): the file that was loaded last counts as the newest."""
    index = view.store.index
    return index.files[-1].header if index is not None and index.files else None


def _candidates(view: StoreView, topic: str, key: str, max_num: int, times: tuple[int, int]) -> bytes:
    """COMPAT(rocketmq DefaultMessageStore#queryMessage): neither topic nor key of a candidate are checked."""
    index = view.store.index
    if index is None:
        return b""
    found = index.query_offset(topic, key, max_num, *map(Milliseconds, times))
    return view.store.commit_log.stored_frames(found.phy_offsets, _BODY_BYTES)


@handles(RequestCode.VIEW_MESSAGE_BY_ID, cost=Cost.SEARCH)
def view(broker: Broker, request: Request) -> Answer:
    """Return the message at an offset of the log."""
    offset = request.integer("offset")
    frame = broker.view.store.commit_log.stored_frames([offset], _BODY_BYTES)
    if not frame:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return Answer(body=frame)


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """A pull that waits."""

    connection: Connection
    request: Request
    hold: Hold
    size: int
    """Bytes of the request."""

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.hold.topic, self.hold.queue_id


class HeldPulls:
    """Pulls that wait, by queue, so that a growing queue costs no work for pulls of other queues.

    Every method is called in the event loop. Source: PullRequestHoldService.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[HeldPull], None]) -> None:
        """Call `answer` for each pull whose queue has grown or whose time is over."""
        self._loop = loop
        self._answer = answer
        self._timers: dict[HeldPull, asyncio.TimerHandle] = {}
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._due: deque[HeldPull] = deque()
        self.size = 0
        """Bytes of the requests."""

    def __len__(self) -> int:
        return len(self._timers) + len(self._due)

    def add(self, held: HeldPull) -> None:
        """Add a waiting pull."""
        self._timers[held] = self._loop.call_later(held.hold.seconds, self._let_answer, held)
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_connection.setdefault(held.connection, {})[held] = None
        self.size += held.size

    def grown(self, ends: Iterable[tuple[str, int, int]]) -> None:
        """Answer the pulls of queues that have grown. `ends`: topic, queue id, and queue offset of the next message."""
        for topic, queue_id, end in ends:
            for held in [*self._by_queue.get((topic, queue_id), ())]:
                if held.hold.offset < end:
                    self._let_answer(held)

    def queues(self) -> list[tuple[str, int]]:
        """Return the queues with waiting pulls."""
        return [*self._by_queue]

    def forget(self, connection: Connection) -> None:
        """Drop the pulls of a disconnected client."""
        for held in [*self._by_connection.get(connection, ())]:
            self._stop_waiting(held)
            self.size -= held.size

    def clear(self) -> None:
        """Drop all pulls."""
        for connection in [*self._by_connection]:
            self.forget(connection)
        self._due.clear()

    def _stop_waiting(self, held: HeldPull) -> None:
        self._timers.pop(held).cancel()
        _remove(self._by_queue, held.queue, held)
        _remove(self._by_connection, held.connection, held)

    def _let_answer(self, held: HeldPull) -> None:
        self._stop_waiting(held)
        if not self._due:
            self._loop.call_soon(self._answer_some)
        self._due.append(held)

    def _answer_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._due))):
            held = self._due.popleft()
            self.size -= held.size
            try:
                self._answer(held)
            except Exception:  # noqa: BLE001 -- logged
                # A bug in logdex must not keep the others from their answers.
                _log.exception("the answer to a held pull")
        if self._due:
            self._loop.call_soon(self._answer_some)


def _remove(table: dict[_Key, dict[HeldPull, None]], key: _Key, held: HeldPull) -> None:
    del table[key][held]
    if not table[key]:
        del table[key]
