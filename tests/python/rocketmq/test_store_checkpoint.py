"""The checkpoint file of a store."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

import golden
from logdex._core import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_times_are_those_the_broker_reads(case: str, store: Store) -> None:
    path = store(case) / "checkpoint"
    before = path.read_bytes()
    wanted = golden.info(case)["load"]["checkpoint"]
    with StoreCheckpoint.open(path) as checkpoint:
        assert checkpoint.physic_msg_timestamp == wanted["physicMsgTimestamp"]
        assert checkpoint.logics_msg_timestamp == wanted["logicsMsgTimestamp"]
        assert checkpoint.index_msg_timestamp == wanted["indexMsgTimestamp"]
        assert checkpoint.file_len == 4096
        with pytest.raises(ValueError, match="reading only"):
            checkpoint.index_msg_timestamp = 1
        with pytest.raises(ValueError, match="reading only"):
            checkpoint.flush()
    assert path.read_bytes() == before


def test_a_checkpoint_pickles_by_its_path_and_comes_back_as_a_reader(store: Store) -> None:
    path = store("basic") / "checkpoint"
    for mode in ("r", "r+"):
        with StoreCheckpoint.open(path, mode=mode) as checkpoint:
            copy = pickle.loads(pickle.dumps(checkpoint))  # noqa: S301 -- our own bytes
            assert copy.path == path
            assert copy.index_msg_timestamp == checkpoint.index_msg_timestamp > 0
            with pytest.raises(ValueError, match="reading only"):
                copy.flush()
    closed = StoreCheckpoint.open(path)
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(closed)


def test_flush_keeps_the_other_bytes(store: Store) -> None:
    path = store("v5-basic") / "checkpoint"
    before = path.read_bytes()
    with StoreCheckpoint.open(path, mode="r+") as checkpoint:
        checkpoint.index_msg_timestamp = 1_700_000_000_000
        assert path.read_bytes() == before
        checkpoint.flush()
    assert path.read_bytes() == before[:16] + (1_700_000_000_000).to_bytes(8, "big") + before[24:]
    with pytest.raises(ValueError, match="closed"):
        checkpoint.flush()


def test_new_file_is_the_broker_s(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with pytest.raises(FileNotFoundError):
        StoreCheckpoint.open(path)
    assert not path.exists()
    checkpoint = StoreCheckpoint.open(path, mode="r+")
    assert path.read_bytes() == bytes(4096)
    checkpoint.physic_msg_timestamp = 1_700_000_000_001
    checkpoint.logics_msg_timestamp = 1_700_000_000_002
    checkpoint.index_msg_timestamp = datetime.fromtimestamp(1_700_000_000, tz=timezone.utc)  # type: ignore[assignment]
    checkpoint.flush()
    written = bytes.fromhex("0000018bcfe568010000018bcfe568020000018bcfe56800")
    assert path.read_bytes() == written + bytes(4072)


@pytest.mark.parametrize("compat", [None, "4.9.3"])
def test_missing_bytes_are_zeros(compat: None, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes.fromhex("0000018bcfe568010000"))
    checkpoint = StoreCheckpoint.open(path, compat=compat)
    assert (checkpoint.physic_msg_timestamp, checkpoint.index_msg_timestamp) == (1_700_000_000_001, 0)
    assert checkpoint.file_len == 10
    assert path.stat().st_size == 10
