"""Files that are bytes in memory answer as files do."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden
import golden_kafka
from logdex import GeometryError
from logdex.kafka import LogSegment
from logdex.rocketmq import CommitLog, IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_index_files_answer_alike(store: Callable[[str], Path]) -> None:
    keys = [row["key"] for row in golden.rows("rolled", "queries")]
    paths = sorted((store("rolled") / "index").iterdir())
    for path in paths:
        with IndexFile.open(path) as file, IndexFile.from_bytes(path.read_bytes()) as bytes_:
            assert bytes_.header == file.header
            assert (bytes_.hash_slots, bytes_.max_entries) == (file.hash_slots, file.max_entries)
            assert bytes_.select_batch(keys).to_pylist() == file.select_batch(keys).to_pylist()
            assert pa.table(bytes_.entries()).equals(pa.table(file.entries()))
            assert bytes_.verify().ok == file.verify().ok
    assert len(paths) > 5


def test_a_log_answers_alike(store: Callable[[str], Path]) -> None:
    directory = store("rolled") / "commitlog"
    with CommitLog.open(directory) as files:
        expected = pa.table(files.scan())
        with CommitLog.from_bytes({path.name: path.read_bytes() for path in directory.iterdir()}) as log:
            assert (log.min_offset, log.max_offset) == (files.min_offset, files.max_offset)
            assert pa.table(log.scan()).equals(expected)
            pinned = log.pinned()
        # As with files, what was taken from it stays.
        assert pa.table(pinned.scan()).equals(expected)
    assert expected.num_rows > 2000


def test_segments_answer_alike(tmp_path: Path) -> None:
    paths = sorted(golden_kafka.unpack("codecs", tmp_path).rglob("*.log"))
    for path in paths:
        name = f"{path.parent.name}/{path.name}"
        with LogSegment.open(path) as file, LogSegment.from_bytes(name, path.read_bytes()) as segment:
            assert (segment.topic, segment.partition, segment.size) == (file.topic, file.partition, file.size)
            assert pa.table(segment.records()).equals(pa.table(file.records()))
            assert segment.translate_offset(file.base_offset) == file.translate_offset(file.base_offset)
    assert len(paths) > 20


def test_what_is_wrong_has_the_name() -> None:
    with pytest.raises(GeometryError, match="20250101000000000"):
        IndexFile.from_bytes(b"\1" * 100, name="20250101000000000")
    with pytest.raises(ValueError, match=r"orders\.log: the name does not begin with a base offset"):
        LogSegment.from_bytes("orders.log", b"")
    for names in ([], ["a"], ["00000000000000000000", "../x"]):
        with pytest.raises(ValueError, match="expected names of 20 decimal digits"):
            CommitLog.from_bytes(dict.fromkeys(names, b""))
    for name in ("", "/", "a//b", "../x"):
        with pytest.raises(ValueError, match="name"):
            LogSegment.from_bytes(name, b"")


def test_bytes_are_not_pickled(store: Callable[[str], Path]) -> None:
    path = min((store("basic") / "index").iterdir())
    with IndexFile.from_bytes(path.read_bytes()) as file, pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(file)
    with pytest.raises(ValueError, match="is closed"):
        len(file)
    with pytest.raises(ValueError, match="bytes in memory"):
        IndexFile.open(f"memory://{path.name}")
