"""A writer is killed during its puts, and the other side continues with its files.

LOGDEX_INTEROP_KILLS (environment) is the number of kills of each kind of writer that acknowledges what is on the disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import crash_writer
from kafka_broker import RELEASES, Broker
from kafka_classes import Classes
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter
from rocketmq_driver import Driver
from test_written_kafka import BROKER, ask
from traffic_store import columns, mixture
from written_store import FILE_SIZE, ONE_INDEX, ONE_INDEX_SIZES, both_say_the_same, broker_puts, log_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = int(os.environ.get("LOGDEX_INTEROP_KILLS", "20"))
SEED = 20261124
CRASHES_OF_A_BROKER = 50
"""Crashed directories that a broker loads at one start."""
WRITER = """
import sys
import pyarrow as pa
from logdex.rocketmq import StoreWriter
from traffic_store import columns, mixture
from written_store import ONE_INDEX_SIZES
writer = StoreWriter.open(sys.argv[1], flush=sys.argv[2], append=sys.argv[3], **ONE_INDEX_SIZES)
batch = columns(mixture(41, 50))
while True:
    print(*pa.table(writer.put_messages(batch))["msg_id"].to_pylist(), flush=True)
"""
"""Puts until it is killed, and prints after each put which messages are in."""


@pytest.mark.parametrize("threads", [1, 3])
def test_broker_is_killed_and_logdex_goes_on(tmp_path: Path, threads: int, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    with Driver(tmp_path / "jvm") as broker:
        _start(broker, root)
        broker.ask("store_put_on", threads=threads)
        taken = _wait_for(broker, 6 * FILE_SIZE)
        broker.kill()
    assert (root / "abort").exists()

    with StoreWriter.open(root, services=False, **ONE_INDEX_SIZES) as writer:
        # Nothing was lost: a process died, not the machine.
        assert writer.max_offset >= taken
        writer.put_messages(columns(mixture(5, 300)))
    _every_message_is_whole(root)
    with Driver(tmp_path / "jvm") as broker:
        _start(broker, root)
        rows = both_say_the_same(broker, root, 600)
        broker_puts(broker, mixture(6, 100))
        broker.ask("store_stop")
    say(f"a broker killed in its puts, {threads} threads: {len(rows)} messages alike after logdex went on")


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_logdex_is_killed_and_the_broker_goes_on(
    driver: Driver, tmp_path: Path, flush: str, append: str, say: Callable[[str], None]
) -> None:
    root = tmp_path / "store"
    told = _killed_writer(root, flush, 600, append)
    assert (root / "abort").exists()
    before = {row["msg_id"] for row in log_rows(root)}
    if (flush, append) == ("async", "pool"):
        # A kill takes what is not committed, as at a broker.
        told &= before
    assert before >= told

    _start(driver, root)
    rows = both_say_the_same(driver, root, len(told))
    assert {row["msg_id"] for row in rows} == before
    broker_puts(driver, mixture(6, 100))
    driver.ask("store_stop")
    with StoreWriter.open(root, services=False, **ONE_INDEX_SIZES) as writer:
        writer.put_messages(columns(mixture(8, 10)))
    _every_message_is_whole(root)
    say(f"logdex killed in its puts, {flush}, {append}: {len(rows)} messages alike after the broker went on")


def test_logdex_is_killed_again_and_again(driver: Driver, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    told: set[str] = set()
    for _ in range(4):
        told |= _killed_writer(root, "async", 150)
        assert {row["msg_id"] for row in log_rows(root)} >= told
    _start(driver, root)
    rows = both_say_the_same(driver, root, len(told))
    driver.ask("store_stop")
    say(f"logdex killed four times: {len(rows)} messages alike")


@pytest.mark.timeout(60 + 4 * KILLS)
@pytest.mark.parametrize("kind", crash_writer.KINDS)
def test_nothing_acknowledged_is_missing(kind: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    directories = _kill(kind, tmp_path, KILLS)
    acknowledged = 0
    for each in directories:
        notes = crash_writer.noted((each / crash_writer.NOTES).read_bytes())
        acknowledged += len(notes)
        writer, _ = crash_writer.open_writer(kind, each / "data")
        writer.close()
        assert crash_writer.missing(kind, each / "data", notes) == []
    assert acknowledged > KILLS
    threads = crash_writer.THREADS
    say(
        f"{KILLS} kills of a sync writer of {threads} threads, {kind}: all {acknowledged:,} acknowledged messages are there"
    )


@pytest.mark.timeout(300 + 4 * KILLS)
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_starts_on_every_crashed_log_directory(
    release: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    crashed = tmp_path / "crashed"
    _kill("kafka", tmp_path, KILLS, crashed)
    turns = sorted(int(path.name) for path in crashed.iterdir() if path.is_dir())
    assert len(turns) > KILLS // 2
    acknowledged = 0
    for first in range(0, len(turns), CRASHES_OF_A_BROKER):
        home = tmp_path / f"broker{first}"
        home.mkdir()
        found = _start_on(home, crashed, turns[first : first + CRASHES_OF_A_BROKER], release)
        acknowledged += sum(map(len, found))
    say(
        f"{len(turns)} crashed log directories, {release}: the broker starts, with all {acknowledged:,} acknowledged records"
    )


@pytest.mark.timeout(300 + 4 * KILLS)
@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
def test_a_broker_starts_on_every_crashed_store(
    driver: Driver, append: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    crashed = tmp_path / "crashed"
    _kill(append, tmp_path, KILLS, crashed)
    turns = sorted(int(path.name) for path in crashed.iterdir() if path.is_dir())
    assert len(turns) > KILLS // 2
    sizes = {"mappedFileSizeCommitLog": crash_writer.STORE["file_size"]}
    sizes["mappedFileSizeConsumeQueue"] = crash_writer.STORE["queue_file_size"]
    acknowledged = 0
    for turn in turns:
        assert driver.ask("store_load", root=crashed / str(turn), config={**ONE_INDEX, **sizes})["ok"], turn
        driver.ask("store_start")
        driver.ask("store_stop")
        notes = crashed / f"{turn}.{crash_writer.NOTES}"
        noted = crash_writer.noted(notes.read_bytes()) if notes.exists() else {}
        assert crash_writer.missing(append, crashed / str(turn), noted) == [], turn
        acknowledged += len(noted)
    say(f"{len(turns)} crashed stores, {append}: the broker starts, with all {acknowledged:,} acknowledged messages")


def _kill(kind: str, home: Path, kills: int, crashed: Path | None = None) -> list[Path]:
    """Kill a writer again and again; return the directories that it wrote to."""
    command = [sys.executable, crash_writer.__file__, "kills", kind, str(home / kind), str(kills), str(SEED)]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*command, *([] if crashed is None else [str(crashed)])], check=True, env=found)
    return [each for each in sorted((home / kind).iterdir()) if (each / crash_writer.NOTES).exists()]


def _start_on(home: Path, crashed: Path, turns: list[int], release: str) -> list[dict[tuple[int, int], bytes]]:
    """Start a broker on crashed partitions, each under a topic of its own; return the records that were acknowledged."""
    settings = {**BROKER, "num_recovery_threads_per_data_dir": 4}
    names = [f"{crash_writer.TOPIC}{turn}" for turn in turns]
    config = {"segment.index.bytes": "4096", "retention.ms": "-1"}
    topic = {"partitions": crash_writer.PARTITIONS, "settings": config}
    acknowledged = []
    with Classes(home) as client:
        with Broker(home, release, **settings) as broker:
            ask(client, "create_topics", broker, topics=dict.fromkeys(names, topic))
            ask(client, "offsets", broker, topics=names)
        for turn, name in zip(turns, names, strict=True):
            for partition in range(crash_writer.PARTITIONS):
                _replace(
                    broker.log_dir / f"{name}-{partition}", crashed / str(turn) / f"{crash_writer.TOPIC}-{partition}"
                )
        # A broker that did not stop cleanly recovers every log from its first segment on, as no checkpoint names them.
        for path in broker.log_dir.glob("*checkpoint*"):
            path.unlink()
        (broker.log_dir / ".kafka_cleanshutdown").unlink()
        with Broker(home, release, **settings) as broker:
            rows = ask(client, "offsets", broker, topics=names)["offsets"]
    ends = {(row["topic"], row["partition"]): row["end"] for row in rows}
    with LogDir.open(broker.log_dir) as logs:
        for turn, name in zip(turns, names, strict=True):
            notes = crashed / f"{turn}.{crash_writer.NOTES}"
            noted = crash_writer.noted(notes.read_bytes()) if notes.exists() else {}
            stored = crash_writer.values(logs, name)
            assert [place for place, body in noted.items() if stored.get(place) != body] == []
            assert all(ends[name, partition] == logs.log(name, partition).log_end_offset for partition in range(3))
            acknowledged.append(noted)
    return acknowledged


def _replace(served: Path, crashed: Path) -> None:
    """Replace the files of a partition, but not the id of its topic."""
    for path in served.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    if crashed.is_dir():
        for path in crashed.iterdir():
            if path.name != "partition.metadata":
                shutil.copyfile(path, served / path.name)


def _killed_writer(root: Path, flush: str, least: int, append: str = "write") -> set[str]:
    told: set[str] = set()
    command = [sys.executable, "-c", WRITER, str(root), flush, append]
    # The child finds the modules beside this one as pytest does.
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=found) as child:
        assert child.stdout is not None
        while len(told) < least:
            line = child.stdout.readline()
            assert line, "the writer ended by itself"
            told |= set(line.split())
        child.kill()
        rest = child.stdout.read()
    # Whole lines alone: the last one may be cut off.
    for line in re.findall(r"[^\n]*\n", rest):
        told |= set(line.split())
    return told


def _wait_for(broker: Driver, end: int) -> int:
    patience = time.monotonic() + 60
    while True:
        state: dict[str, Any] = broker.ask("store_state")
        if state["max_phy_offset"] > end:
            return int(state["max_phy_offset"])
        assert time.monotonic() < patience
        time.sleep(0.001)


def _every_message_is_whole(root: Path) -> None:
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report.findings[:3]


def _start(broker: Driver, root: Path) -> None:
    assert broker.ask("store_load", root=root, config=ONE_INDEX)["ok"]
    broker.ask("store_start")
