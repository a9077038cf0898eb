"""Kafka's own classes read files of logdex, and logdex reads files of Kafka."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from kafka_classes import Classes
from logdex.kafka import LogSegment, OffsetIndex, ProducerState, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RELEASE = "3.9.2"
BASE = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Classes]:
    jvm = Classes(tmp_path_factory.mktemp("kafka-jvm"))
    yield jvm
    jvm.close()


def _pairs(rows: list[list[int]]) -> list[tuple[int, ...]]:
    return [tuple(row) for row in rows]


# An index without entries is cut: the real class would take the zeros of another one for entries.
@pytest.mark.parametrize(
    ("entries", "trimmed"),
    [(0, True), *((n, trim) for n in (1, 2, 1_023, 1_024, 1_025, 20_000) for trim in (True, False))],
)
def test_offset_indexes_of_logdex_open_in_the_real_class(
    kafka: Classes, tmp_path: Path, say: Callable[[str], None], entries: int, trimmed: bool
) -> None:
    rng = random.Random(entries)
    path = tmp_path / f"{BASE:020d}.index"
    written = []
    offset, position = BASE, 0
    with OffsetIndex.create(path, BASE, max(8, 8 * entries)) as index:
        for _ in range(entries):
            offset += rng.randrange(1, 50)
            position += rng.randrange(61, 5_000)
            index.append(offset, position)
            written.append((offset, position))
        if trimmed:
            index.trim()
    targets = [rng.randrange(BASE - 10, offset + 10) for _ in range(500)] + [BASE, offset, 2**62]
    answer = kafka.ask("offset_index", path=path, base=BASE, targets=targets)
    assert _pairs(answer["entries"]) == written
    with OffsetIndex.open(path, check="trust") as index:
        assert [index.lookup(target) for target in targets] == _pairs(answer["answers"])
        assert index.is_full == answer["full"]
    say(f"offset index of {entries} entries: {len(targets)} lookups alike")


@pytest.mark.parametrize("entries", [1, 2, 681, 682, 683, 20_000])
def test_time_indexes_of_logdex_open_in_the_real_class(
    kafka: Classes, tmp_path: Path, say: Callable[[str], None], entries: int
) -> None:
    rng = random.Random(entries)
    path = tmp_path / f"{BASE:020d}.timeindex"
    written = []
    time, offset = 1_700_000_000_000, BASE
    with TimeIndex.create(path, BASE, 12 * (entries + 2)) as index:
        for _ in range(entries):
            time += rng.randrange(1, 1_000)
            offset += rng.randrange(50)
            assert index.maybe_append(time, offset)
            assert not index.maybe_append(time, offset + 1)  # no newer: left out
            written.append((time, offset))
        index.trim()
    targets = [rng.randrange(1_700_000_000_000 - 10, time + 10) for _ in range(500)] + [-1, 0, 2**62]
    answer = kafka.ask("time_index", path=path, base=BASE, targets=targets)
    assert _pairs(answer["entries"]) == written
    with TimeIndex.open(path, check="trust") as index:
        assert [index.lookup(target) for target in targets] == _pairs(answer["answers"])
    say(f"time index of {entries} entries: {len(targets)} lookups alike")


def _segment_question(path: Path, interval: int, size: int) -> dict[str, Any]:
    return {"dir": path.parent, "base": int(path.stem), "index_interval_bytes": interval, "max_index_bytes": size}


@pytest.mark.parametrize("case", ["codecs", "compacted", "follower", "killed", "legacy", "timestamps", "transactions"])
def test_rebuilt_indexes_serve_the_real_segment(
    kafka: Classes, tmp_path: Path, say: Callable[[str], None], case: str
) -> None:
    """Logs of real brokers with indexes of logdex, built with other intervals than the brokers used."""
    root = golden_kafka.unpack(case, tmp_path)
    states: dict[str, ProducerState] = defaultdict(ProducerState)
    segments = compared = 0
    for number, row in enumerate(golden_kafka.rows(case, "rebuild")):
        path = golden_kafka.segment_path(root, row)
        interval, size = (100, 1_000, 4_096)[number % 3], 65_536
        with LogSegment.open(path) as segment:
            segment.rebuild_indexes(
                path.parent,
                index_interval_bytes=interval,
                max_index_bytes=size,
                producers=states[row["dir"]],
                overwrite=True,
            )
        with path.open("r+b") as file:
            file.truncate(row["recoveredLogLength"])
        made = {suffix: path.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")}
        batches = [
            batch
            for batch in golden_kafka.rows(case, "batches")
            if "position" in batch and (batch["dir"], batch["segment"]) == (row["dir"], row["segment"])
        ]
        offsets = sorted({o + d for b in batches for o in (b["baseOffset"], b["lastOffset"]) for d in (-1, 0, 1)})[:400]
        times = sorted({b["maxTimestamp"] + d for b in batches for d in (-1, 0, 1)})[:400]
        question = _segment_question(path, interval, size)
        answer = kafka.ask("segment", **question, offsets=offsets, times=times)
        with LogSegment.open(path, compat=RELEASE) as segment:
            found = [segment.translate_offset(offset) for offset in offsets]
            assert found == [each and tuple(each) for each in answer["offsets"]], path
            by_time = [segment.offset_for_timestamp(time) for time in times]
            assert by_time == [each and tuple(each) for each in answer["times"]], path
            assert segment.next_offset() == answer["next"]
        assert kafka.ask("recover", **question)["cut"] == 0
        recovered = {suffix: path.with_suffix(suffix).read_bytes() for suffix in made}
        assert recovered == made, path
        segments += 1
        compared += len(offsets) + len(times)
    assert segments >= 8
    assert compared >= 500
    say(f"{case}: {segments} segments with indexes of logdex, {compared} answers alike, recover() makes the same bytes")


@pytest.mark.parametrize("seed", range(6))
def test_segments_of_the_real_class_are_read_and_rebuilt(
    kafka: Classes, tmp_path: Path, say: Callable[[str], None], seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "written-0"
    folder.mkdir()
    path = folder / f"{BASE:020d}.log"
    interval = rng.choice([1, 200, 4_096])
    question = _segment_question(path, interval, 65_536)
    time, batches, expected = 1_700_000_000_000, [], []
    for _ in range(rng.randrange(20, 120)):
        rows: list[tuple[int, str | None, str | None]] = []
        for _ in range(rng.randrange(1, 30)):
            time += rng.randrange(-500, 1_000)
            key = None if rng.random() < 0.2 else f"key-{rng.randrange(50)}"
            value = None if rng.random() < 0.1 else "v" * rng.randrange(200)
            rows.append((time, key, value))
        batches.append({"codec": CODECS[seed % len(CODECS)], "records": rows})
        expected += rows
    size = kafka.ask("write", **question, batches=batches)["size"]
    assert path.stat().st_size == size
    with LogSegment.open(path) as segment:
        found = []
        for batch in segment.records(columns=["offset", "timestamp", "key", "value"]):
            columns = [batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value")]
            found += list(zip(*columns, strict=True))
        assert [row[0] for row in found] == list(range(BASE, BASE + len(expected)))
        assert [(row[2], row[3]) for row in found] == [
            tuple(None if text is None else text.encode() for text in row[1:]) for row in expected
        ]
        assert segment.verify().ok
        report = segment.rebuild_indexes(tmp_path / "new", index_interval_bytes=interval, max_index_bytes=65_536)
        assert report.ok
    for suffix in (".index", ".timeindex"):
        assert (tmp_path / "new" / path.with_suffix(suffix).name).read_bytes() == path.with_suffix(suffix).read_bytes()
    say(
        f"segment of {len(batches)} batches, codec {CODECS[seed % len(CODECS)]}: {len(expected)} records read, indexes made anew"
    )
