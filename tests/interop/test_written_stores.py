"""The real broker's store and logdex read and continue each other's stores, in turns."""

from __future__ import annotations

import base64
import itertools
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex._core import CommitLogWriter
from logdex.errors import LockedError
from logdex.rocketmq import MessageStore, StoreWriter
from rocketmq_driver import Driver
from traffic_store import columns, mixture
from written_store import CONFIG, FILE_SIZE, ONE_INDEX, SIZES, both_say_the_same, broker_puts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_what_the_broker_writes_both_read(driver: Driver, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    _start(driver, root)
    _broker_puts(driver, 1, 600)
    rows = both_say_the_same(driver, root, 600)
    driver.ask("store_stop")
    say(f"a store that the broker wrote: {len(rows)} messages alike by queue, offset and key")


@pytest.mark.parametrize("at_once", [1, 50, 700])
def test_the_broker_takes_a_log_without_queues_and_index(
    driver: Driver, tmp_path: Path, at_once: int, say: Callable[[str], None]
) -> None:
    root = tmp_path / "store"
    messages = mixture(20, 700)
    with closing(CommitLogWriter.open(root / "commitlog", end_phy_offset=0, file_size=FILE_SIZE)) as writer:
        for first in range(0, len(messages), at_once):
            writer.put_messages(columns(messages[first : first + at_once]))
    _start(driver, root, ONE_INDEX)
    rows = both_say_the_same(driver, root, len(messages))
    assert [row["uniq_key"] for row in rows] == [message["properties"]["UNIQ_KEY"] for message in messages]
    driver.ask("store_stop")
    say(f"a log that logdex wrote, {at_once} at once: the broker made queues and index, {len(rows)} messages alike")


@pytest.mark.parametrize("services", [True, False])
def test_turns(driver: Driver, tmp_path: Path, services: bool, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    messages = 0
    for turn in range(3):
        with StoreWriter.open(root, services=services, **SIZES) as writer:
            assert writer.recovered.ok
            put = _logdex_puts(writer, 100 + turn, 300)
            assert writer.max_offset == put[-1]["phy_offset"] + put[-1]["store_size"]
        messages += len(put)
        assert not (root / "abort").exists()
        _start(driver, root)
        both_say_the_same(driver, root, messages)
        _broker_puts(driver, 200 + turn, 150)
        messages += 150 + 20
        assert len(both_say_the_same(driver, root, messages)) == messages
        driver.ask("store_stop")
        with MessageStore.open(root) as store:
            assert store.verify().ok
    say(f"a store written in turns, services {services}: {messages} messages alike by queue, offset and key")


@pytest.mark.parametrize("case", ["basic", "ipv6", "sync", "cqext", "pool", "rolled", "killed", "rolled-killed"])
def test_store_of_a_real_broker_is_written_on(
    store: Callable[[str], Path], tmp_path: Path, case: str, say: Callable[[str], None]
) -> None:
    root, zone = store(case), golden.info(case)["zone"]
    config = golden.info(case)["store"] | {"fileReservedTime": 1_000_000}
    with StoreWriter.open(root, zone=zone, services=False) as writer:
        put = _logdex_puts(writer, 7, 200)
    with Driver(tmp_path / "jvm", zone) as broker:
        assert broker.ask("store_load", root=root, config=config)["ok"]
        broker.ask("store_start")
        at = broker.ask("store_at", phy_offsets=[row["phy_offset"] for row in put])["messages"]
        assert [message["queue_offset"] for message in at] == [row["queue_offset"] for row in put]
        assert [message["msg_id"] for message in at] == [row["msg_id"] for row in put]
        _broker_puts(broker, 8, 100)
        found = _keys_are_found(broker, [*mixture(7, 200), *mixture(8, 100)])
        broker.ask("store_stop")
    with MessageStore.open(root) as ours:
        report = ours.verify()
        assert report.ok, report.findings[:3]
    say(f"store {case} written on by logdex, then by the broker: {found} keys found")


def test_one_of_them_at_a_time(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Driver(tmp_path / "jvm") as broker:
        _start(broker, root)
        with pytest.raises(LockedError) as refused:
            StoreWriter.open(root, **SIZES)
        assert refused.value.pid == broker.pid
        _broker_puts(broker, 3, 20)
        broker.ask("store_stop")
        with StoreWriter.open(root, **SIZES):
            # A broker takes the lock after it has loaded the store, and then only reads and recovers it: nothing is new here.
            broker.ask("store_load", root=root, config=CONFIG)
            with pytest.raises(RuntimeError, match="Lock failed"):
                broker.ask("store_start")


_MOST = 4 << 20
# A frame of topic T with the property KEYS=edge has 101 bytes besides its body.
_LARGEST_BODY = _MOST - 101
_TAKEN: list[dict[str, Any]] = [
    {"topic": "t" * 127},
    {"topic": "azAZ09%|-_"},
    {"topic": "%RETRY%" + "g" * 120},
    {"body": b"b" * _LARGEST_BODY},
    {"properties": {"KEYS": "edge", "long": "p" * (32_767 - len("KEYS-edge-long-"))}},
    {"properties": {"KEYS": "edge", "DELAY": "+1"}},
    {"properties": {"KEYS": "edge", "DELAY": "-1"}},
    {"properties": {"KEYS": "edge", "DELAY": "99"}},
    {"sys_flag": 1, "body": zlib.compress(b"b" * 5_000)},
    {"sys_flag": 0x301, "body": zlib.compress(b"b" * 5_000)},
    {"sys_flag": 2},
    {"sys_flag": 4},
    {"sys_flag": 8},
    {"sys_flag": 12},
    {"flag": -1},
    {"queue_id": 2**31 - 1},
    {"born_timestamp": 0},
    {"born_host": "[2001:db8::1]:1", "store_host": "[2001:db8::2]:2"},
]
# What the broker says to it; None: its store does not look at this part, as the broker in front of it does.
_REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"topic": "t" * 128}, "MESSAGE_ILLEGAL"),
    ({"topic": "%RETRY%" + "g" * 121}, "MESSAGE_ILLEGAL"),
    ({"body": b"b" * (_LARGEST_BODY + 1)}, "MESSAGE_ILLEGAL"),
    ({"properties": {"KEYS": "edge", "long": "p" * (32_768 - len("KEYS-edge-long-"))}}, "MESSAGE_ILLEGAL"),
    ({"topic": "a b"}, None),
    ({"topic": "a.b"}, None),
    ({"topic": "\u8ba2\u5355"}, None),
    ({"topic": ""}, None),
    ({"sys_flag": 0x80, "properties": {"INNER_NUM": "2"}}, None),
    ({"sys_flag": 0x101, "body": b"b"}, None),
    ({"sys_flag": 0x201, "body": b"b"}, None),
    ({"sys_flag": 0x701, "body": b"b"}, None),
    ({"properties": {"KEYS": "edge", "DELAY": "abc"}}, None),
    ({"queue_id": -1}, None),
]


@pytest.mark.parametrize("crashed", [False, True])
def test_what_a_writer_takes_the_broker_loads_and_serves(
    driver: Driver, tmp_path: Path, crashed: bool, say: Callable[[str], None]
) -> None:
    root = tmp_path / "store"
    sizes, config = SIZES | {"file_size": 16 << 20}, CONFIG | {"mappedFileSizeCommitLog": 16 << 20}
    with StoreWriter.open(root, services=False, **sizes) as writer:
        for message in _TAKEN:
            writer.put_message(**{"topic": "T", "properties": {"KEYS": "edge"}} | message)
            writer.put_message("T", b"behind", keys="behind")
        for message, _ in _REFUSED:
            with pytest.raises(ValueError, match=r"expected|at most"):
                writer.put_message(**{"topic": "T", "properties": {"KEYS": "edge"}} | message)
        end = writer.max_offset
    if crashed:
        (root / "abort").touch()
    _start(driver, root, config)
    assert driver.ask("store_state")["max_phy_offset"] == end
    rows = both_say_the_same(driver, root, 2 * len(_TAKEN))
    driver.ask("store_stop")
    say(f"messages at the limits, crashed {crashed}: {len(rows)} alike by queue, offset and key")


def test_what_the_broker_calls_illegal_a_writer_refuses(driver: Driver, tmp_path: Path) -> None:
    _start(driver, tmp_path / "store", CONFIG | {"mappedFileSizeCommitLog": 16 << 20})
    asked = [(message, said) for message, said in _REFUSED if said is not None]
    plain = {"topic": "T", "queue_id": 0, "flag": 0, "sys_flag": 0, "properties": {"KEYS": "edge"}}
    messages = [{**mixture(1, 1)[0], **plain, **message, "refused": True} for message, _ in asked]
    assert len(messages) == 4
    for message in messages:
        message["body_base64"] = base64.b64encode(message.pop("body", b"")).decode()
    # The driver waits for a last message that is taken.
    results = driver.ask("store_put", messages=[*messages, mixture(1, 1)[0]])["results"]
    assert [result.get("refused") for result in results] == [*(said for _, said in asked), None]
    driver.ask("store_stop")


def _keys_are_found(broker: Driver, messages: list[dict[str, Any]]) -> int:
    unique = [
        (message["topic"], message["properties"]["UNIQ_KEY"], 64, 0, 2**63 - 1)
        for message in messages
        if message["sys_flag"] & 12 != 12
    ]
    answers = broker.query("store_query", unique)["phy_offsets"]
    assert all(answers)
    return len(unique)


def _start(broker: Driver, root: Path, config: dict[str, Any] = CONFIG) -> None:
    assert broker.ask("store_load", root=root, config=config)["ok"]
    broker.ask("store_start")


def _broker_puts(broker: Driver, seed: int, count: int) -> None:
    broker_puts(broker, mixture(seed, count))
    broker.ask("store_put_batch", messages=mixture(seed, 20, batchable=True))


def _logdex_puts(writer: StoreWriter, seed: int, count: int) -> list[dict[str, Any]]:
    """Put in batches of many sizes, the last messages one by one."""
    messages = mixture(seed, count)
    edges = [0, 1, 3, 43, 143, *range(count - 5, count + 1)]
    put: list[dict[str, Any]] = []
    for first, end in itertools.pairwise(edges):
        put += pa.table(writer.put_messages(columns(messages[first:end]))).to_pylist()
    assert len(put) == count
    return put
