"""Which files make a log, after every kind of stop that leaves some behind; nothing is touched."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import golden_kafka
import kafka_records as records
import logdex
from logdex.kafka import Log, LogDir, LogSegment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "cod-none"
HEX = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def folder(kafka_copy: Callable[[str], Path]) -> Path:
    """Return the directory of a partition of several segments, which a test may change."""
    return kafka_copy("codecs") / f"{TOPIC}-0"


def _expected() -> list[records.Row]:
    rows = golden_kafka.rows("codecs", "records")
    return [records.golden_row(row) for row in rows if (row["topic"], row["partition"]) == (TOPIC, 0)]


def _state(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _rows(folder: Path) -> list[records.Row]:
    before = _state(folder)
    with Log.open(folder) as log:
        found = records.rows(log.records())
    assert _state(folder) == before
    return found


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _rename(segment: Path, ending: str) -> None:
    for path in segment.parent.glob(f"{segment.stem}.*"):
        if path.suffix in {".log", ".index", ".timeindex"}:
            path.rename(path.with_name(path.name + ending))


def test_segments_that_wait_for_deletion_are_gone(folder: Path) -> None:
    first, second, *_ = _segments(folder)
    _rename(first, ".deleted")
    assert _rows(folder) == [row for row in _expected() if row[0] >= int(second.stem)]
    with Log.open(folder) as log:
        assert log.log_start_offset == int(second.stem)


def test_a_compaction_that_did_not_end_changes_nothing(folder: Path) -> None:
    first, second, *_ = _segments(folder)
    shutil.copy(second, first.with_name(f"{first.name}.cleaned"))
    assert _rows(folder) == _expected()


def test_a_finished_compaction_takes_the_place_of_what_it_was_made_of(folder: Path) -> None:
    """Two segments cleaned into one, which is still called .swap while both of them are there."""
    first, second, third, *_ = _segments(folder)
    swap = first.with_name(f"{first.name}.swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes())
    assert _rows(folder) == _expected()
    with Log.open(folder) as log:
        assert [segment.base_offset for segment in log.segments][:2] == [int(first.stem), int(third.stem)]


def test_a_swap_that_was_renamed_in_part(folder: Path) -> None:
    """The log has its name again, its indexes not yet."""
    first, *_ = _segments(folder)
    for suffix in (".index", ".timeindex"):
        path = first.with_suffix(suffix)
        path.rename(path.with_name(f"{path.name}.swap"))
    assert _rows(folder) == _expected()


def test_a_split_that_did_not_end_is_void(folder: Path) -> None:
    """While .cleaned files are there, .swap files at or behind them belong to a split that is not finished."""
    first, second, *_ = _segments(folder)
    second.with_name(f"{second.name}.cleaned").write_bytes(b"")
    shutil.copy(first, second.with_name(f"{second.name}.swap"))
    assert _rows(folder) == _expected()


def test_indexes_without_their_log_are_named_and_left(folder: Path) -> None:
    orphan = folder / "00000000000000009999.index"
    orphan.write_bytes(bytes(8))
    assert _rows(folder) == _expected()
    with Log.open(folder) as log:
        assert [(f.kind, f.path) for f in log.verify().findings] == [("orphan-index", str(orphan))]


def test_strange_files_are_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("do not delete")
    with Log.open(folder) as log:
        assert [f.kind for f in log.verify().findings] == ["file-name"]
        assert records.rows(log.records()) == _expected()


def test_indexes_need_not_be_there(folder: Path) -> None:
    for suffix in ("index", "timeindex"):
        for path in folder.glob(f"*.{suffix}"):
            path.unlink()
    assert _rows(folder) == _expected()
    with Log.open(folder) as log:
        middle = _expected()[len(_expected()) // 2]
        assert log.offset_for_timestamp(middle[1]) is not None
        assert {f.kind for f in log.verify().findings} == {"file-missing"}


def test_an_empty_partition(tmp_path: Path) -> None:
    empty = tmp_path / "empty-0"
    empty.mkdir()
    with Log.open(empty) as log:
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0)
        assert records.rows(log.records()) == []
        assert log.offset_for_timestamp(5) is None
        assert log.offset_for_timestamp(-3) is None
        assert log.verify().ok
    (empty / "00000000000000000007.log").write_bytes(b"")
    with Log.open(empty) as log:
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
        assert log.read(7, 100) is None
        assert records.rows(log.records()) == []


def test_replicas_that_are_being_deleted_or_moved_are_no_topics(kafka_copy: Callable[[str], Path]) -> None:
    root = kafka_copy("codecs")
    with LogDir.open(root) as logs:
        before = logs.partitions()
        for number, why in enumerate(("delete", "future", "stray")):
            shutil.copytree(root / f"{TOPIC}-0", root / f"{TOPIC}-{number}.{HEX}-{why}")
        (root / "looks-like-1").mkdir()
        assert logs.partitions() == before
        assert TopicPartition(TOPIC, 0) in before
        assert logs.topics[TOPIC] == [0, 1]


def test_a_log_grows_and_loses_segments_while_it_is_open(folder: Path) -> None:
    *rest, last = _segments(folder)
    content = last.read_bytes()
    boundary = next(
        row["position"]
        for row in golden_kafka.rows("codecs", "batches")
        if row["dir"] == folder.name and row["segment"] == int(last.stem) and row["position"]
    )
    last.write_bytes(content[:boundary])
    with Log.open(folder) as log:
        short = records.rows(log.records())
        assert short == _expected()[: len(short)] != _expected()
        last.write_bytes(content[: boundary + 30])  # a batch that is being written
        assert records.rows(log.records()) == short
        last.write_bytes(content)
        assert records.rows(log.records()) == _expected()
        _rename(rest[0], ".deleted")
        assert log.log_start_offset == int(rest[1].stem)


def test_segments_open_from_a_path_and_name_their_partition(folder: Path) -> None:
    with LogSegment.open(_segments(folder)[0]) as segment:
        assert (segment.topic, segment.partition, segment.base_offset) == (TOPIC, 0, 0)
    with LogSegment.open(_segments(folder)[0], topic="other", partition=7) as segment:
        row = records.rows(segment.records())[0]
        assert (segment.topic, segment.partition, row) == ("other", 7, _expected()[0])


def test_logdex_opens_log_directories_and_partitions(folder: Path) -> None:
    with logdex.open(folder) as log:
        assert isinstance(log, Log)
    with logdex.open(folder.parent) as logs:
        assert isinstance(logs, LogDir)
        assert TOPIC in logs.topics
    with pytest.raises(ValueError, match=r"found a segment; open it with logdex\.kafka\.LogSegment\.open"):
        logdex.open(next(folder.glob("*.log")))
