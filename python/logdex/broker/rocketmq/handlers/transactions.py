"""Transactions: half messages wait for their end, and producers that do not end them get requests for it.

A half message is in `RMQ_SYS_TRANS_HALF_TOPIC`. The end stores the message in its own topic, or does not, and in any case an op
message in `RMQ_SYS_TRANS_OP_HALF_TOPIC`: its body is the queue offset of the half message that has ended.

Source: EndTransactionProcessor, TransactionalMessageServiceImpl, TransactionalMessageBridge,
DefaultTransactionalMessageCheckListener.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from logdex._core import RemotingCommand, frame_of, stored_message
from logdex.broker.rocketmq.handlers.sends import COMMITTED, TRANSACTION_BITS, message_at, now_ms
from logdex.broker.rocketmq.requests import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    REMOTING_EXCEPTION,
    TAGS,
    UNIQ_KEY,
    WAIT,
    Answer,
    Kind,
    NewMessage,
    Notice,
    Put,
    Refusal,
    again,
    exception,
    handles,
)
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.rocketmq.broker_config import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.broker.rocketmq.broker import Broker, Master, StoreView
    from logdex.broker.rocketmq.requests import Places, Request
    from logdex.rocketmq.message import Message

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets are the ends of the processed half and op messages."""
CHECK_EVERY_S = 60.0
"""transactionCheckInterval."""

_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
_CHECK_AFTER = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_UNKNOWN, _ROLLBACK = 0, 12
"""Other states of a transaction."""
_DONE = "d"
_TIMEOUT_MS = 6_000
"""Time that a producer has to end a transaction before the first check (transactionTimeOut)."""
_MOST_CHECKS = 15
"""transactionCheckMax."""
_KEPT_MS = 72 * 3_600_000
"""Age above which half messages are given up (fileReservedTime)."""
_PULLED = 1024
_MOST_BYTES = 32 << 20
"""Bytes of half messages in memory at a time."""
_DIGITS = 10
"""More digits are no Java int."""
_FIRST_PLACE = "TRAN_PREPARED_QUEUE_OFFSET"
_UNSET = "not set any response code"


@handles(RequestCode.END_TRANSACTION, kind=Kind.SEND)
def end_transaction(broker: Broker, request: Request) -> Put | None:
    """End a transaction: store its message if it was committed, and an op message for its half message."""
    master = broker.require_master()
    kind = request.integer("commitOrRollback", bits=32)
    if kind == _UNKNOWN:
        # The producer has no state yet. A later check requests it again.
        return None
    if kind not in (COMMITTED, _ROLLBACK):
        raise exception(REMOTING_EXCEPTION, "commitOrRollback field wrong")
    phy_offset = request.integer("commitLogOffset")
    half = message_at(broker.view, phy_offset)
    if half is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    if half.properties.get(PRODUCER_GROUP) != request.command.ext.get("producerGroup"):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != request.integer("tranStateTableOffset"):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.phy_offset != phy_offset or half.topic != HALF_TOPIC:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
    op = _op_message(master, half)
    # No status of the flush or of a slave is a failure here. Source: EndTransactionProcessor#sendFinalMessage.
    op.waits = False
    if kind == _ROLLBACK:
        return Put(op, lambda _: Answer(remark=_UNSET))
    message = _committed(half, phy_offset)

    def then(placed: Places | str) -> Answer | Put:
        if isinstance(placed, str):
            return Answer(code=ResponseCode.MESSAGE_ILLEGAL, remark=placed)
        return Put(op, lambda _: Answer())

    return Put(message, then)


def _committed(half: Message, phy_offset: int) -> NewMessage:
    message = again(half, half.properties.get(REAL_TOPIC, ""), _number(half, REAL_QUEUE_ID) or 0, half.store_host)
    message.sys_flag = message.sys_flag & ~TRANSACTION_BITS | COMMITTED
    message.prepared_transaction_offset = phy_offset
    return message


def _op_message(master: Master, half: Message) -> NewMessage:
    return NewMessage(
        topic=OP_TOPIC,
        queue_id=half.queue_id,
        body=str(half.queue_offset).encode(),
        properties={TAGS: _DONE, WAIT: "true"},
        born_timestamp=now_ms(),
        born_host=None,
        store_host=master.store_host,
    )


@dataclass(slots=True)
class Checks:
    """The result of a check of the half messages."""

    renewed: list[tuple[NewMessage, Message | None]] = field(default_factory=list)
    """Half messages to store again; and the old ones, if their producers then get a request."""
    given_up: list[NewMessage] = field(default_factory=list)
    """Messages whose transactions no producer ended."""
    half_offset: int = 0
    op_offset: int = 0
    """Offsets up to which the half messages are processed; and those of the op messages, next."""
    is_cut: bool = False
    """True if the messages are too many for one check: another check follows."""


def look_at_halves(broker: Broker, now: int) -> Checks:
    """Return the actions for half messages that wait for long. This changes nothing; any thread may call it.

    A broker reads 32 op messages at a time, and sends no request before it has read all. Here all are read at once.
    """
    master = broker.master
    if master is None:
        return Checks()
    begins = [broker.view.bounds(topic, 0)[0] for topic in (HALF_TOPIC, OP_TOPIC)]
    topics = zip((HALF_TOPIC, OP_TOPIC), begins, strict=True)
    offsets = [max(begin, broker.offsets.get(CHECK_GROUP, topic, 0) or 0) for topic, begin in topics]
    checks = Checks(half_offset=offsets[0], op_offset=offsets[1])
    done: dict[int, int] = {}
    passed = set()
    for op in _messages(broker.view, OP_TOPIC, checks.op_offset):
        body = (op.body or b"").decode(errors="replace")
        if op.properties.get(TAGS) != _DONE or not body.isdecimal() or int(body) < checks.half_offset:
            passed.add(op.queue_offset)
        else:
            done[int(body)] = op.queue_offset
    size = 0
    for half in _messages(broker.view, HALF_TOPIC, checks.half_offset):
        if half.queue_offset in done:
            passed.add(done[half.queue_offset])
        elif _look_at(master, half, now, done, checks):
            size += half.store_size
        else:
            break
        checks.half_offset = half.queue_offset + 1
        if size > _MOST_BYTES:
            checks.is_cut = True
            break
    while checks.op_offset in passed:
        checks.op_offset += 1
    return checks


def _look_at(master: Master, half: Message, now: int, done: dict[int, int], checks: Checks) -> bool:
    """Check one half message; return False if it is too young, and so the ones after it."""
    asked, patience_s = _number(half, _CHECK_TIMES), _number(half, _CHECK_AFTER)
    age = now - half.born_timestamp
    if half.store_timestamp >= now:
        # It may have been stored by this check.
        return False
    if (asked or 0) >= _MOST_CHECKS or age > _KEPT_MS:
        checks.given_up.append(again(half, GIVEN_UP_TOPIC, 0, master.store_host))
        return True
    renewed = again(half, HALF_TOPIC, half.queue_id, half.store_host)
    if patience_s is not None and age < patience_s * 1000:
        # It must not delay the ones after it. The end of its transaction names its first place.
        first = _number(half, _FIRST_PLACE)
        if first is None or first not in done:
            renewed.properties.setdefault(_FIRST_PLACE, str(half.queue_offset))
            checks.renewed.append((renewed, None))
        return True
    if patience_s is None and 0 <= age < _TIMEOUT_MS:
        return False
    renewed.properties[_CHECK_TIMES] = str((asked or 0) + 1)
    checks.renewed.append((renewed, half))
    return True


def _number(half: Message, name: str) -> int | None:
    text = half.properties.get(name, "")
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None


def question(broker: Broker, half: Message, renewed: NewMessage, placed: Places) -> Notice | None:
    """Return the request for the state of a half message; None if its group has no producer online."""
    queue_offset, phy_offset, msg_id = placed[0]
    peers = [*broker.clients.producers.get(half.properties.get(PRODUCER_GROUP, ""), {})]
    if not peers:
        return None
    ext = {"commitLogOffset": str(phy_offset), "offsetMsgId": msg_id, "tranStateTableOffset": str(queue_offset)}
    unique = half.properties.get(UNIQ_KEY)
    if unique is not None:
        ext |= {"msgId": unique, "transactionId": unique}
    shown = replace(
        half,
        topic=half.properties.get(REAL_TOPIC, ""),
        queue_id=_number(half, REAL_QUEUE_ID) or 0,
        queue_offset=queue_offset,
        phy_offset=phy_offset,
        properties={**renewed.properties, WAIT: "false"},
    )
    return Notice(random.choice(peers), RequestCode.CHECK_TRANSACTION_STATE, ext, frame_of(shown))  # noqa: S311 -- any will do


def _messages(view: StoreView, topic: str, offset: int) -> Iterator[Message]:
    found = view.queue(topic, 0)
    if found is None:
        return
    while True:
        frames, count, offset, _ = found[1].pull(offset, max_num=_PULLED, max_bytes=RemotingCommand.MAX_FRAME)
        if not count:
            return
        at = 0
        while at < len(frames):
            size = struct.unpack_from(">i", frames, at)[0]
            yield stored_message(frames[at : at + size])
            at += size
