"""A sealed index changes no answer of a search: of the golden cases, after changes, and if it is damaged."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import golden_kafka
from kafka_batches import Row, batch, write_segment
from kafka_search import find
from logdex._core import SealedLogs
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import LogDir, build_key_index, log_dir
from logdex.rocketmq import key_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = pa.schema(
    [
        pa.field("key_hash", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)


def records_of(logs: LogDir) -> list[dict[str, Any]]:
    """Return what can be read of all records."""
    columns = ["topic", "partition", "offset", "timestamp", "key", "headers"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        rows: list[dict[str, Any]] = pa.table(logs.records(columns=columns, on_error="skip")).to_pylist()
    return rows


def pairs_of(row: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(each["key"], each["value"]) for each in row["headers"] or () if each["value"] is not None]


def text_of(key: bytes) -> str:
    """Return the text of a key in an index."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


def header_of(logs: LogDir) -> str | None:
    """Return the commonest header of a log directory."""
    names = Counter(name for row in records_of(logs) for name, _ in pairs_of(row))
    return names.most_common(1)[0][0] if names else None


def questions(logs: LogDir) -> list[dict[str, Any]]:
    """Return keys and values of headers of all topics, and some that they do not have."""
    asked: list[dict[str, Any]] = []
    for topic in logs.topics:
        rows = [row for row in records_of(logs) if row["topic"] == topic]
        keys = sorted({row["key"] for row in rows if row["key"] is not None})
        keys = [*keys[:: max(1, len(keys) // 25)], b"no such key", b""]
        asked += [{"topic": topic, "key": key} for key in keys]
        pairs = sorted({pair for row in rows for pair in pairs_of(row)})[::5]
        asked += [{"topic": topic, "key": value, "header": name} for name, value in pairs]
        for number, (row, question) in enumerate(zip(rows, list(asked), strict=False)):
            time = max(0, int(row["timestamp"].timestamp() * 1000))
            asked.append({**question, ["begin", "end"][number % 2]: time, "max_num": [None, 1][number % 3 == 0]})
    return asked


def answers(logs: LogDir, asked: list[dict[str, Any]], **options: Any) -> list[Any]:
    """Return what searches find, and how they end; not how they found it."""
    found: list[Any] = []
    for question in asked:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DamageWarning)
                result = find(logs, **question, **options)
        except CorruptFileError as error:
            found.append((error.path, error.offset, error.expected, error.found))
        else:
            found.append((list(result), result.truncated, result.complete, result.findings))
    return found


def assert_same(root: Path, out: Path, *, asked: list[dict[str, Any]] | None = None) -> int:
    """Compare searches with a sealed index to those without; return the number of records that were found."""
    with LogDir.open(root, sealed="never") as plain, LogDir.open(root, sealed=out) as sealed:
        asked = asked or questions(plain)
        expected = answers(plain, asked)
        assert answers(sealed, asked) == expected
        return sum(len(each[0]) for each in expected if isinstance(each[0], list))


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_a_golden_case_answers_alike(kafka_logs: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    root = kafka_logs(case)
    with LogDir.open(root, sealed="never") as plain:
        header = header_of(plain)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            report = plain.seal(tmp_path, header=header)
        rows = records_of(plain)
    with LogDir.open(root, sealed=tmp_path) as sealed:
        assert f"{report.checked.get('entries', 0):,} entries" in str(sealed.sealed)
    is_sound = case in golden_kafka.SOUND
    assert report.ok or not is_sound, report
    if is_sound and not case.startswith("compacted"):
        values = [len({value for name, value in pairs_of(row) if name == header}) for row in rows]
        assert report.checked["entries"] == sum(row["key"] is not None for row in rows) + sum(values)
    found = assert_same(root, tmp_path)
    keyed = any(row["key"] is not None or row["headers"] for row in rows)
    assert found > 0 or not keyed or not is_sound


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_nothing_sealed_is_scanned(kafka_logs: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    with LogDir.open(kafka_logs(case), sealed="never") as plain:
        report = plain.seal(tmp_path)
    with LogDir.open(kafka_logs(case), sealed=tmp_path) as sealed:
        for topic in sealed.topics:
            assert find(sealed, topic, b"no such key").scanned_offsets == 0
        assert sealed.verify().checked["sealed_rows"] == report.checked["entries"]
        assert sealed.verify().kinds.get("sealed-row") is None


def test_rows_are_the_keys_of_the_records(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    count = 0
    for case in ("codecs", "legacy", "transactions", "timestamps"):
        out = tmp_path / case
        with LogDir.open(kafka_logs(case)) as logs:
            header = header_of(logs)
            logs.seal(out, header=header)
            records = records_of(logs)
        paths = sorted((out / "_logdex/keys").iterdir())
        rows = pa.concat_tables([pq.read_table(path) for path in paths])
        assert rows.schema.equals(COLUMNS)
        query = f"SELECT * EXCLUDE (timestamp) FROM read_parquet({[str(path) for path in paths]})"
        columns = rows.drop_columns("timestamp").to_pydict().values()
        assert duckdb.execute(query).fetchall() == list(zip(*columns, strict=True))
        assert pl.read_parquet(paths).to_dict(as_series=False) == rows.to_pydict()
        expected = []
        for row in records:
            texts = [] if row["key"] is None else [text_of(row["key"])]
            texts += {f"{name}={text_of(value)}" for name, value in pairs_of(row) if name == header}
            for text in texts:
                index_key = f"{row['topic']}#{text}"
                place = (row["topic"], row["partition"], -row["offset"])
                expected.append((key_hash(index_key), *place, row["timestamp"]))
        found = [
            (row["key_hash"], row["topic"], row["partition"], -row["offset"], row["timestamp"])
            for row in rows.to_pylist()
        ]
        assert found == sorted(expected, key=lambda row: row[:4])
        count += len(found)
    assert count > 1000


def test_the_catalog_lists_every_file(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("transactions")
    with LogDir.open(root) as logs:
        logs.seal(tmp_path)
        ends = {
            f"{segment.path.parent.name}/{segment.path.name}": (segment.base_offset, segment.next_offset())
            for each in logs.partitions()
            for segment in logs.log(each.topic, each.partition).segments
        }
    rows = {row["path"]: row for row in pq.read_table(tmp_path / "_logdex/catalog.parquet").to_pylist()}
    files = {path.relative_to(root).as_posix(): path.stat() for path in root.rglob("*") if path.is_file()}
    assert {name for name, row in rows.items() if row["kind"] != "keys"} == set(files)
    for name, status in files.items():
        assert (rows[name]["size"], rows[name]["modified"].value) == (status.st_size, status.st_mtime_ns)
    sealed = {name: row for name, row in rows.items() if row["kind"] == "segment"}
    assert {name: (row["first_offset"], row["end_offset"]) for name, row in sealed.items()} == ends
    assert len(ends) > 3


def keyed(first: int, count: int) -> bytes:
    """Return a batch of records with few keys."""
    return batch(Row(offset, offset, b"k%d" % (offset % 7), b"v" * 50) for offset in range(first, first + count))


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    """Return a log directory of two partitions with three segments each, and its sealed index."""
    root, out = tmp_path / "logs", tmp_path / "sealed"
    for partition in range(2):
        for base in (0, 100, 200):
            write_segment(root / f"orders-{partition}", base, keyed(base, 50) + keyed(base + 50, 50))
    with LogDir.open(root) as logs:
        report = logs.seal(out)
    assert report.ok
    assert report.checked["segments"] == 6
    assert report.checked["entries"] == 600
    return root, out


ASKED = [{"topic": "orders", "key": f"k{number}", "max_num": most} for number in range(8) for most in (None, 5)]


def test_a_search_reads_one_row_group(written: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root, out = written
    opened = SealedLogs.open(out / "_logdex")
    monkeypatch.setattr(log_dir, "open_sealed_logs", lambda *_: opened)
    with LogDir.open(root, sealed=out) as sealed:
        result = find(sealed, "orders", "k3")
        assert len(result) == 2 * len([offset for offset in range(300) if offset % 7 == 3])
        assert (result.scanned_offsets, result.rejected) == (0, 0)
        assert opened.reads == 1


def test_segments_that_came_later_or_changed_are_read(written: tuple[Path, Path]) -> None:
    root, out = written
    with LogDir.open(root, sealed=out) as opened:
        write_segment(root / "orders-0", 200, keyed(200, 50) + keyed(250, 50) + keyed(300, 20))
        assert [find(opened, "orders", "k3").scanned_offsets, len(find(opened, "orders", "k3"))] == [120, 89]
        assert_same(root, out, asked=ASKED)
        write_segment(root / "orders-0", 320, keyed(320, 30))
        assert_same(root, out, asked=ASKED)
        # In the middle, as a cleaner leaves it: fewer records, and the time of the file before.
        path = root / "orders-1" / f"{100:020}.log"
        status = path.stat()
        write_segment(path.parent, 100, keyed(150, 50))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert assert_same(root, out, asked=ASKED) > 500
        assert "4 segments with 400 entries" in str(opened.sealed)
        assert "3 other segments" in str(opened.sealed)
        for number in range(8):
            assert find(opened, "orders", f"k{number}").rejected == 0
    with LogDir.open(root) as logs:
        logs.seal(out)
    with LogDir.open(root, sealed=out) as sealed:
        assert "other" not in str(sealed.sealed)
        assert find(sealed, "orders", "k3").scanned_offsets == 0
    assert_same(root, out, asked=ASKED)


def test_damage_before_a_sealed_segment_is_named_as_in_a_scan(written: tuple[Path, Path]) -> None:
    root, out = written
    path = root / "orders-0" / f"{100:020}.log"
    whole = path.read_bytes()
    # Alone, an unfinished end is one that a broker was writing.
    path.write_bytes(whole[:-7])
    with LogDir.open(root, sealed="never") as plain, pytest.warns(DamageWarning):
        expected = find(plain, "orders", "k3")
    with LogDir.open(root, sealed=out) as sealed, pytest.warns(DamageWarning):
        found = find(sealed, "orders", "k3")
    assert list(found) == list(expected)
    assert found.findings == expected.findings
    assert found.unscanned == expected.unscanned == ((0, 150, 200),)
    with LogDir.open(root, sealed="never") as plain:
        report = plain.seal(out)
    assert {finding.path for finding in report.findings} == {str(path)}
    assert report.checked["segments_not_sealed"] == 1
    assert_same(root, out, asked=ASKED)


def test_an_unfinished_end_counts_while_nothing_follows(written: tuple[Path, Path]) -> None:
    root, out = written
    path = root / "orders-0" / f"{200:020}.log"
    path.write_bytes(path.read_bytes() + keyed(300, 20)[:-9])
    with LogDir.open(root) as logs:
        report = logs.seal(out)
    assert (report.ok, report.checked["segments"]) == (True, 6)
    assert_same(root, out, asked=ASKED)
    with LogDir.open(root, sealed=out) as sealed:
        assert find(sealed, "orders", "k3").scanned_offsets == 0
    write_segment(root / "orders-0", 320, keyed(320, 50))
    with LogDir.open(root, sealed=out) as sealed, pytest.warns(DamageWarning):
        assert find(sealed, "orders", "k3").unscanned == ((0, 300, 320),)
    assert_same(root, out, asked=ASKED)


def test_a_missing_segment_is_named_as_in_a_scan(written: tuple[Path, Path]) -> None:
    root, out = written
    (root / "orders-1" / f"{100:020}.log").unlink()
    assert_same(root, out, asked=ASKED)
    with LogDir.open(root, sealed=out) as sealed:
        with pytest.warns(DamageWarning):
            assert not find(sealed, "orders", "k3").complete
        again = sealed.seal(out)
    assert [finding.kind for finding in again.findings] == ["file-gap"]


def test_deleted_records_are_left_out(written: tuple[Path, Path]) -> None:
    root, out = written
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 120\n")
    found = assert_same(root, out, asked=ASKED)
    assert found > 0
    (root / "orders-1" / f"{0:020}.log").unlink()
    assert assert_same(root, out, asked=ASKED) < found


def test_a_key_index_covers_what_came_later(written: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = written
    write_segment(root / "orders-0", 300, keyed(300, 50))
    index = tmp_path / "index"
    build_key_index(root, index)
    write_segment(root / "orders-0", 350, keyed(350, 50))
    with LogDir.open(root, sealed=out) as sealed, LogDir.open(root, sealed="never") as plain:
        assert find(sealed, "orders", "k3", index=index).scanned_offsets == 50
        assert answers(sealed, ASKED, index=index) == answers(plain, ASKED)


def test_a_header_that_was_not_sealed_is_scanned(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("codecs")
    with LogDir.open(root) as logs:
        rows = records_of(logs)
        row = next(row for row in rows if pairs_of(row))
        name, value = pairs_of(row)[0]
        logs.seal(tmp_path / "without")
        logs.seal(tmp_path / "with", header=name)
        expected = list(find(logs, row["topic"], value, header=name))
    assert expected
    for out, is_scanned in (("without", True), ("with", False)):
        with LogDir.open(root, sealed=tmp_path / out) as sealed:
            found = find(sealed, row["topic"], value, header=name)
            assert list(found) == expected
            assert bool(found.scanned_offsets) == is_scanned


def test_a_damaged_sealed_index_changes_no_answer(written: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    root, out = written
    shutil.copytree(out / "_logdex", root / "_logdex")
    with LogDir.open(root, sealed="never") as plain:
        expected = answers(plain, ASKED)
    words = 0
    files = [path for path in (root / "_logdex").rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        whole = path.read_bytes()
        for content in (b"", whole[:-1], whole[:5] + b"x" + whole[6:], whole[:99] + b"x" + whole[100:], None):
            path.unlink() if content is None else path.write_bytes(content)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "logdex"), LogDir.open(root) as sealed:
                assert answers(sealed, ASKED) == expected
            words += "sealed index is not used" in caplog.text
        path.write_bytes(whole)
    assert words >= 7
    with LogDir.open(root) as sealed:
        assert find(sealed, "orders", "k3").scanned_offsets == 0


def test_the_log_directory_of_a_broker_gets_no_directory(written: tuple[Path, Path], tmp_path: Path) -> None:
    root, _ = written
    with LogDir.open(root) as logs:
        assert logs.sealed is None
        logs.seal()
    assert (root / "_logdex/catalog.parquet").exists()
    with LogDir.open(root) as sealed:
        assert "6 segments" in str(sealed.sealed)
        assert sealed.topics == {"orders": [0, 1]}
        with pickle.loads(pickle.dumps(sealed)) as again:  # noqa: S301 -- our own
            assert again.sealed == sealed.sealed
    shutil.rmtree(root / "_logdex")
    (root / "meta.properties").write_text("version=1\n")
    with LogDir.open(root) as logs:
        for out in (None, root, root / "_logdex"):
            with pytest.raises(FileExistsError, match="--out DIR"):
                logs.seal(out)
        assert sorted(path.name for path in root.iterdir()) == ["meta.properties", "orders-0", "orders-1"]
        assert logs.seal(tmp_path / "elsewhere").ok
    with pytest.raises(ValueError, match="compat"), LogDir.open(root, compat="3.9.0") as logs:
        logs.seal(tmp_path / "elsewhere")


def test_what_is_asked_for_by_its_path_must_be_there(written: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = written
    with pytest.raises(FileNotFoundError):
        LogDir.open(root, sealed=tmp_path / "nowhere")
    with pytest.raises(TypeError, match="sealed"):
        LogDir.open(root, sealed=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compat"):
        LogDir.open(root, sealed=out, compat="3.9.0")
    catalog = out / "_logdex/catalog.parquet"
    catalog.write_bytes(catalog.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="checksum"):
        LogDir.open(root, sealed=out)


def test_verify_compares_rows_with_records(written: tuple[Path, Path]) -> None:
    root, out = written
    with LogDir.open(root, sealed=out) as sealed:
        assert sealed.verify().kinds == {"file-missing": 12}
    path = root / "orders-0" / f"{100:020}.log"
    status = path.stat()
    content = path.read_bytes()
    # Another key of the same length, with the right checksum: only the rows say that it is another one.
    rows = [Row(offset, offset, b"k%d" % (offset % 7), b"v" * 50) for offset in range(100, 150)]
    rows[7] = Row(107, 107, b"z2", b"v" * 50)
    write_segment(path.parent, 100, batch(rows) + keyed(150, 50))
    assert len(path.read_bytes()) == len(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with LogDir.open(root, sealed=out) as sealed:
        report = sealed.verify()
    assert report.kinds == {"file-missing": 12, "sealed-row": 2}
    rows_wrong = [finding for finding in report.findings if finding.kind == "sealed-row"]
    assert all("orders-0" in f"{finding.expected}{finding.found}" for finding in rows_wrong)


def test_progress_counts_bytes(written: tuple[Path, Path], tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with LogDir.open(written[0]) as logs:
        logs.seal(tmp_path / "again", progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert len(calls) == 6
    assert calls[-1][0] == calls[-1][1]
