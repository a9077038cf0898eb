"""Offsets that consumer groups committed, as the files of a stopped Kafka broker tell, against the broker's own answer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from kafka_broker import JARS, Broker
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE = {f"transaction_state_log_{name}": 1 for name in ("replication_factor", "min_isr", "num_partitions")}


def test_the_files_tell_what_the_broker_says(tmp_path: Path, say: Callable[[str], None]) -> None:
    java = shutil.which("java")
    assert java is not None
    with Broker(tmp_path, **ONE) as broker:
        _wait_for(broker.address)
        classes = f"{JARS.parent / 'interop-kafka.jar'}:{JARS}/*"
        command = [java, "-cp", classes, "logdex.interop.kafka.Groups", broker.address]
        asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    with LogDir.open(broker.log_dir) as logs:
        told = {f"{each.group} {each.topic} {each.queue_id} {each.offset}" for each in logs.groups()}
    assert told == set(asked.stdout.splitlines())
    assert len(told) == 4
    say(f"offsets of consumer groups: {len(told)} alike")


def _wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        else:
            return
