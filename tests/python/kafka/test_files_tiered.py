"""Segments that a broker moved to remote storage are read with those on its disk as one log."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_tiered
import remote_reads
import store_answers
from logdex import CorruptFileError, DamageWarning, _core, kafka
from logdex import open as logdex_open
from logdex.cli import main
from logdex.kafka import Log, LogDir

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = {0, 2, 4}
"""Leader epochs of the records: the broker was restarted between them."""
AIVEN = tuple(case for case in golden_tiered.CASES if case != "local")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a factory: `sides(case)` is the folder of an unpacked case, shared by all tests, for reading."""
    root = tmp_path_factory.mktemp("tiered")

    def unpacked(case: str) -> Path:
        folder = root / case
        return folder if folder.exists() else golden_tiered.unpack(case, folder)

    return unpacked


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: `copied(case)` is a fresh copy, which a test may change."""
    return lambda case: golden_tiered.unpack(case, tmp_path / case)


def opened(folder: Path, case: str, local: str = "after", **options: Any) -> LogDir:
    return LogDir.open(folder / local, tiered=folder / "remote", tiered_keys=golden_tiered.keys(case), **options)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return records as a consumer shows them."""
    names = {"partitionLeaderEpoch": "leaderEpoch"}
    rows = []
    for row in table.to_pylist():
        row["timestamp"] = int(row["timestamp"].timestamp() * 1000)
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"] or ()]
        rows.append({names.get(name, name): value for name, value in row.items()})
    return rows


COLUMNS = ("topic", "partition", "offset", "timestamp", "partitionLeaderEpoch", "key", "value", "headers")


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_the_records_are_those_that_a_consumer_read_before(sides: Callable[[str], Path], case: str) -> None:
    with opened(sides(case), case) as logs:
        for isolation, expected in (("read_uncommitted", 540), ("read_committed", 472)):
            committed = isolation == "read_committed"
            rows = rows_of(pa.table(logs.records(columns=COLUMNS, isolation=isolation)))  # type: ignore[arg-type]
            assert rows == golden_tiered.records(case, committed=committed)
            assert len(rows) == expected
            assert {row["leaderEpoch"] for row in rows} == EPOCHS
        stored = {
            str(segment.path).startswith("tiered:") for topic in logs.topics for segment in logs.log(topic, 0).segments
        }
        assert stored == {True, False}
    assert golden_tiered.info(case)["consumerReadTheSameAfterwards"]


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_every_answer_is_that_of_the_whole_log_directory(sides: Callable[[str], Path], case: str) -> None:
    folder = sides(case)
    with LogDir.open(folder / "before") as before, opened(folder, case) as after:
        expected, found = store_answers.of_log_dir(before), store_answers.of_log_dir(after)
    # A broker also writes a snapshot of the producers whenever it stops, and leaves those behind.
    assert expected["verify"]["checked"].pop("snapshots") == found["verify"]["checked"].pop("snapshots") + 4
    assert found == expected
    assert found["verify"]["ok"]
    assert len(found["records"]) == 580
    assert sum(map(len, found["logs"])) > 300


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_local_segments_are_read_from_the_disk(sides: Callable[[str], Path], case: str) -> None:
    # Nothing was deleted locally yet: remote storage has nothing to add.
    folder = sides(case)
    with opened(folder, case, "before") as logs:
        assert rows_of(pa.table(logs.records(columns=COLUMNS))) == golden_tiered.records(case)
        segments = [segment for each in logs.partitions() for segment in logs.log(each.topic, each.partition).segments]
        assert len(segments) == 25
        assert all(segment.path.is_relative_to(folder / "before") for segment in segments)


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_remote_storage_alone_is_a_log_directory(sides: Callable[[str], Path], case: str) -> None:
    folder = sides(case)
    keys = golden_tiered.keys(case)
    ends = {(row["topic"], row["partition"]): row["lastTiered"] for row in golden_tiered.info(case)["offsets"]}
    expected = [row for row in golden_tiered.records(case) if row["offset"] <= ends[row["topic"], row["partition"]]]
    assert LogDir.exists_at(folder / "remote")
    with LogDir.open(folder / "remote", tiered_keys=keys) as logs:
        assert rows_of(pa.table(logs.records(columns=COLUMNS))) == expected
        assert logs.verify().ok
        assert len(expected) > 400
    if keys is None:
        with logdex_open(folder / "remote") as alone:
            assert isinstance(alone, LogDir)


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_a_partition_and_its_index_of_keys(sides: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    folder, keys = sides(case), golden_tiered.keys(case)
    with Log.open(folder / "after" / "plain-1", tiered=folder / "remote", tiered_keys=keys) as log:
        records = [row for row in golden_tiered.records(case) if (row["topic"], row["partition"]) == ("plain", 1)]
        assert rows_of(pa.table(log.records(columns=COLUMNS))) == records
        assert (log.log_start_offset, log.log_end_offset) == (0, 90)
    with opened(folder, case) as logs:
        report = kafka.build_key_index(logs, tmp_path / "index")
        assert report.ok
        for number in range(0, 37, 5):
            found = logs.find("plain", f"key-{number}", index=tmp_path / "index")
            key = f"key-{number}".encode()
            wanted = [row for row in golden_tiered.records(case) if row["topic"] == "plain" and row["key"] == key]
            assert found.complete
            assert found.scanned_offsets == 0
            assert sorted(record.offset for record in found) == sorted(row["offset"] for row in wanted)
            assert wanted


def test_a_log_directory_is_pickled_with_what_it_needs(sides: Callable[[str], Path]) -> None:
    case = "aiven-encrypted"
    keys = {name: path.read_text() for name, path in (golden_tiered.keys(case) or {}).items()}
    with LogDir.open(sides(case) / "after", tiered=sides(case) / "remote", tiered_keys=keys) as logs:
        expected = remote_reads.read(logs)
        pickled = pickle.dumps(logs)
        secret = next(iter(keys.values())).splitlines()[3]
        assert secret not in repr(logs) + str(logs.path) + repr(logs.log("plain", 0).segments[0])
    script = "import sys, remote_reads; print(remote_reads.read_pickled(sys.stdin.buffer.read()))"
    found = _in_another_process(script, pickled)
    assert json.loads(found) == expected
    assert len(expected) == golden_tiered.RECORDS


def _in_another_process(script: str, content: bytes) -> str:
    support = Path(remote_reads.__file__).parent
    command = [sys.executable, "-c", script]
    return subprocess.run(command, input=content, capture_output=True, check=True, cwd=support).stdout.decode()


class TestKeys:
    """Encrypted segments."""

    @pytest.mark.parametrize("case", golden_tiered.ENCRYPTED)
    def test_a_missing_key_is_named(self, sides: Callable[[str], Path], case: str) -> None:
        folder, keys = sides(case), golden_tiered.keys(case)
        assert keys is not None
        named = r"rsm-manifest: the segment is encrypted with the key pair \"key-{}\"; expected its private key in PEM .*found {}"
        for given, number, found in (
            (None, 1, "no key"),
            ({"key-2": keys["key-2"]}, 1, "only key-2"),
            ({"key-1": keys["key-1"]}, 2, "only key-1"),
            ({"key-1": keys["key-1"], "key-2": keys["key-1"]}, 2, "another key"),
        ):
            with (
                LogDir.open(folder / "after", tiered=folder / "remote", tiered_keys=given) as logs,
                pytest.raises(ValueError, match=named.format(number, found)),
            ):
                logs.records("plain").read_all()

    def test_a_key_is_a_text_or_a_file_and_one_may_be_for_all(self, copied: Callable[[str], Path]) -> None:
        case = "aiven-encrypted"
        folder, keys = copied(case), golden_tiered.keys(case)
        assert keys is not None
        # Segments of the second key are in the last phase only.
        for manifest in (folder / "remote").rglob("*.rsm-manifest"):
            if "key-2:" in manifest.read_text():
                for path in manifest.parent.glob(f"{manifest.stem}.*"):
                    path.unlink()
        for given in (keys["key-1"], keys["key-1"].read_text(), {"key-1": str(keys["key-1"])}):
            with LogDir.open(folder / "remote", tiered_keys=given) as logs:
                assert len(pa.table(logs.records("packed"))) > 100

    def test_what_is_no_key_is_refused(self, sides: Callable[[str], Path], tmp_path: Path) -> None:
        folder = sides("aiven-encrypted")
        text = tmp_path / "text"
        text.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
        with pytest.raises(ValueError, match='the private key of "key-1": expected an RSA key in PEM'):
            LogDir.open(folder / "after", tiered=folder / "remote", tiered_keys={"key-1": text})
        with pytest.raises(FileNotFoundError):
            LogDir.open(folder / "after", tiered=folder / "remote", tiered_keys=tmp_path / "absent")


class TestPlaces:
    """What `tiered` may be."""

    def test_the_directory_above_that_of_the_test_plugin(self, sides: Callable[[str], Path]) -> None:
        folder = sides("local")
        assert [path.name for path in (folder / "remote").iterdir()] == ["kafka-tiered-storage"]
        with LogDir.open(folder / "after", tiered=folder / "remote" / "kafka-tiered-storage") as logs:
            assert len(rows_of(pa.table(logs.records(columns=COLUMNS)))) == golden_tiered.RECORDS

    def test_another_directory_is_refused(self, sides: Callable[[str], Path], tmp_path: Path) -> None:
        after = sides("local") / "after"
        with pytest.raises(ValueError, match="expected the remote storage of Kafka"):
            LogDir.open(after, tiered=sides("local") / "before")
        with pytest.raises(FileNotFoundError):
            LogDir.open(after, tiered=tmp_path / "absent")
        (tmp_path / "empty").mkdir()
        with LogDir.open(after, tiered=tmp_path / "empty") as logs:
            assert list(logs.topics) == ["packed", "plain", "transactions"]
            assert logs.log("plain", 0).missing_segments()

    def test_names_that_do_not_exist(self, sides: Callable[[str], Path]) -> None:
        with opened(sides("aiven"), "aiven") as logs:
            for topic, number in (("plain", 2), ("none", 0)):
                with pytest.raises(FileNotFoundError):
                    logs.log(topic, number)
            with pytest.raises(FileNotFoundError):
                Log.open(logs.path / "plain-0" / "0")

    def test_an_unknown_path_of_another_process(self) -> None:
        with pytest.raises(ValueError, match="opened with tiered="):
            LogDir.open("tiered://logs")


def _damage(logs: LogDir, topic: str, number: int = 0) -> tuple[int, list[Any]]:
    """Return how many records a read that skips damage has, and its findings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        stream = logs.log(topic, number).records(on_error="skip")
        rows = len(pa.table(stream))
    return rows, stream.findings


def _objects(folder: Path, topic: str, number: int = 0) -> list[Path]:
    """Return the log objects of a partition."""
    return sorted(
        path
        for path in (folder / "remote").rglob("*.log")
        if path.is_relative_to(folder) and _is_of(path, topic, number)
    )


def _is_of(path: Path, topic: str, number: int) -> bool:
    if path.parent.name == str(number):
        return path.parent.parent.name[:-23] == topic
    return path.parent.name[:-23] == f"{topic}-{number}"


class TestLosses:
    """A missing or damaged part of remote storage is never passed over in silence."""

    @pytest.mark.parametrize("case", golden_tiered.CASES)
    @pytest.mark.parametrize("which", [0, 1, -1])
    def test_a_missing_log_is_a_gap(
        self, copied: Callable[[str], Path], case: str, which: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = copied(case)
        with opened(folder, case) as logs:
            whole = len(pa.table(logs.records("packed")))
        lost = _objects(folder, "packed")[which]
        lost.unlink()
        with opened(folder, case) as logs:
            log = logs.log("packed", 0)
            (finding,) = log.missing_segments()
            assert finding.kind == "file-gap"
            assert lost.name in finding.found
            assert "expected a segment with the offsets" in f"expected {finding.expected}"
            with pytest.raises(CorruptFileError, match=lost.name):
                log.records().read_all()
            rows, findings = _damage(logs, "packed")
            assert 0 < rows < whole
            assert findings == [finding]
            with pytest.warns(DamageWarning):
                found = logs.find("packed", "key-1")
            assert not found.complete
            assert [each.kind for each in logs.verify().findings if each.kind == "file-gap"] == ["file-gap"]
            assert log.log_start_offset == 0
        keys = [f"--tiered-key={name}={path}" for name, path in (golden_tiered.keys(case) or {}).items()]
        words = ["cat", str(folder / "after"), "--topic", "packed", "--tiered", str(folder / "remote"), *keys]
        caplog.clear()
        assert main([*words, "--skip-damaged"]) == 1
        assert lost.name in caplog.text

    @pytest.mark.parametrize("case", AIVEN)
    def test_a_segment_without_its_manifest_is_a_gap(self, copied: Callable[[str], Path], case: str) -> None:
        folder = copied(case)
        lost = _objects(folder, "packed")[1].with_suffix(".rsm-manifest")
        for damage, found in (("{", "expected a manifest in JSON"), (None, "which the plugin writes last")):
            if damage is None:
                lost.unlink()
            else:
                lost.write_text(damage)
            with opened(folder, case) as logs:
                (finding,) = logs.log("packed", 0).missing_segments()
                assert (finding.kind, lost.name in finding.found, found in finding.found) == ("file-gap", True, True)

    @pytest.mark.parametrize("case", golden_tiered.CASES)
    def test_a_segment_with_all_its_objects_lost_is_a_gap(self, copied: Callable[[str], Path], case: str) -> None:
        folder = copied(case)
        for which in (1, 0):
            lost = _objects(folder, "plain", 1)[which]
            for path in lost.parent.glob(f"{lost.stem}.*"):
                path.unlink()
            with opened(folder, case) as logs:
                findings = logs.log("plain", 1).missing_segments()
                assert [(each.kind, each.path.rpartition("/")[2]) for each in findings] == [
                    ("file-gap", lost.name[:20] + ".log")
                ]

    @pytest.mark.parametrize("case", golden_tiered.CASES)
    def test_a_hole_on_the_disk_is_filled(self, copied: Callable[[str], Path], case: str) -> None:
        # The disk has all segments again, as before the move, except one or two in the middle.
        folder = copied(case)
        partition = folder / "before" / "packed-0"
        logs = [partition / f"{path.name[:20]}.log" for path in _objects(folder, "packed")]
        assert len(logs) > 2
        for lost in logs[1:]:
            for path in partition.glob(f"{lost.stem}.*"):
                path.unlink()
            with LogDir.open(folder / "before") as alone:
                assert alone.log("packed", 0).missing_segments()
            with opened(folder, case, "before") as logs_of_both:
                log = logs_of_both.log("packed", 0)
                assert log.missing_segments() == []
                found = rows_of(pa.table(log.records(columns=COLUMNS)))
                assert found == [row for row in golden_tiered.records(case) if row["topic"] == "packed"]
                assert log.segments[1].path.name == logs[1].name

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"segmentLeaderEpochs": {"1": 0}}, "whose leader epochs (1 from 0) are not those of the log"),
            ({"endOffset": -1}, "expected endOffset: "),
        ],
    )
    def test_a_segment_that_is_left_out_is_named(
        self, copied: Callable[[str], Path], change: dict[str, Any], said: str
    ) -> None:
        folder = copied("aiven")
        lost = _objects(folder, "packed")[1].with_suffix(".rsm-manifest")
        manifest = json.loads(lost.read_text())
        manifest["remoteLogSegmentMetadata"] |= change
        lost.write_text(json.dumps(manifest))
        with opened(folder, "aiven") as logs:
            log = logs.log("packed", 0)
            (finding,) = log.missing_segments()
            assert (finding.kind, lost.stem in finding.found, said in finding.found) == ("file-gap", True, True)
            with pytest.raises(CorruptFileError, match="expected a segment"):
                log.records().read_all()
            assert 0 < _damage(logs, "packed")[0] < 180

    @pytest.mark.parametrize("case", [case for case in AIVEN if case != "aiven"])
    def test_damage_in_a_chunk_loses_its_batches_alone(self, copied: Callable[[str], Path], case: str) -> None:
        folder = copied(case)
        with opened(folder, case) as logs:
            whole = pa.table(logs.log("plain", 0).records()).column("offset").to_pylist()
        path = _objects(folder, "plain")[1]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
        with opened(folder, case) as logs:
            log = logs.log("plain", 0)
            with pytest.raises(CorruptFileError):
                log.records().read_all()
            rows, findings = _damage(logs, "plain")
            if case in golden_tiered.ENCRYPTED:
                (finding,) = findings
                assert (finding.kind, path.name in finding.expected) == ("remote-chunk", True)
            # A chunk of 1,000 of 4,000 bytes, with the batches that begin or end in it.
            assert len(whole) - 25 < rows < len(whole)
            verified = log.verify().findings
            assert {finding.kind for finding in verified} >= {finding.kind for finding in findings}
            stopped = log.records(on_error="stop")
            with pytest.warns(DamageWarning):
                assert len(pa.table(stopped)) < rows
            # What is before the damage is found without a word.
            assert log.offset_for_timestamp(0) == (pa.table(log.records(0, 1)).column("timestamp")[0].value, 0)

    @pytest.mark.parametrize("case", AIVEN)
    def test_a_log_that_is_cut_off(self, copied: Callable[[str], Path], case: str) -> None:
        folder = copied(case)
        path = _objects(folder, "packed")[1]
        path.write_bytes(path.read_bytes()[:-5])
        with opened(folder, case) as logs:
            rows, findings = _damage(logs, "packed")
            assert rows < 180
            assert [finding.kind for finding in findings] == ["remote-chunk"]
            assert f"the end of the file at byte {path.stat().st_size}" in findings[0].found
            assert "remote-chunk" in logs.log("packed", 0).verify().to_dict()["kinds"]

    @pytest.mark.parametrize("case", ["local", "aiven"])
    def test_damage_at_the_end_on_the_disk_is_a_finding_of_its_segment(
        self, copied: Callable[[str], Path], case: str
    ) -> None:
        folder = copied(case)
        with opened(folder, case) as logs:
            whole = len(pa.table(logs.records("packed")))
        last = max((folder / "after" / "packed-0").glob("*.log"))
        last.write_bytes(last.read_bytes() + b"\xff" * 100)
        with opened(folder, case) as logs:
            rows, findings = _damage(logs, "packed")
            assert rows == whole
            assert [Path(each.path).name for each in findings] == [last.name]

    @pytest.mark.parametrize("case", AIVEN)
    def test_lost_indexes_cost_time_and_no_record(self, copied: Callable[[str], Path], case: str) -> None:
        folder = copied(case)
        path = _objects(folder, "transactions")[1].with_suffix(".indexes")
        for content in (path.read_bytes()[:-300], b"", None):
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            with opened(folder, case) as logs:
                committed = golden_tiered.records(case, committed=True)
                expected = [row for row in committed if row["topic"] == "transactions"]
                found = pa.table(logs.records("transactions", columns=COLUMNS, isolation="read_committed"))
                assert rows_of(found) == expected
                report = logs.log("transactions", 0).verify()
                assert not report.ok
                assert {each.kind for each in report.findings} <= {"remote-chunk", "file-missing", "file-content"}


class TestLineage:
    """Copies and segments of other leaders do not disturb the log."""

    def test_a_copy_that_was_made_twice(self, copied: Callable[[str], Path]) -> None:
        for case in ("local", "aiven"):
            folder = copied(case)
            for path in _objects(folder, "packed"):
                for each in list(path.parent.glob(f"{path.stem}.*")):
                    other = each.name[:21] + "AAAAAAAAAAAAAAAAAAAAAA" + each.suffix
                    shutil.copy(each, each.with_name(other))
            with opened(folder, case) as logs:
                assert rows_of(pa.table(logs.records(columns=COLUMNS))) == golden_tiered.records(case)
                assert logs.verify().ok

    def test_segments_of_a_leader_that_lost_its_records(self, copied: Callable[[str], Path]) -> None:
        folder = copied("local")
        # A leader of epoch 3, which is not in the broker's list, wrote a longer segment at the same place.
        for path in _objects(folder, "packed"):
            other = path.with_name(path.name[:21] + "AAAAAAAAAAAAAAAAAAAAAA.log")
            other.write_bytes(path.read_bytes() * 2)
            other.with_suffix(".leader_epoch_checkpoint").write_text("0\n2\n0 0\n3 40\n")
        with opened(folder, "local") as logs:
            assert rows_of(pa.table(logs.records(columns=COLUMNS))) == golden_tiered.records("local")

    @pytest.mark.parametrize("case", golden_tiered.CASES)
    def test_an_older_copy_of_the_disk_is_continued(self, copied: Callable[[str], Path], case: str) -> None:
        # The copy was made in the first leader epoch, in the middle of a segment.
        folder = copied(case)
        partition = folder / "before" / "packed-0"
        first, *later = sorted(partition.glob("*.log"))
        for path in later:
            path.unlink()
            for suffix in (".index", ".timeindex"):
                path.with_suffix(suffix).unlink()
        with LogDir.open(folder / "before") as logs:
            batches = pa.table(logs.log("packed", 0).segments[0].batches())
        cut = batches.column("position")[batches.num_rows // 2].as_py()
        first.write_bytes(first.read_bytes()[:cut])
        (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        ends = {(row["topic"], row["partition"]): row["lastTiered"] for row in golden_tiered.info(case)["offsets"]}
        with opened(folder, case, "before") as logs:
            rows = rows_of(pa.table(logs.records("packed", columns=COLUMNS)))
        expected = [row for row in golden_tiered.records(case) if row["topic"] == "packed"]
        assert rows == [row for row in expected if row["offset"] <= ends["packed", 0]]

    def test_a_topic_that_was_created_again(self, copied: Callable[[str], Path]) -> None:
        folder = copied("aiven")
        (old,) = (folder / "remote").glob("plain-*")
        other = old.with_name("plain-AAAAAAAAAAAAAAAAAAAAAA")
        shutil.copytree(old, other)
        for path in other.rglob("*.rsm-manifest"):
            path.write_text("{}")
        with opened(folder, "aiven") as logs:
            assert rows_of(pa.table(logs.records(columns=COLUMNS))) == golden_tiered.records("aiven")


def test_small_files_are_found_in_both_places(sides: Callable[[str], Path]) -> None:
    with opened(sides("aiven-encrypted"), "aiven-encrypted") as logs:
        (partition,) = (path for path in logs.path.iterdir() if path.name == "plain-0")
        names = {path.name for path in partition.iterdir()}
        assert "leader-epoch-checkpoint" in names
        assert sum(name.endswith(".log") for name in names) == 4
        stored = [path for path in partition.iterdir() if str(path).startswith("tiered:")]
        assert {path.suffix for path in stored} == {".log", ".index", ".timeindex", ".snapshot"}
        for path in stored:
            assert len(_core.read_file(path)) == path.stat().st_size
            assert path.is_file()
        assert not (partition / "absent").exists()
