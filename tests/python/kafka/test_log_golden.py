"""Whole partitions of real brokers: what a consumer and an admin client were told, and what logdex reads from the disk."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
import kafka_records as records
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex.kafka import Log

    Partition = tuple[str, int]

# Written by classes, not by a broker: nobody asked a live consumer.
BROKER_CASES = tuple(case for case in golden_kafka.SOUND if case != "legacy")


def _by_partition(case: str, name: str, **wanted: Any) -> dict[Partition, list[dict[str, Any]]]:
    found: dict[Partition, list[dict[str, Any]]] = defaultdict(list)
    for row in golden_kafka.rows(case, name):
        if all(row.get(field) == value for field, value in wanted.items()):
            found[row["topic"], row["partition"]].append(row)
    return found


def _answers(case: str, kind: str) -> dict[Partition, list[dict[str, Any]]]:
    return _by_partition(case, "lookups", kind=kind)


@pytest.fixture
def live_logs(kafka_logs: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: the log directory that the live answers of a case are about.

    In `killed` these were asked after the restart: of the files that the broker recovered.
    """

    def directory(case: str) -> Path:
        if case != "killed":
            return kafka_logs(case)
        root = tmp_path / "recovered"
        shutil.copytree(kafka_logs(case), root)
        for row in golden_kafka.rows(case, "recovered"):
            if not row.get("same"):
                (root / row["file"]).unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(golden_kafka, "_write_sparse", _overwrite)
            return golden_kafka.unpack(case, root, "recovered.tar.xz")

    return directory


def _overwrite(tar: Any, member: Any, target: Path) -> None:
    target.write_bytes(tar.extractfile(member).read())


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_records_are_those_that_a_consumer_got(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    with LogDir.open(kafka_logs(case)) as logs:
        for (topic, partition), expected in _by_partition(case, "records").items():
            found = records.rows(logs.log(topic, partition).records())
            assert found == [records.golden_row(row) for row in expected], (topic, partition)
            compared += len(found)
    assert compared == len(golden_kafka.rows(case, "records")) > 300


@pytest.mark.parametrize("case", BROKER_CASES)
def test_committed_records_are_those_that_a_consumer_got(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = left_out = 0
    with LogDir.open(kafka_logs(case)) as logs:
        for (topic, partition), answers in _by_partition(case, "records").items():
            expected = [records.golden_row(row) for row in answers if row["readCommitted"]]
            found = records.rows(logs.log(topic, partition).records(isolation="read_committed"))
            assert found == expected, (topic, partition)
            compared += len(found)
            left_out += len(answers) - len(expected)
    assert compared == sum(row["readCommitted"] for row in golden_kafka.rows(case, "records")) > 300
    # Compaction takes aborted records away, sooner or later.
    assert bool(left_out) == case.startswith(("transactions", "killed", "compacted-4x")), left_out


@pytest.mark.parametrize("case", BROKER_CASES)
def test_ends_of_a_log_are_those_that_a_broker_gave(live_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    with LogDir.open(live_logs(case)) as logs:
        for kind, attribute in (
            ("beginningOffset", "log_start_offset"),
            ("endOffset", "log_end_offset"),
            ("lastStableOffset", "last_stable_offset"),
        ):
            for (topic, partition), (row,) in _answers(case, kind).items():
                assert getattr(logs.log(topic, partition), attribute) == row["result"], row
                compared += 1
    assert compared >= 6


def _pair(result: dict[str, Any] | None) -> tuple[int, int] | None:
    return None if result is None else (result["timestamp"], result["offset"])


@pytest.mark.parametrize("case", BROKER_CASES)
def test_offsets_for_times_are_the_brokers_under_its_release(live_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    with LogDir.open(live_logs(case), compat=golden_kafka.release(case)) as logs:
        for (topic, partition), rows in _answers(case, "offsetsForTimes").items():
            log = logs.log(topic, partition)
            for row in rows:
                assert log.offset_for_timestamp(row["target"]) == _pair(row["result"]), row
                compared += 1
        for (topic, partition), (row,) in _answers(case, "maxTimestampOffset").items():
            assert logs.log(topic, partition).offset_for_timestamp(-3) == _pair(row["result"]), row
            compared += 1
    assert compared >= 99


@pytest.mark.parametrize("entries", ["kept", "none"])
@pytest.mark.parametrize("case", BROKER_CASES)
def test_offsets_for_times_are_the_brokers_beside_a_running_one(
    live_logs: Callable[[str], Path], tmp_path: Path, case: str, entries: str
) -> None:
    """The indexes of the last segment have their full size, with zeros after the entries, of which there may be none."""
    root = tmp_path / "running"
    shutil.copytree(live_logs(case), root)
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for directory in (path for path in root.iterdir() if path.is_dir()):
        last = max(directory.glob("*.log"))
        for suffix, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
            with last.with_suffix(suffix).open("ab") as file:
                file.truncate(0 if entries == "none" else None)
                file.truncate(size)
    test_offsets_for_times_are_the_brokers_under_its_release(lambda _: root, case)


def _first_at_or_after(rows: list[dict[str, Any]], start: int, time: int) -> tuple[int, int] | None:
    return next(
        ((row["timestamp"], row["offset"]) for row in rows if row["offset"] >= start and row["timestamp"] >= time), None
    )


@pytest.mark.parametrize("case", BROKER_CASES)
def test_offsets_for_times_are_right_by_default(kafka_logs: Callable[[str], Path], case: str) -> None:
    """Against the records themselves: no marker, and nothing hidden by a segment that compaction emptied."""
    compared = differing = 0
    with LogDir.open(kafka_logs(case)) as logs:
        visible = _by_partition(case, "records")
        for (topic, partition), rows in _answers(case, "offsetsForTimes").items():
            log = logs.log(topic, partition)
            for row in rows:
                expected = _first_at_or_after(visible[topic, partition], log.log_start_offset, row["target"])
                assert log.offset_for_timestamp(row["target"]) == expected, row
                differing += expected != _pair(row["result"])
                compared += 1
    assert compared >= 97
    # The broker answers with markers, and finds nothing behind a segment that compaction emptied.
    assert bool(differing) == case.startswith(("transactions", "killed", "compacted")), differing


@pytest.mark.parametrize("case", BROKER_CASES)
def test_special_timestamps(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    with LogDir.open(kafka_logs(case)) as logs:
        for topic, partition in _answers(case, "beginningOffset"):
            log = logs.log(topic, partition)
            assert log.offset_for_timestamp(-1) == (-1, log.log_end_offset)
            assert log.offset_for_timestamp(-2) == (-1, log.log_start_offset)
            assert log.offset_for_timestamp(-4) == (-1, log.log_start_offset)
            assert log.offset_for_timestamp(-5) == (-1, -1)
            rows = _by_partition(case, "records")[topic, partition]
            most = max(row["timestamp"] for row in rows)
            assert log.offset_for_timestamp(-3) == _first_at_or_after(rows, 0, most)
            compared += 1
    assert compared >= 2


def _offsets(log: Log, **bounds: Any) -> list[int]:
    return pa.table(log.records(columns=["offset"], **bounds)).column(0).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_bounds_of_offset_and_time_choose_the_same_records(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    with LogDir.open(kafka_logs(case)) as logs:
        for (topic, partition), rows in _by_partition(case, "records").items():
            log = logs.log(topic, partition)
            offsets = [row["offset"] for row in rows]
            times = sorted(row["timestamp"] for row in rows)
            low, high = offsets[len(offsets) // 3], offsets[2 * len(offsets) // 3]
            for begin, end in (
                (low, high),
                (None, high),
                (low, None),
                (low + 1, low + 1),
                (high, high + 1),
                (0, 2**62),
            ):
                expected = [o for o in offsets if (begin is None or o >= begin) and (end is None or o < end)]
                assert _offsets(log, begin_offset=begin, end_offset=end) == expected, (topic, begin, end)
                compared += len(expected)
            early, late = times[len(times) // 4], times[len(times) // 2]
            for begin, end in ((early, late), (None, late), (late, None), (late, early - 1), (late, late)):
                expected = [
                    row["offset"]
                    for row in rows
                    if (begin is None or row["timestamp"] >= begin) and (end is None or row["timestamp"] <= end)
                ]
                assert _offsets(log, begin=begin, end=end) == expected, (topic, begin, end)
                compared += len(expected)
    assert compared > 1_000
