"""A partition as one log: fetches across segments, pickling, closing, arguments."""

from __future__ import annotations

import pickle
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden_kafka
import kafka_records as records
from logdex.kafka import Log, LogDir, LogSegment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _batches(case: str, folder: str) -> list[dict[str, int]]:
    return [row for row in golden_kafka.rows(case, "batches") if row["dir"] == folder and "position" in row]


@pytest.mark.parametrize(
    ("case", "folder"),
    [("codecs", "cod-none-0"), ("compacted", "cp-sparse-0"), ("compacted", "cp-start-1"), ("follower", "fo-a-0")],
)
def test_a_fetch_begins_with_the_batch_that_holds_the_offset(
    kafka_logs: Callable[[str], Path], case: str, folder: str
) -> None:
    batches = _batches(case, folder)
    with Log.open(kafka_logs(case) / folder) as log:
        compared = 0
        for offset in range(log.log_start_offset, log.log_end_offset):
            expected = next(row for row in batches if row["lastOffset"] >= offset)
            found = log.read(offset, 1)
            assert found is not None
            assert (found.segment.base_offset, found.position, found.size) == (
                expected["segment"],
                expected["position"],
                expected["sizeInBytes"],
            )
            assert len(bytes(found)) == found.size
            headers = pa.table(found.batches())
            assert headers.column("baseOffset").to_pylist() == [expected["baseOffset"]]
            compared += 1
        assert compared >= 50
        assert log.read(log.log_end_offset, 1) is None
        for offset in (log.log_start_offset - 1, log.log_end_offset + 1):
            with pytest.raises(ValueError, match="out of range"):
                log.read(offset, 1)


def test_a_fetch_ends_with_its_bytes(kafka_logs: Callable[[str], Path]) -> None:
    with Log.open(kafka_logs("codecs") / "cod-none-0") as log:
        found = log.read(0, 1_000)
        assert found is not None
        assert (found.position, found.size) == (0, 1_000)
        whole = pa.table(found.batches()).column("size").to_pylist()
        assert 0 < sum(whole) <= 1_000
        short = log.read(0, 1, min_one_message=False)
        assert short is not None
        assert (short.size, short.first_entry_incomplete) == (1, True)


def test_logs_and_segments_pickle(kafka_logs: Callable[[str], Path]) -> None:
    root = kafka_logs("codecs")
    with LogDir.open(root, compat="3.9.2", access="pread") as logs:
        log = logs.log("cod-none", 0)
        expected = records.rows(log.records())
        assert records.rows(pickle.loads(pickle.dumps(log)).records()) == expected  # noqa: S301 -- our own
        copy = pickle.loads(pickle.dumps(logs))  # noqa: S301 -- our own
        assert records.rows(copy.log("cod-none", 0).records()) == expected
        segment = pickle.loads(pickle.dumps(log.segments[1]))  # noqa: S301 -- our own
        assert isinstance(segment, LogSegment)
        assert segment.base_offset == log.segments[1].base_offset
        found = segment.translate_offset(segment.base_offset)
        assert found is not None
        assert found[0] > segment.base_offset  # the release's rule came along


def test_use_after_close_is_an_error(kafka_logs: Callable[[str], Path]) -> None:
    logs = LogDir.open(kafka_logs("codecs"))
    log = logs.log("cod-none", 0)
    logs.close()
    logs.close()
    for call in (lambda: logs.topics, lambda: log.log_end_offset, log.records, log.verify):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_log_that_was_closed_is_opened_again_by_its_directory(kafka_logs: Callable[[str], Path]) -> None:
    """The directory hands out the same log to every caller, and one of them may end it with a `with` block."""
    with LogDir.open(kafka_logs("codecs")) as logs:
        with logs.log("cod-none", 0) as log:
            expected = records.rows(log.records())
        assert log.closed
        assert records.rows(logs.log("cod-none", 0).records()) == expected
        assert logs.log("cod-none", 0) is logs.log("cod-none", 0)


def test_what_is_not_there(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    with LogDir.open(kafka_logs("codecs")) as logs, pytest.raises(FileNotFoundError):
        logs.log("cod-none", 99)
    for path in (tmp_path / "absent", kafka_logs("codecs") / "meta.properties"):
        with pytest.raises(OSError, match="directory"):
            Log.open(path)
        with pytest.raises(OSError, match="directory"):
            LogDir.open(path)
    with pytest.raises(ValueError, match="its log directory is"):
        LogDir.open(kafka_logs("codecs") / "cod-none-0")
    with pytest.raises(ValueError, match="isolation"):
        Log.open(kafka_logs("codecs") / "cod-none-0").records(isolation="serializable")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compat"):
        Log.open(kafka_logs("codecs") / "cod-none-0", compat="latest")
    with pytest.raises(ValueError, match="ISO 8601 with a zone"):
        Log.open(kafka_logs("codecs") / "cod-none-0").offset_for_timestamp("now")


def test_columns_are_chosen_and_ordered(kafka_logs: Callable[[str], Path]) -> None:
    with Log.open(kafka_logs("codecs") / "cod-none-0") as log:
        chosen = ["offset", "sequence", "topic", "isControl", "partitionLeaderEpoch"]
        table = pa.table(log.records(columns=chosen))
        assert table.column_names == chosen
        assert set(table.column("topic").to_pylist()) == {"cod-none"}
        default = pa.table(log.records()).schema
        assert default.names == [
            "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
        ]  # fmt: skip
        assert default.field("timestamp").type == pa.timestamp("ms", tz="UTC")
        with pytest.raises(ValueError, match="color"):
            log.records(columns=["color"])


def test_control_records_are_shown_on_request(kafka_logs: Callable[[str], Path]) -> None:
    with Log.open(kafka_logs("transactions") / "tx-one-0") as log:
        every = pa.table(log.records(control=True, columns=["offset", "isControl"])).to_pylist()
        data = pa.table(log.records(columns=["offset"])).column(0).to_pylist()
        markers = [row for row in _batches("transactions", "tx-one-0") if row["isControl"]]
        assert [row["offset"] for row in every if row["isControl"]] == [row["baseOffset"] for row in markers]
        assert [row["offset"] for row in every if not row["isControl"]] == data
        assert markers


def test_aborted_transactions_are_those_of_the_index(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    """And the same where the files that list them are gone or cannot be believed: then the markers are read."""
    expected = [
        (row["producerId"], row["firstOffset"], row["lastOffset"])
        for row in golden_kafka.rows("transactions", "txnindex")
        if row["dir"] == "tx-one-0"
    ]
    with Log.open(kafka_logs("transactions") / "tx-one-0") as log:
        assert log.aborted_transactions() == expected
        middle = expected[len(expected) // 2]
        assert middle in log.aborted_transactions(middle[1], middle[2])
        assert log.aborted_transactions(log.log_end_offset) == []
    copy = golden_kafka.unpack("transactions", tmp_path) / "tx-one-0"
    torn = 0
    for path in copy.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-3])
        torn += 1
    assert torn
    with Log.open(copy) as log:
        assert sorted(log.aborted_transactions()) == sorted(expected)
        committed = [row["offset"] for row in golden_kafka.rows("transactions", "records")
                     if row["topic"] == "tx-one" and row["readCommitted"]]  # fmt: skip
        found = pa.table(log.records(isolation="read_committed", columns=["offset"])).column(0).to_pylist()
        assert found == committed


def test_a_lost_file_of_aborted_transactions_hides_none_after_a_crash(tmp_path: Path) -> None:
    root = golden_kafka.unpack("transactions", tmp_path)
    with Log.open(root / "tx-two-2") as log:
        expected = log.aborted_transactions()
        last = log.segments[-1].path
    last.with_suffix(".txnindex").unlink()
    (root / ".kafka_cleanshutdown").unlink()
    with Log.open(root / "tx-two-2") as log:
        assert sorted(log.aborted_transactions()) == sorted(expected)
        assert any(entry.last_offset >= int(last.stem) for entry in expected)


def _committed(log: Log, begin: int | None = None, end: int | None = None) -> list[int]:
    found: list[int] = pa.table(log.records(begin, end, isolation="read_committed", columns=["offset"]))[0].to_pylist()
    return found


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("partition", ["tx-one-0", "tx-two-1"])
def test_a_lost_index_of_aborted_transactions_hides_none(
    kafka_logs: Callable[[str], Path], tmp_path: Path, partition: str, snapshots: bool
) -> None:
    """The markers in the log tell, also after a clean stop, and for a part of the log whose transactions end behind it."""
    with Log.open(kafka_logs("transactions") / partition) as log:
        aborted = log.aborted_transactions()
        bounds = [(each.first_offset, each.last_offset) for each in aborted]
        bounds += [(first.base_offset, last.base_offset) for first, last in pairwise(log.segments)]
        bounds += [(0, log.log_end_offset), (aborted[0].first_offset + 1, log.log_end_offset)]
        expected = {each: _committed(log, *each) for each in bounds}
        assert len(aborted) > 3
        assert len(log.segments) > 3
    copy = golden_kafka.unpack("transactions", tmp_path) / partition
    for path in () if snapshots else copy.glob("*.snapshot"):
        path.unlink()
    for lost in ("empty", "missing"):
        for path in copy.glob("*.txnindex"):
            path.write_bytes(b"")
            if lost == "missing":
                path.unlink()
        with Log.open(copy) as log:
            assert log.aborted_transactions() == aborted
            assert {each: _committed(log, *each) for each in bounds} == expected
            assert set(log.verify().kinds) == {"file-missing" if lost == "missing" else "index-entry"}
        with Log.open(copy, compat="3.9.2") as log:
            # To a broker, no file means that none was aborted.
            assert log.aborted_transactions() == []


def test_one_lost_index_of_aborted_transactions_hides_none(tmp_path: Path) -> None:
    """The other files tell about their segments, and the log about this one."""
    copy = golden_kafka.unpack("transactions", tmp_path) / "tx-one-0"
    with Log.open(copy) as log:
        aborted, committed = log.aborted_transactions(), _committed(log)
    for path in sorted(copy.glob("*.txnindex")):
        content = path.read_bytes()
        path.unlink()
        with Log.open(copy) as log:
            assert log.aborted_transactions() == aborted
            assert _committed(log) == committed
        path.write_bytes(content)


def test_a_log_without_transactions_is_not_searched_for_markers(
    kafka_logs: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(kafka_logs("codecs") / "cod-none-0", tmp_path / "cod-none-0")
    with Log.open(copy) as opened:
        log = opened.pinned()
        assert len(log.segments) > 3
        # To read it would be an error.
        log.segments[1].path.write_bytes(b"")
        assert log.aborted_transactions() == []
        with pytest.raises(OSError, match="read again"):
            log.segments[1].records().read_all()
