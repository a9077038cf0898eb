"""A message that a server stores, perhaps one of the log again, and its properties as text.

Source: MessageExtBrokerInner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logdex.rocketmq.message import Message

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


@dataclass(slots=True, kw_only=True)
class NewMessage:
    """A message that is put; `CommitLogWriter.put_each` takes it."""

    topic: str
    queue_id: int
    body: bytes
    """As it is stored; or that of a client's batch."""
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
    """Whether the properties are written in the order of Java's HashMap."""
    is_batch: bool = False
    waits: bool = True
    """Whether its producer waits for a slave (the property WAIT), and is told if the flush takes too long."""


def again(message: Message, topic: str, queue_id: int, store_host: str) -> NewMessage:
    """Return a message of the log, with its body as it is stored, for another place; its properties may be changed."""
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
    """Return the properties of a text; entries without name or value are left out."""
    found = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found
