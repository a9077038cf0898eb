"""Times, queue ids and topics of a caller: each call and the command line have the same rules.

Spark's options are in tests/python/spark/test_options_rules.py.
"""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_batches import Row, T, batch, write_segment
from logdex import UnknownTopicWarning, kafka
from logdex.cli import main
from logdex.kafka import Log, LogDir, LogSegment
from logdex.rocketmq import IndexService, MessageStore, StoreWriter
from logdex.rocketmq.copy import copy_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW = 1_795_260_652_000
GEOMETRY: dict[str, Any] = {"hash_slots": 50, "max_entries": 120}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of two topics and a Kafka log directory next to it."""
    root = tmp_path_factory.mktemp("asked")
    with StoreWriter.open(root / "store", file_size=65_536, zone="UTC", services=False, **GEOMETRY) as writer:
        for topic in ("Orders", "Payments"):
            writer.put_message(topic, b"x", keys="k", store_timestamp=NOW)
    write_segment(root / "logs" / "orders-0", 0, batch([Row(0, NOW - T, b"k")]))
    return root


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with MessageStore.open(root / "store") as store:
        yield store


@pytest.fixture
def logs(root: Path) -> Iterator[LogDir]:
    with LogDir.open(root / "logs") as logs:
        yield logs


RANGES: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "messages": lambda root, times: MessageStore.open(root / "store").messages(**times).read_all(),
    "page": lambda root, times: MessageStore.open(root / "store").page(**times),
    "find": lambda root, times: MessageStore.open(root / "store").find("Orders", "k", **times),
    "find_batch": lambda root, times: MessageStore.open(root / "store").find_batch("Orders", ["k"], **times).read_all(),
    "explain": lambda root, times: MessageStore.open(root / "store").explain("Orders", "k", **times),
    "query_offset": lambda root, times: IndexService.open(root / "store/index").query_offset("Orders", "k", **times),
    "query_batch": lambda root, times: IndexService.open(root / "store/index").query_batch("Orders", ["k"], **times),
    "Log.records": lambda root, times: Log.open(root / "logs/orders-0").records(**times).read_all(),
    "LogDir.records": lambda root, times: LogDir.open(root / "logs").records(**times).read_all(),
    "LogSegment.records": lambda root, times: (
        LogSegment.open(root / "logs/orders-0" / f"{0:020d}.log").records(**times).read_all()
    ),
    "LogDir.find": lambda root, times: kafka.LogDir.open(root / "logs").find("orders", "k", **times),
    "LogDir.explain": lambda root, times: kafka.LogDir.open(root / "logs").explain("orders", "k", **times),
}


@pytest.mark.parametrize("bound", ["begin", "end"])
@pytest.mark.parametrize("call", RANGES)
def test_a_number_that_may_be_of_seconds_or_a_date_is_refused(root: Path, call: str, bound: str) -> None:
    seconds = (
        f"{bound}=1795260652 is ambiguous: 1970-01-21T18:41:00.652Z in milliseconds, 2026-11-21T11:30:52.000Z in seconds; "
        "expected milliseconds of 1990 or later, or ISO 8601"
    )
    for number in (1_795_260_652, np.int64(1_795_260_652)):
        with pytest.raises(ValueError) as refused:
            RANGES[call](root, {bound: number})
        assert str(refused.value) == seconds
    with pytest.raises(ValueError, match=f"{bound}=20261121 is ambiguous: .* 2026-11-21 as a date"):
        RANGES[call](root, {bound: 20_261_121})
    for accepted in (
        0,
        1,
        -1,
        NOW,
        np.int64(NOW),
        datetime(1980, 1, 1, tzinfo=timezone.utc),
        "1980-01-01T00:00:00Z",
        None,
    ):
        RANGES[call](root, {bound: accepted})


def test_a_copy_refuses_such_a_number_before_it_creates_anything(store: MessageStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="begin=1795260652 is ambiguous"):
        copy_messages(store, tmp_path / "copy", begin=1_795_260_652)
    assert not (tmp_path / "copy").exists()


def test_the_command_line_takes_a_date_before_1990(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["cat", root / "store"], ["cat", root / "logs"], ["find", root / "store", "Orders", "k"]):
        assert main([*map(str, words), "--begin", "1980-01-01"]) == 0
        assert main([*map(str, words), "--begin", "1795260652"]) == 2
    assert capsys.readouterr().err.count("1795260652 is ambiguous: 1970-01-21T18:41:00.652Z in milliseconds") == 3


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_a_number_that_no_queue_has_is_refused(root: Path, store: MessageStore, queue_id: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.messages("Orders", queue_id),
        lambda: store.page(topic="Orders", queue_id=queue_id),
        lambda: store.start_of_last(1, queue_id=queue_id),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"queue_id={queue_id}: expected 0 to 2147483647"):
            call()
    assert main(["cat", str(root / "store"), "--topic", "Orders", f"--queue={queue_id}"]) == 2
    assert store.messages("Orders", 0).read_all().num_rows == 1


ORDERS = "no topic 'Order' here; near spellings: Orders"


def test_a_topic_that_is_not_there_is_warned_of_with_near_names(store: MessageStore, logs: LogDir) -> None:
    streams: list[tuple[Callable[[], Any], int, str]] = [
        (lambda: store.messages("Order"), 0, ORDERS),
        (lambda: store.messages(topics=["Order"], scan=False), 0, ORDERS),
        (lambda: store.messages(topics=["Order", "Payments"], columns=["phy_offset"]), 1, ORDERS),
        (lambda: logs.records("order"), 0, "no topic 'order' here; near spellings: orders"),
        (lambda: logs.records(iter(["order", "orders"])), 1, "no topic 'order' here; near spellings: orders"),
    ]
    for stream, rows, text in streams:
        for consume in (lambda each: each.read_all(), pa.table):
            with pytest.warns(UnknownTopicWarning) as warned:
                assert pa.table(consume(stream())).num_rows == rows
            assert [str(each.message) for each in warned] == [text]
            assert warned[0].filename == __file__


def test_a_known_topic_without_matches_is_not_warned_of(store: MessageStore, logs: LogDir) -> None:
    # Warnings are errors in these tests.
    assert store.messages("Orders", keys=["absent"]).read_all().num_rows == 0
    assert store.messages("Orders", begin=NOW + 1).read_all().num_rows == 0
    assert store.messages(keys=["absent"]).read_all().num_rows == 0
    assert store.messages(topics=[]).read_all().num_rows == 0
    assert logs.records("orders", keys=["absent"]).read_all().num_rows == 0


def test_a_log_without_queues_knows_its_topics(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "store/commitlog", tmp_path / "commitlog")
    with MessageStore.open(tmp_path / "commitlog") as store:
        with pytest.warns(UnknownTopicWarning, match=ORDERS):
            assert store.messages("Order").read_all().num_rows == 0
        assert store.messages("Orders", keys=["absent"]).read_all().num_rows == 0


def test_an_empty_answer_of_a_part_of_a_log_reads_no_more_of_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root / "store/commitlog", tmp_path / "commitlog")
    read = []

    def read_topics(_: MessageStore) -> tuple[list[str], list[object]]:
        read.append(1)
        return ["Orders"], []

    monkeypatch.setattr(MessageStore, "_read_topics", read_topics)
    parts: list[dict[str, Any]] = [
        *({"begin": NOW + 1}, {"end": NOW - 1}, {"begin_phy_offset": 1}, {"end_phy_offset": 1}),
        *({"keys": ["k"]}, {"tags": ["t"]}, {"queue_id": 0}),
    ]
    with MessageStore.open(tmp_path / "commitlog") as store:
        for part in parts:
            # Warnings are errors in these tests.
            assert store.messages("Order", **part).read_all().num_rows == 0
        assert not read
        with pytest.warns(UnknownTopicWarning, match=ORDERS):
            store.messages("Order").read_all()
        assert read


def test_a_log_without_queues_knows_a_topic_that_comes_later(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, file_size=65_536, services=False, **GEOMETRY) as writer:
        writer.put_message("Orders", b"x")
        with MessageStore.open(tmp_path / "commitlog") as store:
            assert store.topics == ["Orders"]
            writer.put_message("Later", b"x")
            assert store.topics == ["Later", "Orders"]


def test_the_command_line_names_an_unknown_topic_beside_a_known_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, known, wrong in (("store", "Payments", "Order"), ("logs", "orders", "order")):
        assert main(["cat", str(root / place), "--topic", known, "--topic", wrong]) == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1
        assert err.count(f"no topic {wrong!r} here; near spellings: ") == 1
        assert main(["cat", str(root / place), "--topic", wrong]) == 1
        assert capsys.readouterr().err.count(f"no topic {wrong!r} here; near spellings: ") == 1


@pytest.mark.parametrize("command", ["find", "kafka find", "explain"])
def test_any_topic_is_refused_for_kafka_with_another_way(
    root: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([*command.split(), str(root / "logs"), "*", "k"]) == 2
    assert "TOPIC *: expected one topic" in capsys.readouterr().err


@pytest.mark.parametrize("scan", ["none", "all", "auto"])
def test_scan_is_refused_for_kafka(root: Path, capsys: pytest.CaptureFixture[str], scan: str) -> None:
    assert main(["find", str(root / "logs"), "orders", "k", "--scan", scan]) == 2
    assert f"--scan {scan}: expected a RocketMQ store, found {root / 'logs'}" in capsys.readouterr().err
    assert main(["find", str(root / "store"), "Orders", "k", "--scan", scan]) == 0
