"""A request, its possible replies, and the registry of the functions that handle requests."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from logdex._core import java_integer
from logdex.broker.wire import ResponseCode
from logdex.rocketmq import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._core import RemotingCommand
    from logdex.broker.wire import RequestCode
    from logdex.rocketmq.message import Message

_T = TypeVar("_T")
_Answering = TypeVar("_Answering", bound="Callable[[Any, Request], Reply]")

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
"""The text that brokers append to some remarks."""
_LONGEST_BODY = 4 << 20
"""Largest JSON body that is parsed, in bytes."""
_MOST_DIGITS = 64

NAME_END, VALUE_END = "\x01", "\x02"
CLUSTER, DELAY, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, TAGS, TRANSACTION, UNIQ_KEY, WAIT = (
    "CLUSTER",
    "DELAY",
    "PGROUP",
    "REAL_QID",
    "REAL_TOPIC",
    "TAGS",
    "TRAN_MSG",
    "UNIQ_KEY",
    "WAIT",
)
"""Names of properties (MessageConst)."""
Places: TypeAlias = "list[tuple[int, int, str]]"
"""Queue offset, offset in the log and id of each message that was put."""
Reply: TypeAlias = "Answer | Hold | Forward | Put | None"
REMOTING_EXCEPTION = "org.apache.rocketmq.remoting.exception.RemotingCommandException"
_JSON_EXCEPTION = "com.alibaba.fastjson.JSONException"
HANDLERS: dict[int, Handler] = {}
"""The registry of requests: handlers by request code."""


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """A client's connection. Two connections of one address are two peers."""

    address: str
    """Host and port."""

    @property
    def host(self) -> str | None:
        """The address as messages have it; None for one that fits no message."""
        return None if {"?", "%"} & set(self.address) else self.address


@dataclass(slots=True)
class Request:
    """A client's command and its connection."""

    command: RemotingCommand
    peer: Peer
    may_hold: bool = True
    """False: a pull is answered now, even if there is no message."""
    is_read: bool = field(default=False, init=False)
    """True if the body was parsed."""
    _content: Any = field(default=None, init=False)

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Return a field.

        Raises:
            Refusal: The field is missing, and there is no `otherwise`.
        """
        value = self.command.ext.get(name, otherwise)
        if value is None:
            raise exception(REMOTING_EXCEPTION, f"the custom field <{name}> is null")
        return value

    def integer(self, name: str, otherwise: int | None = None, *, bits: int = 64) -> int:
        """Return a field that is a Java integer; `otherwise` if it is missing or not an integer.

        Raises:
            Refusal: The field is missing or not an integer, and there is no `otherwise`.

        Source: RemotingCommand#decodeCommandCustomHeader.
        """
        text = self.command.ext.get(name)
        if text is not None and (value := java_integer(text, bits)) is not None:
            return value
        if otherwise is None:
            return integer_of(self.text(name) if text is None else text, bits)
        value = None if text is None else _parsed(text, bits)
        return otherwise if value is None else value

    def is_true(self, name: str) -> bool:
        """Return a field that is a Java boolean. A missing field is false, and so is any text except "true"."""
        return self.command.ext.get(name, "").lower() == "true"

    def members(self) -> dict[str, Any]:
        """Return the body, an object in fastjson's dialect.

        Raises:
            Refusal: The body is not an object, or is too long.
        """
        if len(self.command.body) > _LONGEST_BODY:
            found = f"a body of {len(self.command.body)} bytes: expected at most {_LONGEST_BODY}"
            raise exception(_JSON_EXCEPTION, found)
        try:
            value = fastjson.loads(self.command.body.decode())
        except ValueError as error:
            raise exception(_JSON_EXCEPTION, str(error)) from None
        if not isinstance(value, dict):
            raise exception(_JSON_EXCEPTION, "expected an object")
        return value

    def content(self, read: Callable[[dict[str, Any]], _T]) -> _T:
        """Return the result of `read` for the body. A second call returns the same result.

        Raises:
            Refusal: The body is not an object, or `read` raises it.
        """
        if not self.is_read:
            self._content = read(self.members())
            self.is_read = True
        content: _T = self._content
        return content


@dataclass(slots=True, kw_only=True)
class Answer:
    """An answer."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    ext: dict[str, str] | None = None
    """None: the answer has no table of fields, not even an empty one."""
    body: bytes = b""
    notices: list[Notice] = field(default_factory=list)
    """Requests to clients that are sent before the answer."""

    @classmethod
    def of(cls, value: object, **others: Any) -> Answer:  # noqa: ANN401 -- the other attributes
        """Return an answer whose body is a value in fastjson's dialect."""
        return cls(body=fastjson.dumps(value).encode(errors="replace"), **others)


@dataclass(frozen=True, slots=True)
class Notice:
    """A one-way request to a client."""

    peer: Peer
    code: int
    ext: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until a queue grows beyond an offset, then process the request again with `may_hold=False`."""

    topic: str
    queue_id: int
    offset: int
    seconds: float
    """After this time process the request in any case."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward the request to a client, and return its answer."""

    peer: Peer
    code: int
    ext: dict[str, str]
    body: bytes
    who: str
    """Name of the client, for the remark if it does not answer."""


@dataclass(slots=True, kw_only=True)
class NewMessage:
    """A message to store, as `CommitLogWriter.put_each` takes it. Source: MessageExtBrokerInner."""

    topic: str
    queue_id: int
    body: bytes
    """The body as it is stored, or the batch of a client."""
    properties: dict[str, str]
    born_timestamp: int
    born_host: str | None
    """None: the broker."""
    store_host: str
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    as_java_map: bool = True
    """True if the properties are written in the order of Java's HashMap."""
    is_batch: bool = False
    waits: bool = True
    """True if its producer waits for the flush and for a slave (the property WAIT)."""


def again(message: Message, topic: str, queue_id: int, store_host: str) -> NewMessage:
    """Return a copy of a stored message for another topic or queue. Its properties may be changed."""
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body or b"",
        properties=dict(message.properties),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=store_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
    )


def properties_of(text: str) -> dict[str, str]:
    """Return the properties in a text, without entries that lack a name or a value."""
    found = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class Put:
    """Store a message. `then` gets the places of the stored messages, or the reason why no log takes the message."""

    message: NewMessage
    then: Callable[[Places | str], Answer | Put]
    needs: str | None = None
    """A topic that the topics file must contain before the message is stored; None: no such wait."""


class Refusal(Exception):  # noqa: N818 -- an answer, which ends the work on a request
    """An answer other than success."""

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(code, remark)
        self.answer = Answer(code=code, remark=remark, ext=ext)


def exception(kind: str, text: str) -> Refusal:
    """Return a broker's answer to an exception: the exception's class and text, and a line of source code."""
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{kind}: {text}, logdex.rocketmq.server")


def list_in(members: dict[str, Any], name: str) -> list[Any]:
    """Return a list of a JSON body; empty if it is missing.

    Raises:
        ValueError: The value is not a list.
    """
    value = members.get(name, [])
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    return value


def objects_in(members: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects of a JSON body; empty if it is missing.

    Raises:
        ValueError: The value is not a list, or one of its members is not an object.
    """
    values = list_in(members, name)
    for value in values:
        if not isinstance(value, dict):
            raise _wrong(name, "a list of objects", value)
    return values


def text_in(members: dict[str, Any], name: str) -> str:
    """Return a text of a JSON body.

    Raises:
        ValueError: The text is missing.
    """
    if name not in members:
        raise ValueError(f"{name}: expected a text, found nothing")
    return str(members[name])


def integer_in(name: str, value: Any) -> int:  # noqa: ANN401 -- what JSON holds
    """Return a value of a JSON body as an integer. The name is that of its member.

    Raises:
        ValueError: The value is not an integer.
    """
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        raise _wrong(name, "an integer", value) from None


def _wrong(name: str, expected: str, value: object) -> ValueError:
    shown = {list: "a list", dict: "an object", type(None): "null"}.get(type(value), f"{value!r:.40}")
    return ValueError(f"{name}: expected {expected}, found {shown}")


def integer_of(text: str, bits: int) -> int:
    """Return the 32-bit or 64-bit integer that Java parses from a text.

    Raises:
        Refusal: The text is not such an integer.
    """
    value = _parsed(text, bits)
    if value is None:
        raise exception("java.lang.NumberFormatException", f'For input string: "{text:.{_MOST_DIGITS}}"')
    return value


def _parsed(text: str, bits: int) -> int | None:
    value = java_integer(text, bits)
    if value is None and not text.isascii() and len(text) <= _MOST_DIGITS:
        # Java accepts the digits of all scripts.
        value = java_integer("".join(str(unicodedata.decimal(each, each)) for each in text), bits)
    return value


class Cost(IntEnum):
    """Costs of requests, which determine the thread of the answer, from the cheapest to the most expensive kind."""

    QUICK = auto()
    """In the event loop. All requests that change the state are of this kind."""
    FILE = auto()
    """In the event loop, but in a thread if the store is on another machine: the request reads a file."""
    SEARCH = auto()
    """In a thread, unless the last request with this code was quick: the request is one search."""
    SLOW = auto()
    """In a thread: the request reads much, or as much as the client chooses."""
    MANY = auto()
    """In the only thread for requests that read each queue of a topic or of all groups."""


class Kind(IntEnum):
    """Needs of a request, which also determine how an archive refuses it."""

    QUESTION = auto()
    """Nothing: an archive answers it, too."""
    SEND = auto()
    """A broker that takes messages. An archive answers that sending is forbidden."""
    CHANGE = auto()
    """A broker that takes messages. An archive answers that it takes no changes."""


@dataclass(frozen=True, slots=True)
class Handler:
    """The handling of requests with one code."""

    answer: Callable[[Any, Request], Reply]
    answer_of_archive: Callable[[Any, Request], Reply]
    """The function for a broker that takes no messages."""
    cost: int
    """One of `Cost`, as an int, which is faster to compare."""
    parse: Callable[[dict[str, Any]], object] | None = None
    """The parser of a body whose length the client chooses. A thread parses a long body before the request is answered."""


def _refuse_code(_: Any, request: Request) -> Reply:  # noqa: ANN401 -- the broker
    text = f" request type {request.command.code} not supported"
    raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)


def _refuse_send(broker: Any, request: Request) -> Reply:  # noqa: ANN401 -- as above
    broker.require_master()
    return _refuse_code(broker, request)


def _refuse_change(broker: Any, _: Request) -> Reply:  # noqa: ANN401 -- as above
    what = "is an archive, which takes no changes" if broker.master is None else "takes no such change"
    raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{broker.address}] {what}")


_REFUSALS = {Kind.QUESTION: _refuse_code, Kind.SEND: _refuse_send, Kind.CHANGE: _refuse_change}
UNKNOWN = Handler(_refuse_code, _refuse_code, int(Cost.QUICK))
"""The handler of all other codes."""


def handles(
    *codes: RequestCode,
    cost: Cost = Cost.QUICK,
    kind: Kind = Kind.QUESTION,
    parse: Callable[[dict[str, Any]], object] | None = None,
) -> Callable[[_Answering], _Answering]:
    """Register a function as the handler of request codes."""

    def register(answer: _Answering) -> _Answering:
        of_archive = answer if kind is Kind.QUESTION else _REFUSALS[kind]
        _register(codes, Handler(answer, of_archive, int(cost), parse))
        return answer

    return register


def refuses(*codes: RequestCode, kind: Kind) -> None:
    """Register request codes that every broker here refuses."""
    _register(codes, Handler(_REFUSALS[kind], _REFUSALS[kind], int(Cost.QUICK)))


def _register(codes: tuple[RequestCode, ...], handler: Handler) -> None:
    twice = HANDLERS.keys() & {*codes}
    if twice:
        raise ValueError(f"requests {sorted(twice)}: expected one handler for each code")
    HANDLERS.update(dict.fromkeys(map(int, codes), handler))
