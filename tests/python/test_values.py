"""What a user holds: times with a zone, named pairs, texts that say something, and arguments that are checked at the door."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex._core import KeyIndex
from logdex.kafka import LogDir, OffsetIndex, ProducerState, Record, TimeIndex
from logdex.rocketmq import LogRange, MessageStore, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from logdex.rocketmq import Message

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(golden.unpack("basic", tmp_path_factory.mktemp("basic"))) as store:
        yield store


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogDir]:
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path_factory.mktemp("logs") / "logs")) as logs:
        yield logs


@pytest.fixture(scope="module")
def message(store: MessageStore) -> Message:
    message = store.message(0)
    assert message is not None
    return message


def test_times_of_a_message_have_a_zone(message: Message) -> None:
    for time, time_ms in ((message.stored_at, message.store_timestamp), (message.born_at, message.born_timestamp)):
        assert time is not None
        assert time.tzinfo is timezone.utc
        assert (time - EPOCH) // timedelta(milliseconds=1) == time_ms
    assert str(message.stored_at).startswith("2026-11-21")


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20.123000+00:00"),
        (-1_001, "1969-12-31T23:59:58.999000+00:00"),
        (-1, None),
        (1 << 62, None),
        (-(1 << 62), None),
    ],
)
def test_the_time_of_a_record_has_a_zone(timestamp: int, expected: str | None) -> None:
    record = Record("t", 0, 0, timestamp, 0, None, None, ())
    assert (None if record.time is None else record.time.isoformat()) == expected
    assert record.timestamp == timestamp


def test_pairs_of_offsets_have_names(store: MessageStore, logs: LogDir) -> None:
    found = logs.log("cod-none", 0).offset_for_timestamp(0)
    assert found is not None
    assert (found.timestamp, found.offset) == found
    result = store.find("AaTopic", "BB", scan=False)
    assert [(each.begin_phy_offset, each.end_phy_offset) for each in result.unscanned] == result.unscanned
    assert all(isinstance(each, LogRange) for each in (*result.unscanned, *result.unreadable))
    assert result.unscanned


def _held(store: MessageStore, logs: LogDir) -> dict[str, Any]:
    """Return one of each kind of object."""
    log = logs.log("cod-none", 0)
    segment = log.segments[0]
    index = store.index
    assert index is not None
    return {
        "store": store,
        "messages": store.messages(),
        "page": store.page(limit=3),
        "find": store.find("AaTopic", "BB"),
        "explain": store.explain("AaTopic", "BB"),
        "view": store.key_view(),
        "queue": store.queue(*store.queues()[0]),
        "commit log": store.commit_log,
        "scan": store.commit_log.scan(),
        "checkpoint": StoreCheckpoint.open(store.layout.checkpoint),
        "index": index,
        "index file": index.files[0],
        "header": index.files[0].header,
        "info": store.info(),
        "usage": store.usage()[0],
        "log dir": logs,
        "log": log,
        "segment": segment,
        "slice": log.read(0, 100),
        "records": log.records(),
        "batches": segment.batches(),
        "kafka find": logs.find("cod-none", "k"),
        "kafka explain": logs.explain("cod-none", "k"),
        "offset index": OffsetIndex.open(segment.path.with_suffix(".index")),
        "time index": TimeIndex.open(segment.path.with_suffix(".timeindex")),
        "producers": ProducerState(),
        "key index": KeyIndex("index"),
    }


def test_every_object_has_a_text_of_its_own(store: MessageStore, logs: LogDir) -> None:
    for name, value in _held(store, logs).items():
        text = repr(value)
        assert " object at 0x" not in text, name
        assert type(value).__name__ in text, name
        assert len(text) < 800, (name, text)
        assert "\n" not in text, (name, text)


def test_a_stream_names_its_columns(store: MessageStore) -> None:
    assert repr(store.messages(columns=["topic", "phy_offset"])).endswith("(topic, phy_offset)")


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.find("AaTopic", b"BB"),
        lambda store: store.explain("AaTopic", b"BB"),
        lambda store: store.index.query_offset("AaTopic", b"BB"),
    ],
    ids=["find", "explain", "query_offset"],
)
def test_a_key_of_bytes_is_refused_with_a_sentence(store: MessageStore, call: Callable[[Any], Any]) -> None:
    expected = re.escape("key=b'BB': expected str, found bytes; decode it: key.decode()")
    with pytest.raises(TypeError, match=f"^{expected}$"):
        call(store)


@pytest.mark.parametrize("topic", [b"AaTopic", 7])
def test_a_topic_that_is_no_text_is_refused(store: MessageStore, topic: Any) -> None:
    for call in (store.find, store.explain):
        with pytest.raises(TypeError, match=r"^topic=.*: expected str, found (bytes|int)"):
            call(topic, "BB")


@pytest.mark.parametrize("key", [7, None, bytearray(b"k")])
def test_a_record_key_is_text_or_bytes(logs: LogDir, key: Any) -> None:
    for source in (logs, logs.log("cod-none", 0)):
        for call in (source.find, source.explain):
            with pytest.raises(TypeError, match=r"^key: expected str or bytes, got "):
                call("cod-none", key)


def test_a_negative_limit_is_refused(store: MessageStore) -> None:
    with pytest.raises(ValueError, match=r"^limit=-1: expected 0 or more$"):
        store.page(limit=-1)
    assert store.page(limit=0).batch.num_rows == 0


def test_topics_are_one_text_or_several(store: MessageStore, logs: LogDir) -> None:
    one, several = (store.messages(topics=topics, columns=["phy_offset"]) for topics in ("AaTopic", ["AaTopic"]))
    rows = one.read_all().num_rows
    assert rows == several.read_all().num_rows > 0
    assert store.topic_totals("AaTopic") == store.topic_totals(["AaTopic"])
    assert store.start_of_last(1, topics="AaTopic") == store.start_of_last(1, topics=["AaTopic"])
    assert logs.partitions("cod-none") == logs.partitions(["cod-none"])
