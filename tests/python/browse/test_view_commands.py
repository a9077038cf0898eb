"""The command on a page prints the rows of the page."""

from __future__ import annotations

import html
import json
import re
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import golden
from browsing import INDEX, KAFKA, STORE, serve
from logdex.cli import main
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browsing import Site


def command_of(site: Site, path: str) -> list[str] | None:
    """Return the words of the command on a page, without the name of the program."""
    found = re.search(r'id="as-command".*?<code>(.*?)</code>', site.ask(path).text, re.DOTALL)
    if found is None:
        return None
    name, *words = shlex.split(html.unescape(found[1]))
    assert name == "logdex"
    return words


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Run a command and return the objects that it prints."""
    capsys.readouterr()
    assert main([*words, "--json"] if "--" not in words else [words[0], "--json", *words[1:]]) in (0, 1)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def rows_of(site: Site, path: str) -> list[dict[str, Any]]:
    """Return the rows of a page."""
    page, mark, query = path.partition("?")
    rows: list[dict[str, Any]] = site.json(f"{page}.json{mark}{query}")
    return rows


@pytest.fixture(scope="module")
def odd_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store of two topics with one key. The name of one topic starts with a dash."""
    root = tmp_path_factory.mktemp("odd") / "store"
    with StoreWriter.open(root) as writer:
        for number in range(40):
            topic = ("-rf", "orders")[number % 2]
            writer.put_message(topic, b"body", queue_id=number % 3, keys=["-k", f"n{number}"], tags=f"T{number % 2}")
    with serve(root) as site:
        yield site


def message_pages(root: Path) -> list[str]:
    """Return addresses of pages with messages of the golden store."""
    rows = golden.rows("basic", "messages")
    with MessageStore.open(root) as store:
        middle = store.page(limit=9, columns=["phy_offset"]).next_position
    topic = rows[0]["topic"]
    queue = next(row["queueId"] for row in rows if row["topic"] == topic)
    key = next(word for row in rows[100:] for word in (row.get("keys") or "").split() if word)
    tag = next(row["tags"] for row in rows if row.get("tags"))
    times = sorted(row["storeTimestamp"] for row in rows)
    found = []
    for filters in (
        "", f"&topic={topic}", f"&topic={topic}&queue={queue}", f"&queue={queue}", f"&key={quote(key)}", f"&tag={quote(tag)}",
        f"&begin={times[20]}&end={times[-20]}", f"&topic={topic}&tag={quote(tag)}", "&grep=alpha+[0-9]",
    ):  # fmt: skip
        for place in ("", f"&position={middle}"):
            found += [f"/messages?rows=5{filters}{place}{order}" for order in ("", "&order=oldest")]
    return found


def test_each_page_of_messages_shows_the_command_that_prints_them(
    store_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = 0
    for path in message_pages(store_site.root):
        shown = [row["phy_offset"] for row in rows_of(store_site, path)]
        words = command_of(store_site, path)
        if words is None:
            assert not shown, path
            continue
        assert [row["phy_offset"] for row in printed(words, capsys)] == sorted(shown), path
        compared += len(shown) > 1
    assert compared > 20


@pytest.mark.parametrize(
    "path",
    [
        "/messages?topic=-rf", "/messages?topic=-rf&queue=1&rows=3", "/messages?key=-k&rows=7", "/messages?topic=absent",
        "/messages?order=oldest&tag=T1&rows=4", "/search?key=-k", "/search?key=-k&topic=-rf&rows=3", "/search?key=absent",
        "/search?key=-k&topic=orders&grep=bod.$",
        "/queue?topic=-rf&queue=1&from=2&rows=3",
    ],
)  # fmt: skip
def test_words_that_look_like_options_are_none(odd_site: Site, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = sorted(row["phy_offset"] for row in rows_of(odd_site, path))
    words = command_of(odd_site, path)
    assert words is not None
    assert sorted(row["phy_offset"] for row in printed(words, capsys)) == shown
    assert bool(shown) == ("absent" not in path)


def test_a_message_and_a_search_by_id_show_their_commands(store_site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in golden.rows("basic", "messages") if row.get("uniqKey"))
    at, topic, msg_id = row["physicalOffset"], row["topic"], row["msgId"]
    for path in (f"/message?at={at}", f"/search?key={msg_id}", f"/search?key={msg_id}&topic={topic}"):
        words = command_of(store_site, path)
        assert words is not None
        assert [each["phy_offset"] for each in printed(words, capsys)] == [at], path
    assert rows_of(store_site, f"/search?key={msg_id}&begin={row['storeTimestamp'] + 1}") == []


def test_each_page_of_records_shows_the_command_that_prints_them(
    kafka_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = 0
    for topic in ("tx-one", "tx-two"):
        for words in (
            "",
            "&order=oldest",
            "&position=9&order=oldest",
            "&position=9",
            "&isolation=read_committed",
            "&key=a",
            "&grep=[0-4]",
        ):
            path = f"/records?topic={topic}&partition=0&rows=4{words}"
            shown = [row["offset"] for row in rows_of(kafka_site, path) if not row["isControl"]]
            command = command_of(kafka_site, path)
            if command is None:
                assert not shown
                continue
            assert [row["offset"] for row in printed(command, capsys)] == sorted(shown), path
            compared += 1
    assert compared > 6
    keys = [row["key"] or "" for row in rows_of(kafka_site, "/records?topic=tx-two&partition=0&rows=200")]
    key = next(key for key in keys if key.isalpha())
    for path, names in (
        (f"/search?topic=tx-two&key={quote(key)}", ("partition", "offset")),
        ("/record?topic=tx-one&partition=0&offset=6", ("offset",)),
    ):
        command = command_of(kafka_site, path)
        assert command is not None
        found = [[row[name] for name in names] for row in printed(command, capsys)]
        assert found
        assert sorted(found) == sorted([row[name] for name in names] for row in rows_of(kafka_site, path))


def test_the_other_pages_show_commands_that_describe_the_same(
    store_site: Site, index_site: Site, kafka_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = set()
    for site, paths in ((store_site, STORE), (index_site, INDEX), (kafka_site, KAFKA)):
        for path in paths:
            words = command_of(site, path)
            if words is None:
                continue
            found = printed(words, capsys)
            seen.add(words[0])
            assert found or words[0] in ("verify", "find", "cat", "kafka") or path == "/groups", path
    assert seen == {"info", "cat", "find", "explain", "verify", "kafka", "groups"}
    (topic,) = printed(command_of(store_site, "/topic?topic=TopicTest") or [], capsys)
    queues = [(each["queue"], each["min_offset"], each["max_offset"]) for each in topic["queues"]]
    assert queues == [
        (row["queue"], row["min_offset"], row["max_offset"]) for row in rows_of(store_site, "/topic?topic=TopicTest")
    ]
    groups = printed(command_of(store_site, "/groups") or [], capsys)
    assert groups == rows_of(store_site, "/groups")
    assert len(groups) == 5
    (info,) = printed(command_of(store_site, "/topics") or [], capsys)
    shown = {(row["topic"], row["queues"], row["messages"]) for row in rows_of(store_site, "/topics")}
    assert shown == {(each["topic"], each["queues"], each["messages"]) for each in info["topics"]}


def test_options_that_opened_the_store_are_in_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden.unpack("basic", tmp_path)
    (root / "commitlog").rename(tmp_path / "log")
    with serve(root, "--commit-log", str(tmp_path / "log")) as site:
        shown = [row["phy_offset"] for row in rows_of(site, "/messages?rows=3")]
        words = command_of(site, "/messages?rows=3")
    assert words is not None
    assert [row["phy_offset"] for row in printed(words, capsys)] == sorted(shown)
    assert len(shown) == 3
