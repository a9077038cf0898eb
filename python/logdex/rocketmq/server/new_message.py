"""A message that a server stores, its properties as text, and a message that it reads again to store it elsewhere.

Source: MessageDecoder, MessageExtBrokerInner.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address

from logdex.rocketmq.fastjson import in_java_order

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

_BORN_V6, _STORE_V6 = 1 << 4, 1 << 5
_MAGIC_V1 = -626843481
_HEAD = struct.Struct(">iiiiiqqiq")
_AFTER_STORE_HOST = struct.Struct(">iqi")


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
    """Whether its producer waits for a slave (the property WAIT)."""


@dataclass(slots=True, kw_only=True)
class StoredMessage:
    """A message as the log has it, read from its frame."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    flag: int
    sys_flag: int
    body: bytes
    properties: dict[str, str]
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    msg_id: str
    body_crc: int

    @classmethod
    def parse(cls, frame: bytes) -> StoredMessage:
        """Return the message of a frame.

        Raises:
            ValueError: It is no frame.
        """
        try:
            _, magic, crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born = _HEAD.unpack_from(frame)
            born_bytes, at = _take(frame, _HEAD.size, 20 if sys_flag & _BORN_V6 else 8)
            stored, at = struct.unpack_from(">q", frame, at)[0], at + 8
            store_bytes, at = _take(frame, at, 20 if sys_flag & _STORE_V6 else 8)
            reconsume_times, _, length = _AFTER_STORE_HOST.unpack_from(frame, at)
            body, at = _take(frame, at + _AFTER_STORE_HOST.size, length)
            size = 1 if magic == _MAGIC_V1 else 2
            topic, at = _take(frame, at + size, int.from_bytes(frame[at : at + size], "big"))
            text, _ = _take(frame, at + 2, int.from_bytes(frame[at : at + 2], "big"))
        except struct.error as error:
            raise ValueError(f"no message: {error}") from None
        return cls(
            topic=topic.decode(errors="replace"),
            queue_id=queue_id,
            queue_offset=queue_offset,
            phy_offset=phy_offset,
            flag=flag,
            sys_flag=sys_flag,
            body=body,
            properties=properties_of(text.decode(errors="replace")),
            born_timestamp=born,
            born_host=_host(born_bytes),
            store_timestamp=stored,
            store_host=_host(store_bytes),
            reconsume_times=reconsume_times,
            msg_id=f"{store_bytes.hex()}{phy_offset & (1 << 64) - 1:016x}".upper(),
            body_crc=crc,
        )

    def again(self, topic: str, queue_id: int, store_host: str) -> NewMessage:
        """Return the message for another place; its properties may be changed."""
        return NewMessage(
            topic=topic,
            queue_id=queue_id,
            body=self.body,
            properties=dict(self.properties),
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_host=store_host,
            flag=self.flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
        )

    def frame(self) -> bytes:
        """Return a frame of the message, with its properties in the order of Java's HashMap.

        Source: MessageDecoder#encode.
        """
        topic, text = self.topic.encode(errors="replace"), _text(self.properties).encode(errors="replace")
        rest = [
            _HEAD.pack(
                0,
                _MAGIC_V1,
                self.body_crc,
                self.queue_id,
                self.flag,
                self.queue_offset,
                self.phy_offset,
                self.sys_flag,
                self.born_timestamp,
            )[4:],
            _host_bytes(self.born_host),
            struct.pack(">q", self.store_timestamp),
            _host_bytes(self.store_host),
            _AFTER_STORE_HOST.pack(self.reconsume_times, 0, len(self.body)),
            self.body,
            len(topic).to_bytes(1, "big"),
            topic,
            len(text).to_bytes(2, "big"),
            text,
        ]
        return struct.pack(">i", 4 + sum(map(len, rest))) + b"".join(rest)


def _text(properties: dict[str, str]) -> str:
    buckets = 16
    while len(properties) * 4 > buckets * 3:
        buckets *= 2
    names = in_java_order(properties, buckets)
    return VALUE_END.join(f"{name}{NAME_END}{properties[name]}" for name in names)


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of a text; entries without name or value are left out."""
    found = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def _take(frame: bytes, at: int, length: int) -> tuple[bytes, int]:
    if not 0 <= length <= len(frame) - at:
        raise ValueError(f"no message: {length} bytes at {at}, but there are {len(frame)}")
    return frame[at : at + length], at + length


def _host_bytes(text: str) -> bytes:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)


def _host(data: bytes) -> str:
    address, port = ip_address(data[:-4]), int.from_bytes(data[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version > 4 else f"{address}:{port}"  # noqa: PLR2004 -- IPv4
