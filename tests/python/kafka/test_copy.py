"""`kafka.copy`: topics of a log directory in a new one, whole or as of a moment, and what is left out."""

from __future__ import annotations

import base64
import json
import lzma
import random
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
import golden_tiered
from logdex.cli import main
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogDir, LogDirWriter, LogSegment, checkpoint, copy
from logdex.kafka.copy import INTERNAL, steps_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from logdex._types import Isolation, OnError

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-restore"
RELEASES = ("3.9.2", "4.3.1")
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
BASE = 1_700_000_000_000
EPOCH = slice(12, 16)


def _rows(
    log_dir: Path, isolation: Isolation = "read_uncommitted", on_error: OnError = "raise"
) -> list[dict[str, Any]]:
    with LogDir.open(log_dir) as logs:
        topics = [topic for topic in logs.topics if topic not in INTERNAL]
        table = pa.table(logs.records(topics, columns=COLUMNS, isolation=isolation, on_error=on_error))
    times = table.column("timestamp").cast(pa.int64())
    rows: list[dict[str, Any]] = table.set_column(3, "timestamp", times).to_pylist()
    return rows


def _bytes(log_dir: Path, topic: str) -> list[bytes]:
    """Return the batches of a topic's segments without the epochs of their leaders."""
    batches = []
    for path in sorted(log_dir.glob(f"{topic}-*/*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            batches.append(data[at : at + EPOCH.start] + data[at + EPOCH.stop : end])
            at = end
    return batches


@pytest.fixture(params=RELEASES)
def dead(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """Return the log directory of a killed broker, what was noted of it, and what its clients saw."""
    golden_kafka.unpack_archive(GOLDEN / f"dead-{request.param}.tar.xz", tmp_path / "dead")
    facts = json.loads((GOLDEN / f"dead-{request.param}.json").read_text())
    dump = lzma.decompress((GOLDEN / f"dead-{request.param}.dump.jsonl.xz").read_bytes()).splitlines()
    return tmp_path / "dead", facts, list(map(json.loads, dump))


def _seen(dump: list[dict[str, Any]], level: str) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return {
        (row["topic"], row["partition"]): [
            (each["offset"], each["timestamp"], decoded(each["key"]), decoded(each["value"]), len(each["headers"]))
            for each in row["records"]
        ]
        for row in dump
        if row.get("isolation") == level
    }


def _read(log_dir: Path, level: Isolation) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    read: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in _rows(log_dir, level):
        record = (row["offset"], row["timestamp"], row["key"], row["value"], len(row["headers"] or ()))
        read.setdefault((row["topic"], row["partition"]), []).append(record)
    return read


def test_a_whole_copy_has_the_bytes_of_all_batches(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], tmp_path: Path
) -> None:
    source, _, dump = dead
    shown: list[tuple[int, int]] = []
    report = copy(source, tmp_path / "new", open_transactions="keep", progress=lambda *done: shown.append(done))
    assert report.ok
    assert report.checked["encoded_batches"] == 0
    assert shown[-1][0] == shown[-1][1]
    for topic in ("orders", "audit.log"):
        assert _bytes(tmp_path / "new", topic) == _bytes(source, topic)
    levels: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
    for level in levels:
        assert _read(tmp_path / "new", level) == {place: rows for place, rows in _seen(dump, level).items() if rows}
    # It is open in both, and its producer is known.
    with LogDir.open(source) as old, LogDir.open(tmp_path / "new") as new:
        assert new.verify().ok
        assert new.log("orders", 0).last_stable_offset == old.log("orders", 0).last_stable_offset
    assert list((tmp_path / "new" / "orders-0").glob("*.snapshot"))


def test_a_copy_as_of_a_moment_ends_before_later_records(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], tmp_path: Path
) -> None:
    source, facts, dump = dead
    report = copy(source, tmp_path / "new", as_of=facts["moment"], groups=True)
    still_open = [place for places in facts["open"].values() for place in places]
    assert (report.ok, report.checked["ended_transactions"]) == (True, len(still_open))
    read = _read(tmp_path / "new", "read_committed")
    seen = _seen(dump, "read_uncommitted")
    for place, offsets in facts["readCommitted"].items():
        topic, partition = place.rsplit("-", 1)
        key = topic, int(partition)
        assert read.get(key, []) == [row for row in seen[key] if row[0] in offsets]
        with Log.open(tmp_path / "new" / place) as log:
            assert log.last_stable_offset == log.log_end_offset
    with LogDir.open(tmp_path / "new") as logs:
        assert logs.verify().ok
        groups = {(each.group, f"{each.topic}-{each.queue_id}"): each.offset for each in logs.groups()}
    assert groups == {
        (group, place): offset for group, places in facts["groups"].items() for place, (offset, *_) in places.items()
    }
    # A snapshot would take a new producer for an old one with the same id.
    assert not list((tmp_path / "new").glob("*/*.snapshot"))
    points = checkpoint.read_offsets(tmp_path / "new", checkpoint.RECOVERY_POINT)
    assert checkpoint.read_offsets(tmp_path / "new", checkpoint.HIGH_WATERMARK) == points
    steps = steps_path(tmp_path / "new").read_text()
    assert "--topic __consumer_offsets --partitions 4" in steps
    assert f"cp -R {tmp_path / 'new'}/*-*[0-9] LOG_DIR/" in steps


def test_committed_leaves_out_what_readers_of_committed_records_never_see(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], tmp_path: Path
) -> None:
    source, facts, _ = dead
    copy(source, tmp_path / "all", as_of=facts["moment"])
    report = copy(source, tmp_path / "new", as_of=facts["moment"], committed=True)
    assert report.checked["ended_transactions"] == 0
    expected = _rows(tmp_path / "all", "read_committed")
    assert expected == _rows(tmp_path / "new") == _rows(tmp_path / "new", "read_committed")
    assert len(expected) < len(_rows(tmp_path / "all"))
    with LogDir.open(tmp_path / "new") as logs:
        assert logs.verify().ok


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_copies_of_golden_logs_are_equal(case: str, kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    source = kafka_logs(case)
    report = copy(source, tmp_path / "new")
    # Two logs of this case begin inside a batch, because records were deleted.
    assert (report.findings, report.checked["encoded_batches"]) == ([], 2 if case == "compacted-4x" else 0)
    assert _rows(tmp_path / "new") == _rows(source)
    assert report.checked["records"] == len(_rows(source)) > 0
    with LogDir.open(source) as old, LogDir.open(tmp_path / "new") as new:
        assert new.verify().ok
        for topic, numbers in new.topics.items():
            for number in numbers:
                before, after = old.log(topic, number), new.log(topic, number)
                assert after.log_start_offset == before.log_start_offset
                if before.last_stable_offset == before.log_end_offset:
                    assert after.log_end_offset == before.log_end_offset
                    assert len(after.segments) <= len(before.segments)
                committed = [
                    pa.table(log.records(columns=["offset"], isolation="read_committed")) for log in (before, after)
                ]
                assert committed[1].slice(0, committed[0].num_rows) == committed[0]
    # Without snapshots and with the marker of a clean stop, a writer takes it as it is.
    with LogDirWriter.open(tmp_path / "new") as writer:
        for topic, numbers in writer.topics.items():
            for number in numbers:
                writer.append(topic, number, {"key": [b"k"], "value": [b"later"]})
    assert len(_rows(tmp_path / "new")) == len(_rows(source)) + sum(map(len, writer.topics.values()))


@pytest.mark.parametrize("case", golden_kafka.DAMAGED)
def test_damage_is_skipped_and_named(case: str, kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    source = kafka_logs(case)
    report = copy(source, tmp_path / "new")
    with LogDir.open(source) as logs:
        lost = [each for each in logs.verify().findings if each.path.endswith(".log") and each.kind != "leader-epoch"]
    places = {(each.path, each.offset) for each in report.findings}
    # The unfinished end of a last segment is no loss.
    in_logs = {(each.path, each.offset) for each in lost if each.kind not in ("torn-batch", "zero-tail")}
    assert places >= in_logs
    offsets = {(row["topic"], row["partition"], row["offset"]) for row in _rows(tmp_path / "new")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        read = {(row["topic"], row["partition"], row["offset"]) for row in _rows(source, on_error="skip")}
    # A reader takes a base offset as it is, a copy corrects it.
    assert offsets >= read or case == "damaged-baseoffset"
    with LogDir.open(tmp_path / "new") as logs:
        assert logs.verify().ok


def _made(log_dir: Path, codec: str, seed: int) -> None:
    numbers = random.Random(seed)
    with LogDirWriter.open(log_dir, config={"segment.bytes": 3000, "index.interval.bytes": 300}) as writer:
        for partition in range(2):
            for first in range(0, 300, 50):
                rows = range(first, first + 50)
                records = {
                    "key": [None if numbers.random() < 0.1 else b"key %d" % (row % 7) for row in rows],
                    "value": [None if numbers.random() < 0.1 else b"value %d" % row for row in rows],
                    "headers": [[("h", b"%d" % row), ("none", None)] if row % 3 else None for row in rows],
                    "timestamp": [BASE + 10 * row + numbers.randrange(-40, 40) for row in rows],
                }
                writer.append("made", partition, records, codec=codec, batch_bytes=600)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("seed", range(3))
def test_records_of_a_range_of_times_keep_their_offsets(codec: str, seed: int, tmp_path: Path) -> None:
    _made(tmp_path / "logs", codec, seed)
    numbers = random.Random(seed)
    begin, end = sorted(BASE + numbers.randrange(3000) for _ in range(2))
    whole = _rows(tmp_path / "logs")
    report = copy(tmp_path / "logs", tmp_path / "new", begin=begin, end=end)
    expected = [row for row in whole if begin <= row["timestamp"] <= end]
    assert _rows(tmp_path / "new") == expected
    assert (report.ok, report.checked["records"]) == (True, len(expected))
    assert report.checked["encoded_batches"] > 0
    as_of = copy(tmp_path / "logs", tmp_path / "cut", as_of=end, partitions=1)
    of_one = [row for row in whole if row["partition"] == 1]
    cut = next((at for at, row in enumerate(of_one) if row["timestamp"] > end), len(of_one))
    assert _rows(tmp_path / "cut") == of_one[:cut]
    assert as_of.checked["partitions"] == 1
    for directory in ("new", "cut"):
        with LogDir.open(tmp_path / directory) as logs:
            assert logs.verify().ok


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_records_of_keys_keep_their_offsets(codec: str, tmp_path: Path) -> None:
    _made(tmp_path / "logs", codec, 5)
    whole = _rows(tmp_path / "logs")
    keys = [b"key 3", b"key 5"]
    report = copy(tmp_path / "logs", tmp_path / "new", keys=[keys[0], keys[1].decode()])
    expected = [row for row in whole if row["key"] in keys]
    assert _rows(tmp_path / "new") == expected
    assert (report.ok, report.checked["records"]) == (True, len(expected))
    assert 0 < len(expected) < len(whole)
    begin = BASE + 1500
    copy(tmp_path / "logs", tmp_path / "of header", keys=["31", "200"], header="h", begin=begin)
    of_header = [row for row in whole if row["headers"] and row["headers"][0]["value"] == b"200"]
    assert _rows(tmp_path / "of header") == of_header
    assert len(of_header) == 2
    for directory in ("new", "of header"):
        with LogDir.open(tmp_path / directory) as logs:
            assert logs.verify().ok


def test_transactions_of_a_copy_by_keys_have_their_ends(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], tmp_path: Path
) -> None:
    source, _, _ = dead
    copy(source, tmp_path / "all")
    levels: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
    whole = {level: _read(tmp_path / "all", level) for level in levels}
    key = next(row[2] for rows in whole["read_committed"].values() for row in rows if row[2] is not None)
    copy(source, tmp_path / "new", keys=[key])
    for level in levels:
        expected = {place: [row for row in rows if row[2] == key] for place, rows in whole[level].items()}
        assert _read(tmp_path / "new", level) == {place: rows for place, rows in expected.items() if rows}
    with LogDir.open(tmp_path / "new") as logs:
        assert logs.verify().ok
        ends = [logs.log(place.topic, place.partition) for place in logs.partitions()]
        assert all(log.last_stable_offset == log.log_end_offset for log in ends)


def test_groups_as_of_a_moment_are_those_of_a_copy(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], tmp_path: Path
) -> None:
    source, facts, _ = dead
    copy(source, tmp_path / "new", as_of=facts["moment"], open_transactions="keep")
    with LogDir.open(tmp_path / "new") as logs:
        ends = {str(place): logs.log(place.topic, place.partition).log_end_offset for place in logs.partitions()}
    with LogDir.open(source) as logs:
        found = logs.groups(as_of=facts["moment"])
        one = logs.groups("group-0", as_of=facts["moment"])
        assert logs.groups() != found
        assert logs.groups(as_of=0) == []
    assert one == [each for each in found if each.group == "group-0"] != []
    # A copy has no offset after the end of its partition.
    assert {
        (each.group, f"{each.topic}-{each.queue_id}", min(each.offset, each.end_offset or 0)) for each in found
    } == {(group, place, offset) for group, places in facts["groups"].items() for place, (offset, *_) in places.items()}
    assert all(each.end_offset == ends[f"{each.topic}-{each.queue_id}"] for each in found)


@pytest.fixture(params=RELEASES)
def formatted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a directory that the tool of a release formatted, and no broker has used."""
    return Path(shutil.copytree(GOLDEN / f"formatted-{request.param}", tmp_path / "formatted"))


def _metadata(log_dir: Path) -> list[bytes]:
    """Return the records of the cluster's first metadata."""
    snapshot = log_dir / f"{0:020d}.log"
    snapshot.write_bytes((log_dir / "bootstrap.checkpoint").read_bytes())
    with LogSegment.open(snapshot) as segment:
        records = pa.table(segment.records(columns=["offset", "value"]))
    snapshot.unlink()
    assert records.column("offset").to_pylist() == list(range(1, records.num_rows + 1)), "control records are no rows"
    values: list[bytes] = records.column("value").to_pylist()
    return values


def test_a_formatted_directory_gets_the_topics_in_its_metadata(
    dead: tuple[Path, dict[str, Any], list[dict[str, Any]]], formatted: Path
) -> None:
    source, facts, _ = dead
    before, properties = _metadata(formatted), (formatted / "meta.properties").read_bytes()
    copy(source, formatted, topics="orders", partitions=1, as_of=facts["moment"], groups=True)
    added = _metadata(formatted)
    assert added[: len(before)] == before
    kinds = [record[1] for record in added[len(before) :]]
    # Topics, partitions, settings, and the first id of a new producer; a partition that was not copied is empty.
    assert [kinds.count(kind) for kind in (2, 3, 4, 15)] == [2, 2 + 4, 2 + 3, 1]
    metadata = (source / "orders-1" / "partition.metadata").read_text()
    for number in range(2):
        assert (formatted / f"orders-{number}" / "partition.metadata").read_text() == metadata
    topic_id = base64.urlsafe_b64decode(metadata.partition("topic_id: ")[2] + "==")
    assert b"\x01\x02\x00\x07orders" + topic_id + b"\0" in added
    assert (formatted / "meta.properties").read_bytes() == properties
    assert json.loads((formatted / ".kafka_cleanshutdown").read_text())["brokerEpoch"] == -2
    assert "node.id=1" in steps_path(formatted).read_text()
    with LogDir.open(formatted) as logs:
        assert logs.log("orders", 0).log_end_offset == 0
        assert logs.log("orders", 1).log_end_offset > 0
        assert logs.verify().ok


def test_a_formatted_directory_stays_as_it_was(formatted: Path, tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path / "source") as writer:
        writer.append("t", 0, {"value": [b"v"], "timestamp": [BASE]})
    before = {path.name: path.read_bytes() for path in formatted.iterdir()}
    copy(tmp_path / "source", formatted, begin=BASE + 1)
    assert {path.name: path.read_bytes() for path in formatted.iterdir()} == before
    (formatted / "bootstrap.checkpoint").write_bytes(before["bootstrap.checkpoint"][:-1])
    with pytest.raises(CorruptFileError, match=r"bootstrap\.checkpoint at byte \d+: expected a batch of a snapshot"):
        copy(tmp_path / "source", formatted)


def test_a_directory_that_a_broker_used_is_refused(formatted: Path, tmp_path: Path) -> None:
    with LogDirWriter.open(tmp_path / "source") as writer:
        writer.append("t", 0, {"value": [b"v"]})
    metadata = formatted / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / f"{0:020d}.log").write_bytes(b"x")
    with pytest.raises(FileExistsError, match="formatted and never used"):
        copy(tmp_path / "source", formatted)


@pytest.mark.parametrize("exists", [False, True])
def test_a_copy_of_nothing_leaves_no_directory(exists: bool, tmp_path: Path) -> None:
    _made(tmp_path / "logs", "none", 1)
    new = tmp_path / "new"
    if exists:
        new.mkdir()
    report = copy(tmp_path / "logs", new, keys=["no such key"])
    assert report.checked["records"] == 0
    assert {*tmp_path.iterdir()} == {tmp_path / "logs", *([new] if exists else [])}
    assert not exists or not list(new.iterdir())
    assert not steps_path(new).exists()


@pytest.mark.parametrize("tier", ["local", "aiven"])
def test_segments_in_remote_storage_are_copied(tier: str, tmp_path: Path) -> None:
    folder = golden_tiered.unpack(tier, tmp_path / "tiered")
    with LogDir.open(folder / "after", tiered=folder / "remote") as logs:
        report = copy(logs, tmp_path / "new")
    assert report.ok
    topics = {path.name.rpartition("-")[0] for path in (tmp_path / "new").glob("*-*[0-9]")}
    assert topics
    assert _rows(tmp_path / "new") == [row for row in _rows(folder / "before") if row["topic"] in topics]


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    _made(tmp_path / "logs", "zstd", 1)
    with LogDirWriter.open(tmp_path / "logs") as writer:
        writer.log("made", 0).delete_records(77)
    report = copy(tmp_path / "logs", tmp_path / "new", topics="made", partitions=[0])
    assert report.checked["encoded_batches"] == 1
    # A broker that finds the directory has no checkpoint of its own for it.
    (tmp_path / "new" / checkpoint.LOG_START).unlink()
    with Log.open(tmp_path / "new" / "made-0") as log:
        assert log.log_start_offset == 77
    assert _rows(tmp_path / "new") == [row for row in _rows(tmp_path / "logs") if row["partition"] == 0]


def _batches(path: Path) -> list[tuple[int, int]]:
    """Return where each batch of a segment begins and ends."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_random_damage_costs_only_the_batches_that_it_hits(codec: str, tmp_path: Path) -> None:
    _made(tmp_path / "logs", codec, 5)
    whole = {(row["partition"], row["offset"]): row for row in _rows(tmp_path / "logs")}
    segments = sorted((tmp_path / "logs").glob("*/*.log"))
    numbers = random.Random(11)
    for case in range(20):
        path = numbers.choice(segments)
        before, batches = path.read_bytes(), _batches(path)
        damaged = bytearray(before)
        begin = numbers.randrange(len(before))
        end = min(len(before), begin + numbers.choice((1, 1, 3, 40, 900)))
        damaged[begin:end] = numbers.choice((bytes(end - begin), numbers.randbytes(end - begin)))
        path.write_bytes(damaged)
        report = copy(tmp_path / "logs", tmp_path / f"new-{case}")
        path.write_bytes(before)
        hit = [before[at : at + 61] for at, to in batches if at < end and begin < to]
        lost = {
            (int(path.parent.name[-1]), int.from_bytes(head[:8], "big") + number)
            for head in hit
            for number in range(int.from_bytes(head[23:27], "big") + 1)
        }
        rows = {(row["partition"], row["offset"]): row for row in _rows(tmp_path / f"new-{case}")}
        assert {place: row for place, row in whole.items() if place not in lost}.items() <= rows.items(), (
            path,
            begin,
            end,
        )
        assert rows.items() <= whole.items(), (path, begin, end)
        with LogDir.open(tmp_path / f"new-{case}") as logs:
            assert logs.verify().ok
        assert report.findings or rows == whole or begin >= batches[-1][0]


def test_a_lost_segment_is_named(tmp_path: Path) -> None:
    _made(tmp_path / "logs", "none", 1)
    lost = sorted((tmp_path / "logs" / "made-0").glob("*.log"))[1]
    lost.unlink()
    report = copy(tmp_path / "logs", tmp_path / "new")
    assert [finding.kind for finding in report.findings] == ["file-gap"]
    assert str(lost) == report.findings[0].path
    with pytest.warns(DamageWarning):
        rows = _rows(tmp_path / "logs", on_error="skip")
    # The copy is whole: what is missing was named.
    assert _rows(tmp_path / "new") == rows


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    _made(logs, "none", 1)
    for options, error, text in [
        ({"topics": "__consumer_offsets"}, ValueError, "groups=True"),
        ({"topics": ["made", "mode"]}, FileNotFoundError, "near spellings: made"),
        ({"partitions": [7]}, FileNotFoundError, "no partition with the number 7"),
        ({"open_transactions": "commit"}, ValueError, "expected one of abort, keep"),
        ({"keys": "one"}, TypeError, "expected several keys"),
        ({"header": "h"}, ValueError, "expected keys as well"),
    ]:
        with pytest.raises(error, match=text):
            copy(logs, tmp_path / "new", **options)  # type: ignore[arg-type]
        assert not (tmp_path / "new").exists()
    with pytest.raises(FileExistsError):
        copy(logs, logs)
    with pytest.raises(ValueError, match="outside of"):
        copy(logs, logs / "made-0" / "new")


def test_the_command_copies_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _made(tmp_path / "logs", "lz4", 1)
    new = tmp_path / "new"
    source = str(tmp_path / "logs")
    assert main(["copy", source, str(new), "--topic", "made", "--partition", "1", "--as-of", str(BASE + 1000)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{new}: 1 partitions, ")
    assert out.endswith(f"the steps with which a broker loads it: {steps_path(new)}\n")
    log = next((tmp_path / "logs" / "made-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    assert main(["copy", source, str(tmp_path / "damaged"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[0])["kind"] == "batch-crc"
    assert main(["copy", source, str(tmp_path / "none"), "--begin", "2040-01-01T00:00:00Z"]) == 1
    assert "messages are from 2023-11-14" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert main(["copy", source, str(tmp_path / "one"), "--topic", "made", "--key", "key 3", "--json"]) == 1
    assert {row["key"] for row in _rows(tmp_path / "one")} == {b"key 3"}
    capsys.readouterr()
    for arguments, text in [
        (["--zone", "UTC"], "--zone: expected a RocketMQ store"),
        (["--topic", "mode"], "near spellings: made"),
    ]:
        assert main(["copy", source, str(tmp_path / "refused"), *arguments]) == 2
        assert text in capsys.readouterr().err
    assert main(["copy", str(tmp_path / "logs" / "made-0"), str(tmp_path / "refused")]) == 2
    assert "expected a Kafka log directory" in capsys.readouterr().err
