"""`logdex du`: counts by the queues and segments, against every message and record."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 86_400_000


def day_of(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, timezone.utc).date().isoformat()


@pytest.mark.parametrize("case", golden.STORES)
def test_queues_count_their_messages(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    with MessageStore.open(root) as opened:
        sizes = {row["phy_offset"]: row["store_size"] for row in logdex_command("cat", root, "--json").rows}
        truth: dict[tuple[str, int], tuple[int, int]] = {}
        for row in golden.rows(case, "queues"):
            if row["maxOffset"] <= row["minOffset"]:
                continue
            queue = opened.queue(row["topic"], row["queueId"])
            units = queue.units(queue.min_offset)
            if units.num_rows:
                offsets = units.column("phy_offset").to_pylist()
                messages = (
                    units.column("messages").to_pylist() if "messages" in units.column_names else [1] * len(offsets)
                )
                truth[row["topic"], row["queueId"]] = (sum(messages), sum(sizes.get(at, 0) for at in offsets))
    rows = logdex_command("du", root, "--by", "queue", "--json").rows
    counted = {(row["topic"], row["queue_id"]): (row["messages"], row["log_bytes"]) for row in rows}
    assert {queue: counts for queue, counts in counted.items() if counts[0]} == truth
    by_topic = {row["topic"]: row["messages"] for row in logdex_command("du", root, "--json").rows}
    assert sum(by_topic.values()) == sum(messages for messages, _ in truth.values())


def test_days_of_a_store(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    first = 1_700_000_000_000
    times = [first, first + 1, first + DAY_MS, first + 3 * DAY_MS, first + 3 * DAY_MS + 5]
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        for number, time in enumerate(times):
            writer.put_message("T", queue_id=number % 2, body=b"x" * number, store_timestamp=time)
        writer.put_message("Other", store_timestamp=times[-1])
    rows = logdex_command("du", tmp_path / "store", "--by", "day", "--json").rows
    assert {row["day"]: row["messages"] for row in rows} == Counter(map(day_of, [*times, times[-1]]))
    assert sum(row["log_bytes"] for row in rows) == sum(
        row["store_size"] for row in logdex_command("cat", tmp_path / "store", "--json").rows
    )


@pytest.mark.parametrize("case", ["codecs", "compacted", "timestamps", "transactions"])
def test_partitions_count_their_offsets(case: str, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden_kafka.unpack(case, tmp_path / case)
    with LogDir.open(root) as logs:
        opened = [logs.log(each.topic, each.partition) for each in logs.partitions()]
        truth = {(log.topic, log.partition): (log.log_end_offset - log.log_start_offset, log.size) for log in opened}
    rows = logdex_command("du", root, "--by", "queue", "--json").rows
    assert {(row["topic"], row["queue_id"]): (row["messages"], row["log_bytes"]) for row in rows} == truth
    days = logdex_command("du", root, "--by", "day", "--json").rows
    assert sum(row["messages"] for row in days) == sum(messages for messages, _ in truth.values())
    assert sum(row["log_bytes"] for row in days) <= sum(size for _, size in truth.values())
    assert len({row["day"] for row in days}) == len(days)


def test_a_table_ends_with_the_sum(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    lines = logdex_command("du", store("basic")).out.splitlines()
    assert lines[0].split() == ["topic", "messages", "bytes"]
    assert lines[-1].split()[:2] == ["total", "560"]
    refused = logdex_command("du", store("basic") / "index")
    assert (refused.code, refused.out) == (2, "")
    assert "expected a store, or a Kafka log directory" in refused.err


def test_parts_are_the_files_of_the_directory(
    store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    for path, wanted in (
        (root, {"log", "index", "queues", "tables", "other"}),
        (logs, {"log", "indexes", "snapshots", "other"}),
    ):
        rows = logdex_command("du", path, "--by", "part", "--json").rows
        assert {row["part"] for row in rows} == wanted
        files = [file for file in path.rglob("*") if file.is_file()]
        assert sum(row["files"] for row in rows) == len(files) > 40
        assert sum(row["file_bytes"] for row in rows) == sum(file.stat().st_size for file in files)
        assert sum(row["disk_bytes"] for row in rows) == sum(file.stat().st_blocks * 512 for file in files)
        assert [row["file_bytes"] for row in rows] == sorted((row["file_bytes"] for row in rows), reverse=True)
        assert logdex_command("du", path, "--by", "part").out.splitlines()[-1].split()[:2] == ["total", str(len(files))]
    (log,) = (row for row in logdex_command("du", root, "--by", "part", "--json").rows if row["part"] == "log")
    assert log["free_bytes"] == log["file_bytes"] - 313_165
    # A file that was made ahead takes no disk.
    sparse = root / "commitlog" / "00000000000000327680"
    with sparse.open("wb") as file:
        file.truncate(65_536)
    (more,) = (row for row in logdex_command("du", root, "--by", "part", "--json").rows if row["part"] == "log")
    assert (more["disk_bytes"], more["free_bytes"]) == (log["disk_bytes"], log["free_bytes"] + 65_536)
    assert "expected a store" in logdex_command("du", root / "index", "--by", "part").err


def test_the_largest_come_first(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    lines = logdex_command("du", store("basic")).out.splitlines()
    rows = {row["topic"]: row["log_bytes"] for row in logdex_command("du", store("basic"), "--json").rows}
    topics = [line.split()[0] for line in lines[1:-1]]
    assert topics == sorted(rows, key=lambda topic: -rows[topic])
    assert lines[-1].startswith("total")
