"""Offset and time indexes, transaction indexes and producer snapshots: the real classes' entries and answers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from logdex import _core
from logdex.errors import CorruptFileError
from logdex.kafka import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from logdex.report import Finding

_Key = tuple[str, int]


def _by_segment(rows: Iterable[dict[str, Any]]) -> dict[_Key, list[dict[str, Any]]]:
    found: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["dir"], row["segment"]].append(row)
    return found


def _lookups(case: str, kind: str) -> dict[_Key, list[dict[str, Any]]]:
    return _by_segment(
        row for row in golden_kafka.rows(case, "lookups") if row["kind"] == kind and row["state"] == "as_found"
    )


def _columns(stream: Any) -> list[tuple[int, ...]]:
    table = pa.table(stream)
    return list(zip(*(column.cast(pa.int64()).to_pylist() for column in table.columns), strict=True))


def _index_rows(case: str, name: str, value: str) -> dict[_Key, tuple[int, list[tuple[int, int]]]]:
    """Return the number of slots and the entries that are not zeros, of each index file."""
    first = "offset" if name == "index" else "timestamp"
    found = {}
    for key, rows in _by_segment(golden_kafka.rows(case, name)).items():
        entries = [(row[first], row[value]) for row in rows if "slot" in row]
        slots = next((row["entries"] for row in rows if "zeroSlots" in row), len(entries))
        found[key] = slots, entries
    return found


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_entries_of_offset_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    for (folder, segment), (slots, expected) in _index_rows(case, "index", "position").items():
        path = kafka_logs(case) / folder / f"{segment:020d}.index"
        with OffsetIndex.open(path, check="trust") as index:
            assert len(index) == slots
            entries = _columns(index.entries())
            assert [entry for entry in entries if entry != (segment, 0)] == expected, path
            assert len(entries) == slots
            compared += len(expected)
        if case in golden_kafka.SOUND:
            with OffsetIndex.open(path) as index:
                assert _columns(index.entries()) == expected, path
                compared += len(expected)
    assert compared >= len([row for row in golden_kafka.rows(case, "index") if "slot" in row]) > 0


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_entries_of_time_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    for (folder, segment), (slots, expected) in _index_rows(case, "timeindex", "offset").items():
        path = kafka_logs(case) / folder / f"{segment:020d}.timeindex"
        with TimeIndex.open(path, check="trust") as index:
            assert len(index) == slots
            entries = _columns(index.entries())
            assert [entry for entry in entries if entry != (0, segment)] == expected, path
            assert len(entries) == slots
            compared += len(expected)
        if case in golden_kafka.SOUND:
            with TimeIndex.open(path) as index:
                assert _columns(index.entries()) == expected, path
                compared += len(expected)
    assert compared >= len([row for row in golden_kafka.rows(case, "timeindex") if "slot" in row]) > 0


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_lookups_of_offset_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = missing = 0
    for (folder, segment), rows in _lookups(case, "OffsetIndex.lookup").items():
        path = kafka_logs(case) / folder / f"{segment:020d}.index"
        if not path.exists():  # the real class makes one
            missing += 1
            continue
        expected = [(row["result"]["offset"], row["result"]["position"]) for row in rows]
        with OffsetIndex.open(path, check="trust") as index:
            assert [index.lookup(row["target"]) for row in rows] == expected, path
            batch = index.lookup_batch([row["target"] for row in rows])
            assert [tuple(answer.values()) for answer in pa.array(batch).to_pylist()] == expected, path
        compared += len(expected)
    assert compared >= 15
    assert missing == (2 if case == "damaged-missing" else 0)


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_upper_bounds_of_offset_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    """The search by position, with its quirks: the first slot is missed, sums wrap at 32 bits."""
    compared = 0
    for (folder, segment), rows in _lookups(case, "OffsetIndex.fetchUpperBoundOffset").items():
        path = kafka_logs(case) / folder / f"{segment:020d}.index"
        if not path.exists():
            continue
        with OffsetIndex.open(path, check="trust", compat=golden_kafka.release(case)) as index:
            for row in rows:
                found = index.fetch_upper_bound_offset(row["position"], row["fetchSize"])
                expected = row["result"] and (row["result"]["offset"], row["result"]["position"])
                assert found == expected, row
                compared += 1
    assert compared >= 12


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_lookups_of_time_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    for (folder, segment), rows in _lookups(case, "TimeIndex.lookup").items():
        path = kafka_logs(case) / folder / f"{segment:020d}.timeindex"
        if not path.exists():
            continue
        expected = [(row["result"]["timestamp"], row["result"]["offset"]) for row in rows]
        with TimeIndex.open(path, check="trust") as index:
            assert [index.lookup(row["target"]) for row in rows] == expected, path
            assert _columns(_as_table(index.lookup_batch([row["target"] for row in rows]))) == expected, path
        compared += len(expected)
    assert compared >= 6


def _as_table(structs: Any) -> pa.Table:
    return pa.Table.from_struct_array(pa.array(structs))


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_what_an_index_says_of_itself(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    for row in golden_kafka.rows(case, "sanity"):
        path = golden_kafka.segment_path(kafka_logs(case), row, row["file"])
        if row["file"] == "txnindex" or "missing" in row:
            assert path.exists() == ("missing" not in row)
            continue
        kind: Any = OffsetIndex if row["file"] == "index" else TimeIndex
        with kind.open(path, check="trust") as index:
            assert index.file_len == row["length"], row
            assert (len(index), index.max_entries, index.is_full) == (
                row["entries"],
                row["maxEntries"],
                row["isFull"],
            ), row
            if row["file"] == "index":
                assert index.last_offset == row["lastOffset"], row
            else:
                assert index.last_entry == (row["lastTimestamp"], row["lastOffset"]), row
            if row["sanityCheck"] == "ok":
                index.sanity_check()
            else:
                with pytest.raises(CorruptFileError):
                    index.sanity_check()
        compared += 1
    assert compared >= 2


def _dumped(path: Path) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return the entries of a file, and what is wrong with it."""
    pieces: list[str] = []
    findings = _core.dump_file(path, pieces.append, json=True).findings
    return [json.loads(line) for line in "".join(pieces).splitlines()], findings


@pytest.mark.parametrize("case", [case for case in golden_kafka.CASES if golden_kafka.has_rows(case, "txnindex")])
def test_transaction_indexes(kafka_logs: Callable[[str], Path], case: str) -> None:
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    compared = torn_files = 0
    for rows in _by_segment(golden_kafka.rows(case, "txnindex")).values():
        path = golden_kafka.segment_path(kafka_logs(case), rows[0], "txnindex")
        found, findings = _dumped(path)
        assert [{name: row[name] for name in names} for row in found] == [
            {name: row[name] for name in names} for row in rows
        ], path
        torn = path.stat().st_size % 34
        assert [(each.kind, each.found) for each in findings] == [("index-size", f"{torn} bytes of one")] * bool(torn)
        torn_files += bool(torn)
        compared += len(rows)
    assert compared == len(golden_kafka.rows(case, "txnindex"))
    assert torn_files == (case == "damaged-txnindex")


@pytest.mark.parametrize("case", [case for case in golden_kafka.CASES if golden_kafka.has_rows(case, "snapshots")])
def test_producer_snapshots(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = refused = 0
    for row in golden_kafka.rows(case, "snapshots"):
        path = kafka_logs(case) / row["dir"] / f"{row['snapshot']:020d}.snapshot"
        if "error" in row["producers"]:
            assert [(each.path, each.kind) for each in _dumped(path)[1]] == [(str(path), "file-content")]
            refused += 1
            continue
        listed = sorted(_dumped(path)[0], key=lambda producer: producer["producerId"])
        assert len(listed) == len(row["producers"])
        for producer, expected in zip(listed, row["producers"], strict=True):
            assert producer["timestamp"] == expected["lastTimestamp"]
            shared = {name for name in expected if name in producer}
            assert shared >= {"producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset"}
            assert {name: producer[name] for name in shared} == {name: expected[name] for name in shared}, path
            compared += 1
    assert compared or case == "follower"  # its producers leave no state
    assert refused == (case == "damaged-snapshot")
