"""Which rows `cat` and `export` choose: by topics, keys, tags, offsets, from the end, and those that come later."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from kafka_batches import Row, batch, write_segment
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Rows = list[dict[str, Any]]


@pytest.fixture
def cat(logdex_command: Callable[..., Any]) -> Callable[..., Rows]:
    def run(*words: object) -> Rows:
        rows: Rows = logdex_command("cat", *words, "--json").rows
        return rows

    return run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return golden_kafka.unpack("transactions", tmp_path / "transactions")


def test_several_topics(store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store("basic")
    rows = cat(root)
    assert cat(root, "--topic", "t", "--topic", "AaTopic") == [row for row in rows if row["topic"] in ("t", "AaTopic")]
    assert {row["topic"] for row in rows} > {"t", "AaTopic"}


def test_keys_and_tags(store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store("basic")
    rows = cat(root)
    some = [row for row in rows if {"BB", "Aa"} & {*(row["keys"] or "").split(" ")}]
    assert cat(root, "--key", "BB", "--key", "Aa") == some
    assert cat(root, "--tag", "TagA") == [row for row in rows if row["tags"] == "TagA"]
    assert cat(root, "--tag", "TagA", "--key", "BB", "--key", "Aa") == [row for row in some if row["tags"] == "TagA"]


def test_an_offset_is_of_the_log_or_of_the_queue(store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store("basic")
    rows = cat(root)
    middle = rows[len(rows) // 2]["phy_offset"]
    assert cat(root, "--offset", middle) == [row for row in rows if row["phy_offset"] >= middle]
    queue = [row for row in rows if (row["topic"], row["queue_id"]) == ("TopicTest", 0)]
    chosen = ("--topic", "TopicTest", "--queue", 0)
    for number in (0, 7, len(queue) - 1):
        assert cat(root, *chosen, "--offset", queue[number]["queue_offset"]) == queue[number:]
    assert cat(root, *chosen, "--offset", queue[-1]["queue_offset"] + 1) == []


@pytest.mark.parametrize("case", golden.STORES)
def test_the_tail_is_the_end(case: str, store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store(case)
    rows = cat(root)
    for num in (1, 5, len(rows) + 1):
        assert cat(root, "--tail", num) == rows[-num:]
    assert cat(root, "--tail", 0) == []
    topic = rows[0]["topic"]
    of_topic = [row for row in rows if row["topic"] == topic]
    assert cat(root, "--topic", topic, "--tail", 2) == of_topic[-2:]
    # A filter that the queues cannot answer leads farther back.
    assert (
        cat(root, "--end", rows[0]["store_timestamp"], "--tail", 3)
        == [row for row in rows if row["store_timestamp"] <= rows[0]["store_timestamp"]][-3:]
    )


def test_the_tail_of_a_log_without_queues(store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store("basic")
    assert cat(root / "commitlog", "--tail", 3) == cat(root)[-3:]


def test_times_before_the_end(store: Callable[[str], Path], cat: Callable[..., Rows]) -> None:
    root = store("basic")
    rows = cat(root)
    last = max(row["store_timestamp"] for row in rows)
    assert cat(root, "--begin", "end-9s") == [row for row in rows if row["store_timestamp"] >= last - 9_000]
    assert cat(root, "--begin", "end-12s", "--end", "end-9s") == [
        row for row in rows if last - 12_000 <= row["store_timestamp"] <= last - 9_000
    ]
    assert [row["store_timestamp"] for row in cat(root, "--begin", "end")] == [last]


def test_records_of_kafka(logs: Path, cat: Callable[..., Rows]) -> None:
    rows = cat(logs)
    with LogDir.open(logs) as opened:
        partitions = [(each.topic, each.partition) for each in opened.partitions()]
    tail = cat(logs, "--tail", 2)
    for topic, partition in partitions:
        of_partition = [row for row in rows if (row["topic"], row["partition"]) == (topic, partition)]
        assert [row for row in tail if (row["topic"], row["partition"]) == (topic, partition)] == of_partition[-2:]
    committed = cat(logs, "--isolation", "read_committed")
    assert 0 < len(committed) < len(rows)
    assert [row for row in rows if row in committed] == committed
    topic, partition = partitions[0]
    chosen = ("--topic", topic, "--queue", partition)
    assert cat(logs, *chosen, "--offset", 3) == [row for row in cat(logs, *chosen) if row["offset"] >= 3]


def test_options_of_the_other_broker_are_refused(
    store: Callable[[str], Path], logs: Path, logdex_command: Callable[..., Any]
) -> None:
    ran = logdex_command("cat", store("basic"), "--isolation", "read_committed")
    assert (ran.code, ran.out) == (2, "")
    assert "--isolation: expected Kafka records" in ran.err
    ran = logdex_command("cat", logs, "--tag", "TagA")
    assert (ran.code, ran.out) == (2, "")
    assert "--tag: expected RocketMQ messages" in ran.err


def test_follow_prints_what_comes(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        writer.put_message("T", keys="k0")
        writer.flush()
        words = ["cat", str(tmp_path / "store"), "--tail", "1", "--follow", "--limit", "4", "--json"]
        process = subprocess.Popen([sys.executable, "-m", "logdex", *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert json.loads(next(lines))["keys"] == "k0"
        for number in (1, 2, 3):
            writer.put_message("T", keys=f"k{number}")
            assert json.loads(next(lines))["keys"] == f"k{number}"
        assert process.wait(60) == 0
        process.stdout.close()


@contextmanager
def _following(path: Path) -> Iterator[tuple[Callable[[], Any], Callable[[], str]]]:
    """Run `cat --follow`; return functions that wait for the next row and for the next line on standard error."""
    words = [sys.executable, "-m", "logdex", "cat", str(path), "--tail", "1", "--follow", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout, process.stderr
        try:
            yield lambda: json.loads(out.readline()), err.readline
        finally:
            process.kill()


def test_follow_of_a_partition_says_that_it_was_truncated_or_deleted(tmp_path: Path) -> None:
    place = tmp_path / "orders-0"
    path = write_segment(place, 0, *(batch([Row(offset)]) for offset in range(10)))
    size = path.stat().st_size // 10
    with _following(place) as (row, line):
        assert row()["offset"] == 9
        os.truncate(path, 4 * size)
        assert line() == "logdex: orders-0 was truncated: it ends at offset 4, and ended at 10\n"
        with path.open("ab") as file:
            file.write(batch([Row(4)]))
        assert row()["offset"] == 4
        # As with a broker, the new segment exists before the old one is deleted.
        write_segment(place, 20, batch([Row(20)]))
        path.unlink()
        assert line() == "logdex: orders-0 begins at offset 20 now: from 5 on it was deleted unread\n"
        assert row()["offset"] == 20


def test_follow_of_a_store_says_that_its_log_was_truncated(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", services=False, file_size=65_536, hash_slots=9, max_entries=99) as writer:
        for number in range(3):
            writer.put_message("T", keys=f"k{number}")
    (path,) = (tmp_path / "store/commitlog").iterdir()
    with MessageStore.open(tmp_path / "store") as store:
        offsets = [message.phy_offset for message in [store.find("T", f"k{number}")[0] for number in range(3)]]
        end = store.commit_log.max_offset
    whole = path.read_bytes()
    with _following(tmp_path / "store/commitlog") as (row, line):
        assert row()["keys"] == "k2"
        path.write_bytes(whole[: offsets[1]].ljust(len(whole), b"\0"))
        assert line() == f"logdex: the log was truncated: it ends at offset {offsets[1]:,}, and ended at {end:,}\n"
        path.write_bytes(whole)
        assert [row()["keys"], row()["keys"]] == ["k1", "k2"]


def test_find_and_build_index_take_a_kafka_directory(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "codecs")
    row = next(row for row in logdex_command("cat", logs, "--json").rows if row["key"] is not None)
    words = (logs, row["topic"], row["key"], "--json")
    found = logdex_command("find", *words)
    assert found == logdex_command("kafka", "find", *words)
    assert row["offset"] in [each["offset"] for each in found.rows]
    built = logdex_command("build-index", logs, tmp_path / "index", "--topic", row["topic"])
    assert built.code == 0, built.err
    by_index = logdex_command("find", *words, "--index", tmp_path / "index")
    assert (by_index.code, by_index.rows, by_index.err) == (0, found.rows, "")
    refused = logdex_command("find", golden.path("basic"), "T", "k", "--header", "h")
    assert refused.code == 2


def test_find_reads_keys_from_standard_input(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store("basic")
    keys = ["BB", "nobody's", "Aa"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*keys, "", "BB"])))
    ran = logdex_command("find", root, "AaTopic", "-", "--json")
    expected = [row for key in keys for row in logdex_command("find", root, "AaTopic", key, "--json").rows]
    assert (ran.code, ran.rows) == (1, expected)
    assert ran.err == 'logdex: nothing found for 1 of 3 keys, the first is "nobody\'s"\n'
    monkeypatch.setattr("sys.stdin", io.StringIO("BB\nAa\n"))
    assert logdex_command("find", root, "AaTopic", "-", "--max", 1).code == 0
