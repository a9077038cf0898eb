"""A writer is killed during its puts, and the other side continues with its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter
from rocketmq_driver import Driver
from traffic_store import columns, mixture
from written_store import FILE_SIZE, ONE_INDEX, ONE_INDEX_SIZES, both_say_the_same, broker_puts, log_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
