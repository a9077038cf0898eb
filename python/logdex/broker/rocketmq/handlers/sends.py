"""Sends of producers, and of consumers that return a message; and the thread that stores the messages of all clients.

Source: AbstractSendMessageProcessor, SendMessageProcessor, TopicValidator, TransactionalMessageBridge.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from logdex._core import RemotingCommand, java_integer, stored_message
from logdex.broker.rocketmq.broker import STORED
from logdex.broker.rocketmq.requests import (
    CLUSTER,
    DELAY,
    FAQ,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION,
    WAIT,
    Answer,
    Kind,
    NewMessage,
    Put,
    Refusal,
    again,
    handles,
    integer_of,
    properties_of,
    refuses,
)
from logdex.broker.rocketmq.tables import LEGAL, LEGAL_NAME, UNIT, UNIT_SUB, Topic
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.rocketmq.broker_config import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from logdex._core import Sends
    from logdex.broker.rocketmq.broker import Broker, Master, StoreView
    from logdex.broker.rocketmq.requests import Places, Request
    from logdex.rocketmq.message import Message

    Placed: TypeAlias = "Places | str | OSError | ValueError"
    """Places of the messages; the reason why no log takes one; or the error of the store."""
    Answered: TypeAlias = "tuple[bytes, int] | OSError | ValueError"
    """The answers to plain sends and the number of stored messages, or the error of the store."""
    PutEach: TypeAlias = "Callable[[list[NewMessage | Sends]], list[Any]]"
    Waiting: TypeAlias = "tuple[NewMessage | Sends, int, int, Callable[[Any], None]]"
    """Messages to put, their number, their approximate bytes, and the callback."""

TRANSACTION_BITS, COMMITTED = 0xC, 0x8
"""Bits of `sysFlag` for the state of a transaction, and one of the states."""

REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
"""Fields of the answer to each send."""
ILLEGAL_MESSAGE = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 128k, msg properties length limit 32k."
)
_LONGEST_TOPIC = 127
_KNOWS_MAX_TIMES = 121
"""V3_4_9: the first version of clients that send the maximum number of retries."""
_FIRST_LEVEL = 3
"""Delay level of a message that a consumer returns for the first time."""

_LONG_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}
_NAMES = {letter: name for name, letter in _LONG_NAMES.items()}
_SHORT_NAMES = {letter: letter for letter in _NAMES}
_REQUIRED = {*"abcdefgh"}
_INTEGERS = {"d": 32, "e": 32, "f": 32, "g": 64, "h": 32, "j": 32, "l": 32}
"""Width in bits of the integer fields."""

_log = logging.getLogger(__name__)
_MOST_TOGETHER = 4096
_MOST_BYTES_TOGETHER = 32 << 20
_MOST_WAITING_BYTES = 256 << 20
_BESIDE_BODY = 1024
"""Approximate memory of a message without its body."""


class _Send:
    """Header of a send, with its fields by their short names.

    A broker checks all fields with short names, but reads those of code 10 as it reads all other headers.

    Source: AbstractSendMessageProcessor#parseRequestHeader.
    """

    def __init__(self, request: Request) -> None:
        """Parse the fields.

        Raises:
            Refusal: A field is missing or not an integer.
        """
        self.request = request
        ext = request.command.ext
        self._is_long = request.command.code == RequestCode.SEND_MESSAGE
        names = _LONG_NAMES if self._is_long else _SHORT_NAMES
        self._texts = {letter: ext[name] for name, letter in names.items() if name in ext}
        self._integers: dict[str, int | None] = {}
        if self._is_long:
            return
        if not self._texts.keys() >= _REQUIRED:
            for letter in sorted(_REQUIRED):
                request.text(letter)
        texts = self._texts
        integers = {letter: java_integer(texts[letter], bits) for letter, bits in _INTEGERS.items() if letter in texts}
        for letter in [letter for letter, value in integers.items() if value is None]:
            integers[letter] = integer_of(texts[letter], _INTEGERS[letter])
        self._integers = integers

    def text(self, letter: str) -> str:
        return self._texts.get(letter, "")

    def integer(self, letter: str, otherwise: int | None = None) -> int:
        value = self._integers.get(letter)
        if value is not None:
            return value
        name = _NAMES[letter] if self._is_long else letter
        return self.request.integer(name, otherwise, bits=_INTEGERS[letter])

    def is_true(self, letter: str) -> bool:
        return self.text(letter).lower() == "true"


@handles(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, kind=Kind.SEND)
def send(broker: Broker, request: Request) -> Put:
    """Store a message or a batch, and return its place."""
    master = broker.require_master()
    header = _Send(request)
    name, topic = _topic(master, header)
    queue_id = header.integer("e")
    if queue_id < 0:
        queue_id = random.randrange(max(1, topic.write_queues))  # noqa: S311 -- to spread messages
    message = NewMessage(
        topic=name,
        queue_id=queue_id,
        body=request.command.body,
        properties=properties_of(header.text("i")),
        born_timestamp=header.integer("g"),
        born_host=request.peer.host,
        store_host=master.store_host,
        flag=header.integer("h"),
        sys_flag=header.integer("f"),
        reconsume_times=header.integer("j", 0),
        is_batch=header.is_true("m"),
    )
    if name.startswith(RETRY_PREFIX) and not message.is_batch:
        _limit_retries(master, header, message)
    message.properties[CLUSTER] = broker.cluster
    if message.is_batch:
        if message.sys_flag & TRANSACTION_BITS or _delay_level(message) > 0:
            raise _refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL_MESSAGE)
    else:
        is_half = message.properties.get(TRANSACTION, "").lower() == "true"
        _take_out_wait(message, is_half=is_half)
        if is_half:
            make_half(message)

    def then(placed: Places | str) -> Answer:
        if isinstance(placed, str):
            return Answer(code=ResponseCode.MESSAGE_ILLEGAL, remark=ILLEGAL_MESSAGE, ext=dict(REGION))
        broker.counts[STORED] += len(placed)
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            master.topics.learn(name)
        ids = ",".join([msg_id for _, _, msg_id in placed])
        first = placed[0][0] if placed else 0
        ext = {"queueId": str(queue_id), **REGION, "msgId": ids, "queueOffset": str(first)}
        return Answer(ext=ext)

    return Put(message, then, master.topics.unready(name, message.topic))


def make_half(message: NewMessage) -> None:
    """Turn a message into the half message of a transaction."""
    message.properties |= {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    message.topic, message.queue_id = HALF_TOPIC, 0
    message.sys_flag &= ~TRANSACTION_BITS


def _take_out_wait(message: NewMessage, *, is_half: bool) -> None:
    """Remove WAIT from the properties. Delayed and half messages get it back as their last property.

    Raises:
        Refusal: The delay level is not an integer.

    Source: SendMessageProcessor#asyncSendMessage.
    """
    wait = message.properties.pop(WAIT, None)
    message.waits = wait != "false"
    # A message in another transaction state is not dispatched, so its level is ignored.
    is_in_queue = is_half or message.sys_flag & TRANSACTION_BITS in (0, COMMITTED)
    is_delayed = is_in_queue and _delay_level(message) > 0
    if wait is not None and (is_half or is_delayed):
        message.properties[WAIT] = wait


def _delay_level(message: NewMessage) -> int:
    text = message.properties.get(DELAY)
    return 0 if text is None else integer_of(text, 32)


def _topic(master: Master, header: _Send) -> tuple[str, Topic]:
    """Return the topic of a send. It is created if the producer wants that.

    Raises:
        Refusal: The topic takes no sends.
    """
    name = header.text("b")
    check_topic_name(name, REGION)
    if name == SCHEDULE_TOPIC:
        raise _refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
    topic = master.topics.get(name)
    if topic is None:
        flag = 0
        if header.is_true("k"):
            flag = UNIT_SUB if name.startswith(RETRY_PREFIX) else UNIT
        topic = master.topics.inherit(name, header.text("c"), header.integer("d"), flag)
        if topic is None and name.startswith(RETRY_PREFIX):
            topic = master.topics.create(name, 1, sys_flag=flag)
        if topic is None:
            raise _refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
    queue_id = header.integer("e")
    if queue_id >= max(topic.read_queues, topic.write_queues):
        shown = (
            f"TopicConfig [topicName={name}, readQueueNums={topic.read_queues}, writeQueueNums={topic.write_queues}, "
            f"perm={_permission(topic)}, topicFilterType=SINGLE_TAG, topicSysFlag={topic.sys_flag}, "
            f"order={'true' if topic.is_ordered else 'false'}]"
        )
        remark = f"request queueId[{queue_id}] is illegal, {shown} Producer: {header.request.peer.address}"
        raise _refusal(ResponseCode.SYSTEM_ERROR, remark)
    return name, topic


def check_topic_name(name: str, ext: dict[str, str] | None = None) -> None:
    """Check the name of a topic.

    Raises:
        Refusal: The name is invalid. The answer has these fields.
    """
    if not name.strip():
        remark = "The specified topic is blank."
    elif not LEGAL_NAME.fullmatch(name):
        remark = f"The specified topic contains illegal characters, allowing only {LEGAL}"
    elif len(name) > _LONGEST_TOPIC:
        remark = "The specified topic is longer than topic max length."
    else:
        return
    raise Refusal(ResponseCode.SYSTEM_ERROR, remark, ext)


def _permission(topic: Topic) -> str:
    return "".join(letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def _limit_retries(master: Master, header: _Send, message: NewMessage) -> None:
    """Turn a message that was returned too often into a dead letter."""
    group = message.topic.removeprefix(RETRY_PREFIX)
    most = master.groups.number(group, "retryMaxTimes")
    if header.request.command.version >= _KNOWS_MAX_TIMES:
        most = header.integer("l", most)
    if message.reconsume_times >= most:
        message.topic, message.queue_id = DLQ_PREFIX + group, 0
        master.topics.create(message.topic, 1)


@handles(RequestCode.CONSUMER_SEND_MSG_BACK, kind=Kind.SEND)
def send_back(broker: Broker, request: Request) -> Put | Answer:
    """Store a message again for the group that could not consume it: delayed, or as a dead letter."""
    master = broker.require_master()
    group = request.text("group")
    offset, level = request.integer("offset"), request.integer("delayLevel", bits=32)
    retry_queues = master.groups.number(group, "retryQueueNums")
    if retry_queues <= 0:
        return Answer()
    flag = UNIT_SUB if request.is_true("unitMode") else 0
    topic = RETRY_PREFIX + group
    retry = master.topics.create(topic, retry_queues, sys_flag=flag)
    if not retry.perm & 2:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
    queue_id = random.randrange(retry_queues)  # noqa: S311 -- to spread messages
    found = message_at(broker.view, offset)
    if found is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    most = master.groups.number(group, "retryMaxTimes")
    if request.command.version >= _KNOWS_MAX_TIMES:
        most = request.integer("maxReconsumeTimes", most, bits=32)
    found.properties.setdefault("RETRY_TOPIC", found.topic)
    found.properties[WAIT] = "false"
    found.properties.setdefault("ORIGIN_MESSAGE_ID", found.msg_id)
    if found.reconsume_times >= most or level < 0:
        topic, queue_id = DLQ_PREFIX + group, 0
        master.topics.create(topic, 1)
        found.properties[DELAY] = "0"
    else:
        found.properties[DELAY] = str(level or _FIRST_LEVEL + found.reconsume_times)
    message = again(found, topic, queue_id, master.store_host)
    # A Java int: the largest is followed by the smallest.
    message.reconsume_times = (message.reconsume_times + 1 + (1 << 31)) % (1 << 32) - (1 << 31)
    message.waits = False

    def then(placed: Places | str) -> Answer:
        if isinstance(placed, str):
            return Answer(code=ResponseCode.SYSTEM_ERROR, remark="MESSAGE_ILLEGAL")
        return Answer()

    return Put(message, then, master.topics.unready(topic))


def message_at(view: StoreView, phy_offset: int) -> Message | None:
    """Return the message at an offset of the log, with its body as it is stored; None if no message begins there."""
    if phy_offset < 0:
        return None
    frame = view.store.commit_log.stored_frames([phy_offset], RemotingCommand.MAX_FRAME)
    return stored_message(frame) if frame else None


def now_ms() -> int:
    """Return the time of the clock, in ms."""
    return time.time_ns() // 1_000_000


def _refusal(code: int, remark: str) -> Refusal:
    return Refusal(code, remark, dict(REGION))


refuses(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, kind=Kind.SEND)


class PutService:
    """Stores messages in a thread. Methods are called in the event loop, and so are the callbacks.

    Messages that arrive during a put are stored together, so that one flush serves all of them.
    Source: CommitLog.GroupCommitService.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, put_each: PutEach) -> None:
        """Start the thread, which calls `put_each`."""
        self._loop = loop
        self._put_each = put_each
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._is_closed = False
        self.waiting = 0
        """Messages that are not stored yet."""
        self._thread = threading.Thread(target=self._run, name="logdex-put", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """True if too many bytes wait to accept more."""
        return self._is_closed or self._waiting_bytes > _MOST_WAITING_BYTES

    def put(self, message: NewMessage, then: Callable[[Placed], None]) -> None:
        """Store a message, and call `then` in the event loop."""
        self._put_soon((message, 1, len(message.body) + _BESIDE_BODY, then))

    def put_sends(self, sends: Sends, then: Callable[[Answered], None]) -> None:
        """Store plain sends, and call `then` in the event loop."""
        self._put_soon((sends, sends.count, len(sends), then))

    def _put_soon(self, waiting: Waiting) -> None:
        _, messages, size, _ = waiting
        self.waiting += messages
        self._waiting_bytes += size
        self._queue.put(waiting)

    def close(self) -> None:
        """Store the waiting messages and end the thread. This blocks until it has ended."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = self._queue.get()
            together: list[Waiting] = []
            count = size = 0
            while taken is not None:
                together.append(taken)
                count += taken[1]
                size += taken[2]
                if count >= _MOST_TOGETHER or size >= _MOST_BYTES_TOGETHER:
                    break
                try:
                    taken = self._queue.get_nowait()
                except Empty:
                    break
            else:
                is_open = False
            if together:
                placed = self._put(count, [each[0] for each in together])
                self._loop.call_soon_threadsafe(self._tell, together, placed, count, size)

    def _put(self, count: int, together: list[NewMessage | Sends]) -> list[Any]:
        try:
            return self._put_each(together)
        except (OSError, ValueError) as error:
            _log.error("%d messages are not stored: %s", count, error)
            return [error] * len(together)
        except Exception as error:  # noqa: BLE001 -- logged
            # A bug in logdex must not end the thread.
            _log.exception("%d messages are not stored", count)
            return [ValueError(f"{type(error).__name__}: {error}")] * len(together)

    def _tell(self, together: list[Waiting], placed: list[Any], count: int, size: int) -> None:
        self.waiting -= count
        self._waiting_bytes -= size
        for (*_, then), result in zip(together, placed, strict=True):
            try:
                then(result)
            except Exception:  # noqa: BLE001 -- logged
                # A bug in logdex must not prevent the answers of other requests.
                _log.exception("the answer to a put")
