"""Segments: the batches of the real FileRecords, the answers of the real LogSegment, and right ones by default."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from kafka_records import TIMESTAMP_TYPES
from logdex.errors import CorruptFileError
from logdex.kafka import LogSegment, OffsetIndex, ProducerState, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What the name in batches.jsonl is called in a column.
COLUMNS = {
    "position": "position",
    "sizeInBytes": "size",
    "magic": "magic",
    "baseOffset": "baseOffset",
    "lastOffset": "lastOffset",
    "count": "count",
    "crc": "crc",
    "valid": "isValid",
    "compression": "compression",
    "timestampType": "timestampType",
    "baseTimestamp": "baseTimestamp",
    "maxTimestamp": "maxTimestamp",
    "producerId": "producerId",
    "producerEpoch": "producerEpoch",
    "baseSequence": "baseSequence",
    "lastSequence": "lastSequence",
    "leaderEpoch": "partitionLeaderEpoch",
    "isControl": "isControl",
    "isTransactional": "isTransactional",
    "deleteHorizon": "deleteHorizonMs",
}
# Cases whose `.log` files were damaged; in the other ones only files beside them.
DAMAGED_LOGS = {
    f"damaged-{name}"
    for name in ("baseoffset", "codec", "crc", "cut", "cutmid", "epoch", "length", "magic", "zerotail")
}

_Key = tuple[str, int]


def _batches(case: str) -> dict[_Key, list[dict[str, Any]]]:
    found: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in golden_kafka.rows(case, "batches"):
        if "position" in row:
            found[row["dir"], row["segment"]].append(row)
    return found


def _segments(kafka_logs: Callable[[str], Path], case: str) -> Iterator[tuple[_Key, Path]]:
    for path in sorted(kafka_logs(case).glob("*/*.log")):
        yield (path.parent.name, int(path.stem)), path


def _expected(row: dict[str, Any], name: str) -> Any:
    value = row.get(name)
    if name == "timestampType":
        return TIMESTAMP_TYPES[row[name]]
    if name == "baseTimestamp" and value == -1 and row["count"] == 0:
        return value
    return None if isinstance(value, dict) else value


def _found(path: Path, on_error: Any) -> tuple[list[dict[str, Any]], Any]:
    with LogSegment.open(path) as segment:
        stream = segment.batches(on_error=on_error)
        table = pa.Table.from_batches(list(map(pa.record_batch, stream)), pa.schema(stream.schema))
        for name in ("baseTimestamp", "maxTimestamp", "deleteHorizonMs"):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(name).cast(pa.int64()))
        return table.to_pylist(), stream


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_batches_are_those_of_the_real_class(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    expected_rows = _batches(case)
    ends = {(r["dir"], r["segment"]): r for r in golden_kafka.rows(case, "batches") if "scanEnd" in r}
    for key, path in _segments(kafka_logs, case):
        rows, stream = _found(path, "skip")
        expected = expected_rows.get(key, [])
        assert [row["position"] for row in rows] == [row["position"] for row in expected], path
        for found, row in zip(rows, expected, strict=True):
            for name, column in COLUMNS.items():
                assert found[column] == _expected(row, name), (path, row["position"], name)
            assert (found["controlTypes"] or []) == row.get("control", []), (path, row["position"])
            compared += 1
        assert stream.position == (ends[key]["scanEnd"] if key in ends else path.stat().st_size), path
    assert compared >= 20


def _lookups(case: str, kind: str, state: str) -> dict[_Key, list[dict[str, Any]]]:
    found: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in golden_kafka.rows(case, "lookups"):
        if row["kind"] == kind and row["state"] == state:
            found[row["dir"], row["segment"]].append(row)
    return found


def _ask(segment: LogSegment, row: dict[str, Any]) -> Any:
    """Put the question of a row, and give the answer in the form of its result."""
    match row["kind"].split(".")[1]:
        case "translateOffset":
            found = segment.translate_offset(row["target"])
            return found and dict(zip(("offset", "position", "size"), found, strict=True))
        case "read":
            piece = segment.read(
                row["startOffset"],
                row["maxSize"],
                max_position=row["maxPosition"],
                min_one_message=row["minOneMessage"],
            )
            return piece and {
                "position": piece.position,
                "size": piece.size,
                "firstEntryIncomplete": piece.first_entry_incomplete,
            }
        case "findOffsetByTimestamp":
            answer = segment.find_timestamp(row["timestamp"], row["startingOffset"])
            return answer and dict(zip(("timestamp", "offset", "leaderEpoch"), answer, strict=True))
        case "readNextOffset":
            return segment.next_offset()
        case "maxTimestampSoFar":
            return segment.max_timestamp()[0]
        case other:
            raise ValueError(other)


KINDS = (
    "LogSegment.translateOffset",
    "LogSegment.read",
    "LogSegment.findOffsetByTimestamp",
    "LogSegment.readNextOffset",
    "LogSegment.maxTimestampSoFar",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_answers_are_the_real_classes_under_its_release(
    kafka_logs: Callable[[str], Path], case: str, kind: str
) -> None:
    compared = 0
    for rows in _lookups(case, kind, "as_found").values():
        path = golden_kafka.segment_path(kafka_logs(case), rows[0])
        with LogSegment.open(path, compat=golden_kafka.release(case)) as segment:
            for row in rows:
                if isinstance(row["result"], dict) and "error" in row["result"]:
                    with pytest.raises(CorruptFileError):
                        _ask(segment, row)
                else:
                    assert _ask(segment, row) == row["result"], row
                compared += 1
    assert compared >= 3


@pytest.fixture
def recovered(kafka_copy: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return a factory: the log directory of a case after the logs were cut and all indexes rebuilt by logdex."""

    def recover(case: str) -> Path:
        root = kafka_copy(case)
        states: dict[str, ProducerState] = defaultdict(ProducerState)
        for row in golden_kafka.rows(case, "rebuild"):
            if isinstance(row["bytesTruncated"], dict):
                continue
            path = golden_kafka.segment_path(root, row)
            with LogSegment.open(path) as segment:
                segment.rebuild_indexes(
                    path.parent,
                    index_interval_bytes=row["indexIntervalBytes"],
                    max_index_bytes=row["segmentIndexBytes"],
                    producers=states[row["dir"]],
                    overwrite=True,
                )
            with path.open("r+b") as file:
                file.truncate(row["recoveredLogLength"])
        return root

    return recover


def _ask_index(path: Path, row: dict[str, Any], compat: str) -> Any:
    """Put a question to a rebuilt index, and give the answer in the form of its result."""
    if row["kind"] == "TimeIndex.lookup":
        with TimeIndex.open(path.with_suffix(".timeindex"), check="trust") as times:
            return dict(zip(("timestamp", "offset"), times.lookup(row["target"]), strict=True))
    with OffsetIndex.open(path.with_suffix(".index"), check="trust", compat=compat) as offsets:
        if row["kind"] == "OffsetIndex.lookup":
            found: Any = offsets.lookup(row["target"])
        else:
            found = offsets.fetch_upper_bound_offset(row["position"], row["fetchSize"])
        return found and dict(zip(("offset", "position"), found, strict=True))


INDEX_KINDS = ("OffsetIndex.lookup", "OffsetIndex.fetchUpperBoundOffset", "TimeIndex.lookup")


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_answers_after_recovery_are_the_real_classes(recovered: Callable[[str], Path], case: str) -> None:
    root = recovered(case)
    failed = {
        (row["dir"], row["segment"])
        for row in golden_kafka.rows(case, "rebuild")
        if isinstance(row["bytesTruncated"], dict)
    }
    compared = total = 0
    for kind in KINDS:
        for key, rows in _lookups(case, kind, "recovered").items():
            total += len(rows)
            if key in failed:
                continue
            with LogSegment.open(
                golden_kafka.segment_path(root, rows[0]), compat=golden_kafka.release(case)
            ) as segment:
                for row in rows:
                    assert _ask(segment, row) == row["result"], row
                    compared += 1
    for kind in INDEX_KINDS:
        for key, rows in _lookups(case, kind, "recovered").items():
            total += len(rows)
            if key in failed:
                continue
            for row in rows:
                path = golden_kafka.segment_path(root, row)
                assert _ask_index(path, row, golden_kafka.release(case)) == row["result"], row
                compared += 1
    assert compared == total or failed
    assert bool(total) == any(row.get("state") == "recovered" for row in golden_kafka.rows(case, "lookups"))


def _holding(batches: list[dict[str, Any]], offset: int) -> dict[str, Any] | None:
    """Return the batch that a scan of the whole file finds for an offset."""
    return next((batch for batch in batches if batch["lastOffset"] >= offset), None)


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_answers_are_right_by_default(kafka_logs: Callable[[str], Path], case: str) -> None:
    """Against a scan of the file, whatever the indexes say; a damaged log may also be refused."""
    compared = refused = 0
    for key, rows in _lookups(case, "LogSegment.translateOffset", "as_found").items():
        batches = _batches(case).get(key, [])
        with LogSegment.open(golden_kafka.segment_path(kafka_logs(case), rows[0])) as segment:
            for row in rows:
                batch = _holding(batches, row["target"])
                expected = batch and (batch["baseOffset"], batch["position"], batch["sizeInBytes"])
                try:
                    assert segment.translate_offset(row["target"]) == expected, row
                except CorruptFileError:
                    refused += 1
                compared += 1
            ends = {batches[-1]["lastOffset"] + 1 if batches else segment.base_offset}
            if case == "damaged-length":
                # A scan ends at the batch that claims too much; the index knows of those behind it.
                ends |= {number for _, number in _batches(case) if number > key[1]}
            try:
                assert segment.next_offset() in ends, key
            except CorruptFileError:
                refused += 1
    assert compared >= 20
    assert not refused or case in DAMAGED_LOGS
