"""Writers that were opened with a relative path continue in the same directory after the process changes directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logdex._core import CommitLogWriter, ConsumeQueueWriter
from logdex.rocketmq import CommitLog, IndexService, MessageStore, StoreWriter, copy_messages

SMALL: dict[str, Any] = {"file_size": 16_384, "queue_file_size": 400, "hash_slots": 20, "max_entries": 50}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory to change to; the process is in its parent, and returns there."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    return directory


def test_a_store(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StoreWriter.open("store", **SMALL, zone="UTC", services=False)
    assert writer.root == elsewhere.parent / "store"
    monkeypatch.chdir(elsewhere)
    for number in range(100):
        writer.put_message("T", bytes(300), keys=f"k{number}")
        writer.dispatch()
    writer.close()
    assert not any(elsewhere.iterdir())
    with MessageStore.open(elsewhere.parent / "store") as store:
        assert store.verify().ok
        assert len(store.find("T", "k99", scan=False)) == 1


def test_a_copy(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter.open("store", **SMALL, zone="UTC", services=False) as writer:
        for number in range(100):
            writer.put_message("T", bytes(300), keys=f"k{number}")
    with MessageStore.open(elsewhere.parent / "store") as store:
        copy_messages(store, "copy", zone="UTC", progress=lambda *_: monkeypatch.chdir(elsewhere))
    assert Path.cwd() == elsewhere
    assert not any(elsewhere.iterdir())
    with MessageStore.open(elsewhere.parent / "copy", hash_slots=20, max_entries=50) as store:
        assert store.verify().checked["messages"] == 100


def test_the_parts(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommitLogWriter.open(Path("store/commitlog"), end_phy_offset=0, file_size=16_384, flush="none")
    queues = ConsumeQueueWriter.open(Path("store"), end_phy_offset=0, extension_file_size=400)
    begun = ConsumeQueueWriter.create(Path("queues"))
    index = IndexService.open(
        "store/index", mode="a", checkpoint="store/checkpoint", hash_slots=4, max_entries=5, zone="UTC"
    )
    monkeypatch.chdir(elsewhere)
    log.put_message("T", b"", [("KEYS", "a b c d e f")])
    log.close()
    with CommitLog.open(elsewhere.parent / "store/commitlog") as reader:
        for batch in reader.scan():
            assert index.build_index(batch) == 6
            assert queues.append_batch(batch) == begun.append_batch(batch) == 1
    index.close()
    queues.finish()
    begun.finish()
    assert not any(elsewhere.iterdir())
    store = elsewhere.parent / "store"
    assert len(list((store / "index").iterdir())) == 2
    assert {path.name for path in store.iterdir()} == {
        "checkpoint",
        "commitlog",
        "consumequeue",
        "consumequeue_ext",
        "index",
    }
    assert len(list((elsewhere.parent / "queues").glob("consumequeue/T/0/*"))) == 1
