"""Comparison of one store on both sides: every message by queue, by offset and by key, and the bounds of all queues."""

from __future__ import annotations

import base64
import ipaddress
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.rocketmq import CommitLog, MessageStore
from rocketmq_driver import FOREVER

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_driver import Driver

FILE_SIZE = 64 << 10
QUEUE_FILE_SIZE = 60 * 20
GEOMETRY = {"maxHashSlotNum": 64, "maxIndexNum": 400}
CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE,
    **GEOMETRY,
    # Files of a broker expire by their age; nothing here may.
    "fileReservedTime": 1_000_000,
}
"""Small files, so that some hundred messages roll log, queues and index."""

SIZES: dict[str, Any] = {
    "file_size": FILE_SIZE,
    "queue_file_size": QUEUE_FILE_SIZE,
    "hash_slots": GEOMETRY["maxHashSlotNum"],
    "max_entries": GEOMETRY["maxIndexNum"],
    "zone": "UTC",
}
"""The same for `StoreWriter.open`."""

ONE_INDEX: dict[str, Any] = {**CONFIG, "maxHashSlotNum": 4_000, "maxIndexNum": 100_000}
ONE_INDEX_SIZES: dict[str, Any] = {**SIZES, "hash_slots": 4_000, "max_entries": 100_000}
"""With one large index file, for a broker that dispatches many messages at its start: it names a file by the millisecond, and
writes over one that has the name already."""

ROLLBACK = 12
PREPARED = 4


def broker_puts(broker: Driver, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put messages into the started store one by one, so slowly that two index files never get the same name.

    The broker names a file by the millisecond and writes over one that has the name already. A message has four keys at most.
    """
    results = []
    at_once = GEOMETRY["maxIndexNum"] // 5
    for first in range(0, len(messages), at_once):
        results += broker.ask("store_put", messages=messages[first : first + at_once])["results"]
        time.sleep(0.003)
    return results


def log_rows(root: Path) -> list[dict[str, Any]]:
    """Read every message of a store's log, with stored bodies, times in ms and properties as a dict."""
    with closing(CommitLog.open(root / "commitlog")) as log:
        table = pa.table(log.scan(body="stored"))
    return [row_as_plain(row) for row in table.to_pylist()]


def row_as_plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a scan as JSON values: times in ms, properties as a dict, the body as base64."""
    plain = dict(row)
    for name in ("store_timestamp", "born_timestamp"):
        plain[name] = round(row[name].timestamp() * 1_000)
    plain["properties"] = dict(row["properties"])
    plain["body"] = base64.b64encode(row["body"] or b"").decode()
    del plain["body_error"]
    return plain


def both_say_the_same(broker: Driver, root: Path, least: int) -> list[dict[str, Any]]:
    """Compare all messages of a started store with those that logdex reads from its files, and return them.

    Args:
        broker: The real store, loaded and started.
        root: Its directory.
        least: How many messages there are at least.
    """
    rows = log_rows(root)
    assert len(rows) >= least
    by_offset = {row["phy_offset"]: row for row in rows}

    found = broker.ask("store_at", phy_offsets=list(by_offset))["messages"]
    for row, message in zip(rows, found, strict=True):
        assert _as_row(message) == row

    pulled = broker.ask("store_messages")["messages"]
    for message in pulled:
        assert _as_row(message) == by_offset[message["phy_offset"]]
        own = message["pulled_from"] == f"{message['topic']} {message['queue_id']}"
        assert message["at"] == message["queue_offset"] or not own
    in_queues = [row["phy_offset"] for row in rows if row["sys_flag"] & ROLLBACK not in {PREPARED, ROLLBACK}]
    own = [row for row in pulled if row["pulled_from"] == f"{row['topic']} {row['queue_id']}"]
    assert sorted(row["phy_offset"] for row in own) == in_queues

    with closing(MessageStore.open(root)) as store:
        for queue in broker.ask("store_queues")["queues"]:
            if queue["max"]:
                mine = store.queue(queue["topic"], queue["queue_id"])
                assert (mine.min_offset, mine.max_offset) == (queue["min"], queue["max"])
    _same_by_key(broker, root, rows)
    return rows


def _same_by_key(broker: Driver, root: Path, rows: list[dict[str, Any]]) -> None:
    owners: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["sys_flag"] & ROLLBACK != ROLLBACK:
            for key in {row["uniq_key"], *(row["keys"] or "").split(" ")} - {None, ""}:
                owners.setdefault((row["topic"], key), []).append(row["phy_offset"])
    asked = [(topic, key, 64, 0, FOREVER) for topic, key in owners]
    answers = broker.query("store_query", asked)["phy_offsets"]
    with closing(MessageStore.open(root)) as store:
        for (topic, key), offsets, answer in zip(owners, owners.values(), answers, strict=True):
            # The broker checks no key, so that keys of one hash come as well, and gives the newest 64.
            assert set(offsets[-64:]) <= set(answer) or len(answer) == 64
            mine = store.find(topic, key, scan=False)
            assert [message.phy_offset for message in mine] == offsets[::-1]


def _as_row(message: dict[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in message.items() if name not in {"at", "pulled_from"}}
    for name in ("born_host", "store_host"):
        address = ipaddress.ip_address(row[name]["address"])
        text = f"[{address.compressed}]" if address.version == 6 else str(address)
        row[name] = f"{text}:{row[name]['port']}"
    # fastjson leaves out what is null.
    return {"uniq_key": None, "tags": None, "keys": None} | row
