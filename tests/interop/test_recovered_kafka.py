"""Real brokers start with damaged log directories that `kafka.recover` repaired, and serve every record that was not damaged."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import kafka_damage
from kafka_broker import RELEASES, Broker
from kafka_classes import Classes
from logdex.kafka import LogDir, checkpoint, recover
from test_written_kafka import BROKER, ask, make, read, served, wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAMAGES = int(os.environ.get("LOGDEX_INTEROP_DAMAGES", "48"))
"""Damaged partitions of a broker."""
SOURCES = 6
"""Partitions of the directory that they are copies of."""


def _fill(made: Path, log_dir: Path) -> None:
    """Replace the files of a stopped broker's partitions, except their topic ids."""
    for number in range(DAMAGES):
        target = log_dir / f"orders-{number}"
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (made / f"orders-{number % SOURCES}").iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, target)


def _damage(made: Path, log_dir: Path, rng: random.Random) -> set[tuple[str, int, int]]:
    """Damage every partition and the files of the directory, and return the records in batches that were touched."""
    lost: set[tuple[str, int, int]] = set()
    for number in range(DAMAGES):
        touched, _ = kafka_damage.damage_directory(
            rng, log_dir / f"orders-{number}", made / f"orders-{number % SOURCES}"
        )
        lost |= touched
    for number in range(0, DAMAGES, 7):
        path = log_dir / f"orders-{number}" / "partition.metadata"
        path.write_bytes(rng.choice((bytes(43), b"", path.read_bytes()[:-5])))
    for name in checkpoint.LOG_DIR_FILES[1:3]:
        (log_dir / name).write_bytes(bytes(20))
    (log_dir / "lost+found").mkdir(exist_ok=True)
    return lost


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", ["clean", "unclean"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_starts_with_a_repaired_directory(
    release: str, stop: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    made = tmp_path / "made"
    make(made)
    rng = random.Random(f"{release} {stop}")
    with Classes(tmp_path) as client:
        topic = {"orders": {"partitions": DAMAGES, "settings": {"retention.ms": "-1"}}}
        with Broker(tmp_path, release, **BROKER) as broker:
            ask(client, "create_topics", broker, topics=topic)
            ask(client, "offsets", broker, topics=["orders"])
        log_dir = broker.log_dir
        _fill(made, log_dir)
        lost = _damage(made, log_dir, rng)
        if stop == "unclean":
            (log_dir / checkpoint.CLEAN_SHUTDOWN).unlink()
        report = recover(log_dir)
        assert [each.path for each in report.left] == [str(log_dir / "lost+found")]
        (log_dir / "lost+found").rmdir()
        with LogDir.open(log_dir) as logs:
            assert logs.verify().ok
        expected = read(log_dir, ["orders"])
        held = {row[:3]: row[3:] for row in expected["read_uncommitted"]}
        whole = read(made, ["orders"])["read_uncommitted"]
        copies = [(number, row) for number in range(DAMAGES) for row in whole if row[1] == number % SOURCES]
        missing = [row for number, row in copies if held.get(("orders", number, row[2])) != row[3:]]
        kept = [(number, row) for number, row in copies if ("orders", number, row[2]) not in lost]
        assert all(held[("orders", number, row[2])] == row[3:] for number, row in kept)
        told = (tmp_path / "broker.log").stat().st_size
        with Broker(tmp_path, release, **BROKER) as broker:
            wait_for_ends(client, broker, log_dir, ["orders"])
            assert served(client, broker, ["orders"]) == expected
            produced: dict[str, Any] = {
                "topic": "orders",
                "partitions": DAMAGES,
                "first": 0,
                "count": DAMAGES,
                "seed": 1,
            }
            ask(client, "produce", broker, **produced, config={"acks": "all"})
            assert len(served(client, broker, ["orders"])["read_uncommitted"]) == len(held) + DAMAGES
        with (tmp_path / "broker.log").open(errors="replace") as log:
            log.seek(told)
            lines = log.read().splitlines()
    assert lines
    words = (" ERROR ", "orrupt", "alformed", "tray", "recovering segment", "Found invalid")
    assert [line for line in lines if any(word in line for word in words)] == []
    say(
        f"{DAMAGES} damaged partitions, {report.checked['restored_batches']} batches restored, {len(missing)} records lost of "
        f"{len(copies)}, {len(copies) - len(kept)} of them in damaged batches: a {release} broker served the other ones after "
        f"a{'n' if stop == 'unclean' else ''} {stop} stop"
    )
