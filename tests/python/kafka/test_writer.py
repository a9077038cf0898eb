"""`LogWriter`: records from columns, flushes, locks, forks, failures. The files are compared in test_writer_golden.py."""

from __future__ import annotations

import os
import resource
import signal
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType, RecordBatch

from logdex import CorruptFileError, KafkaError, LockedError
from logdex.errors import WriteFailedError
from logdex.kafka import Log, LogDir, LogWriter
from logdex.kafka.writer import AppendResult

if TYPE_CHECKING:
    from pathlib import Path

T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _open(folder: Path, **options: Any) -> LogWriter:
    return LogWriter.open(folder / "orders-0", clock=lambda: T, **options)


def _rows(folder: Path) -> list[tuple[Any, ...]]:
    with Log.open(folder / "orders-0") as log:
        table = log.records(columns=["key", "value", "timestamp", "headers"]).read_all()
    columns = [table[name].to_pylist() for name in ("key", "value", "timestamp", "headers")]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_a_mapping_are_read_back(codec: str, tmp_path: Path) -> None:
    headers = [[("a", b"1"), ("b", None)], None, []]
    with _open(tmp_path) as writer:
        records = {
            "key": [b"k", None, b""],
            "value": [b"v" * 1000, b"", None],
            "headers": headers,
            "timestamp": [5, None, 7],
        }
        assert writer.append(records, codec=codec) == AppendResult(0, 2, T, -1)
        assert writer.append({"value": [b"x"]}, codec=codec, level=1 if codec == "gzip" else None).first_offset == 3
    rows = _rows(tmp_path)
    at = [int(row[2].timestamp() * 1000) for row in rows]
    assert [row[:2] for row in rows] == [(b"k", b"v" * 1000), (None, b""), (b"", None), (None, b"x")]
    assert at == [5, T, 7, T]
    assert [[tuple(pair.values()) for pair in row[3] or []] for row in rows] == [[("a", b"1"), ("b", None)], [], [], []]
    assert Log.open(tmp_path / "orders-0").verify().ok


def test_records_of_arrow_are_read_back_and_copied(tmp_path: Path) -> None:
    times = [datetime(2024, 1, 1, tzinfo=timezone.utc), None]
    batch = RecordBatch.from_arrays(
        [
            Array(["k1", "k2"], type=DataType.string_view()),
            Array([b"v1", None], type=DataType.large_binary()),
            Array([int(t.timestamp() * 1_000_000) if t else None for t in times], type=DataType.int64()).cast(
                DataType.timestamp("us", tz="UTC")
            ),
        ],
        names=["key", "value", "timestamp"],
    )
    with _open(tmp_path) as writer:
        writer.append(batch)
    assert [row[:2] for row in _rows(tmp_path)] == [(b"k1", b"v1"), (b"k2", None)]
    assert _rows(tmp_path)[0][2] == times[0]
    stored = Log.open(tmp_path / "orders-0").records(columns=["key", "value", "timestamp", "headers"])
    with LogWriter.open(tmp_path / "copy-0", clock=lambda: T) as copy:
        assert copy.append(stored).last_offset == 1
    first, second = (Log.open(tmp_path / name).records().read_all() for name in ("orders-0", "copy-0"))
    assert all(first[name] == second[name] for name in ("key", "value", "timestamp", "headers"))


def test_batches_hold_up_to_batch_bytes(tmp_path: Path) -> None:
    with _open(tmp_path, config={"segment.bytes": 4096}) as writer:
        writer.append({"value": [b"x" * 100] * 1000}, batch_bytes=1000)
        assert writer.end_offset == 1000
        assert len(writer.segments) > 20
    sizes = [
        size
        for segment in Log.open(tmp_path / "orders-0").segments
        for size in segment.batches().read_all()["size"].to_pylist()
    ]
    assert max(sizes) <= 1000 < max(sizes) + 110


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ({"body": [b"x"]}, ValueError),
        ({"key": [b"x"], "value": []}, ValueError),
        ({"value": [1]}, TypeError),
        ({"headers": [[("a", 1)]]}, TypeError),
        (7, TypeError),
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_appended(
    records: object, error: type[Exception], tmp_path: Path
) -> None:
    with _open(tmp_path) as writer:
        with pytest.raises(error):
            writer.append(records)
        assert writer.end_offset == 0
        assert writer.append({"value": []}) == AppendResult(-1, -1, -1, -1)


def test_a_refusal_has_the_name_and_the_number_of_kafka(tmp_path: Path) -> None:
    with _open(tmp_path, config={"cleanup.policy": "compact"}) as writer:
        with pytest.raises(KafkaError, match="no key") as told:
            writer.append({"value": [b"x"]})
        assert (told.value.error, told.value.code) == ("RecordValidationException", 87)
        with pytest.raises(KafkaError) as told:
            writer.append_batches(bytes(8) + b"\0\0\0\1" + bytes(60), leader_epoch=0)
        assert (told.value.error, told.value.code) == ("CorruptRecordException", 2)
        assert writer.append({"key": [b"k"]}).last_offset == 0, "the writer goes on"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"config": {"segment.byte": 1}}, "segment.byte"),
        ({"config": {"segment.bytes": "many"}}, "segment.bytes"),
        ({"flush": "async"}, "flush"),
        ({"compat": "x"}, "compat"),
        ({"topic_id": "short"}, "topic_id"),
        ({"recovery_point": -1}, "recovery_point"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=text):
        _open(tmp_path, **options)


def test_settings_may_be_values_of_python(tmp_path: Path) -> None:
    with _open(tmp_path, config={"segment.bytes": 5000, "preallocate": True}) as writer:
        assert (writer.path / f"{0:020}.log").stat().st_size == 5000


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    writer = _open(tmp_path)
    with pytest.raises(LockedError):
        _open(tmp_path)
    writer.abandon()
    _open(tmp_path, clean=False).close()


def test_a_closed_writer_keeps_its_offsets_and_refuses_calls(tmp_path: Path) -> None:
    writer = _open(tmp_path)
    writer.append({"value": [b"x"]})
    writer.close()
    writer.close()
    assert (writer.closed, writer.end_offset, writer.recovery_point, writer.segments) == (True, 1, 1, [0])
    with pytest.raises(ValueError, match="closed"):
        writer.append({"value": [b"x"]})
    with pytest.raises(ValueError, match="closed"):
        writer.__enter__()
    assert "closed" in repr(writer)


def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    writer = _open(tmp_path, flush="sync")
    writer.append({"value": [b"x"]})
    child = os.fork()
    if child == 0:
        try:
            writer.append({"value": [b"y"]})
        except ValueError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert writer.append({"value": [b"y"]}).last_offset == 1
    writer.close()


def test_appends_of_threads_wait_for_the_disk_together(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path / "orders-0", flush="sync", config={"segment.bytes": 20_000}) as writer:

        def work() -> None:
            for _ in range(50):
                writer.append({"value": [b"x" * 100]})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.end_offset == 200
    assert len(_rows(tmp_path)) == 200


def test_a_failed_write_is_final(tmp_path: Path) -> None:
    """The limit on the size of files makes a write fail."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            writer = _open(tmp_path, config={"segment.index.bytes": 1000})
            writer.append({"value": [b"x" * 1000]})
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            for _ in range(2):
                with pytest.raises(WriteFailedError):
                    writer.append({"value": [b"x" * 5000]})
                resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            assert isinstance(writer.failure, WriteFailedError)
            with pytest.raises(WriteFailedError):
                writer.close()
            assert writer.closed
            code = 7
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with _open(tmp_path, clean=False) as writer:
        assert writer.end_offset == 1, "what was written before is kept"


def test_tasks_run_by_themselves_with_the_clock_of_the_system(tmp_path: Path) -> None:
    flushed = threading.Event()
    with LogWriter.open(tmp_path / "orders-0", config={"flush.ms": 1}) as writer:
        writer.append({"value": [b"x"]})
        for _ in range(100):
            if writer.recovery_point == 1:
                break
            flushed.wait(0.1)
        assert writer.recovery_point == 1


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    with _open(tmp_path) as writer:
        for number in range(3):
            writer.append({"value": [b"x"]})
            assert LogDir.open(tmp_path).log("orders", 0).log_end_offset == number + 1


def test_valid_batches_after_damage_are_cut_only_on_demand(tmp_path: Path) -> None:
    writer = _open(tmp_path)
    for value in (b"one", b"two", b"three"):
        writer.append({"value": [value]})
    writer.abandon()
    log = tmp_path / "orders-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    before = {path.name: path.read_bytes() for path in log.parent.iterdir()}
    with pytest.raises(CorruptFileError, match="valid batches at byte"):
        _open(tmp_path, clean=False, truncate=False)
    assert {path.name: path.read_bytes() for path in log.parent.iterdir()} == before
    with _open(tmp_path, clean=False) as writer:
        assert writer.end_offset == 1


def test_a_torn_end_loses_no_valid_batch(tmp_path: Path) -> None:
    writer = _open(tmp_path, config={"segment.bytes": 200})
    for _ in range(6):
        writer.append({"value": [b"x" * 50]})
    bases = writer.segments
    writer.abandon()
    last = tmp_path / "orders-0" / f"{bases[-1]:020}.log"
    last.write_bytes(last.read_bytes()[:-9])
    with _open(tmp_path, clean=False, truncate=False, config={"segment.bytes": 200}) as writer:
        assert (writer.end_offset, writer.segments) == (5, bases)
        writer.append({"value": [b"x" * 50]})
    first = tmp_path / "orders-0" / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:-9])
    with pytest.raises(CorruptFileError, match="valid batches"):
        _open(tmp_path, clean=False, truncate=False)
