"""A real Kafka broker that moves its segments to remote storage, and what its consumer reads before and after."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_broker import Broker
from kafka_classes import Classes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SEGMENT_BYTES = 4_000
SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "segment.index.bytes": "1024",
    "index.interval.bytes": "300",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "local.retention.ms": "-1",
    "local.retention.bytes": "-1",
}
PRODUCER = {"linger.ms": "5", "acks": "all"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {}),
    "packed": (1, {"compression.type": "zstd"}),
    "transactions": (1, {"transactional.id": "shop"}),
}
"""Partitions, and settings of the producer."""
PHASES = 3
"""The broker is restarted between them, which begins a new leader epoch."""
RECORDS = 60
"""Records of each topic in each phase."""
WAIT_SECONDS = 90

_LOCAL = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def local_plugin(remote: Path) -> dict[str, object]:
    """Return the settings of Kafka's own plugin, which it has for its tests."""
    return {"remote.log.storage.manager.class.name": _LOCAL, "rsm.config.dir": remote}


@dataclass
class Tiered:
    """What a broker wrote, and what its consumer read.

    Attributes:
        before: The log directory with all segments.
        after: The log directory without the segments that were moved away.
        remote: The remote storage.
        served: The records that a consumer got before the segments were deleted and after, by the level of isolation.
        offsets: The offsets of each partition at the end.
    """

    before: Path
    after: Path
    remote: Path
    served: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    offsets: list[dict[str, Any]] = field(default_factory=list)


def run(home: Path, plugin: Callable[[int], Mapping[str, object]], remote: Path) -> Tiered:
    """Produce, move all closed segments to remote storage, and delete them from the broker's disk.

    `plugin` returns the settings of the plugin in a phase, for the broker.
    """
    log_dir = home / "logs"
    tiered = Tiered(home / "before", home / "after", remote)
    with Classes(home) as client:
        for phase in range(PHASES):
            with _broker(home, plugin(phase)) as broker:
                if phase == 0:
                    topics = {name: {"partitions": parts, "settings": SETTINGS} for name, (parts, _) in TOPICS.items()}
                    _until(partial(_created, client, broker, topics))
                for number, (name, (partitions, producer)) in enumerate(TOPICS.items()):
                    client.ask(
                        "produce",
                        bootstrap=broker.address,
                        topic=name,
                        partitions=partitions,
                        first=phase * RECORDS,
                        count=RECORDS,
                        seed=10 * phase + number,
                        config={**PRODUCER, **producer},
                    )
                _until(partial(_copied, client, broker, log_dir))
                if phase == PHASES - 1:
                    tiered.served |= _served(client, broker, "before")
        shutil.copytree(log_dir, tiered.before)
        with _broker(home, plugin(PHASES - 1)) as broker:
            limit = {"local.retention.bytes": "1"}
            client.ask("configure_topics", bootstrap=broker.address, topics=list(TOPICS), settings=limit)
            _until(lambda: all(len(_bases(log_dir, row)) == 1 for row in _offsets(client, broker)))
            tiered.served |= _served(client, broker, "after")
            tiered.offsets = _offsets(client, broker)
            # A log file waits for its deletion under another name.
            _until(lambda: not list(log_dir.glob("*/*.deleted")))
    shutil.copytree(log_dir, tiered.after)
    return tiered


def _broker(home: Path, plugin: Mapping[str, object]) -> Broker:
    return Broker(
        home,
        remote_log_storage_system_enable="true",
        remote_log_metadata_manager_listener_name="PLAINTEXT",
        remote_log_manager_task_interval_ms=300,
        log_retention_check_interval_ms=300,
        log_initial_task_delay_ms=100,
        file_delete_delay_ms=100,
        log_segment_delete_delay_ms=100,
        transaction_state_log_replication_factor=1,
        transaction_state_log_min_isr=1,
        transaction_state_log_num_partitions=1,
        rlmm_config_remote_log_metadata_topic_replication_factor=1,
        rlmm_config_remote_log_metadata_topic_num_partitions=1,
        rlmm_config_remote_log_metadata_initialization_retry_interval_ms=300,
        **plugin,
    )


def _until(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if is_done():
                return
        except RuntimeError:
            # The broker starts, or is electing a leader.
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise TimeoutError(f"{WAIT_SECONDS} s")
        time.sleep(0.3)


def _created(client: Classes, broker: Broker, topics: Mapping[str, object]) -> bool:
    client.ask("create_topics", bootstrap=broker.address, topics=topics)
    return True


def _offsets(client: Classes, broker: Broker) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.ask("offsets", bootstrap=broker.address, topics=list(TOPICS))["offsets"]
    return rows


def _bases(log_dir: Path, row: Mapping[str, Any]) -> list[int]:
    return sorted(int(path.stem) for path in log_dir.glob(f"{row['topic']}-{row['partition']}/*.log"))


def _copied(client: Classes, broker: Broker, log_dir: Path) -> bool:
    """Return whether the last tiered offset of each partition is that before its active segment."""
    return all(row["lastTiered"] + 1 == _bases(log_dir, row)[-1] for row in _offsets(client, broker))


def _served(client: Classes, broker: Broker, when: str) -> dict[str, list[dict[str, Any]]]:
    levels = ("read_uncommitted", "read_committed")
    topics = list(TOPICS)
    return {
        f"{when} {level}": client.ask("consume", bootstrap=broker.address, topics=topics, isolation=level)["records"]
        for level in levels
    }
