"""Reads with several threads: the records, findings and errors of one thread."""

from __future__ import annotations

import multiprocessing
import random
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogDir, LogDirWriter, LogSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDS = 60_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a partition of 60 MB in three segments, and a small one."""
    root = tmp_path_factory.mktemp("threads") / "logs"
    values = random.Random(1)
    with LogDirWriter.open(root) as writer:
        writer.create_topic("orders", 2, config={"segment.bytes": 25_000_000})
        for begin in range(0, RECORDS, 10_000):
            numbers = range(begin, begin + 10_000)
            records = {
                "key": [b"key-%d" % (number % 1_000) for number in numbers],
                "value": [values.randbytes(1_000) for _ in numbers],
                "timestamp": [1_700_000_000_000 + number for number in numbers],
            }
            writer.append("orders", 0, pa.table(records), codec="none" if begin % 20_000 else "lz4")
        writer.append("orders", 1, {"key": [b"key-1"], "value": [b"small"]})
    return root


@pytest.fixture
def logs(written: Path, tmp_path: Path) -> Path:
    """A copy, which a test may damage."""
    root = tmp_path / "logs"
    for file in written.rglob("*"):
        if file.is_file() and file.suffix != ".lock":
            target = root / file.relative_to(written)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return root


OPTIONS: list[dict[str, Any]] = [
    {},
    {"columns": ["offset", "key"]},
    {"begin_offset": 7_777, "end_offset": 51_000},
    {"begin": 1_700_000_020_000, "end": 1_700_000_050_001},
    {"keys": [b"key-7", b"key-999"]},
    {"matches": "needle|ab{3}"},
    {"batch_size": 100_000},
    {"isolation": "read_committed"},
]


def table(read: Callable[..., Any], **options: Any) -> pa.Table:
    return pa.table(read(**options)).combine_chunks()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_records_are_those_of_one_thread(options: dict[str, Any], written: Path) -> None:
    with LogDir.open(written) as logs:
        for read in (logs.records, logs.log("orders", 0).records):
            alone = table(read, **options, threads=1)
            assert alone.num_rows > 0 or "matches" in options
            for threads in (2, 5, None):
                assert table(read, **options, threads=threads).equals(alone)


def test_without_indexes_the_headers_lead_to_the_pieces(logs: Path) -> None:
    with Log.open(logs / "orders-0") as log:
        alone = table(log.records, threads=1)
    for index in (logs / "orders-0").glob("*index"):
        index.unlink()
    with Log.open(logs / "orders-0") as log:
        assert table(log.records, threads=4).equals(alone)


def damages(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over places and bytes that are written there."""
    for at in (3, 70, len(log) // 3, len(log) // 2, len(log) - 100, len(log) - 9_000):
        yield at, b"\x7f\xff\xff"
    yield len(log) // 2, bytes(40_000)


def test_damage_is_that_of_one_thread(logs: Path) -> None:
    first, second, _ = sorted((logs / "orders-0").glob("*.log"))
    for file in (first, second):
        sound = file.read_bytes()
        for at, wrong in damages(sound):
            file.write_bytes(sound[:at] + wrong + sound[at + len(wrong) :])
            with Log.open(logs / "orders-0") as log:
                found = []
                for threads in (1, 4):
                    stream = log.records(on_error="skip", threads=threads)
                    with pytest.warns(DamageWarning):
                        rows = pa.table(list_of(stream)).combine_chunks()
                    found.append((rows, stream.findings, stream.damage, stream.unread))
                assert found[0][0].equals(found[1][0])
                assert found[0][1:] == found[1][1:]
                assert found[0][1]
                errors = []
                for threads in (1, 4):
                    with pytest.raises(CorruptFileError) as caught:
                        log.records(threads=threads).read_all()
                    errors.append(str(caught.value))
                assert errors[0] == errors[1]
        file.write_bytes(sound)


def list_of(stream: Any) -> pa.RecordBatchReader:
    """Read a stream as it is iterated, so that its findings can be asked afterwards."""
    return pa.RecordBatchReader.from_batches(pa.schema(stream.schema), [pa.record_batch(batch) for batch in stream])


def test_a_missing_segment_is_that_of_one_thread(logs: Path) -> None:
    second = sorted((logs / "orders-0").glob("*.log"))[1]
    for file in second.parent.glob(f"{second.stem}.*"):
        file.unlink()
    with LogDir.open(logs) as opened:
        found = []
        for threads in (1, 4):
            stream = opened.records(on_error="skip", threads=threads)
            with pytest.warns(DamageWarning):
                rows = pa.table(list_of(stream)).combine_chunks()
            found.append((rows.num_rows, [str(each) for each in stream.findings]))
        assert found[0] == found[1]
        assert "file-gap" in found[0][1][0] or "segment" in found[0][1][0]


def test_a_stream_may_be_left(written: Path) -> None:
    with Log.open(written / "orders-0") as log:
        for _ in range(3):
            stream = log.records(threads=4)
            assert next(stream).num_rows > 0
            stream.close()
    (segment,) = sorted((written / "orders-1").glob("*.log"))
    with LogSegment.open(segment) as small:
        assert pa.table(small.records()).num_rows == 1


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_cannot_go_on(written: Path) -> None:
    with Log.open(written / "orders-0") as log:
        stream = log.records(threads=2)
        next(stream)

        def go_on(answers: Any) -> None:
            try:
                answers.put(f"{next(stream)}")
            except ValueError as error:
                answers.put(str(error))

        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=go_on, args=(answers,))
        child.start()
        assert "forked since" in answers.get(timeout=30)
        child.join(30)
