"""Faults between client and server: an answer is right or an error with the place, and it comes in time."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden
import object_store
import store_answers
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore
from slow_proxy import FAULTS, Fault, Request, SlowProxy

if TYPE_CHECKING:
    from pathlib import Path

_FAULTS = 1_000
_THREADS = 32
_MOST_SECONDS = 40
# What clients must survive. The others are errors for good.
_PASSING: tuple[Fault, ...] = ("500", "503", "cut", "cut in head", "truncated", "short", "stall", "stall in body")
_FINAL: tuple[Fault, ...] = ("403", "404", "other etag", "other length", "other place")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store on the disk."""
    return object_store.whole_seconds(golden.unpack("basic", tmp_path_factory.mktemp("basic")))


@pytest.fixture(scope="module")
def url(server: object_store.ObjectStore, root: Path) -> str:
    """Return the URL of the same store."""
    return server.put("basic", root)


def options(proxy: SlowProxy, trial: int = 0, **others: str) -> dict[str, str]:
    """Return options through a proxy. Another trial reads through nothing that was read before."""
    unused = f"http://127.0.0.1:1/{trial}"
    return {**object_store.options(proxy.endpoint), "aws_metadata_endpoint": unused, "retry_timeout": "3s", **others}


def test_a_thousand_faults(server: object_store.ObjectStore, url: str, root: Path) -> None:
    with MessageStore.open(root) as store:
        keys = store_answers.keys_of(pa.table(store.messages()))
        expected = {key: ask(store, *key) for key in keys[::9]}
    seed = random.Random(20261122)
    final = itertools.cycle(_FINAL)
    chosen = Counter[str]()
    lock = threading.Lock()

    def choose(request: Request) -> Fault | None:
        with lock:
            if seed.random() > 0.25 or sum(chosen.values()) >= _FAULTS:
                return None
            fault = seed.choice(_PASSING) if seed.random() < 0.97 else next(final)
            if fault == "404" and not request.is_of_object:
                fault = "403"  # a list that says that nothing is there is no fault that a client could see
            chosen[fault] += 1
            return fault

    outcomes = Counter[str]()
    errors: list[str] = []

    def trial(number: int) -> None:
        if sum(chosen.values()) >= _FAULTS:
            return
        key = list(expected)[number % len(expected)]
        began = time.monotonic()
        try:
            with MessageStore.open(url, storage_options=options(proxy, number)) as store:
                pairs = [*zip(ask(store, *key), expected[key], strict=True)]
            wrong = [pair for pair in pairs if pair[0] != pair[1]]
            outcome = f"wrong: {key}: {wrong}" if wrong else "right"
        except OSError as error:
            outcome = "error"
            errors.append(f"{error!r} {error}")
        outcomes[outcome] += 1
        assert time.monotonic() - began < _MOST_SECONDS

    with SlowProxy(server.port, choose=choose, stall_s=1.5) as proxy, ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(trial, range(3_000)))
    assert sum(chosen.values()) == _FAULTS
    assert set(chosen) == set(FAULTS)
    assert set(outcomes) == {"right", "error"}, outcomes
    assert outcomes["right"] > 20
    for error in errors:
        assert object_store.SECRET not in error
        assert "basic" in error, error


def ask(store: MessageStore, topic: str, key: str) -> list[object]:
    """Ask for one key, its time, and its queue."""
    found = store.find(topic, key)
    message = found[0]
    part = store.messages(
        topic, begin=message.store_timestamp, end=message.store_timestamp, columns=["phy_offset", "body"]
    )
    return [
        [(each.phy_offset, each.body) for each in found],
        (found.complete, found.unscanned, found.rejected),
        pa.table(part).to_pylist(),
        pa.table(store.queue(topic, message.queue_id).units(0)).to_pylist(),
        store.topics,
    ]


@pytest.mark.parametrize("fault", ["other etag", "other length", "404"])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    server: object_store.ObjectStore, url: str, fault: Fault
) -> None:
    changed = threading.Event()

    def choose(request: Request) -> Fault | None:
        return fault if changed.is_set() and request.is_of_object and "commitlog" in request.target else None

    with (
        SlowProxy(server.port, choose=choose) as proxy,
        MessageStore.open(url, storage_options=options(proxy, 10_001 + len(fault))) as store,
    ):
        changed.set()
        with pytest.raises(OSError, match="expected the object as it was when it was opened") as error:
            list(store.messages())
        assert str(error.value.filename).startswith("s3")
        assert "/basic/commitlog/0000" in str(error.value.filename)


def test_a_deleted_object_is_an_error(server: object_store.ObjectStore, root: Path) -> None:
    url = server.put("deleted", root)
    with MessageStore.open(url, storage_options=server.options) as store:
        begin = store.commit_log.min_offset
        server.delete(f"deleted/commitlog/{begin + 65536:020d}")
        with pytest.raises(OSError, match="found none") as error:
            list(store.messages())
        assert str(error.value.filename).endswith(f"deleted/commitlog/{begin + 65536:020d}")


@pytest.mark.parametrize("fault", ["500", "cut", "stall", "stall in body", "truncated"])
def test_a_server_that_stays_ill_is_an_error_within_the_deadline(
    server: object_store.ObjectStore, url: str, fault: Fault
) -> None:
    with SlowProxy(server.port, choose=lambda request: fault if request.is_of_object else None, stall_s=30) as proxy:
        began = time.monotonic()
        with pytest.raises(OSError, match="basic/"):
            MessageStore.open(url, storage_options=options(proxy, 20_000 + len(fault), retry_timeout="1500ms"))
        assert time.monotonic() - began < 10


def test_a_deadline_is_a_time(server: object_store.ObjectStore) -> None:
    for text in ("", "0s", "-1s", "1", "soon"):
        with pytest.raises(OSError, match='storage option "retry_timeout": expected a time such as 30s, 500ms or 2m'):
            LogDir.open("s3://deadline/x", storage_options={**server.options, "retry_timeout": text})
