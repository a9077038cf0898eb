"""Which rows `cat` and `export` choose: by topics, keys, tags, offsets, from the end, and those that come later."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
import golden_kafka
from kafka_batches import Row, batch, write_segment
from logdex.cli import main
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


def formatted(root: Path, *words: str) -> bytes:
    command = [sys.executable, "-m", "logdex", "cat", str(root), *words]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_a_format_prints_the_bytes_of_the_rows(store: Callable[[str], Path], logs: Path) -> None:
    root = store("basic")
    with MessageStore.open(root) as opened:
        rows = pa.table(opened.messages("t")).to_pylist()
        shown = formatted(root, "-t", "t", "-f", r"%t|%p|%o|%T|%k|%K|%S|%{tags}|%{store_timestamp}|%s\0")
    texts = [row["store_timestamp"].isoformat(timespec="milliseconds").replace("+00:00", "Z") for row in rows]
    expected = [
        "|".join(
            [
                row["topic"],
                str(row["queue_id"]),
                str(row["queue_offset"]),
                str(round(row["store_timestamp"].timestamp() * 1_000)),
                row["keys"] or "",
                str(-1 if row["keys"] is None else len(row["keys"].encode())),
                str(len(row["body"])),
                row["tags"] or "",
                text,
                "",
            ]
        ).encode()
        + row["body"]
        for row, text in zip(rows, texts, strict=True)
    ]
    assert len(rows) > 50
    assert shown == b"".join(row + b"\0" for row in expected)
    with LogDir.open(logs) as opened_logs:
        records = pa.table(opened_logs.records()).to_pylist()
    lines = [
        b"%d %d %s %s" % (row["partition"], row["offset"], row["key"] or b"", row["value"] or b"") for row in records
    ]
    assert formatted(logs, "--format", "%p %o %k %s") == b"".join(line + b"\n" for line in lines)
    assert formatted(logs, "--format", "x", "--tail", "1", "-t", records[0]["topic"], "-p", "0") == b"x\n"


def test_a_format_reads_only_its_columns(store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    messages = MessageStore.messages

    def counting(opened: MessageStore, **options: Any) -> Any:
        read.append(options["columns"])
        return messages(opened, **options)

    monkeypatch.setattr(MessageStore, "messages", counting)
    for words in (["--format", "%o%o %%k"], ["--format", "x"], ["--columns", "keys, topic"], ["--columns", "body"]):
        assert main(["cat", str(store("basic")), "--limit", "2", *words]) == 0
    assert read == [["queue_offset"], ["topic"], ["keys", "topic"], ["body"]]


@pytest.mark.parametrize("text", ["%z", "%", "\\q", "%{topic"])
def test_an_unknown_letter_is_a_usage_error_with_the_letters(
    text: str, tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    ran = logdex_command("cat", tmp_path, "--format", text)
    assert (ran.code, ran.out) == (2, "")
    assert "usage: logdex cat" in ran.err
    assert "%t topic, %p queue_id or partition, %o queue_offset or offset, %T" in ran.err


def test_chosen_columns(
    store: Callable[[str], Path], logs: Path, logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("basic")
    rows = logdex_command("cat", root, "--json").rows
    names = ["keys", "phy_offset"]
    expected = [{name: row[name] for name in names} for row in rows]
    assert logdex_command("cat", root, "--columns", "keys,phy_offset", "--json").rows == expected
    line = logdex_command("cat", root, "--columns", "topic,keys,body_error,store_timestamp", "-n", 1).out
    assert line == "topic=t  keys=k0  body_error=null  store_timestamp=2026-11-21T11:30:05.105Z\n"
    assert logdex_command("cat", logs, "--columns", "offset", "-n", 2).out == "offset=0\noffset=1\n"
    assert logdex_command("export", root, tmp_path / "x.csv", "--columns", "keys,phy_offset").code == 0
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").startswith("keys,phy_offset\nk0,0\n")
    for words in (("cat", root), ("export", root, tmp_path / "y.csv"), ("cat", root, "--format", "%{keyz}")):
        ran = logdex_command(*words, *(() if "--format" in words else ("--columns", "topic,keyz")))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == "logdex: no column 'keyz' here; near spellings: keys\n"
    assert not (tmp_path / "y.csv").exists()
    assert "neither --json nor --columns" in logdex_command("cat", root, "--format", "x", "--json").err


def test_names_of_options_as_in_kafkas_tools(
    store: Callable[[str], Path], logs: Path, cat: Callable[..., Rows]
) -> None:
    root = store("basic")
    assert cat(root, "-t", "TopicTest", "-p", 0, "-n", 3) == cat(
        root, "--topic", "TopicTest", "--queue", 0, "--limit", 3
    )
    assert cat(root, "--from-beginning", "-n", 2) == cat(root)[:2]
    topic = cat(logs)[0]["topic"]
    assert cat(logs, "-t", topic, "--partition", 0) == cat(logs, "--topic", topic, "--queue", 0) != []


def test_times_are_in_the_zone(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    rows = logdex_command("cat", root, "--json").rows
    utc, berlin = "2026-11-21T11:30:08", "2026-11-21T12:30:08"
    expected = logdex_command("cat", root, "--begin", utc, "--json").rows
    assert 0 < len(expected) < len(rows)
    ran = logdex_command("cat", root, "--tz", "Europe/Berlin", "--begin", berlin)
    assert len(ran.out.splitlines()) == len(expected)
    assert ran.out.startswith("2026-11-21T12:30:08.")
    assert "+01:00  " in ran.out.splitlines()[0]
    # Before and after the times.
    assert logdex_command("cat", "--begin", berlin, root, "--tz=Europe/Berlin", "--json").rows == expected
    assert "+08:00" in logdex_command("info", root, "--tz", "Asia/Shanghai").out
    # Each run has its own zone.
    assert "+0" not in logdex_command("info", root).out
    nothing = logdex_command("cat", root, "--begin", "yesterday", "--end", "now", "--tz", "Asia/Kolkata")
    assert "messages are from 2026-11-21T17:00:05.105+05:30 to " in nothing.err
    for zone in ("Berlin", "../../etc/passwd", "x" * 300, ""):
        ran = logdex_command("cat", root, "--tz", zone)
        assert (ran.code, ran.out) == (2, "")
        assert "argument --tz: expected local, UTC or the name of a zone" in ran.err
    assert "near spellings: Europe/Berlin" in logdex_command("cat", root, "--tz", "Europe/Belrin").err


def test_the_local_zone_is_that_of_the_machine(store: Callable[[str], Path]) -> None:
    command = [sys.executable, "-m", "logdex", "cat", str(store("basic")), "-n", "1", "--tz", "local"]
    for zone, time in (
        ("XYZ-3:30", "15:00:05.105+03:30"),
        ("America/New_York", "06:30:05.105-05:00"),
        ("UTC", "11:30:05.105+00:00"),
    ):
        out = subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True).stdout
        assert out.startswith(f"2026-11-21T{time}  ")
