"""`kafka.recover`: damaged log directories become whole, no valid record is lost, and what cannot be repaired is named."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import golden_kafka
import kafka_damage
from logdex import LockedError
from logdex.kafka import LogDir, LogDirWriter, checkpoint, recover
from logdex.kafka.files import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex.kafka import LogDirRecovery

RANDOM_DAMAGES = int(os.environ.get("LOGDEX_RANDOM_DAMAGES", "60"))
"""The number of random damages; 2,000 take some minutes."""
CODECS = ("none", "gzip", "lz4", "zstd")
Row = tuple[Any, ...]


def rows(log_dir: Path, isolation: str = "read_uncommitted") -> list[Row]:
    """Return all records: topic, partition, offset, and the rest as text."""
    with LogDir.open(log_dir) as logs:
        columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        table = pa.table(logs.records(columns=columns, isolation=isolation))  # type: ignore[arg-type]
    return [(*tuple(row.values())[:3], repr(tuple(row.values())[3:])) for row in table.to_pylist()]


def contents(log_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}


def is_valid(log_dir: Path) -> bool:
    with LogDir.open(log_dir) as logs:
        report = logs.verify()
    assert report.ok, report
    return True


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed log directory: two topics, plain and compressed batches, several segments and leader epochs."""
    root = tmp_path_factory.mktemp("healthy") / "logs"
    config = {"segment.bytes": 4_000, "index.interval.bytes": 300}
    with LogDirWriter.open(root, config=config, clock=lambda: 1_700_000_000_000) as writer:
        writer.create_topic("orders", 3)
        writer.create_topic("audit.log", 1)
        for number in range(240):
            if number % 60 == 50 + number // 60:
                writer.log("orders", number % 3).become_leader(number // 60 + 1)
            records = {
                "key": [b"key %d" % (number + at) for at in range(4)],
                "value": [b"value %d " % number * (number % 7) for _ in range(4)],
                "timestamp": [1_700_000_000_000 + 1000 * number + at for at in range(4)],
            }
            writer.append("orders", number % 3, records, codec=CODECS[number % 4])
        writer.append("audit.log", 0, {"value": [b"one", b"two"]})
        writer.log("orders", 1).delete_records(40)
    return root


@pytest.fixture
def log_dir(healthy: Path, tmp_path: Path) -> Path:
    return shutil.copytree(healthy, tmp_path / "logs")


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_golden_cases_become_valid(case: str, kafka_copy: Callable[[str], Path]) -> None:
    root = kafka_copy(case)
    name = "records-before" if golden_kafka.has_rows(case, "records-before") else "records"
    known = {(row["topic"], row["partition"], row["offset"]) for row in golden_kafka.rows(case, name)}
    known = {place for place in known if place[0] != "__transaction_state"}
    before = contents(root)
    planned = recover(root, dry_run=True)
    assert contents(root) == before
    report = recover(root)
    assert (report.findings, report.checked, report.left) == (planned.findings, planned.checked, planned.left)
    assert is_valid(root)
    found = {row[:3] for row in rows(root) if row[0] != "__transaction_state"}
    lost = {"damaged-codec": 2, "damaged-crc": 2, "damaged-cut": 3, "damaged-cutmid": 20}
    assert found <= known
    assert len(known - found) == lost.get(case, 0)
    assert (case in golden_kafka.DAMAGED) <= bool(report.findings)
    # Messages of these releases had no topic ids.
    assert bool(report.left) == (case == "legacy")
    assert (root / checkpoint.CLEAN_SHUTDOWN).exists()
    done = contents(root)
    assert recover(root).findings == report.left
    assert contents(root) == done


def test_a_directory_without_damage_stays_as_it_is(log_dir: Path) -> None:
    before = contents(log_dir)
    for dry_run in (True, False):
        report = recover(log_dir, dry_run=dry_run)
        assert report.ok
        assert report.checked["records"] == 962
    # The lock was taken.
    assert contents(log_dir).keys() == before.keys()
    assert {name for name, content in contents(log_dir).items() if content != before[name]} <= {".lock"}


def first_segments(log_dir: Path, partition: str = "orders-0") -> list[Path]:
    return sorted((log_dir / partition).glob("*.log"))


def batches(path: Path) -> list[tuple[int, int]]:
    """Return the bytes of each batch of a segment."""
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


def damage(path: Path, at: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)


def test_a_damaged_batch_is_left_out_and_its_bytes_are_kept(log_dir: Path) -> None:
    path = first_segments(log_dir)[1]
    begin, end = batches(path)[2]
    before, at = rows(log_dir), path.stat().st_mtime_ns
    damage(path, begin + 70, b"\xff\xff\xff")
    damaged = path.read_bytes()
    report = recover(log_dir)
    (finding,) = (each for each in report.findings if each.path == str(path))
    assert (finding.offset, finding.kind) == (begin, "batch-crc")
    assert report.checked["left_out_bytes"] == end - begin
    assert not report.left
    kept = path.with_name(f"{path.name}.damaged")
    assert kept.read_bytes() == damaged
    assert path.read_bytes() == damaged[:begin] + damaged[end:]
    assert path.stat().st_mtime_ns != at or path.stat().st_ino != kept.stat().st_ino
    after = rows(log_dir)
    assert set(after) < set(before)
    assert len(after) == len(before) - 4
    assert is_valid(log_dir)
    # The file of the first recovery stays if another one replaces the segment.
    damage(path, 70, b"\xff\xff\xff")
    recover(log_dir)
    assert kept.read_bytes() == damaged
    assert path.with_name(f"{path.name}.damaged.2").exists()
    assert is_valid(log_dir)


def test_the_end_of_a_segment_that_is_left_out_is_no_missing_segment(log_dir: Path) -> None:
    first, second, *_ = first_segments(log_dir)
    before = len(rows(log_dir))
    for begin, end in batches(first)[-2:]:
        damage(first, begin, bytes(end - begin))
    recover(log_dir)
    assert is_valid(log_dir)
    # The last batch has no record, and ends before the next segment.
    empty = first.read_bytes()[-61:]
    assert empty[57:61] == bytes(4)
    last_offset = int.from_bytes(empty[:8], "big") + int.from_bytes(empty[23:27], "big")
    assert last_offset + 1 == int(second.stem)
    assert len(rows(log_dir)) == before - 8


def test_offsets_of_a_segment_that_is_gone_are_reported_and_ended(log_dir: Path) -> None:
    first, second, third, *_ = first_segments(log_dir)
    before = rows(log_dir)
    second.unlink()
    # The end of another one is gone, without a trace in the log.
    path = first_segments(log_dir, "orders-2")[0]
    begin, _ = batches(path)[-1]
    path.write_bytes(path.read_bytes()[:begin])
    report = recover(log_dir)
    gone = [each for each in report.findings if each.kind == "file-gap"]
    assert not report.left
    assert [each.expected for each in gone] == [
        f"a segment with the offsets {int(second.stem)} to {int(third.stem) - 1}",
        (
            f"a segment with the offsets {int(first_segments(log_dir, 'orders-2')[1].stem) - 4} to "
            f"{int(first_segments(log_dir, 'orders-2')[1].stem) - 1}"
        ),
    ]
    assert is_valid(log_dir)
    lost = range(int(second.stem), int(third.stem))
    assert rows(log_dir) == [
        row
        for row in before
        if not (row[:2] == ("orders", 0) and row[2] in lost)
        and not (row[:2] == ("orders", 2) and 0 < int(first_segments(log_dir, "orders-2")[1].stem) - row[2] <= 4)
    ]
    assert first.exists()


def test_truncate_cuts_as_a_broker_and_says_what(log_dir: Path) -> None:
    paths = first_segments(log_dir)
    begin, end = batches(paths[1])[2]
    damage(paths[1], begin + 70, b"\xff\xff\xff")
    planned = recover(log_dir, truncate=True, dry_run=True)
    report = recover(log_dir, truncate=True)
    assert report.findings == planned.findings
    found = {(each.path, each.offset): each for each in report.findings}
    assert found[str(paths[1]), begin].found.endswith("bytes, which are removed") or end
    assert all(found[str(path), 0].found.endswith("bytes, which are removed") for path in paths[2:])
    assert report.checked["truncated_batches"] > len(paths) - 2
    assert first_segments(log_dir) == paths[:2]
    assert paths[1].stat().st_size == begin
    assert is_valid(log_dir)
    assert checkpoint.read_offsets(log_dir, checkpoint.RECOVERY_POINT)[TopicPartition("orders", 0)] < 320


UNCOVERED = {"base offset": (0, 8), "size": (8, 12), "leader epoch": (12, 16), "magic": (16, 17)}


@pytest.mark.parametrize("field", UNCOVERED)
def test_fields_that_no_checksum_covers_are_restored(field: str, healthy: Path, tmp_path: Path) -> None:
    begin, end = UNCOVERED[field]
    before = rows(healthy)
    rng = random.Random(field)
    tried = 0
    for number, path in enumerate(first_segments(healthy)):
        for place, _ in batches(path)[:: 1 if number == 0 else 4]:
            copied = shutil.copytree(healthy, tmp_path / "copy")
            copy = copied / "orders-0" / path.name
            at = place + rng.randrange(begin, end)
            damage(copy, at, bytes([copy.read_bytes()[at] ^ (1 << rng.randrange(8))]))
            report = recover(copied)
            assert report.checked["restored_batches"] == 1, (path, at, report)
            assert report.checked["left_out_bytes"] == 0
            assert rows(copied) == before, (path, at)
            assert is_valid(copied)
            assert copy.read_bytes() == path.read_bytes()
            tried += 1
            shutil.rmtree(copied)
    assert tried > 10


TEXTS = (*checkpoint.LOG_DIR_FILES[:3], "orders-1/leader-epoch-checkpoint", "orders-1/partition.metadata")


@pytest.mark.parametrize("how", ["zeros", "cut", "empty", "garbage"])
@pytest.mark.parametrize("name", TEXTS)
def test_text_files_that_stop_a_broker_are_written_anew(name: str, how: str, log_dir: Path) -> None:
    before, records = contents(log_dir), rows(log_dir)
    content = before[name]
    new = {"zeros": bytes(len(content)), "cut": content[:-4], "empty": b"", "garbage": b"0\n1\nx y z q\n"}[how]
    (log_dir / name).write_bytes(new)
    planned = recover(log_dir, dry_run=True)
    assert (log_dir / name).read_bytes() == new
    report = recover(log_dir)
    assert report.findings == planned.findings
    assert not report.left
    is_harmless = how == "empty" and not name.endswith("metadata")
    assert bool(report.findings) != is_harmless, report
    assert {each.path for each in report.findings} <= {str(log_dir / name)}
    assert is_valid(log_dir)
    if name.endswith("epoch-checkpoint") and not is_harmless:
        # Epochs before the start of the log are not recorded.
        assert (log_dir / name).read_bytes().splitlines()[2:] == [b"0 40", *content.splitlines()[3:]]
    elif name.endswith("metadata"):
        assert (log_dir / name).read_bytes() == content
    assert [row for row in rows(log_dir) if row in set(records)] == records
    if name == checkpoint.RECOVERY_POINT and not is_harmless:
        lines = checkpoint.read_offsets(log_dir, name)
        assert lines.items() <= checkpoint.read_offsets(log_dir, checkpoint.HIGH_WATERMARK).items()


def test_a_topic_id_that_no_partition_has_is_left_to_the_user(log_dir: Path) -> None:
    path = log_dir / "audit.log-0" / "partition.metadata"
    path.write_bytes(bytes(43))
    report = recover(log_dir)
    (left,) = report.left
    assert (left.path, left.kind) == (str(path), "file-content")
    assert "kafka-topics.sh" in left.expected
    # With zeros in it a broker does not start; without it the partition is set aside.
    assert not path.exists()
    assert is_valid(log_dir)


@pytest.mark.parametrize("release", ["3.9.2", "4.3.1"])
def test_a_topic_id_comes_from_the_metadata_of_the_cluster(release: str, tmp_path: Path) -> None:
    root = golden_kafka.unpack_archive(
        golden_kafka.ROOT.parent / "kafka-restore" / f"dead-{release}.tar.xz", tmp_path / "logs"
    )
    path = root / "audit.log-0" / "partition.metadata"
    content = path.read_bytes()
    for lose in (lambda: path.write_bytes(bytes(43)), path.unlink):
        lose()
        report = recover(root)
        assert [each.path for each in report.findings if each.path.endswith("partition.metadata")] == [str(path)]
        # The archive lacks the indexes of the metadata.
        assert all("__cluster_metadata-0" in each.path for each in report.left)
        assert path.read_bytes() == content


def test_names_that_stop_a_broker_are_named(log_dir: Path) -> None:
    for name in ("lost+found", "backup"):
        (log_dir / name).mkdir()
    (log_dir / "remote-log-index-cache").mkdir()
    (log_dir / "orders-2" / "notes.log").write_bytes(b"")
    (log_dir / "meta.properties").write_bytes(bytes(80))
    before = contents(log_dir)
    for dry_run in (True, False):
        report = recover(log_dir, dry_run=dry_run)
        assert [each.path for each in report.left] == [
            str(log_dir / name) for name in ("backup", "lost+found", "meta.properties", "orders-2/notes.log")
        ]
        assert report.findings == sorted(report.left, key=lambda each: each.path)
        assert "move it out" in report.left[0].expected
    del before[".lock"]
    assert before.items() <= contents(log_dir).items()


def test_a_start_after_the_end_of_the_log_is_dropped(log_dir: Path) -> None:
    path = log_dir / checkpoint.LOG_START
    path.write_text("0\n2\norders 1 40\norders 2 99999\n")
    before = [row for row in rows(log_dir) if row[:2] != ("orders", 2)]
    (finding,) = recover(log_dir).findings
    assert (finding.path, finding.found) == (str(path), "99999")
    after = rows(log_dir)
    assert [row for row in after if row[:2] != ("orders", 2)] == before
    assert len(after) > len(before) + 300


def test_an_unclean_stop_is_recovered_and_a_torn_end_is_cut(log_dir: Path) -> None:
    (log_dir / checkpoint.CLEAN_SHUTDOWN).unlink()
    before = rows(log_dir)
    path = first_segments(log_dir)[-1]
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(path.read_bytes()[:50])
    report = recover(log_dir)
    assert ("torn-batch", size) in {(each.kind, each.offset) for each in report.findings}
    assert report.checked["unfinished_bytes"] == 50
    assert path.stat().st_size == size
    assert not list(log_dir.rglob("*.damaged"))
    assert rows(log_dir) == before
    assert is_valid(log_dir)


def test_a_running_broker_keeps_its_directory(log_dir: Path) -> None:
    code = (
        "import sys; from logdex.kafka import LogDirWriter; w = LogDirWriter.open(sys.argv[1]);"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        for dry_run in (True, False):
            with pytest.raises(LockedError) as locked:
                recover(log_dir, dry_run=dry_run)
            assert locked.value.pid == writer.pid
        writer.kill()


def test_another_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="log directory"):
            recover(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


_KILLED = """
import os, sys
from logdex.kafka import recover as module, recover
import importlib
module = importlib.import_module("logdex.kafka.recover")
left = int(sys.argv[2])
def count(function):
    def counted(*args, **options):
        global left
        if options.get("dry_run"):
            return function(*args, **options)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        result = function(*args, **options)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return result
    return counted
for name in ("repair_log", "replace_file", "_reset", "sync_directory"):
    setattr(module, name, count(getattr(module, name)))
opened = module.LogWriter.open
class Writer:
    open = staticmethod(count(opened))
module.LogWriter = Writer
module.recover(sys.argv[1])
"""


def test_a_repair_that_is_killed_is_finished_by_the_next_one(healthy: Path, tmp_path: Path) -> None:
    def damaged(name: str) -> Path:
        root = shutil.copytree(healthy, tmp_path / name)
        for number in range(3):
            path = first_segments(root, f"orders-{number}")[number]
            begin, _ = batches(path)[1]
            damage(path, begin + 64, b"\xff\xff\xff")
        (root / "orders-0" / "leader-epoch-checkpoint").write_bytes(bytes(20))
        (root / checkpoint.HIGH_WATERMARK).write_bytes(bytes(20))
        return root

    whole = damaged("whole")
    recover(whole)
    expected = rows(whole)
    killed = 0
    for steps in range(0, 60, 3):
        root = damaged(f"killed-{steps}")
        ran = subprocess.run([sys.executable, "-c", _KILLED, str(root), str(steps)], check=False, capture_output=True)
        assert ran.returncode in (0, -9), ran.stderr
        killed += ran.returncode == -9
        assert not recover(root).left
        assert is_valid(root)
        assert rows(root) == expected
        names = {path.name for path in root.rglob("*")}
        assert not any(name.endswith(".cleaned") for name in names)
        shutil.rmtree(root)
    assert killed > 8


class Source(NamedTuple):
    """A healthy log directory, and its records."""

    path: Path
    records: list[Row]
    committed: list[Row]


def _check_recovered(source: Source, root: Path, rng: random.Random) -> tuple[list[str], LogDirRecovery]:
    """Damage a copy of a directory, repair it and compare."""
    shutil.copytree(source.path, root)
    if rng.randrange(2):
        (root / checkpoint.CLEAN_SHUTDOWN).unlink(missing_ok=True)
    lost, kinds = kafka_damage.damage_directory(rng, root, source.path)
    starts = contents(root).get(checkpoint.LOG_START) == contents(source.path).get(checkpoint.LOG_START)
    planned = recover(root, dry_run=True)
    report = recover(root)
    assert planned.findings == report.findings
    assert all(each.path.endswith("partition.metadata") for each in report.left)
    found = rows(root)
    by_place = {row[:3]: row for row in found}
    # No valid record is gone or has another offset.
    assert [row for row in source.records if row[:3] not in lost and by_place.get(row[:3]) != row] == []
    # Records before a start of the log that was lost are back; nothing else is new, except at the offset of a damaged batch.
    if starts:
        assert {row[3] for row in found} <= {row[3] for row in source.records}
        assert lost or {row[:3] for row in found} <= {row[:3] for row in source.records}
        assert "log" in kinds or rows(root, "read_committed") == source.committed
    assert is_valid(root)
    assert [each.path for each in recover(root).findings] == [each.path for each in report.left]
    return kinds, report


def test_random_damages_lose_no_valid_record(healthy: Path, kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    paths = [healthy, *(kafka_logs(case) for case in ("codecs", "compacted", "transactions-4x", "timestamps"))]
    sources = [Source(path, rows(path), rows(path, "read_committed")) for path in paths]
    outcomes = {"log": 0, "index": 0, "text": 0, "restored": 0, "left out": 0}
    for seed in range(RANDOM_DAMAGES):
        rng = random.Random(seed)
        try:
            kinds, report = _check_recovered(rng.choice(sources), tmp_path / "logs", rng)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        for kind in kinds:
            outcomes[kind] += 1
        outcomes["restored"] += report.checked["restored_batches"]
        outcomes["left out"] += report.checked["left_out_bytes"] > 0
        shutil.rmtree(tmp_path / "logs")
    assert min(outcomes.values()) > RANDOM_DAMAGES // 30, outcomes
