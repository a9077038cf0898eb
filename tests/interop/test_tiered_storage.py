"""A real broker moves its segments to remote storage, and logdex reads both sides as its consumer does."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tiered_cluster
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.timeout(400)
def test_a_broker_and_its_remote_storage_are_one_log(tmp_path: Path, say: Callable[[str], None]) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    tiered = tiered_cluster.run(tmp_path, lambda _phase: tiered_cluster.local_plugin(remote), remote)
    for level in ("read_uncommitted", "read_committed"):
        served = tiered.served[f"before {level}"]
        assert tiered.served[f"after {level}"] == served
        expected = [
            (*_key(row), row["timestamp"], row["leaderEpoch"], _bytes(row["key"]), _bytes(row["value"]))
            for row in sorted(served, key=_key)
        ]
        names = ["topic", "partition", "offset", "timestamp", "partitionLeaderEpoch", "key", "value"]
        with LogDir.open(tiered.after, tiered=remote) as logs:
            topics = list(tiered_cluster.TOPICS)
            read = pa.table(logs.records(topics, columns=names, isolation=level))
        times = pa.compute.cast(read.column("timestamp"), pa.int64())
        read = read.set_column(3, "timestamp", times)
        assert [tuple(row.values()) for row in read.to_pylist()] == expected
        say(f"{len(expected)} records of a broker's tiered topics, {level}, equal to the consumer's before and after")
    with LogDir.open(tiered.after) as logs:
        kept = pa.table(logs.records(list(tiered_cluster.TOPICS), columns=["offset"])).num_rows
    assert kept < len(tiered.served["before read_uncommitted"])
    with LogDir.open(tiered.after, tiered=remote) as logs:
        for row in tiered.offsets:
            log = logs.log(row["topic"], row["partition"])
            assert (log.log_start_offset, log.log_end_offset) == (row["first"], row["end"])
            assert log.verify().ok
