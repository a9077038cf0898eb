"""A broker deletes, truncates and compacts segments while they are read: what a read planned comes, or an error does."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from kafka_batches import Row, batch, write_segment
from kafka_search import find
from logdex.cli import main
from logdex.kafka import Log, LogDir, LogSegment, build_key_index, log_dir
from logdex.kafka.find import search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex._core import PartitionLog

SEGMENT = 10
SEGMENTS = 4
ALL = list(range(SEGMENTS * SEGMENT))
MIDDLE = f"{SEGMENT:020d}.log"
LAST = f"{3 * SEGMENT:020d}.log"


def _segment(base: int) -> list[bytes]:
    return [batch([Row(offset, offset, b"key", b"value")]) for offset in range(base, base + SEGMENT)]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return a partition of four segments, of ten batches each."""
    place = tmp_path / "logs" / "orders-0"
    for base in ALL[::SEGMENT]:
        write_segment(place, base, *_segment(base))
    return place


def _expire(partition: Path) -> int:
    for name in (f"{0:020d}.log", MIDDLE):
        (partition / name).unlink()
    return errno.ENOENT


def _delete_topic(partition: Path) -> int:
    partition.rename(partition.with_name("orders-0.0123456789abcdef0123456789abcdef-delete"))
    return errno.ENOENT


def _truncate(partition: Path) -> int:
    """Cut the log between two batches, as a follower does behind the leader's log: what is left is whole."""
    os.truncate(partition / LAST, sum(map(len, _segment(3 * SEGMENT)[:4])))
    return errno.ESTALE


def _empty(partition: Path) -> int:
    os.truncate(partition / LAST, 0)
    return errno.ESTALE


def _compact(partition: Path) -> int:
    """Swap in a segment with some of the records, of two segments: it may be as long as the first one was."""
    cleaned = partition / f"{SEGMENT:020d}.log.swap"
    kept = [*_segment(SEGMENT)[3:], *_segment(2 * SEGMENT)[:5]]
    cleaned.write_bytes(b"".join(kept))
    cleaned.rename(partition / MIDDLE)
    (partition / f"{2 * SEGMENT:020d}.log").unlink()
    return errno.ESTALE


def _shrink_by_compaction(partition: Path) -> int:
    cleaned = partition / f"{SEGMENT:020d}.log.swap"
    cleaned.write_bytes(b"".join(_segment(SEGMENT)[3:]))
    cleaned.rename(partition / MIDDLE)
    return errno.ESTALE


CHANGES = [_expire, _delete_topic, _truncate, _empty, _compact, _shrink_by_compaction]
over_changes = pytest.mark.parametrize("change", CHANGES)


def _offsets(stream: Any) -> list[int]:
    return [offset for each in stream for offset in each.column("offset").to_pylist()]


@over_changes
@pytest.mark.parametrize("on_error", ["raise", "skip", "stop"])
def test_a_log_that_changes_after_the_plan_is_an_error(
    partition: Path, change: Callable[[Path], int], on_error: str
) -> None:
    streams = [
        opened.records(on_error=on_error, batch_size=1)  # type: ignore[arg-type]
        for opened in (Log.open(partition), LogDir.open(partition.parent))
    ]
    for stream in streams:
        assert next(stream).column("offset").to_pylist() == [0]
    # The first segment is open by now; the others are not.
    number = change(partition)
    for stream in streams:
        with pytest.raises(OSError, match=f"{partition}|read again") as raised:
            _offsets(stream)
        assert raised.value.errno == number
        assert str(raised.value.filename).startswith(str(partition))


@over_changes
def test_a_second_read_has_what_is_there(partition: Path, change: Callable[[Path], int]) -> None:
    with LogDir.open(partition.parent) as logs:
        stream = logs.records()
        change(partition)
        with pytest.raises(OSError):
            _offsets(stream)
        assert set(_offsets(logs.records(on_error="skip"))) <= set(ALL)


def test_what_a_broker_appends_and_rolls_is_no_change(partition: Path) -> None:
    with Log.open(partition) as log:
        stream = log.records()
        with (partition / LAST).open("ab") as file:
            file.write(batch([Row(40, 40, b"key", b"value")]))
        write_segment(partition, 41, batch([Row(41, 41, b"key", b"value")]))
        assert _offsets(stream) == ALL


@over_changes
def test_find_has_every_record_or_raises(
    partition: Path, tmp_path: Path, change: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_key_index(partition.parent, tmp_path / "keys")
    with LogDir.open(partition.parent) as logs:
        assert len(find(logs, "orders", "key", index=tmp_path / "keys")) == len(ALL)
        _after_the_plan(partition, change, monkeypatch)
        with pytest.raises(OSError, match=str(partition)):
            find(logs, "orders", "key", index=tmp_path / "keys")


def _after_the_plan(partition: Path, change: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log change between its listing and its first record, in every call."""
    plan = Log.parts

    def parts(*arguments: Any, **options: Any) -> Any:
        planned = plan(*arguments, **options)
        if (partition / LAST).exists():
            change(partition)
        return planned

    def search_of_listed(logs: Sequence[PartitionLog], *arguments: Any, **options: Any) -> Any:
        listed = [opened.pinned() for opened in logs]
        if (partition / LAST).exists():
            change(partition)
        return search(listed, *arguments, **options)

    monkeypatch.setattr(Log, "parts", parts)
    monkeypatch.setattr(log_dir, "search", search_of_listed)


@over_changes
@pytest.mark.parametrize("command", ["cat", "cat --skip-damaged", "export", "kafka find", "kafka build-index"])
def test_commands_say_it(
    partition: Path,
    change: Callable[[Path], int],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs = str(partition.parent)
    commands = {
        "cat": ["cat", logs],
        "cat --skip-damaged": ["cat", logs, "--skip-damaged"],
        "export": ["export", logs, str(partition.parent.parent / "x.parquet")],
        "kafka find": ["kafka", "find", logs, "orders", "key"],
        "kafka build-index": ["kafka", "build-index", logs, str(partition.parent.parent / "keys")],
    }
    _after_the_plan(partition, change, monkeypatch)
    assert main(commands[command]) == 2
    assert str(partition) in capsys.readouterr().err


@pytest.mark.parametrize("change", [_truncate, _empty])
def test_a_segment_that_is_open_says_that_it_shrank(partition: Path, change: Callable[[Path], int]) -> None:
    with LogSegment.open(partition / LAST) as segment:
        size = segment.size
        change(partition)
        expected = f"expected the segment of {size} bytes, as it was when the read was planned, found"
        for read in (
            lambda: segment.records().read_all(),
            lambda: segment.batches().read_all(),
            segment.verify,
            lambda: segment.translate_offset(35),
            segment.next_offset,
        ):
            with pytest.raises(OSError, match=expected):
                read()
