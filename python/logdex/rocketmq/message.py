"""One message of a commit log, its offset id, and a page of messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logdex._types import utc_datetime
from logdex.report import short_bytes

if TYPE_CHECKING:
    from datetime import datetime

    from arro3.core import RecordBatch

    from logdex.report import Finding

_MSG_ID = re.compile(r"[0-9A-Fa-f]{32}([0-9A-Fa-f]{24})?")
_OFFSET_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message:
    """A message as the commit log holds it; the attributes are the columns of a scan, in their order.

    Attributes:
        topic: Topic as stored; a delayed or half message is stored under a topic of the broker's own.
        queue_id: Queue of the topic.
        queue_offset: Index of the message in its queue.
        phy_offset: Offset in the log at which the message begins.
        store_timestamp: When the broker stored it, ms since the epoch.
        born_timestamp: When the producer made it, ms since the epoch, by the producer's clock.
        msg_id: The broker's id: store host and `phy_offset` in upper-case hex.
        uniq_key: The producer's id (property UNIQ_KEY), or None.
        tags: Property TAGS, or None.
        keys: Property KEYS, space-separated, or None.
        body: The body as the producer sent it; None where it cannot be decoded.
        properties: All properties, by name.
        flag: The application's flag.
        sys_flag: The system's flag as stored: bits for compression, transactions, hosts and batches.
        store_size: Bytes of the message in the log.
        body_crc: Checksum of the stored body.
        reconsume_times: How often a consumer gave it back.
        prepared_transaction_offset: Offset of the half message that a transaction began with, else 0.
        born_host: The producer as `ip:port`, an IPv6 address as `[RFC 5952]:port`.
        store_host: The broker, in the same form.
        body_error: Why the body is None, with file and offset; else None.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    born_timestamp: int
    msg_id: str
    uniq_key: str | None
    tags: str | None
    keys: str | None
    body: bytes | None
    properties: dict[str, str] = field(hash=False)
    flag: int
    sys_flag: int
    store_size: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    born_host: str
    store_host: str
    body_error: str | None

    @property
    def stored_at(self) -> datetime | None:
        """The `store_timestamp` as a datetime in UTC; None if it is not in the years 1 to 9999."""
        return utc_datetime(self.store_timestamp)

    @property
    def born_at(self) -> datetime | None:
        """The `born_timestamp` as a datetime in UTC; None if it is not in the years 1 to 9999."""
        return utc_datetime(self.born_timestamp)

    def __repr__(self) -> str:
        """Return all attributes; of a long body only its beginning."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        texts = (f"{name}={short_bytes(value) if name == 'body' else repr(value)}" for name, value in values)
        return f"Message({', '.join(texts)})"


def is_msg_id(text: str) -> bool:
    """Return whether a text can be an offset id: 32 hexadecimal digits, 56 with an IPv6 address."""
    return _MSG_ID.fullmatch(text) is not None


def offset_in_msg_id(msg_id: str) -> int:
    """Return the commit-log offset in an offset id (MessageDecoder#decodeMessageId)."""
    return int(msg_id[-_OFFSET_DIGITS:], 16)


@dataclass(frozen=True, slots=True, repr=False)
class MessagePage:
    """Some messages next to a position in the log.

    Attributes:
        batch: The messages, in the order asked for.
        next_position: Where the next page begins; None: nothing is left in this direction.
        done: Bytes of the log from where the filters let a reader begin to where this page ends.
        total: Bytes of the log that the filters leave.
        by_queues: The messages were read through the queues of their topic, not from the log.
        findings: The missing and damaged places that this page passed over.
    """

    batch: RecordBatch
    next_position: int | None
    done: int
    total: int
    by_queues: bool
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        """Return the number of messages and the position, not the messages."""
        damage = f", {len(self.findings)} findings" if self.findings else ""
        return f"MessagePage({self.batch.num_rows} messages, next_position={self.next_position}{damage})"
