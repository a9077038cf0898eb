"""A writer whose eight threads note every message that is on the disk, until the process is killed or the power is cut.

    python crash_writer.py kills KIND DIRECTORY KILLS SEED [CRASHED]   # kills it again and again; copies what each kill left
    python crash_writer.py writes KIND DIRECTORY NOTES SECONDS         # ends without closing anything

KIND is `kafka`, or how a store appends: `write`, `mapped`, `pool`. Each note is a line: the name of a message, the number of its
partition or queue, and its offset there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.kafka import LogDir, LogDirWriter
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    Put = Callable[[str, int], int]

KINDS = ("kafka", "write", "mapped", "pool")
THREADS = 8
TOPIC = "orders"
PARTITIONS = 3
KILLS_OF_A_DIRECTORY = 5
LONGEST_SECONDS = 0.4
NOTES = "notes"
KAFKA: dict[str, Any] = {
    "config": {"segment.bytes": 65_536, "segment.index.bytes": 4_096, "index.interval.bytes": 1_024}
}
STORE: dict[str, Any] = {"file_size": 262_144, "queue_file_size": 4_000, "hash_slots": 4_000, "max_entries": 100_000}


def body_of(name: str) -> bytes:
    """Return the body of a message."""
    return name.encode() * (1 + int(name.rpartition("-")[2]) % 50)


def open_kafka(directory: Path, *, truncate: bool = False) -> tuple[LogDirWriter, Put]:
    """Open a log directory; return the writer and how it puts a message."""
    writer = LogDirWriter.open(directory, flush="sync", truncate=truncate, **KAFKA)
    writer.create_topic(TOPIC, PARTITIONS)

    def put(name: str, partition: int) -> int:
        return writer.append(TOPIC, partition, {"key": [name.encode()], "value": [body_of(name)]}).last_offset

    return writer, put


def open_store(directory: Path, append: Any, *, truncate: bool = False) -> tuple[StoreWriter, Put]:
    """Open a store; return the writer and how it puts a message."""
    writer = StoreWriter.open(directory, flush="sync", append=append, truncate=truncate, **STORE)

    def put(name: str, queue_id: int) -> int:
        return writer.put_message(TOPIC, body_of(name), queue_id=queue_id, keys=name).queue_offset

    return writer, put


def open_writer(kind: str, directory: Path, *, truncate: bool = False) -> tuple[LogDirWriter | StoreWriter, Put]:
    """Open a writer of a kind."""
    if kind == "kafka":
        return open_kafka(directory, truncate=truncate)
    return open_store(directory, kind, truncate=truncate)


def _by_place(rows: pa.Table) -> dict[tuple[int, int], bytes]:
    places = zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
    return dict(zip(places, rows.column(2).to_pylist(), strict=True))


def values(logs: LogDir, topic: str) -> dict[tuple[int, int], bytes]:
    """Return the values of a topic's records by partition and offset."""
    return _by_place(pa.table(logs.records([topic], columns=["partition", "offset", "value"])))


def stored(kind: str, directory: Path) -> dict[tuple[int, int], bytes]:
    """Return the bodies of all messages by partition and offset, after checking the files."""
    if kind == "kafka":
        with LogDir.open(directory) as logs:
            report = logs.verify()
            found = values(logs, TOPIC) if TOPIC in logs.topics else {}
    else:
        with MessageStore.open(directory) as store:
            report = store.verify()
            found = _by_place(pa.table(store.messages(columns=["queue_id", "queue_offset", "body"])))
    assert report.ok, report.findings[:3]
    return found


def noted(lines: bytes) -> dict[tuple[int, int], bytes]:
    """Return the bodies of the messages in notes by partition and offset."""
    found: dict[tuple[int, int], bytes] = {}
    for line in lines.splitlines(keepends=True):
        # The last one may be cut off.
        if line.endswith(b"\n") and line.count(b" "):
            name, partition, offset = line.decode().split()
            found[int(partition), int(offset)] = body_of(name)
    return found


def missing(kind: str, directory: Path, notes: dict[tuple[int, int], bytes]) -> list[tuple[int, int]]:
    """Return the places of the noted messages that are not stored."""
    found = stored(kind, directory)
    return [place for place, body in notes.items() if found.get(place) != body]


def write(kind: str, directory: Path, notes: Path, turn: str, seconds: float | None = None) -> None:
    """Put messages for a time, else for ever, and note each one that is on the disk."""
    writer, put = open_writer(kind, directory)
    # A pipe or a buffer would lose notes.
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def put_all(thread: int) -> None:
        try:
            number = 0
            end = None if seconds is None else time.monotonic() + seconds
            while end is None or time.monotonic() < end:
                name, partition = f"{turn}-{thread}-{number}", (thread + number) % PARTITIONS
                os.write(file, f"{name} {partition} {put(name, partition)}\n".encode())
                number += 1
                if thread == 0 and number % 20 == 0:
                    writer.checkpoint() if isinstance(writer, LogDirWriter) else writer.flush()
        except BaseException:  # noqa: BLE001 - the process ends with its first error
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=put_all, args=(thread,)) for thread in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    os._exit(0)


def kill_often(kind: str, root: Path, kills: int, seed: int, crashed: Path | None) -> None:
    """Kill a writer at random moments, also while it opens. `root` gets a directory and a file of notes for every five kills."""
    chance = random.Random(seed)
    for turn in range(kills):
        number = turn // KILLS_OF_A_DIRECTORY
        directory, notes = root / str(number) / "data", root / str(number) / NOTES
        directory.parent.mkdir(parents=True, exist_ok=True)
        child = os.fork()
        if child == 0:
            write(kind, directory, notes, str(turn))
        time.sleep(chance.uniform(0, LONGEST_SECONDS))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise RuntimeError(f"{kind}: kill {turn}, seed {seed}: the writer ended by itself: {status}")
        if crashed is not None and directory.exists():
            shutil.copytree(directory, crashed / str(turn))
            if notes.exists():
                shutil.copyfile(notes, crashed / f"{turn}.{NOTES}")


if __name__ == "__main__":
    what, of, where, *rest = sys.argv[1:]
    if what == "kills":
        kill_often(of, Path(where), int(rest[0]), int(rest[1]), Path(rest[2]) if len(rest) > 2 else None)
    else:
        write(of, Path(where), Path(rest[0]), "0", float(rest[1]))
