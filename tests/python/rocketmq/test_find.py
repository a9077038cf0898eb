"""The result of `find`: an Arrow table whose messages are created on demand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex.rocketmq import Message, MessageStore, StoreWriter
from logdex.source import matching_topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANY = 5_000
"""More than one block of candidates, and more than one step of messages."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store in which one key has many messages, most of them with other keys as well."""
    root = tmp_path_factory.mktemp("find") / "store"
    chosen = random.Random(7)
    rows: list[dict[str, Any]] = []
    for number in range(MANY):
        keys = ["many", *chosen.sample(["a", "b", "many", "Aa", "BB"], k=chosen.randrange(3))]
        chosen.shuffle(keys)
        properties = {"UNIQ_KEY": f"u{number}", "KEYS": " ".join(keys), "TAGS": chosen.choice(["red", "green"])}
        topic = chosen.choice(["T", "T", "T", "other"])
        rows.append({"topic": topic, "body": str(number).encode(), "properties": properties})
    with StoreWriter.open(root, hash_slots=64, max_entries=40_000, services=False) as writer:
        for first in range(0, MANY, 1_000):
            part = rows[first : first + 1_000]
            writer.put_messages({name: [row[name] for row in part] for name in rows[0]})
        writer.dispatch()
    return root


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """Open the store."""
    with MessageStore.open(root) as opened:
        yield opened


def _carries(message: Message, topic: str | None, key: str) -> bool:
    return topic in (None, message.topic) and key in {message.uniq_key, *(message.keys or "").split(" ")}


def _every_message(store: MessageStore) -> list[Message]:
    offsets = pa.table(store.commit_log.scan(columns=["phy_offset"])).column(0).to_pylist()
    found = [store.commit_log.message(offset) for offset in offsets]
    return [message for message in found if message is not None]


def test_find_is_the_plain_rule_applied_to_every_message(store: MessageStore) -> None:
    messages = _every_message(store)
    assert len(messages) == MANY
    questions = [("T", "many"), ("other", "many"), ("T", "a"), ("T", "Aa"), ("T", "BB"), ("T", "u17"), ("T", "none")]
    times = [message.store_timestamp for message in messages]
    middle = (min(times) + max(times)) // 2
    for begin, end in [(None, None), (middle, None), (None, middle)]:
        for topic, key in questions:
            wanted = [
                message
                for message in reversed(messages)
                if _carries(message, topic, key) and (begin or 0) <= message.store_timestamp <= (end or max(times))
            ]
            found = store.find(topic, key, begin=begin, end=end)
            assert list(found) == wanted, (topic, key)
            assert found.complete
            table = pa.table(store.find_batch(topic, ["none", key], begin=begin, end=end))
            assert table.column("query_row").to_pylist() == [1] * len(wanted)
            assert table.column("phy_offset").to_pylist() == [message.phy_offset for message in wanted]
            some = pa.table(store.find_batch(topic, ["none", key], begin=begin, end=end, columns=["body", "topic"]))
            assert some.equals(table.select(["query_row", "body", "topic"]))
    with pytest.raises(ValueError, match="nonsense"):
        store.find_batch("T", ["a"], columns=["nonsense"])
    assert len(store.find("T", "many")) > 3_000
    assert store.find(None, "u17")[0].uniq_key == "u17"


def test_many_keys_are_answered_in_their_order_with_the_newest_messages(store: MessageStore) -> None:
    keys = ["a", None, "many", "none", "b", "many", *(f"u{number}" for number in range(2_000))]
    for most in (0, 1, 3, 2_000):
        table = pa.table(store.find_batch("T", keys, max_num=most, batch_size=777))
        assert max((chunk.num_rows for chunk in table.to_batches()), default=0) <= 777
        wanted = [
            (row, message.phy_offset)
            for row, key in enumerate(keys[:8])
            if key is not None
            for message in store.find("T", key)[:most]
        ]
        rows = zip(table.column("query_row").to_pylist(), table.column("phy_offset").to_pylist(), strict=True)
        assert [pair for pair in rows if pair[0] < 8] == wanted


def test_more_keys_than_are_looked_up_together_are_answered_in_their_order(store: MessageStore) -> None:
    names = ["a", "none", *(f"u{number}" for number in range(500))]
    offsets = {name: [message.phy_offset for message in store.find("T", name)] for name in names}
    keys = [names[number % len(names)] for number in range(40_000)]
    table = pa.table(store.find_batch("T", keys, columns=["phy_offset"]))
    rows = zip(table.column("query_row").to_pylist(), table.column("phy_offset").to_pylist(), strict=True)
    assert list(rows) == [(row, offset) for row, key in enumerate(keys) for offset in offsets[key]]


def test_a_limit_is_told_when_there_are_more(store: MessageStore) -> None:
    total = len(store.find("T", "many"))
    for most, truncated in ((0, True), (1, True), (1_500, True), (total - 1, True), (total, False), (total + 1, False)):
        result = store.find("T", "many", max_num=most)
        assert (len(result), result.truncated) == (min(most, total), truncated)


def test_candidates_of_other_keys_are_counted(store: MessageStore) -> None:
    # "Aa" and "BB" have the same hash.
    both = {message.phy_offset for key in ("Aa", "BB") for message in store.find("T", key)}
    for key in ("Aa", "BB"):
        result = store.find("T", key)
        assert result.rejected == len(both) - len(result) > 0


def test_the_result_is_a_sequence_of_messages(store: MessageStore) -> None:
    result = store.find("T", "many")
    every = list(result)
    assert all(type(message) is Message for message in every)
    assert every == [store.commit_log.message(message.phy_offset) for message in every]
    assert (result[0], result[-1], result[1_500]) == (every[0], every[-1], every[1_500])
    for part in (slice(2), slice(1_000, 1_100), slice(-3, None), slice(None, None, 700), slice(9, 3), slice(5, 0, -2)):
        assert result[part] == tuple(every[part])
    assert list(reversed(result)) == every[::-1]
    assert every[7] in result
    assert result.messages == tuple(every)
    assert store.find("T", "many") == store.find("T", "many") != store.find("T", "a")
    with pytest.raises(IndexError):
        result[len(every)]
    with pytest.raises(IndexError):
        store.find("T", "none")[0]
    assert hash(every[0]) == hash(result[0])


def test_the_result_is_an_arrow_stream_of_the_message_columns(store: MessageStore) -> None:
    result = store.find("T", "many")
    table = result.to_arrow()
    assert table.num_rows == len(result)
    names = pa.schema(store.commit_log.scan(columns=None)).names
    for _ in range(2):
        read = pa.table(result)
        assert read.column_names == names
        assert read.column("phy_offset").to_pylist() == [message.phy_offset for message in result]
        assert read.column("body").to_pylist() == [message.body for message in result]
    assert pa.schema(result).names == names
    assert pa.table(store.find("T", "none")).num_rows == 0


def test_tags_are_a_key_only_if_they_are_indexed(root: Path, tmp_path: Path) -> None:
    with MessageStore.open(root) as opened:
        assert len(opened.find("T", "T#red")) == 0
        red = [m.phy_offset for m in reversed(_every_message(opened)) if (m.topic, m.tags) == ("T", "red")]
        opened.build_index(tmp_path / "index", hash_slots=64, max_entries=60_000, tags=True)
    (tmp_path / "commitlog").symlink_to(root / "commitlog")
    with MessageStore.open(tmp_path) as tagged:
        assert tagged.indexes_tags
        assert [message.phy_offset for message in tagged.find("T", "T#red")] == red
        assert pa.table(tagged.find_batch(["T"], ["T#red"])).num_rows == len(red)


@pytest.mark.parametrize("topic", ["T*", "[To]*", "/o.+/", "/.*/", "never*"])
def test_a_pattern_of_topics_finds_what_the_search_of_each_finds(store: MessageStore, topic: str) -> None:
    for key in ("Aa", "red", "u17", "none"):
        for max_num in (None, 3):
            found = [message.phy_offset for message in store.find(topic, key, max_num=max_num)]
            each = [
                m.phy_offset for name in matching_topics([topic], lambda: store.topics) for m in store.find(name, key)
            ]
            assert found == sorted(each, reverse=True)[:max_num]


def test_where_a_pattern_is_refused(store: MessageStore) -> None:
    with pytest.raises(ValueError, match=r"topic='T\*': expected one topic; find\(topic, key\) takes a pattern"):
        store.explain("T*", "Aa")
    with pytest.raises(ValueError, match=r"topics='/T/': expected the topic of each key; find\(topic, key\)"):
        store.find_batch("/T/", ["Aa"])
    with pytest.raises(ValueError, match="expected a regular expression between slashes"):
        store.find("/(/", "Aa")
