"""Messages whose keys are index entries: generated ones and those of the golden stores. This module does not import logdex."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

import golden
from traffic import Put

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLLBACK = 12
"""The transaction bits of a system flag that keep a message out of the index."""

_COLUMNS = pa.schema(
    [
        ("topic", pa.utf8()),
        ("phy_offset", pa.int64()),
        ("store_timestamp", pa.timestamp("ms", "UTC")),
        ("sys_flag", pa.int32()),
        ("uniq_key", pa.utf8()),
        ("keys", pa.utf8()),
    ]
)


class Message(NamedTuple):
    """The fields of a message that a dispatcher reads."""

    topic: str
    phy_offset: int
    store_timestamp: int
    sys_flag: int
    uniq_key: str | None
    keys: str | None

    def rows(self) -> Iterator[Put]:
        """Return the index entries of the message."""
        if self.sys_flag & ROLLBACK == ROLLBACK:
            return
        unique = [] if self.uniq_key is None else [self.uniq_key]
        for key in itertools.chain(unique, filter(None, (self.keys or "").split(" "))):
            yield Put(self.topic, key, self.phy_offset, self.store_timestamp)


def messages(rows: list[Put], seed: int) -> list[Message]:
    """Group entries into messages: some of a transaction, some without unique key, some with extra spaces in KEYS."""
    chance = random.Random(seed)
    made = []
    for (phy_offset, topic, store_timestamp), group in itertools.groupby(
        rows, lambda row: (row.phy_offset, row.topic, row.store_timestamp)
    ):
        unique, *others = [row.key for row in group]
        keys = chance.choice((" ", " ", "  ")).join(others) + chance.choice(("", "", " "))
        made.append(
            Message(
                topic,
                phy_offset,
                store_timestamp,
                chance.choice((0, 0, 0, 1, 4, 8, ROLLBACK)),
                unique if chance.random() < 0.9 else None,
                keys or chance.choice(("", None)),
            )
        )
    return made


def columns(batch: list[Message]) -> pa.Table:
    """Return messages as the columns of a commit log's scan."""
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*batch, strict=True), _COLUMNS, strict=True)]
    return pa.table(arrays, schema=_COLUMNS)


def golden_rows(case: str) -> list[Put]:
    """Return the entries of all messages of a golden store."""
    rows: list[Put] = []
    for row in golden.rows(case, "messages"):
        names = ("topic", "physicalOffset", "storeTimestamp", "sysFlag", "uniqKey", "keys")
        rows += Message(*(row.get(name) for name in names)).rows()  # type: ignore[arg-type]
    return rows
