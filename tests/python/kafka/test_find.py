"""Reading by key and by header: the same records as comparing the keys of all records in Python."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
import kafka_records
import logdex.kafka
from kafka_batches import CONTROL, TRANSACTIONAL, Row, T, batch, write_segment
from kafka_search import find
from logdex._core import KeyIndex, read_records
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogDir, LogSegment, build_key_index, log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
SHOWN: list[dict[str, Any]] = [
    {},
    {"control": True},
    {"isolation": "read_committed"},
    {"on_error": "skip", "begin_offset": 20, "end_offset": 400},
]


def _rows(stream: Any) -> list[dict[str, Any]]:
    return [row for batch in map(pa.record_batch, stream) for row in batch.to_pylist()]


def _pairs(row: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(each["key"], each["value"]) for each in row["headers"] or () if each["value"] is not None]


def _sampled(counts: Counter[Any]) -> list[Any]:
    """Return some keys: the commonest, the rarest, and some between."""
    keys = [key for key, _ in counts.most_common()]
    return [*keys[:2], *keys[2:-2:7][:6], *keys[-2:]]


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_records_by_key_are_those_whose_key_is_equal(kafka_logs: Callable[[str], Path], case: str) -> None:
    compared = 0
    counts: Counter[bytes] = Counter()
    with LogDir.open(kafka_logs(case)) as logs:
        for options in SHOWN:
            every = _rows(logs.records(columns=COLUMNS, **options))
            counts = Counter(row["key"] for row in every if row["key"] is not None)
            wanted = _sampled(counts)
            for keys in ([], *([key] for key in wanted), wanted, [b"no such key", b""]):
                found = _rows(logs.records(columns=COLUMNS, keys=keys, **options))
                assert found == [row for row in every if row["key"] in keys], (options, keys)
                compared += len(found)
    assert compared or not counts


@pytest.mark.parametrize("case", ["codecs", "compacted", "legacy", "transactions", "timestamps"])
def test_records_by_header_are_those_with_an_equal_value(kafka_logs: Callable[[str], Path], case: str) -> None:
    with LogDir.open(kafka_logs(case)) as logs:
        for options in SHOWN:
            every = _rows(logs.records(columns=COLUMNS, **options))
            counts = Counter(pair for row in every for pair in _pairs(row))
            for name, value in [*_sampled(counts), ("no such header", b"")]:
                found = _rows(logs.records(columns=COLUMNS, keys=[value], header=name, **options))
                assert found == [row for row in every if (name, value) in _pairs(row)], (options, name, value)
            names = {name for name, _ in counts}
            for name in names:
                values = [value for each, value in counts if each == name]
                found = _rows(logs.records(columns=["offset"], keys=values, header=name, **options))
                assert len(found) == sum(name in dict(_pairs(row)) for row in every)


@pytest.mark.parametrize("case", golden_kafka.DAMAGED)
def test_damage_ends_a_search_as_it_ends_a_read(kafka_logs: Callable[[str], Path], case: str) -> None:
    def read(**options: Any) -> tuple[list[dict[str, Any]], tuple[str, int] | None, list[Any]]:
        rows: list[dict[str, Any]] = []
        error = None
        stream = log.records(columns=COLUMNS, **options)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DamageWarning)
                for each in map(pa.record_batch, stream):
                    rows += each.to_pylist()
        except CorruptFileError as raised:
            error = raised.path, raised.offset
        return rows, error, list(stream.findings)

    with LogDir.open(kafka_logs(case)) as logs:
        for partition in logs.partitions():
            log = logs.log(partition.topic, partition.partition)
            for on_error in ("raise", "skip", "stop"):
                every, error, findings = read(on_error=on_error)
                keys = {row["key"] for row in every if row["key"] is not None}
                for wanted in (sorted(keys)[:3], [b"no such key"]):
                    found = read(on_error=on_error, keys=wanted)
                    assert found == ([row for row in every if row["key"] in wanted], error, findings), on_error


@pytest.mark.parametrize("case", ["codecs", "legacy", "transactions"])
def test_a_scan_finds_what_a_comparison_of_all_keys_finds(
    kafka_logs: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    build_key_index(kafka_logs(case), tmp_path / "index")
    compared = 0
    with LogDir.open(kafka_logs(case)) as logs:
        for topic in logs.topics:
            every = _rows(logs.records(topic, columns=COLUMNS))
            for key in _sampled(Counter(row["key"] for row in every if row["key"] is not None)):
                expected = {(row["partition"], row["offset"]) for row in every if row["key"] == key}
                times = sorted(int(row["timestamp"].timestamp() * 1000) for row in every if row["key"] == key)
                for index in (None, tmp_path / "index"):
                    found = find(logs, topic, key, index=index)
                    assert {(record.partition, record.offset) for record in found} == expected
                    late = find(logs, topic, key, index=index, begin=times[len(times) // 2])
                    assert list(late) == [each for each in found if each.timestamp >= times[len(times) // 2]]
                compared += len(expected)
    assert compared >= 20


def _keyed(count: int) -> Iterator[Row]:
    return (Row(offset, offset, b"k%d" % (offset % 7), b"v" * 50) for offset in range(count))


def test_keys_are_text_bytes_or_an_arrow_column(tmp_path: Path) -> None:
    write_segment(
        tmp_path / "orders-0", 0, batch([*_keyed(20), Row(20, 20, None), Row(21, 21, b""), Row(22, 22, b"\xff")])
    )
    with Log.open(tmp_path / "orders-0") as log:

        def offsets(keys: Any) -> list[int]:
            return [row["offset"] for row in _rows(log.records(columns=["offset"], keys=keys))]

        assert offsets(["k3"]) == offsets([b"k3"]) == offsets(pa.array(["k3", None])) == [3, 10, 17]
        assert offsets({"k3", b"k4"}) == [3, 4, 10, 11, 17, 18]
        assert offsets([b""]) == [21]
        assert offsets([b"\xff", "k30"]) == [22]
        assert offsets([]) == []
        assert offsets(None) == list(range(23))
        for wrong, said in (("k3", "put it into a list"), ([3], "expected str or bytes, got int")):
            with pytest.raises(TypeError, match=said):
                log.records(keys=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="header: expected keys as well"):
            log.records(header="h")


def test_offsets_and_keys_choose_together(tmp_path: Path) -> None:
    """Also over segments, beyond both ends of the log, and where wanted offsets are far apart."""
    folder = tmp_path / "orders-0"
    for base in range(0, 6000, 2000):
        rows = [Row(base + row, base + row, b"k%d" % ((base + row) % 7)) for row in range(2000)]
        write_segment(folder, base, *(batch(rows[at : at + 50]) for at in range(0, 2000, 50)))
    with Log.open(folder) as log:
        log.rebuild_indexes(folder)
        wanted = [5999, 3, 1999, 2000, 3, 4500, 9000, -4, 10]
        parts = log.parts()
        found = _rows(read_records(parts, columns=["offset"], keys=["k3"], offsets=wanted))
        assert [row["offset"] for row in found] == [3, 10]
        assert _rows(read_records(parts, columns=["offset"], keys=["k3"], offsets=[])) == []
        assert [row["offset"] for row in _rows(read_records(parts, offsets=pa.array(wanted)))] == [
            *(3, 10, 1999, 2000, 4500, 5999)
        ]


def test_aborted_and_control_records_are_left_out_of_a_search(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    aborted = batch([Row(0, 0, b"k"), Row(1, 1, b"other")], attributes=TRANSACTIONAL, producer=7)
    marker = batch([Row(2, 2, bytes(4), bytes(6))], attributes=TRANSACTIONAL | CONTROL, producer=7)
    write_segment(folder, 0, aborted, marker, batch([Row(3, 3, b"k")]))
    with Log.open(folder) as log:

        def offsets(key: bytes, **options: Any) -> list[int]:
            return [row["offset"] for row in _rows(log.records(columns=["offset"], keys=[key], **options))]

        assert offsets(b"k") == [0, 3]
        assert offsets(b"k", isolation="read_committed") == [3]
        assert offsets(bytes(4)) == []
        assert offsets(bytes(4), control=True) == [2]
        assert offsets(b"k", begin=T + 1) == offsets(b"k", begin_offset=1) == [3]


def test_a_search_over_more_bytes_than_one_step_returns_no_empty_batch(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "orders-0", 0, batch([Row(0, 0, b"k", bytes(4 << 20))]))
    with LogSegment.open(path) as segment:
        parts = [(segment, None, None, None)] * 80
        sizes = [each.num_rows for each in read_records(parts, columns=["offset"], keys=["no such key"])]
        assert sizes == []
        assert sum(each.num_rows for each in read_records(parts, columns=["offset"], keys=["k"])) == 80


def test_an_open_log_directory_opens_its_index_once(
    kafka_logs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kafka_logs("codecs")
    build_key_index(root, tmp_path, topics="cod-none")
    row = next(row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none" and row.get("key"))
    key = kafka_records.golden_key(row)
    opened: list[Path] = []

    def counted(directory: Path) -> KeyIndex:
        opened.append(directory)
        return KeyIndex(directory)

    monkeypatch.setattr(log_dir, "KeyIndex", counted)
    with LogDir.open(root) as logs:
        for _ in range(3):
            assert len(find(logs, "cod-none", key, index=tmp_path)) >= 1
        assert opened == [tmp_path]


@pytest.mark.parametrize("name", ["find", "explain"])
def test_the_functions_are_deprecated_and_answer_alike(name: str, tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    with LogDir.open(root) as logs:
        expected = getattr(logs, name)("cod-none", "k")
        for log_dir in (root, logs):
            with pytest.warns(DeprecationWarning, match=rf"^logdex\.kafka\.{name}\(log_dir, .*LogDir\.{name}"):
                found = getattr(logdex.kafka, name)(log_dir, "cod-none", "k")
            assert repr(found) == repr(expected)


def test_one_partition_is_searched_by_its_directory(tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    with LogDir.open(root) as logs:
        key = next(key for key in pa.table(logs.records("cod-none"))["key"].to_pylist() if key)
        expected = [record for record in logs.find("cod-none", key) if record.partition == 0]
        log = logs.log("cod-none", 0)
        assert list(log.find("cod-none", key)) == expected
        assert [step.partition for step in log.explain("cod-none", key).steps] == [0]
        with pytest.raises(FileNotFoundError, match="it is of 'cod-none'"):
            log.find("other", key)
        build_key_index(logs, tmp_path / "index", topics="cod-none")
        found = log.find("cod-none", key, index=tmp_path / "index")
        assert (list(found), found.scanned_offsets) == (expected, 0)


def test_records_of_some_partitions(tmp_path: Path) -> None:
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path / "logs")) as logs:
        table = pa.table(logs.records(columns=["topic", "partition", "offset"]))
        for partitions in (0, [1], {0, 1, 7}, [], -1):
            numbers = {partitions} if isinstance(partitions, int) else set(partitions)
            wanted = [row for row in table.to_pylist() if row["partition"] in numbers]
            found = logs.records(partitions=partitions, columns=["topic", "partition", "offset"])
            assert pa.table(found).to_pylist() == wanted
        assert 0 < pa.table(logs.records(partitions=1)).num_rows < table.num_rows
