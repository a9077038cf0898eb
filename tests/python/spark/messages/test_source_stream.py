"""Streaming over a commit log: nothing is lost and nothing comes twice, over restarts and a log that grows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import golden
from logdex.errors import DamageWarning, LogdexError
from logdex.spark.messages.source import MessagesSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="admission control came with pyspark 4.2")


class _Growing:
    """A store whose log is cut off, and grows to what it was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {path: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
        self.offsets = [row["physicalOffset"] for row in golden.rows("basic", "messages")]

    def grow(self, end: int) -> None:
        """Let the log end at an offset, its last file filled up with zeros, as a broker's is."""
        for path, content in self.files.items():
            held = max(end - int(path.name), 0)
            if held:
                path.write_bytes(content[:held].ljust(len(content), b"\0"))
            elif path.exists():
                path.unlink()

    def before(self, end: int) -> list[int]:
        return [offset for offset in self.offsets if offset < end]


@pytest.fixture
def growing(tmp_path: Path) -> _Growing:
    return _Growing(golden.unpack("basic", tmp_path / "broker"))


def test_a_stream_resumes_without_loss_or_repeat(spark: SparkSession, tmp_path: Path, growing: _Growing) -> None:
    checkpoint, out = str(tmp_path / "checkpoint"), str(tmp_path / "out")

    def run(**options: str) -> int:
        """Read all there is, end the query, and give the number of batches."""
        stream = spark.readStream.format("rocketmq").options(columns="phy_offset,topic", **options)
        query = (
            stream.load(str(growing.root))
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .option("path", out)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return len([progress for progress in query.recentProgress if progress["numInputRows"]])

    def read() -> list[int]:
        return sorted(row.phy_offset for row in spark.read.parquet(out).collect())

    places = growing.offsets
    growing.grow(places[100])
    assert run(maxRowsPerTrigger="40") == 3
    assert read() == places[:100]
    growing.grow(places[400] + 50)  # the broker is writing this message
    assert run(maxBytesPerTrigger="70000") > 1
    assert read() == places[:400]
    growing.grow(1 << 40)
    assert run() == 1
    assert read() == places
    assert run() == 0
    assert read() == places


def _reader(growing: _Growing, **options: str) -> Any:
    source = MessagesSource(CaseInsensitiveDict({"path": str(growing.root), "columns": "phy_offset", **options}))
    return source.streamReader(source.schema())


def _rows(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[int]:
    return [n for part in reader.partitions(start, end) for batch in reader.read(part) for n in batch[0].to_pylist()]


@pytest.mark.parametrize(
    "limit", [limits.ReadMaxRows(7), limits.ReadMaxRows(1), limits.ReadMaxBytes(3_000), limits.ReadMaxBytes(1)]
)
def test_batches_are_limited(growing: _Growing, limit: Any) -> None:
    reader = _reader(growing, maxPartitionBytes="1000")
    at, read = reader.initialOffset(), list[int]()
    while (end := reader.latestOffset(at, limit)) != at:
        rows = _rows(reader, at, end)
        assert rows == _rows(reader, at, end)
        assert 1 <= len(rows) <= getattr(limit, "max_rows", 30)
        read += rows
        at = end
        if len(read) > 60:
            break
    assert read == growing.offsets[: len(read)]
    assert len(read) > 60
    assert _rows(reader, at, reader.latestOffset(at, limits.ReadAllAvailable())) == growing.offsets[len(read) :]


def test_available_now_ends_where_the_log_ended(growing: _Growing) -> None:
    growing.grow(growing.offsets[50])
    reader = _reader(growing, topic="TopicTest")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    growing.grow(growing.offsets[90])
    end = reader.latestOffset(start, limits.ReadAllAvailable())
    assert end == {"phy_offset": growing.offsets[50]}
    assert reader.reportLatestOffset() == {"phy_offset": growing.offsets[90]}
    topics = {row["physicalOffset"]: row["topic"] for row in golden.rows("basic", "messages")}
    assert _rows(reader, start, end) == [n for n in growing.offsets[:50] if topics[n] == "TopicTest"]


def test_where_a_stream_starts(growing: _Growing) -> None:
    middle = growing.offsets[70]
    assert _reader(growing).initialOffset() == {"phy_offset": 0}
    assert _reader(growing, startingOffset="latest").initialOffset()["phy_offset"] > growing.offsets[-1]
    reader = _reader(growing, startingOffset=str(middle + 1))
    start = reader.initialOffset()
    assert _rows(reader, start, reader.latestOffset(start, limits.ReadAllAvailable())) == growing.offsets[71:]


def test_lost_messages_are_an_error(growing: _Growing) -> None:
    start, end = {"phy_offset": 0}, {"phy_offset": growing.offsets[-1]}
    min(growing.files).unlink()
    with pytest.raises(LogdexError, match="messages from offset 0 to 65536 are gone"):
        _reader(growing).partitions(start, end)
    reader = _reader(growing, failOnDataLoss="false")
    with pytest.warns(DamageWarning, match="messages from offset 0 to 65536 are gone"):
        assert _rows(reader, start, end) == [n for n in growing.offsets[:-1] if n >= 65536]
    growing.grow(growing.offsets[200])
    with pytest.raises(LogdexError, match="it was cut off since"):
        _reader(growing).latestOffset(end, limits.ReadAllAvailable())
    with pytest.warns(DamageWarning, match="it was cut off since"):
        assert reader.latestOffset(end, limits.ReadAllAvailable()) == end


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "soon"}, "neither earliest nor latest"),
        ({"maxRowsPerTrigger": "0"}, "not above 0"),
        ({"maxRowsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "give one of"),
    ],
)
def test_wrong_options_are_refused(growing: _Growing, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _reader(growing, **options)


def test_a_pattern_reads_topics_that_are_new_in_a_batch(growing: _Growing) -> None:
    topics = {row["physicalOffset"]: row["topic"] for row in golden.rows("basic", "messages")}
    growing.grow(growing.offsets[3])
    reader = _reader(growing, topic='["/[A-Z].*/", "never*"]', maxPartitionBytes="1000")
    # Queues may not yet have what is in the log.
    shutil.rmtree(growing.root / "consumequeue")
    at, read = reader.initialOffset(), list[int]()
    for number in (3, 40, 90, len(growing.offsets) - 1):
        growing.grow(growing.offsets[number])
        end = reader.latestOffset(at, limits.ReadAllAvailable())
        rows = _rows(reader, at, end)
        assert rows == [
            n for n in growing.offsets if at["phy_offset"] <= n < end["phy_offset"] and topics[n][0].isupper()
        ]
        read += rows
        at = end
    assert len({topics[n] for n in read}) > len({topics[n] for n in growing.offsets[:3]})
    assert len(read) < len(growing.offsets) - 1
