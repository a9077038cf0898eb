"""The JSON of RocketMQ: fastjson writes the keys of a map as they are, integers and objects without quotes.

`{0:"a"}` and `{{"queueId":1}:{"maxOffset":7}}` are not JSON, but in the broker's config files and in its answers.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple

from logdex._core import parse_fastjson, tags_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

loads = parse_fastjson
"""Return the value of a text. All names become strings; objects as names are refused."""


class MessageQueue(NamedTuple):
    """A queue of a topic at a broker; fastjson writes it as an object, also as the key of a map."""

    broker: str
    queue_id: int
    topic: str


class Pretty(str):
    """The text that `dumps_pretty` returned for a member at the same depth. It is used unchanged."""

    __slots__ = ()


def dumps(value: Any) -> str:  # noqa: ANN401 -- what JSON holds, and `MessageQueue`
    """Return a value as fastjson writes it, without spaces."""
    # The most frequent kinds first: a response may contain a million of them.
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, MessageQueue):
        broker, queue_id, topic = value
        return f'{{"brokerName":{encode_basestring(broker)},"queueId":{queue_id},"topic":{encode_basestring(topic)}}}'
    if isinstance(value, dict):
        return "{" + ",".join([f"{dumps(key)}:{dumps(member)}" for key, member in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value) if isinstance(value, bool | float | None) else f"{value:d}"


def dumps_pretty(value: Any, indent: str = "") -> str:  # noqa: ANN401 -- what JSON holds
    """Return a value in the form of the broker's config files: a line for each member, those with integer keys on one."""
    if isinstance(value, Pretty):
        return value
    if not isinstance(value, dict):
        return dumps(value)
    if not value:
        return "{}"
    inner = f"{indent}\t"
    members = [
        (f"{key}:" if isinstance(key, int) else f"\n{inner}{dumps(key)}:") + dumps_pretty(member, inner)
        for key, member in value.items()
    ]
    return "{" + ",".join(members) + f"\n{indent}}}"


def in_java_order(names: Iterable[str], buckets: int) -> list[str]:
    """Return the names in the order in which a `ConcurrentHashMap` with this number of buckets, a power of two, has them.

    Broker's tables are larger than their content, so the order does not depend on when a name was added.
    """

    def bucket(name: str) -> int:
        code = tags_hash(name)
        return (code ^ (code & 0xFFFFFFFF) >> 16) & (buckets - 1)

    return sorted(names, key=bucket)
