"""`logdex groups`: where consumer groups stand, by the tables of RocketMQ and the records of Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from logdex.errors import CorruptFileError
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "kafka-groups"
# The form of a 4.9.3 broker: numbers as names are not in quotes.
TABLE = '{\n\t"offsetTable":{\n\t\t"t@second":{0:7,1:2\n\t\t},\n\t\t"gone@second":{3:1\n\t\t}\n\t}\n}'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory of a Kafka 3.9.2 broker, stopped after groups committed in every way."""
    return golden_kafka.unpack_archive(GOLDEN / "logs.tar.xz", tmp_path / "logs")


def test_the_table_of_a_broker(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    rows = logdex_command("groups", store("basic"), "--json").rows
    places = [
        (row["group"], row["topic"], row["queue_id"], row["offset"], row["end_offset"], row["lag"]) for row in rows
    ]
    queues = [("grp-c", "order_events", number, end, end, 0) for number, end in enumerate((16, 20, 19, 18))]
    assert places == [("grp-c", "%RETRY%grp-c", 0, 2, 2, 0), *queues]
    assert all(row["commit_timestamp"] is None for row in rows)


def test_both_tables_count_and_a_copy_replaces_a_damaged_one(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    (root / "config" / "consumerOffset.json").write_text(TABLE)
    rows = logdex_command("groups", root, "second", "--json").rows
    assert [(row["topic"], row["queue_id"], row["offset"], row["lag"]) for row in rows] == [
        ("gone", 3, 1, None),
        ("t", 0, 7, 64),
        ("t", 1, 2, None),
    ]
    (root / "config" / "consumerOffset.json").write_text(TABLE[:40])
    with MessageStore.open(root) as opened, pytest.raises(CorruptFileError, match=r"consumerOffset\.json at byte 0"):
        opened.groups()
    (root / "config" / "consumerOffset.json.bak").write_text(TABLE)
    assert len(logdex_command("groups", root, "second", "--json").rows) == 3


def test_the_records_of_a_broker(logs: Path, logdex_command: Callable[..., Any]) -> None:
    rows = logdex_command("groups", logs, "--json").rows
    told = {f"{row['group']} {row['topic']} {row['queue_id']} {row['offset']}" for row in rows}
    assert told == set((GOLDEN / "offsets.txt").read_text().splitlines())
    assert {row["end_offset"] for row in rows} == {10}
    assert all(row["lag"] == 10 - row["offset"] and row["commit_timestamp"] > 1_790_000_000_000 for row in rows)


def test_nothing_says_why(logs: Path, store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("groups", logs, "plan")
    assert (ran.code, ran.out, ran.err) == (1, "", "logdex: no consumer group 'plan' here; near spellings: plain\n")
    ran = logdex_command("groups", logs / "orders-0")
    assert (ran.code, ran.out) == (2, "")
    root = store("basic")
    (root / "config" / "lmqConsumerOffset.json").unlink()
    (root / "config" / "lmqConsumerOffset.json.bak").unlink()
    ran = logdex_command("groups", root)
    assert (ran.code, ran.out, ran.err) == (1, "", "logdex: no consumer group has committed an offset here\n")


def test_explain_says_who_has_read_it(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    lines = logdex_command("explain", root, "order_events", "plan-again").out.splitlines()
    assert lines[1] == "  the newest is read by the group grp-c"
    table = '{"offsetTable":{"order_events@slow":{2:0,3:0},"order_events@fast":{2:99,3:99}}}'
    (root / "config" / "consumerOffset.json").write_text(table)
    lines = logdex_command("explain", root, "order_events", "plan-again").out.splitlines()
    assert lines[1:3] == [
        "  the newest is read by the groups fast, grp-c",
        "  the newest is not yet read by the group slow",
    ]


def test_groups_as_of_a_time(store: Callable[[str], Path], logs: Path, logdex_command: Callable[..., Any]) -> None:
    rows = logdex_command("groups", logs, "--json").rows
    times = sorted(row["commit_timestamp"] for row in rows)
    earlier = logdex_command("groups", logs, "--json", "--as-of", str(times[-1] - 1)).rows
    assert [] != earlier != rows
    assert max(row["commit_timestamp"] for row in earlier) < times[-1]
    assert logdex_command("groups", logs, "--json", "--as-of", "2040-01-01T00:00:00Z").rows == rows
    refused = logdex_command("groups", store("basic"), "--as-of", "2040-01-01T00:00:00Z")
    assert (refused.code, "--as-of: expected a Kafka log directory" in refused.err) == (2, True)
