"""Expired files: `StoreWriter.delete_expired` beside a real broker over a copy of the store, and a broker over what is left."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from logdex.rocketmq import MessageStore, StoreWriter
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC, QUEUES, MESSAGES = "Kept", 4, 2_500
FILE_SIZE, QUEUE_FILE_SIZE = 1 << 20, 2_000
HASH_SLOTS, MAX_ENTRIES = 100, 400
EXPIRED, RESERVED_HOURS = 7, 72
SIZES = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE,
    "maxHashSlotNum": HASH_SLOTS,
    "maxIndexNum": MAX_ENTRIES,
}
EVERY_HOUR = ";".join(f"{hour:02}" for hour in range(24))
MOST_SECONDS = 150
"""A broker looks for expired files a minute after its start, and then every ten seconds."""


def _open(root: Path) -> StoreWriter:
    return StoreWriter.open(
        root, file_size=FILE_SIZE, queue_file_size=QUEUE_FILE_SIZE, hash_slots=HASH_SLOTS, max_entries=MAX_ENTRIES
    )


def _files(root: Path) -> set[str]:
    places = ("commitlog", "consumequeue", "index")
    return {str(path.relative_to(root)) for place in places for path in (root / place).rglob("*") if path.is_file()}


def _store(root: Path) -> None:
    with _open(root) as writer:
        serials = range(MESSAGES)
        writer.put_messages(
            {
                "topic": [TOPIC] * MESSAGES,
                "queue_id": [serial % QUEUES for serial in serials],
                "body": [b"x" * 4_000] * MESSAGES,
                "keys": [f"k{serial}" for serial in serials],
            }
        )
    old = time.time() - 2 * 3_600 * RESERVED_HOURS
    for path in sorted((root / "commitlog").iterdir())[:EXPIRED]:
        os.utime(path, (old, old))


def _answers(home: Path, root: Path) -> dict[str, Any]:
    """Return what clients are told of a store by a real broker."""
    broker, names, address = start_broker(home / "broker", root, **SIZES, fileReservedTime=1_000_000)
    with broker, Program("Tools", home / "tools") as tools, Program("Clients", home / "clients", names) as clients:
        topic = ["updateTopic", "-n", names, "-b", address, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES)]
        assert "success" in tools.ask(topic)["output"]
        places = {"topic": TOPIC, "broker": "broker-a", "group": "kept"}
        found: dict[str, Any] = {}
        for queue_id in range(QUEUES):
            offsets = clients.ask({"op": "offsets", **places, "queueId": queue_id, "time": 0})["result"]
            pulled = clients.ask({"op": "pull", **places, "queueId": queue_id, "offset": offsets[0]})["result"]
            found[f"queue {queue_id}"] = (offsets, pulled)
        for serial in (0, MESSAGES - 1):
            places_of_key = clients.ask({"op": "key", "topic": TOPIC, "key": f"k{serial}"}).get("result", [])
            # A broker that was killed indexes its last messages once more.
            found[f"key {serial}"] = set(places_of_key)
    return found


def test_the_same_files_expire(tmp_path: Path, say: Callable[[str], None]) -> None:
    own, real = tmp_path / "own", tmp_path / "real"
    _store(own)
    before = _files(own)
    shutil.copytree(own, real)
    with _open(own) as writer:
        deleted = writer.delete_expired(RESERVED_HOURS)
        assert len(deleted.log_files) == EXPIRED
        assert not any(writer.delete_expired(RESERVED_HOURS)[:3])
    left = _files(own)
    with MessageStore.open(own) as store:
        assert store.verify().ok
    gone = before - left
    for place in ("commitlog", "consumequeue", "index"):
        assert any(path.startswith(place) for path in gone)
        assert any(path.startswith(place) for path in left)
    broker, _, _ = start_broker(
        tmp_path / "broker", real, **SIZES, fileReservedTime=RESERVED_HOURS, deleteWhen=EVERY_HOUR
    )
    with broker:
        end = time.monotonic() + MOST_SECONDS
        while _files(real) != left and time.monotonic() < end:
            time.sleep(1)
    assert _files(real) == left
    answers = _answers(tmp_path / "ours", own)
    assert answers == _answers(tmp_path / "theirs", real)
    assert not answers["key 0"]
    assert len(answers[f"key {MESSAGES - 1}"]) == 1
    say(
        f"retention: of {len(before)} files a real broker deletes the same {len(gone)}, and answers alike over both stores"
    )
