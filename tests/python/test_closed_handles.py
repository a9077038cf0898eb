"""What is closed stays closed: `with` on it raises where it stands, not at the first call inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex import _core, kafka, rocketmq
from logdex.kafka import Log, LogDir, LogDirWriter, LogSegment, LogWriter, OffsetIndex, TimeIndex
from logdex.rocketmq import CommitLog, ConsumeQueue, IndexFile, IndexService, MessageStore, StoreCheckpoint, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BASE = f"{0:020}"
PARTITION = "cod-none-0"

OPENERS: dict[type, Callable[[Path], Any]] = {
    IndexFile: lambda path: IndexFile.create(path / "f", hash_slots=9, max_entries=9),
    IndexService: lambda path: IndexService.open(path / "i", mode="a"),
    StoreCheckpoint: lambda path: StoreCheckpoint.open(path / "checkpoint", mode="r+"),
    CommitLog: lambda path: CommitLog.open(path / "store" / "commitlog"),
    _core.CommitLog: lambda path: _core.CommitLog.open(path / "store" / "commitlog"),
    ConsumeQueue: lambda path: ConsumeQueue.open(path / "store" / "consumequeue" / "TopicTest" / "0"),
    MessageStore: lambda path: MessageStore.open(path / "store"),
    StoreWriter: lambda path: StoreWriter.open(path / "written", file_size=65_536, hash_slots=9, max_entries=99),
    OffsetIndex: lambda path: OffsetIndex.create(path / f"{BASE}.index", 0),
    TimeIndex: lambda path: TimeIndex.create(path / f"{BASE}.timeindex", 0),
    LogSegment: lambda path: LogSegment.open(path / "logs" / PARTITION / f"{BASE}.log"),
    _core.LogSegment: lambda path: _core.LogSegment.open(path / "logs" / PARTITION / f"{BASE}.log"),
    Log: lambda path: Log.open(path / "logs" / PARTITION),
    LogDir: lambda path: LogDir.open(path / "logs"),
    LogWriter: lambda path: LogWriter.open(path / "t-0"),
    LogDirWriter: lambda path: LogDirWriter.open(path / "log-dir"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("handles")
    golden.unpack("basic", path)
    (path / "logs").mkdir()
    golden_kafka.unpack("codecs", path / "logs")
    return path


@pytest.mark.parametrize("kind", OPENERS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_with_on_a_closed_handle_raises_at_once(folder: Path, kind: type) -> None:
    handle = OPENERS[kind](folder)
    with handle as same:
        assert same is handle
    entered = False
    with pytest.raises(ValueError, match="closed"), handle:
        entered = True
    assert not entered
    handle.close()


def test_all_that_is_public_and_closes_itself_is_in_the_list() -> None:
    public = {getattr(module, name) for module in (rocketmq, kafka) for name in module.__all__}
    assert {kind for kind in public if hasattr(kind, "__enter__")} <= set(OPENERS)
