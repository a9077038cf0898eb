"""`logdex export`: the extension is the format, and `cat --json` prints the same rows."""

from __future__ import annotations

import base64
import csv
import json
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import golden
import golden_kafka
from logdex.cli.commands import export
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# A body may be longer than Python's limit for a field.
csv.field_size_limit(1 << 30)


def plain(value: Any) -> Any:
    """Return a value of Python as JSON has it: times in ms, maps as objects."""
    if isinstance(value, list):
        return dict(value)
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def expected_rows(root: Path) -> list[dict[str, Any]]:
    with MessageStore.open(root) as opened:
        table = pa.table(opened.messages())
    rows = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    for row in rows:
        body = row["body"]
        try:
            row["body"] = None if body is None else body.decode()
        except UnicodeDecodeError:
            row |= {"body": None, "body_base64": base64.b64encode(body).decode()}
    return rows


@pytest.mark.parametrize("case", ["basic", "v5-basic"])
def test_json_lines_of_messages(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store(case)
    expected = expected_rows(root)
    text = ""
    for name in ("out.json", "out.jsonl", "OUT.JSON"):
        ran = logdex_command("export", root, tmp_path / name)
        assert (ran.code, ran.err) == (0, "")
        text = (tmp_path / name).read_text(encoding="ascii")
        assert [json.loads(line) for line in text.splitlines()] == expected
    printed = logdex_command("export", root, "-")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == text == logdex_command("cat", root, "--json", "--body").out
    heads = logdex_command("export", root, "-", "--no-body", "--limit", 3)
    assert heads.out == logdex_command("cat", root, "--json", "--limit", 3).out
    assert [row["phy_offset"] for row in heads.rows] == [row["phy_offset"] for row in expected[:3]]
    assert not any({"body", "body_base64", "body_error"} & set(row) for row in heads.rows)


@pytest.mark.parametrize("case", ["basic", "v5-basic"])
def test_csv_of_messages(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root, file = store(case), tmp_path / "out.csv"
    assert logdex_command("export", root, file).code == 0
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    expected = expected_rows(root)
    assert len(rows) == len(expected) > 100
    for row, message in zip(rows, expected, strict=True):
        for name, value in message.items():
            if name == "properties":
                assert json.loads(row[name]) == value
            elif not name.endswith("timestamp"):
                assert row[name] == ("" if value is None else str(value))
    with MessageStore.open(root) as opened:
        table = pa.table(opened.messages())
    # Another reader of CSV takes the times as times, and tells null from an empty text.
    newlines = pyarrow.csv.ParseOptions(newlines_in_values=True)
    nulls = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    read = pyarrow.csv.read_csv(file, parse_options=newlines, convert_options=nulls)
    assert read["store_timestamp"].cast(pa.timestamp("ms", "UTC")).equals(table["store_timestamp"])
    for name in ("tags", "keys"):
        assert read[name].cast("string").to_pylist() == table[name].to_pylist()


def test_records_of_kafka(logdex_command: Callable[..., Any], tmp_path: Path) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    assert logdex_command("export", logs, tmp_path / "out.parquet").code == 0
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    rows = logdex_command("export", logs, "-").rows
    assert len(rows) == len(table) > 100

    def content(row: dict[str, Any], name: str) -> bytes | None:
        encoded = row.get(f"{name}_base64")
        return base64.b64decode(encoded) if encoded else None if row[name] is None else row[name].encode()

    for row, record in zip(rows, table, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (
            record["topic"],
            record["partition"],
            record["offset"],
        )
        assert (content(row, "key"), content(row, "value")) == (record["key"], record["value"])
        assert row["timestamp"] == plain(record["timestamp"])
        headers = [(each["key"], content(each, "value")) for each in row["headers"]]
        assert headers == [(each["key"], each["value"]) for each in record["headers"] or ()]
    assert logdex_command("export", logs, tmp_path / "out.csv").code == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as opened:
        assert [row["key"] for row in csv.DictReader(opened)] == [row["key"] or "" for row in rows]


def test_an_export_that_was_killed_leaves_nothing_and_stops_no_other(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root, target = store("sync"), tmp_path / "out" / "x.json"
    target.parent.mkdir()
    code = (
        "import os, signal; from logdex.cli import main; from logdex.cli.commands import export\n"
        "export.json_lines = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"main(['export', {str(root)!r}, {str(target)!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    if sys.platform == "linux":
        assert list(target.parent.iterdir()) == []
    assert logdex_command("export", root, target).code == 0
    assert len(target.read_bytes().splitlines()) == len(golden.rows("sync", "messages"))


def test_an_export_replaces_no_file_that_came_meanwhile(
    store: Callable[[str], Path],
    logdex_command: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, target = store("sync"), tmp_path / "out" / "x.json"
    target.parent.mkdir()
    monkeypatch.setattr(export, "json_lines", lambda *_: target.write_bytes(b"theirs"))
    assert logdex_command("export", root, target).code == 2
    assert [(path.name, path.read_bytes()) for path in target.parent.iterdir()] == [("x.json", b"theirs")]


@pytest.mark.parametrize("name", ["x.xml", "x", "x.parquet.gz", "json", ".json"])
def test_another_extension_is_wrong(
    name: str, store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    root = store("sync")
    ran = logdex_command("export", root, tmp_path / name)
    assert (ran.code, ran.out) == (2, "")
    assert "expected .parquet, .json, .jsonl, .csv, or - for standard output, found" in ran.err
    assert [path for path in sorted(tmp_path.iterdir()) if path.name == name or path.suffix == ".part"] == []
    assert before == []


def test_compression_is_of_parquet(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("sync")
    ran = logdex_command("export", root, tmp_path / "x.csv", "--compression", "zstd")
    assert ran.code == 2
    assert "expected a .parquet file" in ran.err
    assert logdex_command("export", root, tmp_path / "x.parquet", "--compression", "zstd").code == 0
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_row_group_has_many_batches(logdex_command: Callable[..., Any], tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        for _ in range(8):
            writer.put_messages({"topic": ["Orders"] * 10_000, "body": [bytes(1_000)] * 10_000})
    assert logdex_command("export", tmp_path / "store", tmp_path / "x.parquet").code == 0
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    first, second = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    assert first > 40_000
    assert first + second == 80_000


def test_no_rows_are_1_and_a_file_of_none(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = store("sync")
    for name, content in (("x.json", ""), ("x.csv", None)):
        ran = logdex_command("export", root, tmp_path / name, "--topic", "nobody")
        assert ran.code == 1
        assert "no topic 'nobody' here" in ran.err
        text = (tmp_path / name).read_text(encoding="ascii")
        assert text == content if content is not None else text.startswith("topic,queue_id,") and text.count("\n") == 1
    assert logdex_command("export", root, "-", "--topic", "nobody").code == 1
