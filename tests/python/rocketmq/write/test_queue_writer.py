"""Appending to queues: the queues of real brokers are opened, truncated, and written again, byte for byte."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex._core import CommitLog, ConsumeQueue, ConsumeQueueWriter, StoreLock
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Store = Callable[[str], Path]

FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
BLANK = struct.pack(">qiq", 0, 0x7FFF_FFFF, 0)


def files(root: Path) -> dict[str, bytes]:
    found = (file for folder in FOLDERS for file in sorted((root / folder).rglob("*")) if file.is_file())
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in found}


def options(case: str) -> dict[str, Any]:
    return {"multi_dispatch": golden.info(case)["store"].get("enableMultiDispatch", False)}


def ends(writer: ConsumeQueueWriter) -> dict[tuple[str, int], int]:
    columns = (writer.queue_offsets().column(name).to_pylist() for name in ("topic", "queue_id", "queue_offset"))
    rows = list(zip(*columns, strict=True))
    assert rows == sorted(rows)
    return {(topic, queue_id): offset for topic, queue_id, offset in rows}


def append(writer: ConsumeQueueWriter, log: CommitLog, begin: int | None = None) -> int:
    columns = dict.fromkeys([*writer.columns, "phy_offset"])
    return sum(writer.append_batch(batch) for batch in log.scan(begin_phy_offset=begin, columns=columns))


def test_the_queues_that_readers_see_grow_are_told_once(store: Store, tmp_path: Path) -> None:
    with CommitLog.open(store("basic") / "commitlog") as log:
        writer = ConsumeQueueWriter.create(tmp_path / "new", **options("basic"))
        assert append(writer, log)
        # Readers do not see buffered units.
        assert writer.take_grown() == []
        writer.flush(sync=False)
        grown = writer.take_grown()
        assert {(topic, queue_id): end for topic, queue_id, end in grown} == ends(writer)
        assert len(grown) == len(ends(writer)) > 10
        assert writer.take_grown() == []
        writer.finish()


@pytest.mark.parametrize("case", golden.CLEAN_STORES)
def test_opening_a_clean_store_changes_no_byte(store: Store, case: str) -> None:
    root = store(case)
    before = files(root)
    assert len(before) > 10
    with CommitLog.open(root / "commitlog") as log:
        writer = ConsumeQueueWriter.open(root, end_phy_offset=log.max_offset, **options(case))
        rows = {
            (row["topic"], row["queueId"]): row["maxOffset"]
            for row in golden.rows(case, "queues")
            if row["maxOffset"] > 0
        }
        assert ends(writer) == rows
        assert writer.log_end == writer.dispatch_offset == log.max_offset
        assert writer.report.ok
        assert writer.report.checked == {"units_cut": 0, "queue_files_deleted": 0}
        # The queues already have all messages.
        assert append(writer, log) == 0
        assert ends(writer) == rows
    writer.flush()
    writer.flush(sync=False)
    assert writer.finish().ok
    assert files(root) == before
    for call in (writer.flush, writer.queue_offsets, writer.finish, lambda: writer.log_end):
        with pytest.raises(ValueError, match="finished"):
            call()


@pytest.mark.parametrize("case", golden.STORES)
def test_what_is_cut_off_and_written_again_is_the_broker_s(store: Store, case: str) -> None:
    root = store(case)
    with CommitLog.open(root / "commitlog") as log:
        offsets = log.scan(columns=["phy_offset"]).read_all().column("phy_offset").to_pylist()
        # First finish the recovery after a kill.
        writer = ConsumeQueueWriter.open(root, end_phy_offset=log.max_offset, **options(case))
        append(writer, log)
        assert writer.finish().ok
        whole = files(root)
        for cut in (*offsets[:: len(offsets) // 7], offsets[-1]):
            writer = ConsumeQueueWriter.open(root, end_phy_offset=cut, **options(case))
            assert writer.report.ok
            assert writer.log_end <= cut
            assert writer.report.checked["units_cut"] > 0
            for directory in (root / "consumequeue").glob("*/*"):
                assert ConsumeQueue.open(directory).log_end <= cut
            assert files(root) != whole
            flushes = 0
            for batch in log.scan(begin_phy_offset=cut, columns=writer.columns, batch_size=100):
                writer.append_batch(batch)
                writer.flush(sync=bool(flushes % 2))
                flushes += 1
            report = writer.finish()
            assert report.ok, cut
            assert report.checked["units"] == report.checked["units_cut"]
            assert flushes
            assert files(root) == whole, cut


@pytest.mark.parametrize("lost", [FOLDERS, FOLDERS[:2]])
def test_a_store_without_queues_gets_them(store: Store, lost: tuple[str, ...]) -> None:
    root = store("cqext")
    whole = files(root)
    for folder in lost:
        shutil.rmtree(root / folder, ignore_errors=True)
    settings = golden.info("cqext")["store"]
    with CommitLog.open(root / "commitlog") as log:
        writer = ConsumeQueueWriter.open(
            root,
            end_phy_offset=log.max_offset,
            file_size=settings["mappedFileSizeConsumeQueue"],
            extension_file_size=settings["mappedFileSizeConsumeQueueExt"],
            **options("cqext"),
        )
        assert (writer.log_end, writer.dispatch_offset, ends(writer)) == (-1, -1, {})
        append(writer, log)
        assert writer.log_end == log.max_offset
    assert writer.finish().ok
    assert files(root) == whole


def test_sizes_follow_the_files_that_are_there(store: Store, tmp_path: Path) -> None:
    root = store("v5-basic")
    writer = ConsumeQueueWriter.open(tmp_path / "new", end_phy_offset=0, batch_file_size=50)
    writer.append_batch(messages((0, 0), (5, 100)))
    writer.finish()
    file = tmp_path / "new/consumequeue/T/0/00000000000000000000"
    assert file.stat().st_size == 6_000_000
    short = root / "consumequeue_ext/T/0"
    short.mkdir(parents=True)
    (short / f"{0:020}").write_bytes(bytes(23))
    with pytest.raises(ValueError, match="23 bytes"):
        ConsumeQueueWriter.open(root, end_phy_offset=0)
    (short / f"{0:020}").unlink()
    sizes: list[dict[str, Any]] = [
        {"file_size": 1_000_000},
        {"batch_file_size": 46},
        {"file_size": 19},
        {"extension_file_size": 23},
    ]
    for wanted in sizes:
        with pytest.raises(ValueError, match=r"bytes"):
            ConsumeQueueWriter.open(root, end_phy_offset=0, **wanted)
    with pytest.raises(ValueError, match="delay level"):
        ConsumeQueueWriter.open(root, end_phy_offset=0, delay_levels="1x")


def messages(*rows: tuple[int, int], topic: str = "T", time: int = 1_700_000_000_000) -> pa.RecordBatch:
    """Make messages of 100 bytes in queue 0 from queue offsets and offsets in the log."""
    count = len(rows)
    columns = {
        "topic": pa.array([topic] * count),
        "queue_id": pa.array([0] * count, pa.int32()),
        "queue_offset": pa.array([row[0] for row in rows], pa.int64()),
        "phy_offset": pa.array([row[1] for row in rows], pa.int64()),
        "store_timestamp": pa.array([time] * count, pa.timestamp("ms", "UTC")),
        "tags": pa.array([None] * count, pa.string()),
        "properties": pa.array([[]] * count, pa.map_(pa.string(), pa.string())),
        "sys_flag": pa.array([0] * count, pa.int32()),
        "store_size": pa.array([100] * count, pa.int32()),
    }
    return pa.record_batch(columns)


def unit(phy_offset: int) -> bytes:
    return struct.pack(">qiq", phy_offset, 100, 0)


def queue(root: Path, contents: Iterable[bytes], size: int = 100, first: int = 0) -> Path:
    """Make a queue T/0 of files of the given sizes, each filled up with zeros."""
    directory = root / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    for number, content in enumerate(contents):
        (directory / f"{first + number * size:020}").write_bytes(content.ljust(size, b"\0"))
    return directory


def names(directory: Path) -> list[int]:
    return sorted(int(file.name) for file in directory.iterdir())


def test_filling_without_a_message_is_no_end_of_a_queue(tmp_path: Path) -> None:
    # A broker reads it as a message that ends at 2 GiB of the log, and dispatches nothing before (4.9.3).
    directory = queue(tmp_path, [BLANK * 3])
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=1_000)
    assert (writer.log_end, writer.dispatch_offset, ends(writer)) == (-1, -1, {("T", 0): 3})
    assert names(directory) == []
    # The queue offset is the expected one, so there is no jump.
    assert writer.append_batch(messages((3, 500), (4, 600))) == 2
    assert writer.finish().ok
    assert (directory / f"{0:020}").read_bytes() == BLANK * 3 + unit(500) + unit(600)


def test_filling_behind_the_last_message_is_cut_off(tmp_path: Path) -> None:
    directory = queue(tmp_path, [unit(0) + unit(100) + BLANK * 3, BLANK * 2 + unit(700)])
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=700)
    assert (writer.log_end, ends(writer)) == (200, {("T", 0): 7})
    assert writer.report.checked == {"units_cut": 1, "queue_files_deleted": 1}
    assert names(directory) == [0]
    assert writer.append_batch(messages((7, 700))) == 1
    assert writer.finish().ok
    assert [(directory / f"{start:020}").read_bytes() for start in (0, 100)] == [
        unit(0) + unit(100) + BLANK * 3,
        BLANK * 2 + unit(700) + bytes(40),
    ]


@pytest.mark.parametrize("last", [b"", BLANK])
def test_a_last_file_without_a_message_adds_no_unit(tmp_path: Path, last: bytes) -> None:
    # In a file of zeros a broker's clean start counts the first unit as valid (4.9.3).
    directory = queue(tmp_path, [b"".join(unit(100 * number) for number in range(5)), last])
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
    assert (writer.log_end, writer.dispatch_offset) == (500, 500)
    assert ends(writer) == {("T", 0): 5 + len(last) // 20}
    assert names(directory) == [0]
    writer.append_batch(messages((5 + len(last) // 20, 600)))
    assert writer.finish().ok
    assert (directory / f"{100:020}").read_bytes() == (last + unit(600)).ljust(100, b"\0")


def test_a_whole_queue_behind_the_end_keeps_its_offsets(tmp_path: Path) -> None:
    directory = queue(tmp_path, [unit(500), unit(600)], first=300)
    before = ends(ConsumeQueueWriter.open(tmp_path, end_phy_offset=1_000))
    assert before == {("T", 0): 16}, "a file that is not full ends the queue"
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=400)
    assert (writer.log_end, ends(writer), names(directory)) == (-1, {("T", 0): 15}, [])
    writer.append_batch(messages((15, 400)))
    assert writer.finish().ok
    assert names(directory) == [300]


WHOLE = b"".join(unit(100 * number) for number in range(5))


@pytest.mark.parametrize(
    ("begin", "wrong", "kind", "place"),
    [
        (40, bytes(20), "queue-unit", 40),
        (40, unit(-8), "queue-unit", 40),
        # A wild unit is detected by the units after it.
        (40, unit(5_000), "queue-order", 60),
        (60, unit(0), "queue-order", 60),
        # Half a unit, as a killed process leaves it.
        (80, struct.pack(">q", 400) + bytes(12), "queue-unit", 80),
    ],
)
def test_units_lost_to_damage_are_dispatched_again(
    tmp_path: Path, begin: int, wrong: bytes, kind: str, place: int
) -> None:
    directory = queue(tmp_path, [WHOLE[:begin] + wrong + WHOLE[begin + 20 :]])
    other = tmp_path / "consumequeue/U/0"
    other.mkdir(parents=True)
    (other / f"{0:020}").write_bytes(unit(500) + bytes(80))
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=600)
    (finding,) = writer.report.findings
    assert (finding.kind, finding.offset, finding.path) == (kind, place, str(directory / f"{0:020}"))
    assert (writer.log_end, writer.dispatch_offset) == (600, begin * 5)
    assert (directory / f"{0:020}").read_bytes() == WHOLE[:begin] + bytes(100 - begin)
    rows = [(number, 100 * number) for number in range(5)]
    assert writer.append_batch(messages(*rows)) == 5 - begin // 20
    assert [finding.kind for finding in writer.finish().findings] == [kind]
    assert (directory / f"{0:020}").read_bytes() == WHOLE
    assert ConsumeQueueWriter.open(tmp_path, end_phy_offset=600).report.ok


def test_a_queue_goes_back_as_far_as_it_must(tmp_path: Path) -> None:
    units = [unit(100 * number) for number in range(40)]
    contents = [b"".join(units[begin : begin + 5]) for begin in range(0, 40, 5)]
    directory = queue(tmp_path, contents)
    for end in range(39, -1, -3):
        writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=100 * end)
        expected = {("T", 0): end} if end else {}
        assert (ends(writer), writer.log_end) == (expected, 100 * end or -1)
        kept = b"".join(units[:end])
        content = b"".join((directory / f"{start:020}").read_bytes() for start in names(directory))
        assert content == kept.ljust(-(-len(kept) // 100) * 100, b"\0")
    assert names(directory) == []


def test_files_that_do_not_go_together_are_refused_or_filled_up(tmp_path: Path) -> None:
    directory = queue(tmp_path, [unit(0) + unit(100), b""])
    for start, size, found in ((200, 120, "120 bytes"), (250, 100, "found 250"), (40, 60, "found 40")):
        name = f"{start:020}"
        (directory / name).write_bytes(bytes(size))
        before = files(tmp_path)
        with pytest.raises(CorruptFileError, match=found):
            ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
        assert files(tmp_path) == before
        (directory / name).unlink()
    (directory / f"{100:020}").unlink()
    (directory / f"{0:020}").write_bytes(unit(0) + unit(100) + b"\0" * 5)
    writer = ConsumeQueueWriter.open(tmp_path / "other", end_phy_offset=0)
    writer.finish()
    with pytest.raises(CorruptFileError, match="20 bytes"):
        ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
    # Another queue has the right size, and this one is shorter.
    for number in range(2):
        other = tmp_path / f"consumequeue/U/{number}"
        other.mkdir(parents=True)
        (other / f"{0:020}").write_bytes(unit(200).ljust(100, b"\0"))
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
    assert ends(writer) == {("T", 0): 2, ("U", 0): 1, ("U", 1): 1}
    assert (directory / f"{0:020}").read_bytes() == (unit(0) + unit(100)).ljust(100, b"\0")


def test_a_short_file_in_between_ends_its_queue(tmp_path: Path) -> None:
    units = [unit(100 * number) for number in range(15)]
    directory = queue(tmp_path, [b"".join(units[begin : begin + 5]) for begin in (0, 5, 10)])
    (directory / f"{100:020}").write_bytes(b"".join(units[5:7]))
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=1_500)
    assert [finding.kind for finding in writer.report.findings] == ["queue-order"]
    assert (ends(writer), writer.dispatch_offset) == ({("T", 0): 7}, 700)
    writer.append_batch(messages(*((number, 100 * number) for number in range(15))))
    writer.finish()
    assert b"".join((directory / f"{start:020}").read_bytes() for start in names(directory)) == b"".join(units)


def test_what_is_no_queue_is_left_alone(tmp_path: Path) -> None:
    directory = queue(tmp_path, [unit(0)])
    for stray in ("consumequeue/file", "consumequeue/T/file", "consumequeue/T/0/.DS_Store", "consumequeue/T/x/1"):
        (tmp_path / stray).parent.mkdir(exist_ok=True)
        (tmp_path / stray).write_bytes(b"stray")
    (tmp_path / "consumequeue/T/007").mkdir()
    (tmp_path / "consumequeue/T/7").mkdir()
    before = files(tmp_path)
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
    assert ends(writer) == {("T", 0): 1}
    assert writer.finish().ok
    assert files(tmp_path) == before
    (tmp_path / "consumequeue/CURRENT").write_bytes(b"MANIFEST-1\n")
    with pytest.raises(ValueError, match="RocksDB"):
        ConsumeQueueWriter.open(tmp_path, end_phy_offset=900)
    assert directory.exists()


def test_a_store_under_our_own_lock_is_opened(tmp_path: Path) -> None:
    lock = StoreLock.take(tmp_path / "lock")
    writer = ConsumeQueueWriter.open(tmp_path, end_phy_offset=0)
    writer.append_batch(messages((0, 0)))
    # Readers see it at once, though it may not be on the disk.
    writer.flush(sync=False)
    assert ConsumeQueue.open(tmp_path / "consumequeue/T/0").max_offset == 1
    assert writer.finish().ok
    lock.release()
