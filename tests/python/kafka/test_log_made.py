"""Logs of shapes that no golden case has: starts inside of batches, recurring keys, offsets that lie, KRaft's own log."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from kafka_batches import TRANSACTIONAL, Row, T, abort_marker, batch, write_segment
from kafka_search import find
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogDir, LogSegment, build_key_index

if TYPE_CHECKING:
    from pathlib import Path


def _offsets(stream: Any) -> list[int]:
    return [offset for batch in stream for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Return the place of a partition in an empty log directory."""
    return tmp_path / "logs" / "orders-3"


def _start_at(partition: Path, offset: int) -> None:
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n1\norders {partition.name.rpartition('-')[2]} {offset}\n", encoding="ascii")


def test_the_newest_record_is_none_that_was_deleted(partition: Path) -> None:
    """Where the log begins inside of a batch, that batch's largest timestamp may be of a record before."""
    write_segment(partition, 0, batch([Row(0, 900), Row(1, 100), Row(2, 50)]), batch([Row(3, 70)]))
    write_segment(partition, 4, batch([Row(4, 80)]))
    with Log.open(partition) as log:
        for start, newest in ((0, (900, 0)), (1, (100, 1)), (2, (80, 4)), (4, (80, 4))):
            _start_at(partition, start)
            assert log.offset_for_timestamp(-3) == (T + newest[0], newest[1])
        _start_at(partition, 5)
        assert log.offset_for_timestamp(-3) is None


@pytest.mark.parametrize("compat", [None, "3.9.0"])
@pytest.mark.parametrize("ms", range(-6, 0))
def test_a_moment_before_1970_is_a_time_like_any_other(partition: Path, ms: int, compat: str | None) -> None:
    write_segment(partition, 0, batch([Row(0, 100), Row(1, 900)]))
    first = (T + 100, 0)
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    with Log.open(partition, compat=compat) as log:
        assert log.offset_for_timestamp(moment) == first
        assert log.offset_for_timestamp(ms, special=False) == first
        assert (log.offset_for_timestamp(ms) == first) is (ms == -6)
        assert log.offset_for_timestamp(moment, special=True) == log.offset_for_timestamp(ms)


@pytest.mark.parametrize("indexed", [True, False])
def test_a_key_that_recurs_is_found_newest_first(partition: Path, tmp_path: Path, indexed: bool) -> None:
    rows = [Row(n, n, b"often" if n % 2 else b"key-%d" % n, b"%d" % n) for n in range(2_000)]
    write_segment(partition, 0, *(batch(rows[at : at + 50]) for at in range(0, 2_000, 50)))
    index = tmp_path / "index" if indexed else None
    if index is not None:
        build_key_index(partition.parent, index)
    expected = list(range(1_999, 0, -2))
    for most in (None, 1, 40, 1_000):
        found = find(partition.parent, "orders", "often", index=index, max_num=most)
        assert [record.offset for record in found] == expected[:most]
        assert [record.value for record in found] == [b"%d" % offset for offset in expected[:most]]
        assert found.truncated == (most not in {None, 1_000})
    found = find(partition.parent, "orders", "often", index=index, begin=T + 101, end=T + 105)
    assert [record.offset for record in found] == [105, 103, 101]


def test_damage_between_records_of_a_key_is_not_in_the_way(partition: Path, tmp_path: Path) -> None:
    path = write_segment(partition, 0, *(batch([Row(n, n, b"a" if n in {0, 4} else b"b")]) for n in range(5)))
    build_key_index(partition.parent, tmp_path / "index")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    found = find(partition.parent, "orders", "a", index=tmp_path / "index")
    assert [record.offset for record in found] == [4, 0]
    assert found.complete
    with pytest.warns(DamageWarning, match="crc"):
        found = find(partition.parent, "orders", "b", index=tmp_path / "index")
    assert [record.offset for record in found] == [3, 1]
    assert found.unscanned == ((3, 2, 3),)


@pytest.mark.parametrize("key", [None, 7, bytearray(b"k")])
def test_a_key_of_another_type_is_refused(partition: Path, key: Any) -> None:
    write_segment(partition, 0, batch([Row(0)]))
    with pytest.raises(TypeError, match="expected str or bytes"):
        find(partition.parent, "orders", key)


def test_a_stop_at_damage_ends_the_segment_not_the_log(partition: Path) -> None:
    good = batch([Row(0), Row(1)])
    bad = bytearray(batch([Row(2)]))
    bad[-1] ^= 1
    write_segment(partition, 0, good, bytes(bad), batch([Row(3)]))
    write_segment(partition, 4, batch([Row(4)]), batch([Row(5)])[:-1])
    write_segment(partition.with_name("orders-4"), 0, good)
    with LogDir.open(partition.parent) as logs:
        for on_error, expected in (("skip", [0, 1, 3, 4, 0, 1]), ("stop", [0, 1, 4, 0, 1])):
            stream = logs.records(on_error=on_error)  # type: ignore[arg-type]
            with pytest.warns(DamageWarning):
                assert _offsets(stream) == expected
            assert [finding.kind for finding in stream.findings] == ["batch-crc", "torn-batch"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_base_offset_beyond_the_next_segment_is_an_error(partition: Path, number: int) -> None:
    """No checksum covers it, and a reader that believes it would leave the segment there."""
    batches = [bytearray(batch([Row(n)])) for n in range(3)]
    batches[number][5] ^= 1
    write_segment(partition, 0, *map(bytes, batches))
    write_segment(partition, 3, batch([Row(3)]))
    with Log.open(partition) as log:
        with pytest.raises(CorruptFileError, match="offsets"):
            _offsets(log.records())
        stream = log.records(on_error="skip")
        with pytest.warns(DamageWarning, match="offsets"):
            assert set(range(4)) - set(_offsets(stream)) == {number}
        assert [finding.kind for finding in stream.findings] == ["batch-offset"]
        assert not log.verify().ok


def test_a_reader_that_stops_at_a_misplaced_batch_knows_the_rest_as_unread(partition: Path) -> None:
    batches = [bytearray(batch([Row(n)])) for n in range(5)]
    # Offset 257, so that the batch of offset 2 is misplaced.
    batches[1][6] ^= 1
    write_segment(partition, 0, *map(bytes, batches))
    with Log.open(partition) as log:
        stream = log.records(on_error="stop")
        with pytest.warns(DamageWarning, match="offsets"):
            assert _offsets(stream) == [0, 257]
        assert [tuple(each)[2:4] for each in stream.unread] == [(1, 2), (2, (1 << 63) - 1)]


def test_an_offset_that_no_index_holds_is_a_finding(partition: Path) -> None:
    path = write_segment(partition, 0, batch([Row(0)]), batch([Row(1 << 31)]))
    with LogSegment.open(path) as segment:
        assert [finding.kind for finding in segment.verify().findings] == ["batch-offset"]
        with pytest.raises(CorruptFileError, match="offsets up to 2147483647"):
            _offsets(segment.records())
    with Log.open(partition) as log:
        assert log.log_end_offset == 1


@pytest.mark.parametrize(("byte", "what"), [(0, "base offset"), (23, "last offset")])
def test_a_batch_below_its_segment_does_not_end_the_log(partition: Path, byte: int, what: str) -> None:
    """The sign of its base offset or of the difference to its last one is set; the first is under no checksum."""
    last = bytearray(batch([Row(12), Row(13)]))
    last[byte] ^= 0x80
    write_segment(partition, 10, batch([Row(10), Row(11)]), bytes(last))
    with LogDir.open(partition.parent) as logs:
        assert logs.log("orders", 3).log_end_offset == 12, what
        assert "batch-offset" in {finding.kind for finding in logs.verify().findings}


def test_a_sound_log_of_kraft_has_no_findings(tmp_path: Path) -> None:
    partition = tmp_path / "__cluster_metadata-0"
    write_segment(partition, 0, batch([Row(0), Row(1)]))
    with Log.open(partition) as log:
        log.rebuild_indexes(partition)
        for name in (
            "00000000000000000002-0000000001.checkpoint",
            "00000000000000000001-0000000001.checkpoint.deleted",
            "00000000000000000002-0000000001-123456.checkpoint.part",
            "quorum-state",
            "leader-epoch-checkpoint.tmp",
        ):
            (partition / name).write_bytes(b"{}")
        assert log.verify().ok
        (partition / "quorum-state.bak").touch()
        assert [finding.kind for finding in log.verify().findings] == ["file-name"]


def test_names_in_digits_of_another_script_are_segments(tmp_path: Path) -> None:
    """The locale of a broker's JVM chooses the digits."""
    partition = tmp_path / "orders-0"
    write_segment(partition, 0, batch([Row(0)]))
    write_segment(partition, 1, batch([Row(1)])).rename(partition / ("\u0660" * 19 + "\u0661.log"))
    with Log.open(partition) as log:
        assert [segment.base_offset for segment in log.segments] == [0, 1]
        assert _offsets(log.records()) == [0, 1]


def test_a_partition_has_one_name(tmp_path: Path) -> None:
    for name in ("t-7", "t-007", "t-4294967296"):
        write_segment(tmp_path / name, 0, batch([Row(0)]))
    with LogDir.open(tmp_path) as logs:
        assert logs.topics == {"t": [7]}
        assert _offsets(logs.records()) == [0]
    with Log.open(tmp_path / "t-4294967296") as log:
        assert (log.topic, log.partition) == ("t-4294967296", 0)
        assert _offsets(log.records()) == [0]


def test_aborted_transactions_that_no_file_lists_are_named(partition: Path) -> None:
    """A reader of committed records would give them, and a broker as well: it takes the file of a closed segment as it is."""
    rows = [batch([Row(n)], attributes=TRANSACTIONAL, producer=7) for n in (0, 2)]
    path = write_segment(partition, 0, rows[0], abort_marker(1, 7), rows[1], abort_marker(3, 7), batch([Row(4)]))
    write_segment(partition, 5, batch([Row(5)]), abort_marker(6, 7))
    with Log.open(partition) as log:
        log.rebuild_indexes(partition)
        assert log.verify().ok
        assert _offsets(log.records(isolation="read_committed")) == [4, 5]
        listed = path.with_suffix(".txnindex")
        content = listed.read_bytes()
        listed.write_bytes(content[:34])
        found = log.verify().findings
        assert [(finding.path, finding.offset, finding.kind) for finding in found] == [(str(listed), 34, "index-entry")]
        assert found[0].expected == "the transaction of producer 7 that was aborted at offset 3"
        # The first offset of the second entry.
        listed.write_bytes(content[:44] + (1).to_bytes(8, "big") + content[52:])
        [finding] = log.verify().findings
        assert (finding.path, finding.offset, finding.kind) == (str(listed), 34, "index-entry")
        assert finding.found == "producer 7, from offset 1 to 3"
        listed.unlink()
        assert [(finding.path, finding.kind) for finding in log.verify().findings] == [(str(listed), "file-missing")]


def test_checkpoints_of_the_log_directory_are_checked(partition: Path) -> None:
    write_segment(partition, 0, batch([Row(0), Row(1)]))
    sizeless = write_segment(partition.with_name("orders-4"), 0, batch([Row(0)]), bytes(11) + b"\3" * 30)
    with LogDir.open(partition.parent) as logs:
        assert "batch-size" in {finding.kind for finding in logs.verify().findings}
        sizeless.unlink()
        logs.log("orders", 3).rebuild_indexes(partition)
        _start_at(partition, 2)
        assert logs.verify().ok
        _start_at(partition, 3)
        place = str(partition.parent / "log-start-offset-checkpoint")
        [finding] = logs.verify().findings
        assert (finding.path, finding.kind, finding.found) == (place, "file-content", "3")
        assert finding.expected == "a start of orders-3 of at most 2, where its log ends"
        _start_at(partition, 0)
        for name in ("log-start", "recovery-point", "replication", "cleaner"):
            path = partition.parent / f"{name}-offset-checkpoint"
            path.write_text("0\n1\norders 3\n", encoding="ascii")
            assert [(each.path, each.offset, each.kind) for each in logs.verify().findings] == [
                (str(path), 4, "file-content")
            ]
            path.unlink()


def test_markers_of_a_range_of_times_are_read_where_they_are_asked_for(partition: Path) -> None:
    """A marker before the first data record of the range, and one in a segment without any, belong to it, too."""
    data = batch([Row(0, 10)], attributes=TRANSACTIONAL, producer=7)
    write_segment(partition, 0, data, abort_marker(1, 7), batch([Row(2, 20)]))
    write_segment(partition, 3, abort_marker(3, 7))
    with Log.open(partition) as log:
        # The markers have the time T.
        assert _offsets(log.records(begin=T, control=True)) == [0, 1, 2, 3]
        assert _offsets(log.records(begin=T, end=T, control=True)) == [1, 3]
        assert _offsets(log.records(begin=T)) == [0, 2]


_MANY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from logdex.kafka import LogDir
with LogDir.open(sys.argv[1]) as logs:
    log = logs.log("orders", 3)
    assert [log.read(offset, 1).position for offset in range(200)] == [0] * 200
    assert len(list(log.segments)) == 200 and log.offset_for_timestamp(-3) is not None
    assert sum(batch.num_rows for batch in logs.records(begin=1)) == 200
    assert logs.verify().checked["segments"] == 200
"""


def test_more_segments_than_files_may_be_open(partition: Path) -> None:
    for offset in range(200):
        write_segment(partition, offset, batch([Row(offset, offset)]))
    subprocess.run([sys.executable, "-c", _MANY, str(partition.parent)], check=True)


def test_an_index_is_built_of_all_partitions_or_refused_before_the_first(partition: Path, tmp_path: Path) -> None:
    logs, index = partition.parent, tmp_path / "index"
    write_segment(partition, 0, batch([Row(0, 0, b"k")]))
    build_key_index(logs, index)
    write_segment(logs / "before-0", 0, batch([Row(0, 0, b"k")]))
    with pytest.raises(ValueError, match="orders-3 was built with header=None, not 'h'"):
        build_key_index(logs, index, header="h")
    assert [place.name for place in index.iterdir()] == ["orders-3"]

    # A partition without a segment, which lost them all, sorts first.
    (logs / "a-0").mkdir()
    (logs / "a-0" / "partition.metadata").touch()
    with pytest.raises(FileExistsError, match="is a partition of Kafka"):
        build_key_index(logs, logs)
    assert [file.name for file in (logs / "a-0").iterdir()] == ["partition.metadata"]


def test_a_time_index_of_one_timestamp_of_zero_is_sound(partition: Path) -> None:
    """Its entry for the first offset looks like a slot that was not used."""
    write_segment(partition, 0, batch([Row(0, -T)]))
    write_segment(partition, 1, batch([Row(1, -T)]))
    with Log.open(partition) as log:
        log.rebuild_indexes(partition)
        assert [segment.path.with_suffix(".timeindex").read_bytes() for segment in log.segments] == [bytes(12)] * 2
        assert log.verify().ok
        (partition / f"{0:020d}.timeindex").write_bytes(bytes(24))
        assert [finding.kind for finding in log.verify().findings] == ["index-tail"]


def test_a_committed_read_leaves_out_transactions_over_many_segments(partition: Path) -> None:
    """A transaction may begin many segments before its marker; each of these leaves its records out."""
    for producer in range(10):
        aborted = batch([Row(4 * producer)], attributes=TRANSACTIONAL, producer=producer)
        long = batch([Row(4 * producer + 1)], attributes=TRANSACTIONAL, producer=99)
        last = abort_marker(4 * producer + 3, 99 if producer == 9 else producer)
        write_segment(partition, 4 * producer, aborted, long, batch([Row(4 * producer + 2)]), last)
    write_segment(partition, 40, abort_marker(40, 9), batch([Row(41)]))
    with Log.open(partition) as log:
        log.rebuild_indexes(partition)
        assert _offsets(log.records(isolation="read_committed")) == [*range(2, 40, 4), 41]


def test_a_directory_whose_name_is_no_text_is_no_partition(partition: Path) -> None:
    """No topic has such a name, and no column can hold it."""
    write_segment(partition, 0, batch([Row(0)]))
    odd = partition.parent / os.fsdecode(b"\xff\xfe-0")
    write_segment(odd, 0, batch([Row(0)]))
    with LogDir.open(partition.parent) as logs:
        assert logs.topics == {"orders": [3]}
        assert _offsets(logs.records()) == [0]
        logs.verify()
    with Log.open(odd) as log:
        assert (log.topic, log.partition) == ("\ufffd\ufffd-0", 0)
        assert _offsets(log.records()) == [0]
