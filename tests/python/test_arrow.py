"""Streams of batches that Python makes: one at a time, with the exceptions as they were raised, and once."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from arro3.core import Array, DataType, Field, RecordBatch, Schema

import golden
import golden_kafka
from kafka_search import find
from logdex.arrow import BatchStream
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import LogDir, LogDirWriter
from logdex.report import Finding
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = Schema([Field("number", DataType.int64())])


def batch(*numbers: int) -> RecordBatch:
    return RecordBatch.from_arrays([Array(numbers, DataType.int64())], schema=SCHEMA)


class Numbers:
    """Makes batches and counts them."""

    def __init__(self, last: int, error: BaseException | None = None) -> None:
        self.made, self.last, self.error = 0, last, error

    def __iter__(self) -> Iterator[RecordBatch]:
        while self.made < self.last:
            self.made += 1
            yield batch(self.made, -self.made)
        if self.error is not None:
            raise self.error


def test_batches_are_made_when_they_are_asked_for() -> None:
    numbers = Numbers(3)
    stream = BatchStream(SCHEMA, iter(numbers))
    assert (stream.schema, stream.closed, numbers.made) == (SCHEMA, False, 0)
    assert next(stream)["number"].to_pylist() == [1, -1]
    assert numbers.made == 1
    assert stream.read_next_batch()["number"].to_pylist() == [2, -2]
    assert [rows["number"].to_pylist() for rows in stream] == [[3, -3]]
    with pytest.raises(StopIteration):
        stream.read_next_batch()


def test_a_consumer_of_the_arrow_stream_gets_batches_one_by_one() -> None:
    numbers = Numbers(3)
    stream = BatchStream(SCHEMA, iter(numbers))
    assert pa.schema(stream) == pa.schema([("number", pa.int64())])
    next(stream)
    taken = pa.RecordBatchReader.from_stream(stream)
    assert (stream.closed, numbers.made) == (True, 1)
    assert taken.read_next_batch().to_pydict() == {"number": [2, -2]}
    assert numbers.made == 2
    assert taken.read_all().to_pydict() == {"number": [3, -3]}


def test_findings_are_filled_while_any_consumer_reads() -> None:
    finding = Finding("/a/log", 7, "file-gap", "a file", "none")
    findings: list[Finding] = []

    def damaged() -> Iterator[RecordBatch]:
        yield batch(1)
        findings.append(finding)
        yield batch(2)

    stream = BatchStream(SCHEMA, damaged(), findings)
    assert stream.findings == []
    assert pa.table(stream).num_rows == 2
    assert stream.findings == [finding]
    assert BatchStream(SCHEMA, iter(Numbers(1))).findings == []


def test_a_stream_is_given_once() -> None:
    stream = BatchStream(SCHEMA, iter(Numbers(2)))
    assert stream.read_all()["number"].to_pylist() == [1, -1, 2, -2]
    assert stream.closed
    closed = BatchStream(SCHEMA, iter(Numbers(2)))
    closed.close()
    closed.close()
    for gone in (stream, closed):
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            next(gone)
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            gone.read_all()
        with pytest.raises(ValueError, match="closed, read to a table or handed over"):
            pa.table(gone)


def test_an_exception_comes_as_it_was_raised_and_ends_the_stream() -> None:
    error = OSError(5, "cannot be read", "/a/file")
    stream = BatchStream(SCHEMA, iter(Numbers(1, error)))
    next(stream)
    with pytest.raises(OSError, match="cannot be read") as raised:
        next(stream)
    assert raised.value is error
    assert list(stream) == []


def test_an_exception_in_a_stream_that_was_handed_over_comes_with_its_text() -> None:
    error = OSError(5, "cannot be read", "/a/file")
    taken = pa.RecordBatchReader.from_stream(BatchStream(SCHEMA, iter(Numbers(1, error))))
    assert taken.read_next_batch().num_rows == 2
    with pytest.raises(pa.ArrowException, match="cannot be read: '/a/file'"):
        taken.read_next_batch()


def test_an_exception_in_another_thread_stays_there() -> None:
    stream = BatchStream(SCHEMA, iter(Numbers(1, KeyboardInterrupt())))
    failed = []

    def read() -> None:
        try:
            pa.table(stream)
        except BaseException as error:  # noqa: BLE001 -- of any kind
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    # Raises what was left for this thread.
    thread.join()
    assert len(failed) == 1


def test_a_batch_of_other_columns_is_refused() -> None:
    other = Schema([Field("number", DataType.int32())])
    taken = pa.RecordBatchReader.from_stream(BatchStream(other, iter(Numbers(1))))
    with pytest.raises(pa.ArrowException, match="was given a batch of"):
        taken.read_next_batch()


LIBRARIES = {
    "pyarrow.table": "pyarrow",
    "polars.DataFrame": "polars",
    "pandas.DataFrame.from_arrow": "pandas",
    "duckdb.from_arrow": "duckdb",
}


@pytest.mark.parametrize("call", LIBRARIES)
def test_results_are_read_as_the_readme_says(call: str, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"`{call}(found)`" in readme
    function: Any = pytest.importorskip(LIBRARIES[call])
    for name in call.split(".")[1:]:
        if not hasattr(function, name):
            pytest.skip(f"this release of {LIBRARIES[call]} has no {call}")
        function = getattr(function, name)
    store = MessageStore.open(golden.unpack("basic", tmp_path))
    logs = LogDir.open(golden_kafka.unpack("codecs", tmp_path / "logs"))
    record = pa.table(logs.records()).to_pylist()[0]
    topic, key = record["topic"], record["key"]
    sizes: dict[str, tuple[Callable[[], Any], int, int]] = {
        "find": (lambda: store.find("AaTopic", "BB"), 16, 21),
        "find_batch": (lambda: store.find_batch("AaTopic", ["BB"]), 16, 22),
        "messages": (lambda: store.messages("t"), 71, 21),
        "units": (lambda: store.queue("t", 0).units(0, 5), 5, 4),
        "records": (lambda: logs.records(topic, end_offset=3), 3 * len(logs.topics[topic]), 8),
        "kafka find": (lambda: find(logs, topic, key), len(find(logs, topic, key)), 8),
    }
    for name, (result, rows, columns) in sizes.items():
        assert rows > 0, name
        found: Any = result()
        # polars takes a sequence of objects for rows, before it looks for Arrow.
        read = function(found.to_arrow() if call == "polars.DataFrame" and name in ("find", "kafka find") else found)
        assert tuple(read.shape) == (rows, columns), name


def test_records_that_were_found_are_the_rows_that_are_read(tmp_path: Path) -> None:
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path / "logs")) as logs:
        table = pa.table(logs.records())
        keys = [key for key in table["key"].to_pylist() if key is not None]
        found = find(logs, table["topic"][0].as_py(), keys[0])
        rows = [row for row in table.to_pylist() if row["key"] == keys[0] and row["topic"] == found[0].topic]
        assert len(rows) == len(found) > 0
        arrow = pa.table(found)
        assert arrow.schema == table.schema
        order = ("partition", "offset")
        assert sorted(arrow.to_pylist(), key=lambda row: [row[name] for name in order]) == sorted(
            rows, key=lambda row: [row[name] for name in order]
        )
        assert pa.table(find(logs, found[0].topic, b"no such key")).num_rows == 0


def test_every_result_becomes_a_frame(tmp_path: Path) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    store = MessageStore.open(golden.unpack("basic", tmp_path))
    logs = LogDir.open(golden_kafka.unpack("codecs", tmp_path / "logs"))
    topic, key = next((row["topic"], row["key"]) for row in pa.table(logs.records()).to_pylist() if row["key"])
    results: dict[str, Callable[[], Any]] = {
        "messages": lambda: store.messages("t"),
        "find": lambda: store.find("AaTopic", "BB"),
        "find_batch": lambda: store.find_batch("AaTopic", ["BB"]),
        "scan": store.commit_log.scan,
        "records": lambda: logs.records(topic),
        "find of records": lambda: logs.find(topic, key),
        "batches": logs.log(topic, 0).segments[0].batches,
    }
    for name, result in results.items():
        table = pa.table(result())
        assert table.num_rows > 0, name
        assert pa.table(result().to_arrow()).equals(table), name
        assert result().to_polars().equals(pl.DataFrame(table)), name
        frame = result().to_pandas()
        assert all(isinstance(dtype, pd.ArrowDtype) for dtype in frame.dtypes), name
        assert pa.Table.from_pandas(frame, table.schema, preserve_index=False).equals(table), name
    stream = store.messages("t", columns=["queue_id", "keys"])
    assert stream.to_polars().columns == ["queue_id", "keys"]
    with pytest.raises(ValueError, match="closed"):
        stream.to_pandas()


@pytest.mark.parametrize(
    ("call", "missing", "needed"),
    [
        ("to_pandas", "pandas", "pip install pandas pyarrow"),
        ("to_pandas", "pyarrow", "pip install pandas pyarrow"),
        ("to_polars", "polars", "pip install polars"),
    ],
)
def test_a_frame_names_the_package_that_is_missing(
    call: str, missing: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=needed):
        getattr(BatchStream(SCHEMA, iter(Numbers(1))), call)()


def test_the_exception_of_a_stream_comes_through_a_frame() -> None:
    pytest.importorskip("polars")
    error = OSError(5, "cannot be read", "/a/file")
    with pytest.raises(OSError, match="cannot be read") as raised:
        BatchStream(SCHEMA, iter(Numbers(1, error))).to_polars()
    assert raised.value is error


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[LogDir]:
    with LogDirWriter.open(tmp_path / "kafka", cluster_id="bG9nZGV4LWNsdXN0ZXItaQ", node_id=1) as writer:
        writer.create_topic("t", 1)
        for value in (b"valid", b"damaged"):
            writer.append("t", 0, {"value": [value] * 10_000})
    (file,) = tmp_path.glob("kafka/t-0/*.log")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with LogDir.open(tmp_path / "kafka") as logs:
        yield logs


# The table in docs/guides/check-and-repair.md; the guide itself shows the others.
def test_a_damaged_stream_is_not_committed_to_delta_lake(damaged: LogDir, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415 -- for these tests only
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    with pytest.raises(DeltaError, match=r"\.log at byte \d+: expected crc"):
        write_deltalake(tmp_path / "table", damaged.records(batch_size=1_000))
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))
    with pytest.warns(DamageWarning, match="expected crc"):
        write_deltalake(tmp_path / "table", damaged.records(on_error="skip"))
    assert 10_000 <= DeltaTable(tmp_path / "table").count() < 20_000


def test_a_damaged_stream_is_not_committed_to_iceberg(damaged: LogDir, tmp_path: Path) -> None:
    from pyiceberg.catalog.memory import InMemoryCatalog  # noqa: PLC0415 -- for this test only

    catalog = InMemoryCatalog("lake", warehouse=f"file://{tmp_path}/iceberg")
    catalog.create_namespace("broker")
    reader = pa.RecordBatchReader.from_stream(damaged.records(batch_size=1_000))
    table = catalog.create_table("broker.records", reader.schema, properties={"write.target-file-size-bytes": "1000"})
    with pytest.raises(pa.ArrowInvalid, match=r"\.log at byte \d+: expected crc"), table.transaction() as transaction:
        transaction.set_properties({"logdex.end": "20000"}).append(reader)
    table = catalog.load_table("broker.records")
    assert (table.scan().count(), "logdex.end" in table.properties) == (0, False)
    catalog.close()


def test_pandas_raises_the_error_of_pyarrow(damaged: LogDir) -> None:
    pandas = pytest.importorskip("pandas", minversion="3")
    with pytest.raises(pa.ArrowInvalid, match=r"\.log at byte \d+: expected crc"):
        pandas.DataFrame.from_arrow(damaged.records())
    with pytest.raises(CorruptFileError, match=r"\.log at byte \d+: expected crc"):
        damaged.records().to_pandas()
