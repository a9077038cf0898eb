"""Rebuilt indexes: the bytes that the real LogSegment#recover makes of every segment."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from logdex.errors import CorruptFileError, LockedError
from logdex.kafka import Log, LogSegment, ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _same(content: bytes | None, expected: dict[str, Any] | None) -> bool:
    if content is None or expected is None:
        return content is None and expected is None
    if "base64" in expected:
        assert base64.b64decode(expected["base64"]) == content
    return (len(content), hashlib.sha256(content).hexdigest()) == (expected["length"], expected["sha256"])


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_rebuilt_bytes_are_those_of_recover(kafka_logs: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    compared = failed = 0
    states: dict[str, ProducerState] = defaultdict(ProducerState)
    for row in golden_kafka.rows(case, "rebuild"):
        path = golden_kafka.segment_path(kafka_logs(case), row)
        options: dict[str, Any] = {
            "index_interval_bytes": row["indexIntervalBytes"],
            "max_index_bytes": row["segmentIndexBytes"],
            "producers": states[row["dir"]],
        }
        with LogSegment.open(path) as segment:
            if isinstance(row["bytesTruncated"], dict):
                # Offsets that go back: the real class raises, and the broker then empties the segment.
                with pytest.raises(CorruptFileError):
                    segment.rebuild_indexes(tmp_path / row["dir"], **options)
                failed += 1
                continue
            report = segment.rebuild_indexes(tmp_path / row["dir"], **options)
        target = tmp_path / row["dir"] / path.name
        assert path.stat().st_size - report.checked["bytes"] == row["bytesTruncated"], row
        assert report.ok == (not row["bytesTruncated"]), report
        for name in ("index", "timeindex", "txnindex"):
            file = target.with_suffix(f".{name}")
            assert _same(file.read_bytes() if file.exists() else None, row[name]), file
            compared += 1
    assert compared == 3 * (len(golden_kafka.rows(case, "rebuild")) - failed) > 0
    assert failed == (case == "damaged-baseoffset")


def test_a_file_that_is_there_is_not_replaced_unasked(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    path = kafka_logs("codecs") / "cod-none-0" / "00000000000000000000.log"
    index = tmp_path / "00000000000000000000.timeindex"
    index.write_bytes(b"precious")
    with LogSegment.open(path) as segment:
        with pytest.raises(FileExistsError):
            segment.rebuild_indexes(tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == [index.name]
        assert index.read_bytes() == b"precious"
        assert segment.rebuild_indexes(tmp_path, index_interval_bytes=300, overwrite=True).ok
    assert index.read_bytes() == path.with_suffix(".timeindex").read_bytes()


_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_files_of_a_running_broker_are_not_replaced(kafka_copy: Callable[[str], Path], tmp_path: Path) -> None:
    """A broker holds `.lock` of its log directory, as Java does: by fcntl."""
    root = kafka_copy("codecs")
    before = {path.name: path.read_bytes() for path in (root / "cod-none-0").iterdir()}
    broker = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(root / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    with broker.stdout, Log.open(root / "cod-none-0") as log:
        assert broker.stdout.readline() == b"held\n"
        with pytest.raises(LockedError) as caught:
            log.rebuild_indexes(log.path, overwrite=True)
        assert caught.value.pid == broker.pid
        assert {path.name: path.read_bytes() for path in log.path.iterdir()} == before
        assert log.rebuild_indexes(tmp_path / "elsewhere", index_interval_bytes=300).ok
        broker.stdin.close()
        broker.wait(timeout=30)
        assert log.rebuild_indexes(log.path, index_interval_bytes=300, overwrite=True).ok
    assert {path.name: path.read_bytes() for path in (root / "cod-none-0").iterdir()} == before
