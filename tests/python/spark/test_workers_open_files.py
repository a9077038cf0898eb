"""Files that a worker keeps open: opened once, opened again when the directory changed, never inherited through fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from logdex.rocketmq import IndexService
from logdex.spark import workers

if TYPE_CHECKING:
    from pathlib import Path


def put(directory: Path, offset: int) -> None:
    with IndexService.open(directory, mode="a", hash_slots=4, max_entries=2) as index:
        index.put_batch({"topic": ["T"], "key": ["k"], "phy_offset": [offset], "store_timestamp": [1000 + offset]})


def test_an_unchanged_directory_is_opened_once(tmp_path: Path) -> None:
    put(tmp_path, 1)
    first = workers.index_service(tmp_path)
    assert workers.index_service(tmp_path) is first


def test_other_options_are_another_handle(tmp_path: Path) -> None:
    put(tmp_path, 1)
    assert workers.index_service(tmp_path) is not workers.index_service(tmp_path, access="pread")


def test_a_changed_directory_is_opened_again(tmp_path: Path) -> None:
    put(tmp_path, 1)
    first = workers.index_service(tmp_path, hash_slots=4, max_entries=2)
    put(tmp_path, 2)
    second = workers.index_service(tmp_path, hash_slots=4, max_entries=2)
    assert second is not first
    assert second.query_offset("T", "k").phy_offsets == [2, 1]


def test_a_replaced_directory_is_opened_again(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    put(tmp_path / "b", 2)
    (tmp_path / "link").symlink_to("a")
    first = workers.index_service(tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    second = workers.index_service(tmp_path / "link")
    assert second is not first
    assert second.query_offset("T", "k").phy_offsets == [2]


def test_the_handle_used_least_recently_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAX_OPEN", 2)
    for name in "abc":
        put(tmp_path / name, 1)
    opened = [workers.index_service(tmp_path / name) for name in "abab"]
    assert opened[2:] == opened[:2]
    workers.index_service(tmp_path / "c")
    assert workers.index_service(tmp_path / "b") is opened[1]
    assert workers.index_service(tmp_path / "a") is not opened[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    put(tmp_path, 7)
    workers.index_service(tmp_path)
    child = os.fork()
    if not child:
        answer = workers.index_service(tmp_path).query_offset("T", "k").phy_offsets if not workers._opened else []
        os._exit(0 if answer == [7] else 1)
    assert os.waitpid(child, 0)[1] == 0
