"""Reads and searches of a Kafka log with missing or damaged parts: places, findings and offsets.

What each call of each door says is in tests/python/test_missing_data.py, the rows of Spark in
tests/python/spark/test_kafka_source_missing_data.py; the table is in docs/findings.md.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafka_batches import T, write_segment
from kafka_search import explain, find
from log_losses import ALL, LOSSES, MIDDLE, Loss, batch_at, damage_batch, make_partition
from logdex import DamageWarning
from logdex.cli import main
from logdex.errors import CorruptFileError
from logdex.kafka import Log, LogDir, build_key_index
from logdex.report import size_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_GAPS = [name for name in LOSSES if name != "damaged batch"]
over_losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
over_gaps = pytest.mark.parametrize("loss", [LOSSES[name] for name in _GAPS], ids=_GAPS)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return a partition of four segments."""
    place = tmp_path / "logs" / "orders-0"
    make_partition(place)
    return place


def _offsets(table: Any) -> list[int]:
    found: list[int] = pa.table(table).column("offset").to_pylist()
    return found


def _readers(place: Path, **options: Any) -> list[Callable[[], Any]]:
    return [
        lambda: Log.open(place).records(**options),
        lambda: LogDir.open(place.parent).records(**options),
        lambda: LogDir.open(place.parent).records("orders", **options),
    ]


@over_losses
def test_a_read_raises_with_the_place(
    partition: Path,
    loss: Loss,
) -> None:
    loss.damage(partition)
    for read in _readers(partition):
        seen: list[int] = []
        with pytest.raises(CorruptFileError, match=str(partition / MIDDLE)) as raised:
            seen.extend(offset for each in read() for offset in each.column("offset").to_pylist())
        assert seen == ALL[: loss.lost[0]]
        assert loss.found in raised.value.found


@over_losses
def test_a_read_that_skips_warns_once_and_has_the_findings(
    partition: Path,
    loss: Loss,
) -> None:
    loss.damage(partition)
    rest = [offset for offset in ALL if offset not in loss.lost]
    for read in _readers(partition, on_error="skip"):
        for consume in (
            lambda stream: stream.read_all(),
            pa.table,
            lambda stream: pa.Table.from_batches(map(pa.record_batch, stream)),
        ):
            stream = read()
            with pytest.warns(DamageWarning, match=str(partition / MIDDLE)) as warned:
                assert _offsets(consume(stream)) == rest
            assert len(warned) == 1
            assert [each.kind for each in stream.findings] == [loss.kind] == [each.kind for each in stream.damage]
            assert loss.found in stream.findings[0].found
            assert [*warned[0].message.findings] == stream.findings  # type: ignore[union-attr]
            assert warned[0].filename == __file__


@over_gaps
def test_only_a_read_of_the_missing_offsets_isdamage_batch(
    partition: Path,
    loss: Loss,
) -> None:
    loss.damage(partition)
    with Log.open(partition) as log:
        assert _offsets(log.records(0, loss.lost[0])) == ALL[: loss.lost[0]]
        assert _offsets(log.records(loss.lost[-1] + 1)) == ALL[loss.lost[-1] + 1 :]
        for begin, end in ((12, 14), (5, 11), (19, 25), (12, None)):
            with pytest.raises(CorruptFileError, match="offsets 10 to 19"):
                log.records(begin, end).read_all()
        with pytest.raises(CorruptFileError, match="offsets 10 to 19"):
            log.records(begin=T + 35).read_all()
        assert [(each.kind, each.found.startswith(loss.found)) for each in log.missing_segments()] == [
            (loss.kind, True)
        ]


@over_gaps
def test_a_fetch_and_a_search_by_time_warn(
    partition: Path,
    loss: Loss,
) -> None:
    loss.damage(partition)
    with Log.open(partition) as log:
        with pytest.warns(DamageWarning, match="offsets 10 to 19") as warned:
            slice_ = log.read(12, 1)
        assert slice_ is not None
        assert slice_.segment.base_offset == loss.lost[-1] + 1
        assert [each.kind for each in warned[0].message.findings] == [loss.kind]  # type: ignore[union-attr]
        assert log.read(5, 1) is not None
        with pytest.warns(DamageWarning, match=loss.found):
            assert log.offset_for_timestamp(T + 12) == (T + 20, 20)
        assert log.offset_for_timestamp(T + 5) == (T + 5, 5)


@over_losses
def test_find_is_not_complete(
    partition: Path,
    tmp_path: Path,
    loss: Loss,
) -> None:
    build_key_index(partition.parent, tmp_path / "keys")
    whole = find(partition.parent, "orders", "key-3")
    assert whole.complete
    assert whole.unscanned == ()
    loss.damage(partition)
    for index in (None, tmp_path / "keys"):
        with pytest.warns(DamageWarning, match=loss.found) as warned:
            result = find(partition.parent, "orders", "key-3", index=index)
        assert len(warned) == 1
        assert not result.complete
        assert "incomplete" in repr(result)
        assert [each.kind for each in result.findings] == [loss.kind]
        assert [each.offset for each in result] == [each.offset for each in whole if each.offset not in loss.lost]
        # With an index, only the batch at its entry is read, and only one offset of it.
        begin, end = (10, 11) if index is not None and loss.kind == "batch-crc" else (loss.lost[0], loss.lost[-1] + 1)
        assert result.unscanned == result.unreadable == ((0, begin, end),)
    with pytest.warns(DamageWarning, match=loss.found):
        step = explain(partition.parent, "orders", "key-3").steps[0]
    assert step.unscanned == ((0, loss.lost[0], loss.lost[-1] + 1),)
    assert f"offsets from 10 to {loss.lost[-1]} not searched" in str(step)
    assert list(step.offsets) == [each.offset for each in whole if each.offset not in loss.lost]


def test_the_first_and_the_last_segment_may_be_gzipped(partition: Path) -> None:
    for base in (0, 30):
        path = partition / f"{base:020d}.log"
        path.rename(path.with_name(f"{path.name}.gz"))
    with Log.open(partition) as log:
        stream = log.records(on_error="skip")
        with pytest.warns(DamageWarning, match="2 findings|offsets 0 to 9"):
            assert _offsets(stream) == ALL[10:30]
        assert [each.expected for each in stream.findings] == [
            "a segment with the offsets 0 to 9",
            "a segment with the offsets from 30 on",
        ]
        assert log.log_start_offset == 0
    for path in partition.glob("*.log"):
        path.rename(path.with_name(f"{path.name}.gz"))
    with LogDir.open(partition.parent) as logs, pytest.raises(CorruptFileError, match="offsets from 0 on"):
        logs.records().read_all()


@pytest.mark.parametrize("how", ["checkpoint", "inside", "neither"])
def test_gaps_of_a_compacted_partition_are_a_note(partition: Path, how: str) -> None:
    (partition / MIDDLE).unlink()
    if how == "checkpoint":
        (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 30\n", encoding="ascii")
    elif how == "inside":
        path = partition / f"{20:020d}.log"
        path.write_bytes(batch_at(25))
    rest = [offset for offset in ALL if not (10 <= offset < (25 if how == "inside" else 20))]
    expected = pytest.warns(DamageWarning) if how == "neither" else nullcontext()
    with Log.open(partition) as log:
        with expected:
            assert _offsets(log.records(on_error="skip")) == rest
        report = log.verify()
        assert ("file-gap" in report.kinds) == (how == "neither")
        assert report.checked.get("gaps between segments, left by compaction") == (None if how == "neither" else 1)


def test_a_missing_index_file_loses_nothing(partition: Path) -> None:
    for suffix in ("index", "timeindex"):
        (partition / MIDDLE).with_suffix(f".{suffix}").unlink()
    with Log.open(partition) as log:
        assert _offsets(log.records()) == ALL
        assert log.offset_for_timestamp(T + 12) == (T + 12, 12)
        assert log.verify().kinds == {"file-missing": 2}
    assert find(partition.parent, "orders", "key-3").complete
    assert main(["kafka", "verify", str(partition)]) == 1


@pytest.mark.parametrize("number", [0, 1, -1])
def test_records_of_a_missing_file_of_the_key_index_are_scanned(partition: Path, tmp_path: Path, number: int) -> None:
    build_key_index(partition.parent, tmp_path / "keys", max_entries=10)
    whole = [find(partition.parent, "orders", f"key-{n}", index=tmp_path / "keys") for n in range(7)]
    assert {each.scanned_offsets for each in whole} == {0}
    files = sorted(path for path in (tmp_path / "keys" / "orders-0").iterdir() if path.name.isdigit())
    assert len(files) > 3
    files[number].unlink()
    for n, expected in enumerate(whole):
        found = find(partition.parent, "orders", f"key-{n}", index=tmp_path / "keys")
        assert list(found) == list(expected)
        assert (0 < found.scanned_offsets < len(ALL)) == (number != 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "00000000000000000010.index", MIDDLE])
def test_a_pipe_in_the_place_of_a_file_is_a_finding(partition: Path, name: str) -> None:
    (partition / name).unlink(missing_ok=True)
    os.mkfifo(partition / name)
    with Log.open(partition) as log:
        assert str(partition / name) in {each.path for each in log.verify().findings}
        with pytest.raises(CorruptFileError) if name == MIDDLE else nullcontext():
            assert _offsets(log.records().read_all()) == ALL


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_pipe_beside_the_partitions_is_a_finding(partition: Path, name: str) -> None:
    os.mkfifo(partition.parent / name)
    with LogDir.open(partition.parent) as logs:
        assert _offsets(logs.records()) == ALL
        assert [(each.path, each.kind) for each in logs.verify().findings] == [
            (str(partition.parent / name), "file-content")
        ]


def test_a_start_that_cannot_be_looked_at_is_not_taken_for_none(partition: Path) -> None:
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    checkpoint.symlink_to(checkpoint.name)
    with Log.open(partition) as log, pytest.raises(OSError, match="symbolic links") as raised:
        log.records().read_all()
    assert raised.value.filename == str(checkpoint)


def test_a_segment_that_cannot_be_looked_at_is_not_left_out(partition: Path) -> None:
    segment = partition / f"{10_000_000:020d}.log"
    segment.symlink_to(segment.name)
    with pytest.raises(OSError, match="symbolic links") as raised, Log.open(partition) as log:
        log.records().read_all()
    assert raised.value.filename == str(segment)


def test_a_replica_with_no_log_is_one_that_lost_it(partition: Path) -> None:
    shutil.rmtree(partition)
    partition.mkdir()
    (partition / f"{0:020d}.log.gz").write_bytes(b"")
    with LogDir.open(partition.parent) as logs:
        assert logs.topics == {"orders": [0]}
        with pytest.raises(CorruptFileError, match="offsets from 0 on"):
            logs.records().read_all()


def _cut_length(place: Path) -> None:
    """Set the size of the second batch of the last segment to an impossible value."""
    path = place / f"{30:020d}.log"
    content = bytearray(path.read_bytes())
    at = len(batch_at(30))
    content[at + 8 : at + 12] = (3).to_bytes(4, "big")
    path.write_bytes(content)


def test_a_search_passes_a_log_whose_end_cannot_be_found(partition: Path, tmp_path: Path) -> None:
    write_segment(partition.with_name("orders-1"), 0, batch_at(0))
    build_key_index(partition.parent, tmp_path / "keys")
    _cut_length(partition)
    with Log.open(partition) as log, pytest.raises(CorruptFileError, match="a size of at least"):
        _ = log.log_end_offset
    with pytest.warns(DamageWarning, match="a size of at least"):
        result = find(partition.parent, "orders", "key-3")
    assert {(each.partition, each.offset) for each in result} == {
        *((0, offset) for offset in ALL[:35] if offset % 7 == 3),
        (1, 3),
    }
    assert result.scanned_offsets == 35 + 5
    assert result.unscanned == ((0, 35, 2**63 - 1),)
    with pytest.warns(DamageWarning):
        (step, other) = explain(partition.parent, "orders", "key-3", index=tmp_path / "keys").steps
    assert step.log_end_offset == 35
    # The index has an entry for offset 38 and covers the other offsets before 40.
    assert step.unscanned == ((0, 38, 39), (0, 40, 2**63 - 1))
    assert "offsets from 40 on not searched" in str(step)
    assert other.offsets == (3,)


@pytest.mark.parametrize("tail", [False, True])
def test_cat_reads_the_topics_after_damage(partition: Path, capsys: pytest.CaptureFixture[str], tail: bool) -> None:
    write_segment(partition.with_name("paid-0"), 0, batch_at(0))
    damage_batch(partition)
    _cut_length(partition)
    words = ["cat", str(partition.parent), "--json", *(["--tail", "100"] if tail else [])]
    assert main(words) == 1
    out, err = capsys.readouterr()
    rows = [(row["topic"], row["offset"]) for row in map(json.loads, out.splitlines())]
    kept = [offset for offset in ALL[:35] if not 10 <= offset < 15]
    assert rows == [*(("orders", offset) for offset in kept), *(("paid", offset) for offset in range(5))]
    assert "orders-0: offsets from 10 to 14 and in 1 more places are unread" in err
    assert "(--skip-damaged, the default" in err
    assert main([*words, "--no-skip-damaged"]) == 2
    out, err = capsys.readouterr()
    # The last rows are printed after all of them are read.
    assert [json.loads(line)["offset"] for line in out.splitlines()] == ([] if tail else ALL[:10])
    left = (
        sum(path.stat().st_size for path in partition.parent.glob("*/*.log"))
        - (partition / f"{0:020d}.log").stat().st_size
    )
    assert f"stopped at damage, {size_text(left)} of the log are unread; --skip-damaged reads on" in err
    assert str(partition / MIDDLE) in err


def test_a_consumer_of_the_arrow_stream_raises_an_error_with_the_place(partition: Path) -> None:
    """As documented in docs/kafka.md, only the package's own iterator can raise CorruptFileError."""
    damage_batch(partition)
    with pytest.raises(pa.ArrowInvalid, match=f"{MIDDLE} at byte 0: expected crc"):
        pa.table(Log.open(partition).records())
    with pytest.raises(CorruptFileError, match=f"{MIDDLE} at byte 0: expected crc"):
        Log.open(partition).records().read_all()
