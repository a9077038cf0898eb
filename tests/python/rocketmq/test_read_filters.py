"""Filters of a read: the Rust scan returns exactly the rows that the same conditions select from a full scan."""

from __future__ import annotations

import os
import random
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import golden
from logdex._core import MessageFilter
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261122
COLUMNS = ["topic", "queue_id", "queue_offset", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags"]
WAYS: list[dict[str, Any]] = [
    {"stop": "broker"},
    {"stop": "broker", "threads": 2},
    {"stop": "salvage"},
    {"stop": "valid"},
    {"stop": "valid", "threads": 2},
]
Row = dict[str, Any]


def carries(row: Row, key: str) -> bool:
    return bool(key) and (row["uniq_key"] == key or key in (row["keys"] or "").split(" "))


def passes(row: Row, asked: dict[str, Any]) -> bool:
    """Evaluate the conditions in plain Python."""
    return (
        ("topics" not in asked or row["topic"] in asked["topics"])
        and ("queue_ids" not in asked or row["queue_id"] in asked["queue_ids"])
        and ("begin" not in asked or row["store_timestamp"] >= asked["begin"])
        and ("end" not in asked or row["store_timestamp"] <= asked["end"])
        and ("begin_phy_offset" not in asked or row["phy_offset"] >= asked["begin_phy_offset"])
        and ("end_phy_offset" not in asked or row["phy_offset"] < asked["end_phy_offset"])
        and ("begin_queue_offset" not in asked or row["queue_offset"] >= asked["begin_queue_offset"])
        and ("end_queue_offset" not in asked or row["queue_offset"] < asked["end_queue_offset"])
        and ("keys" not in asked or any(carries(row, key) for key in asked["keys"]))
        and ("tags" not in asked or row["tags"] in asked["tags"])
    )


def rows_of(stream: Any) -> list[Row]:
    table = pa.table(stream)
    at = table.schema.get_field_index("store_timestamp")
    times = table.column("store_timestamp").cast(pa.int64())
    rows: list[Row] = table.set_column(at, "store_timestamp", times).to_pylist()
    return rows


def conditions(rows: list[Row], chance: random.Random) -> dict[str, Any]:
    """Choose conditions that some of the rows match."""
    some = [chance.choice(rows) for _ in range(chance.randint(1, 6))]
    words = [word for row in some for word in [row["uniq_key"], *(row["keys"] or "").split(" ")] if word]
    every = {
        "topics": [row["topic"] for row in some] + ["nobody's"],
        "queue_ids": [row["queue_id"] for row in some] + [2**40],
        "begin": min(row["store_timestamp"] for row in some),
        "end": max(row["store_timestamp"] for row in some),
        "begin_phy_offset": min(row["phy_offset"] for row in some),
        "end_phy_offset": max(row["phy_offset"] for row in some) + 1,
        "begin_queue_offset": min(row["queue_offset"] for row in some),
        "end_queue_offset": max(row["queue_offset"] for row in some) + 1,
        "keys": [*words, "", "no such key", "\ud800"],
        "tags": [row["tags"] for row in some if row["tags"] is not None] + ["no such tag"],
    }
    names = chance.sample(sorted(every), chance.randint(1, 4))
    return {name: every[name] for name in names}


def findings(reader: Any) -> list[Any]:
    return [(each.path, each.offset, each.kind, each.expected, each.found) for each in reader.report.findings]


@pytest.mark.parametrize("name", [*golden.STORES, *(f"damaged {name}" for name in golden.DAMAGED)])
def test_a_filtered_scan_returns_what_the_conditions_choose(
    name: str, store: Callable[[str], Path], damaged_store: Callable[[str], Path]
) -> None:
    """Findings and the values of `suspect` are those of a scan without a filter."""
    root = damaged_store(name.removeprefix("damaged ")) if name.startswith("damaged ") else store(name)
    chance = random.Random(f"{SEED} {name}")
    compared = 0
    with CommitLog.open(root / "commitlog") as log:
        for options in WAYS:
            whole = log.scan(columns=COLUMNS, **options)
            rows = rows_of(whole.read_all())
            assert rows == rows_of(log.scan(columns=COLUMNS, **{**options, "threads": 1}).read_all())
            if not rows:
                continue
            for _ in range(12):
                asked = conditions(rows, chance)
                reader = log.scan(columns=COLUMNS, selection=MessageFilter(**asked), **options)
                found = rows_of(reader.read_all())
                assert found == [row for row in rows if passes(row, asked)], (SEED, options, asked)
                assert findings(reader) == findings(whole)
                assert reader.end_offset == whole.end_offset
                compared += 1
    assert compared or "log" in name


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_messages_takes_topics_keys_and_tags(seed: int, filtered_store: MessageStore) -> None:
    rows = rows_of(filtered_store.messages(columns=COLUMNS))
    chance = random.Random(seed)
    asked = {name: value for name, value in conditions(rows, chance).items() if name in ("topics", "keys", "tags")}
    expected = [row for row in rows if passes(row, asked)]
    for scan in (True, False):
        assert rows_of(filtered_store.messages(columns=COLUMNS, scan=scan, **asked)) == expected, asked


@pytest.fixture(scope="module")
def filtered_store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    root = tmp_path_factory.mktemp("filters")
    with StoreWriter.open(root, file_size=1 << 16, hash_slots=100, max_entries=2000) as writer:
        for number in range(400):
            writer.put_message(
                f"topic-{number % 5}",
                f"body {number}".encode(),
                keys=f"key-{number % 7} key-{number % 11}" if number % 3 else None,
                tags=f"tag-{number % 4}" if number % 2 else None,
            )
    return MessageStore.open(root)


def test_one_text_instead_of_several_is_refused(filtered_store: MessageStore) -> None:
    text: dict[str, Any]
    number: dict[str, Any]
    for name in ("topics", "keys", "tags"):
        text, number = {name: "text"}, {name: [7]}
        with pytest.raises(TypeError, match=f"{name}: expected str, found int"):
            filtered_store.messages(**number)
        if name == "topics":
            continue
        with pytest.raises(TypeError, match=f"{name}: expected an iterable of str, found one str"):
            filtered_store.messages(**text)


def test_topic_and_topics_hold_together(filtered_store: MessageStore) -> None:
    def count(**asked: Any) -> int:
        return int(pa.table(filtered_store.messages(columns=["topic"], **asked)).num_rows)

    assert count(topic="topic-1", topics=["topic-1", "topic-2"]) == count(topic="topic-1") == 80
    assert count(topics="topic-1") == 80
    assert count(topic="topic-1", topics=["topic-2"]) == count(topics=[]) == count(keys=[]) == 0
    assert count(topics=["topic-1", "topic-2"], scan=False) == 160


def test_threads_read_the_same_messages_in_the_same_order(store: Callable[[str], Path]) -> None:
    compared = 0
    for name in golden.STORES:
        with MessageStore.open(store(name)) as messages:
            for topic in [None, *messages.topics]:
                for scan in (True, False):
                    one, two, many = (
                        pa.table(messages.messages(topic, scan=scan, threads=number)) for number in (1, 2, None)
                    )
                    assert two.equals(one), (name, topic, scan)
                    assert many.equals(one), (name, topic, scan)
                    compared += one.num_rows
    assert compared > 5_000


def test_threads_share_the_messages_of_queues(tmp_path: Path) -> None:
    """Shares have at least 256 messages. One body cannot be inflated."""
    bodies = [zlib.compress(f"body {number} ".encode() * 40) for number in range(2_500)]
    bodies[1_700] = bodies[1_700][:-1]
    with StoreWriter.open(tmp_path, file_size=1 << 18) as writer:
        writer.put_messages(
            {
                "topic": [f"topic-{number % 2}" for number in range(len(bodies))],
                "queue_id": pa.array([number // 2 % 3 for number in range(len(bodies))], pa.int32()),
                "body": bodies,
                "sys_flag": pa.array([1] * len(bodies), pa.int32()),
                "tags": [f"tag-{number % 5}" for number in range(len(bodies))],
            },
            body="stored",
        )
    with MessageStore.open(tmp_path) as messages:
        conditions: list[dict[str, Any]] = [{}, {"tags": ["tag-2"]}, {"columns": ["phy_offset", "body_error"]}]
        for asked in conditions:
            one = pa.table(messages.messages("topic-0", scan=False, threads=1, **asked))
            assert one["phy_offset"].to_pylist() == sorted(one["phy_offset"].to_pylist())
            for threads in (2, 3, 7):
                for scan in (True, False):
                    found = pa.table(messages.messages("topic-0", scan=scan, threads=threads, **asked))
                    assert found.equals(one), (asked, threads, scan)
            assert one.num_rows == (250 if "tags" in asked else 1_250)
            assert one["body_error"].null_count == one.num_rows - ("tags" not in asked)


def test_a_scan_with_threads_is_refused_in_a_forked_process(store: Callable[[str], Path]) -> None:
    with CommitLog.open(store("basic") / "commitlog") as log:
        reader = log.scan(threads=2, batch_size=1)
        next(reader)
        with warnings.catch_warnings():
            # Python warns about threads in general.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                next(reader)
            except ValueError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list(reader)) == 552


@pytest.mark.parametrize("threads", [0, -1, 65])
def test_a_number_of_threads_out_of_range_is_refused(filtered_store: MessageStore, threads: int) -> None:
    for scan in (True, False):
        with pytest.raises(ValueError, match=f"threads={threads}: expected 1 to 64, or None"):
            list(filtered_store.messages("topic-1", scan=scan, threads=threads))
