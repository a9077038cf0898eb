"""An exception at any line leaves no lock behind, and no message is indexed twice when the caller goes on."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import logdex
from logdex.rocketmq import IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from typing_extensions import Self

PACKAGE = str(Path(logdex.__file__).parent)
SIZES: dict[str, Any] = {
    "file_size": 16_384,
    "queue_file_size": 400,
    "hash_slots": 20,
    "max_entries": 20,
    "zone": "UTC",
}
TIME = 1_700_000_000_000
# Every line takes minutes, and neighbours differ little.
STRIDE = 13

# A listing of a directory that is interrupted before its `with` block begins.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupt:
    """Raises KeyboardInterrupt at one executed line of the package."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.raised = False

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self.trace

    def __enter__(self) -> Self:
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> bool:
        sys.settrace(None)
        return kind is KeyboardInterrupt


def put(writer: StoreWriter, numbers: range) -> None:
    for number in numbers:
        level = 1 if number % 10 == 9 else 0
        keys = f"k{number} x{number % 4}"
        writer.put_message(f"T{number % 3}", b"body", keys=keys, delay_level=level, store_timestamp=TIME + number)


def check(root: Path, count: int) -> None:
    """Check a store: every message is there once, in its queue and under each key."""
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        assert store.index is not None
        topics = {number: "SCHEDULE_TOPIC_XXXX" if number % 10 == 9 else f"T{number % 3}" for number in range(count)}
        for number, topic in topics.items():
            assert len(store.index.query_offset(topic, f"k{number}").phy_offsets) == 1, number
            offsets = store.index.query_offset(topic, f"x{number % 4}").phy_offsets
            assert len(offsets) == len(set(offsets))
    assert not (root / "abort").exists()


def begin(root: Path) -> StoreWriter:
    shutil.rmtree(root, ignore_errors=True)
    writer = StoreWriter.open(root, **SIZES, services=False, flush="none")
    put(writer, range(12))
    writer.flush()
    put(writer, range(12, 30))
    return writer


@pytest.mark.parametrize("step", ["dispatch", "flush"])
def test_the_caller_goes_on_after_an_interrupt(tmp_path: Path, step: str) -> None:
    line, raised = 1, True
    while raised:
        writer = begin(tmp_path / "store")
        with Interrupt(line) as interrupt:
            getattr(writer, step)()
        raised = interrupt.raised
        put(writer, range(30, 36))
        writer.close()
        check(tmp_path / "store", 36)
        line += STRIDE
    assert line > 20 * STRIDE


def test_close_again_after_an_interrupt(tmp_path: Path) -> None:
    line, raised = 3, True
    while raised:
        writer = begin(tmp_path / "store")
        with Interrupt(line) as interrupt:
            writer.close()
        raised = interrupt.raised
        writer.close()
        # The lock is free at once, without a run of the cyclic collector.
        with StoreWriter.open(tmp_path / "store", **SIZES, services=False):
            pass
        check(tmp_path / "store", 30)
        line += STRIDE
    assert line > 20 * STRIDE


@pytest.mark.parametrize("services", [False, True])
def test_open_again_after_an_interrupt(tmp_path: Path, *, services: bool) -> None:
    root, left = tmp_path / "store", tmp_path / "left"
    writer = begin(root)
    shutil.copytree(root, left)
    writer.close()
    line, raised = 5, True
    gc.disable()
    try:
        while raised:
            shutil.rmtree(root)
            shutil.copytree(left, root)
            with Interrupt(line) as interrupt:
                StoreWriter.open(root, **SIZES, services=services).close()
            raised = interrupt.raised
            with StoreWriter.open(root, **SIZES, services=False):
                pass
            check(root, 30)
            line += 2 * STRIDE
    finally:
        gc.enable()
    assert line > 20 * STRIDE


def test_a_collector_in_the_service_thread_ends_a_dropped_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finalizer runs inside a step of the service, which holds the lock of the steps."""
    collect, collected = threading.Event(), threading.Event()
    build = IndexService.index_once

    def build_and_collect(*arguments: Any, **options: Any) -> int:
        count = build(*arguments, **options)
        if threading.current_thread().name == "logdex-store" and collect.wait(60):
            gc.collect()
            collected.set()
        return count

    class Holder:
        writer: StoreWriter
        itself: object

    monkeypatch.setattr(IndexService, "index_once", build_and_collect)
    gc.disable()
    try:
        holder = Holder()
        holder.writer, holder.itself = StoreWriter.open(tmp_path, **SIZES), holder
        holder.writer.put_message("T0", keys="k0 x0", store_timestamp=TIME)
        del holder
        collect.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    # Opening waits for the thread.
    StoreWriter.open(tmp_path, **SIZES, services=False).close()
    assert [thread for thread in threading.enumerate() if thread.name == "logdex-store"] == []
    check(tmp_path, 1)
