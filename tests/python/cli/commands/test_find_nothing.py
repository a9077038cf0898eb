"""What is said instead of silence: topics, times and keys that match nothing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex._core import time_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEAR = "logdex: nothing found: no topic 'topictest' here; near spellings: TopicTest"


def span(rows: list[dict[str, Any]], topic: str | None = None) -> str:
    times = [row["storeTimestamp"] for row in rows if topic in (None, row["topic"])]
    return f"messages are from {time_text(min(times))} to {time_text(max(times))}"


@pytest.mark.parametrize("words", [("cat",), ("export",), ("copy",)])
def test_a_topic_has_near_spellings(
    words: tuple[str, ...], store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    target = {"cat": (), "export": ("-",), "copy": (tmp_path / "copy",)}[words[0]]
    ran = logdex_command(words[0], store("basic"), *target, "--topic", "topictest")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(NEAR)
    assert not (tmp_path / "copy").exists()


def test_find_says_near_topics(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("find", store("basic"), "topictest", "k0")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(NEAR)
    other = logdex_command("find", store("basic"), "zzzz", "k0")
    assert "no topic 'zzzz' here; there are: %DLQ%grp-c, %LMQ%a," in other.err
    assert "and 5 more" in other.err


def test_patterns_of_topics(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root, rows = store("basic"), golden.rows("basic", "messages")
    row = next(row for row in rows if row["uniqKey"] and row["topic"] == "TopicTest")
    for topic in ("Topic*", "/T.*Test/"):
        ran = logdex_command("find", root, topic, row["uniqKey"], "--json")
        assert (ran.code, [each["phy_offset"] for each in ran.rows]) == (0, [row["physicalOffset"]])
    ran = logdex_command("find", root, "Topic*", "no such key")
    assert (ran.code, ran.err) == (
        1,
        "logdex: nothing found; run `logdex explain` with a topic and the key to see why\n",
    )
    ran = logdex_command("find", root, "topict*", "k0")
    assert ran.err.startswith("logdex: nothing found: no topic 'topict*' here")
    ran = logdex_command("explain", root, "Topic*", "k0")
    assert (ran.code, ran.out) == (2, "")
    assert "expected one topic" in ran.err
    span_of_topics = span([each for each in rows if each["topic"].startswith("Topic")])
    ran = logdex_command("cat", root, "--topic", "Topic*", "--end", "2026-01-01")
    assert ran.err.endswith(f"of topic Topic* to 2026-01-01T23:59:59.999Z; {span_of_topics}\n")


def test_a_key_outside_of_the_times_is_said(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    row = next(row for row in golden.rows("basic", "messages") if row["uniqKey"] and row["topic"] == "TopicTest")
    ran = logdex_command("find", store("basic"), "TopicTest", row["uniqKey"], "--begin", row["storeTimestamp"] + 1)
    assert (ran.code, ran.out) == (1, "")
    at = time_text(row["storeTimestamp"])
    assert ran.err == f"logdex: nothing found in this range of times; a message has the key at {at}\n"


@pytest.mark.parametrize("queues", [True, False])
def test_times_that_match_nothing_say_the_times_there(
    queues: bool, store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("basic")
    if not queues:
        shutil.rmtree(root / "consumequeue")
    rows = golden.rows("basic", "messages")
    ran = logdex_command("cat", root, "--begin", "20270101")
    assert (ran.code, ran.err) == (1, f"logdex: nothing found from 2027-01-01T00:00:00.000Z; {span(rows)}\n")
    topic = "t" if queues else None
    for words in (("cat", root), ("export", root, "-"), ("copy", root, tmp_path / "copy")):
        ran = logdex_command(*words, "--topic", "t", "--end", "2026-01-01")
        asked = "nothing found of topic t to 2026-01-01T23:59:59.999Z"
        assert (ran.code, ran.out, ran.err) == (1, "", f"logdex: {asked}; {span(rows, topic)}\n")
    assert not (tmp_path / "copy").exists()
    assert logdex_command("cat", root, "--limit", 0).err == ""


def test_a_copy_of_nothing_leaves_an_empty_directory_empty(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    ran = logdex_command("copy", store("basic"), tmp_path / "copy", "--begin", "20270101", "--json")
    assert ran.code == 1
    assert ran.rows[0]["checked"] == {"messages": 0, "log_bytes": 0}
    assert list((tmp_path / "copy").iterdir()) == []


def test_kafka_says_it_too(logdex_command: Callable[..., Any], tmp_path: Path) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    rows = logdex_command("cat", logs, "--json").rows
    topic = rows[0]["topic"]
    wrong = topic.upper()
    ran = logdex_command("cat", logs, "--topic", wrong)
    assert (ran.code, ran.out) == (1, "")
    assert f"no topic {wrong!r} here; near spellings: " in ran.err
    assert topic in ran.err
    times = [row["timestamp"] for row in rows if row["topic"] == topic]
    ran = logdex_command("cat", logs, "--topic", topic, "--begin", "20300101")
    assert ran.err.endswith(f"; messages are from {time_text(min(times))} to {time_text(max(times))}\n")
    for words in (("find", logs, wrong, "k"), ("build-index", logs, tmp_path / "x", "--topic", wrong)):
        ran = logdex_command("kafka", *words)
        assert ran.code == 2
        assert "no partition of this topic; near spellings: " in ran.err
        assert topic in ran.err
    ran = logdex_command("kafka", "find", logs, topic, "no such key")
    assert (ran.code, ran.out) == (1, "")
    assert f"messages are from {time_text(min(times))} to {time_text(max(times))}" in ran.err
