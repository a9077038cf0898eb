"""Generated messages for stores, in the driver's form and as columns for logdex."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_driver import Question

TOPICS = ("TopicTest", "%RETRY%group_a", "orders", "x")
HOSTS = ("127.0.0.1:10911", "10.1.2.3:4660", "[2001:db8::1]:8080", "[::1]:65535")
TRANSACTIONS = (0, 0, 0, 0, 4, 8, 12)
BORN = 1_700_000_000_000

_MAP = pa.map_(pa.utf8(), pa.utf8())
_TIME = pa.timestamp("ms", "UTC")
_COLUMNS = {
    "topic": (pa.utf8(), ""),
    "queue_id": (pa.int32(), 0),
    "flag": (pa.int32(), 0),
    "sys_flag": (pa.int32(), 0),
    "born_timestamp": (_TIME, BORN),
    "born_host": (pa.utf8(), HOSTS[0]),
    "store_host": (pa.utf8(), HOSTS[0]),
    "reconsume_times": (pa.int32(), 0),
    "prepared_transaction_offset": (pa.int64(), 0),
}


def mixture(seed: int, count: int, *, transactions: bool = True, batchable: bool = False) -> list[dict[str, Any]]:
    """Make messages of all kinds except delayed ones.

    Args:
        seed: The same seed makes the same messages.
        count: How many.
        transactions: Whether some carry the bits of a transaction.
        batchable: All of one topic and queue, without what a client's batch cannot have.
    """
    chance = random.Random(seed)
    return [_message(chance, f"{seed:04X}{serial:08X}", transactions, batchable) for serial in range(count)]


def _message(chance: random.Random, unique: str, transactions: bool, batchable: bool) -> dict[str, Any]:
    properties = {"UNIQ_KEY": f"7F0000016484{unique}", "WAIT": "true"}
    if chance.random() < 0.8:
        properties["KEYS"] = " ".join(f"k{chance.randrange(60)}" for _ in range(chance.randrange(1, 4)))
    if chance.random() < 0.7:
        properties["TAGS"] = chance.choice(("TagA", "TagB", "\u6807\u7b7e", "a||b"))
    for number in range(chance.choice((0, 0, 1, 3, 14))):
        properties[f"user-{chance.randrange(1_000)}"] = chance.choice(
            ("v", "\u6d88\u606f \U0001f600", "a\u0001b", "x" * number)
        )
    properties = {name: value for name, value in properties.items() if value}
    message = {
        "topic": "batch" if batchable else chance.choice(TOPICS),
        "queue_id": 1 if batchable else chance.randrange(4),
        "body_base64": base64.b64encode(chance.randbytes(chance.choice((0, 1, 20, 200, 1_500)))).decode(),
        "properties": properties,
        "flag": chance.choice((0, 7, -1)),
        "born_timestamp": BORN + chance.randrange(10_000),
    }
    if not batchable:
        message |= {
            "born_host": chance.choice(HOSTS),
            "store_host": chance.choice(HOSTS),
            "sys_flag": chance.choice(TRANSACTIONS) if transactions else 0,
            "reconsume_times": chance.choice((0, 0, 16)),
            "prepared_transaction_offset": chance.choice((0, 0, 2**40 + 1)),
        }
    return message


def columns(messages: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Return messages as the columns that a store writer takes."""
    rows = list(messages)
    made = {name: pa.array([row.get(name, usual) for row in rows], kind) for name, (kind, usual) in _COLUMNS.items()}
    made["body"] = pa.array([base64.b64decode(row.get("body_base64", "")) for row in rows], pa.binary())
    made["properties"] = pa.array([list(row.get("properties", {}).items()) for row in rows], _MAP)
    return pa.record_batch(made)


def questions(messages: Iterable[dict[str, Any]], forever: int) -> list[Question]:
    """Return a question for every key of the messages."""
    asked = {
        (message["topic"], key)
        for message in messages
        for key in [message["properties"]["UNIQ_KEY"], *message["properties"].get("KEYS", "").split()]
    }
    return [(topic, key, 64, 0, forever) for topic, key in sorted(asked)]
