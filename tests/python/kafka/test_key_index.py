"""The key index: every record of real brokers is found by its key and by a header, with and without an index."""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from kafka_search import find
from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.kafka import LogDir, build_key_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CASES = ("codecs", "compacted", "transactions", "legacy", "timestamps")


def _by_key(case: str) -> dict[tuple[str, bytes], list[dict[str, Any]]]:
    found: dict[tuple[str, bytes], list[dict[str, Any]]] = defaultdict(list)
    for row in golden_kafka.rows(case, "records"):
        if row.get("key") is not None:
            found[row["topic"], base64.b64decode(row["key"])].append(row)
    return found


def _places(rows: list[Any]) -> set[tuple[int, int]]:
    return {(row["partition"], row["offset"]) for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_every_record_is_found_by_its_key(kafka_logs: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    root = kafka_logs(case)
    report = build_key_index(root, tmp_path / "index")
    assert report.ok
    assert report.checked["records"] >= len(golden_kafka.rows(case, "records"))
    compared = 0
    with LogDir.open(root) as logs:
        for number, ((topic, key), rows) in enumerate(_by_key(case).items()):
            if number % 7:  # a part of them: each is a search of its own
                continue
            found = find(logs, topic, key, index=tmp_path / "index")
            assert {(record.partition, record.offset) for record in found} == _places(rows), (topic, key)
            assert all(record.key == key for record in found)
            assert found.scanned_offsets <= 40  # what lies behind the last record with a key
            compared += len(found)
    assert compared >= 40


def test_answers_come_newest_first_and_within_times(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("compacted")
    build_key_index(root, tmp_path)
    (topic, key), rows = max(_by_key("compacted").items(), key=lambda item: len(item[1]))
    assert len(rows) > 2
    found = find(root, topic, key, index=tmp_path)
    by_partition = {record.partition: [r.offset for r in found if r.partition == record.partition] for record in found}
    assert all(offsets == sorted(offsets, reverse=True) for offsets in by_partition.values())
    times = sorted(row["timestamp"] for row in rows)
    begin, end = times[1], times[-2]
    within = find(root, topic, key, index=tmp_path, begin=begin, end=end)
    assert {(r.partition, r.offset) for r in within} == _places([r for r in rows if begin <= r["timestamp"] <= end])
    capped = find(root, topic, key, index=tmp_path, max_num=1)
    assert (list(capped), capped.truncated) == (list(found[:1]), True)
    assert list(find(root, topic, key)) == list(found)  # no index: everything is read


def test_absent_keys_and_topics(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("codecs")
    build_key_index(root, tmp_path, topics="cod-none")
    assert len(find(root, "cod-none", "no such key", index=tmp_path)) == 0
    with pytest.raises(FileNotFoundError):
        find(root, "no-such-topic", "key", index=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cod-none-0", "cod-none-1"]


def test_headers_are_found(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("codecs")
    by_header: dict[tuple[str, str, bytes], set[tuple[int, int]]] = defaultdict(set)
    for row in golden_kafka.rows("codecs", "records"):
        for name, value in row["headers"]:
            if name == "a" and value is not None:
                by_header[row["topic"], name, base64.b64decode(value)].add((row["partition"], row["offset"]))
    assert len(by_header) >= 3
    build_key_index(root, tmp_path, header="a")
    for (topic, name, value), places in by_header.items():
        found = find(root, topic, value, index=tmp_path, header=name)
        assert {(record.partition, record.offset) for record in found} == places
    (topic, key), rows = next(iter(_by_key("codecs").items()))
    assert {(r.partition, r.offset) for r in find(root, topic, key, index=tmp_path)} == _places(rows)


def test_a_header_that_is_not_indexed_is_read_for(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_logs("codecs")
    build_key_index(root, tmp_path, topics="cod-none")
    row = next(
        row
        for row in golden_kafka.rows("codecs", "records")
        if row["topic"] == "cod-none" and any(value for _, value in row["headers"])
    )
    name, value = next((name, base64.b64decode(value)) for name, value in row["headers"] if value)
    found = find(root, "cod-none", value, index=tmp_path, header=name)
    assert (row["partition"], row["offset"]) in {(record.partition, record.offset) for record in found}
    assert found.scanned_offsets >= 100
    with pytest.raises(ValueError, match="built with header=None"):
        build_key_index(root, tmp_path, topics="cod-none", header=name)


def test_settings_that_cannot_be_true_are_refused(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    build_key_index(kafka_logs("codecs"), tmp_path, topics="cod-none")
    path = tmp_path / "cod-none-0" / "_key_index.json"
    for text in ("", "[]", "{}", '{"hash_slots": 0, "max_entries": 9, "header": null}', path.read_text() + "}"):
        path.write_text(text)
        with pytest.raises(CorruptFileError) as caught:
            find(kafka_logs("codecs"), "cod-none", "key", index=tmp_path)
        assert caught.value.path == str(path)


def test_an_index_file_that_is_not_whole_is_refused(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    """What it lost would only be missing in an answer: the files behind it say that all is covered."""
    root = kafka_logs("codecs")
    build_key_index(root, tmp_path, topics="cod-none", max_entries=20)
    files = sorted(file for file in (tmp_path / "cod-none-0").iterdir() if file.name.isdecimal())
    assert len(files) >= 3
    content = files[1].read_bytes()
    for size in (0, 50, len(content) - 1):
        files[1].write_bytes(content[:size])
        calls: list[Callable[[], object]] = [
            lambda: find(root, "cod-none", "key", index=tmp_path),
            lambda: build_key_index(root, tmp_path, topics="cod-none"),
        ]
        for call in calls:
            with pytest.raises(CorruptFileError) as caught:
                call()
            assert (caught.value.path, caught.value.offset) == (str(files[1]), size)
            assert caught.value.found == f"{size} bytes"


def test_an_index_goes_on_where_it_ended(kafka_copy: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_copy("codecs")
    folder = root / "cod-none-0"
    last = max(folder.glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(b"")
    first = build_key_index(root, tmp_path / "index", topics="cod-none")
    last.write_bytes(content)
    expected = [row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none"]
    newest = [row for row in expected if row["partition"] == 0 and row["offset"] >= int(last.stem) and row.get("key")]
    key = base64.b64decode(newest[-1]["key"])
    found = find(root, "cod-none", key, index=tmp_path / "index")
    assert newest[-1]["offset"] in {record.offset for record in found}
    assert found.scanned_offsets > 0
    second = build_key_index(root, tmp_path / "index", topics="cod-none")
    keyed = sum(row["keyLength"] >= 0 for row in expected)
    assert first.checked["entries"] + second.checked["entries"] == keyed
    third = build_key_index(root, tmp_path / "index", topics="cod-none")
    assert third.checked["entries"] == 0
    assert newest[-1]["offset"] in {r.offset for r in find(root, "cod-none", key, index=tmp_path / "index")}


def test_deleted_segments_need_no_new_index(kafka_copy: Callable[[str], Path], tmp_path: Path) -> None:
    root = kafka_copy("codecs")
    build_key_index(root, tmp_path / "index", topics="cod-none")
    rows = [row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none" and row.get("key")]
    first = sorted((root / "cod-none-0").glob("*.log"))[:2]
    gone = [row for row in rows if row["partition"] == 0 and row["offset"] < int(first[1].stem)]
    for path in (root / "cod-none-0").glob(f"{first[0].stem}.*"):
        path.unlink()
    assert gone
    for row in gone:
        key = base64.b64decode(row["key"])
        found = {(r.partition, r.offset) for r in find(root, "cod-none", key, index=tmp_path / "index")}
        left = _places([other for other in rows if other["key"] == row["key"] and other not in gone])
        assert found == left


def test_keys_that_share_a_hash_are_told_apart(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    """A candidate of the index that is another key's is rejected, and counted."""
    root = kafka_logs("codecs")
    build_key_index(root, tmp_path, topics="cod-none")
    rows = [row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none"]
    row = next(row for row in rows if row.get("key") and row["partition"] == 0)
    with IndexDirectory.open(tmp_path / "cod-none-0", mode="a") as index:
        entry = {"topic": ["cod-none"], "key": ["imposter"], "phy_offset": [row["offset"]], "store_timestamp": [0]}
        index.put_batch(entry)
    found = find(root, "cod-none", "imposter", index=tmp_path)
    assert (len(found), found.rejected) == (0, 1)


def test_damaged_batches_are_named_by_the_build(kafka_logs: Callable[[str], Path], tmp_path: Path) -> None:
    report = build_key_index(kafka_logs("damaged-crc"), tmp_path)
    assert [finding.kind for finding in report.findings] == ["batch-crc"]
    assert report.checked["entries"] > 20
