"""`logdex grep`, and `--grep` of `cat` and `export`: which rows, what is printed, and the exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
import zlib
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

import golden_kafka
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store of a few messages, one of them compressed and one with control characters."""
    root = tmp_path / "store"
    with StoreWriter.open(root, services=False) as writer:
        writer.put_message("Orders", b"order-1 paid order-2", keys="k1", tags="A", store_timestamp=1_700_000_000_000)
        writer.put_message("Orders", zlib.compress(b"order-30 failed"), keys="order-9", sys_flag=1)
        writer.put_message("Other", b"\x1b[2Jnothing\xff here\nORDER-4", properties={"trace": "x1"})
    return root


def test_lines_have_the_matches_with_their_surroundings(root: Path, logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("grep", "order-[0-9]+", root)
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert lines[0].startswith("2023-11-14T22:13:20.000Z  Orders/0@0  phy 0  tags=A  keys=k1")
    assert lines[1:3] == ["    body@0: order-1 paid order-2", "    body@13: order-1 paid order-2"]
    assert lines[4:] == ["    body@0: order-30 failed"]
    escaped = logdex_command("grep", "-i", "order-4", root).out.splitlines()[1]
    assert escaped == r"    body@18: \x1b[2Jnothing\xff here\nORDER-4"
    whole = logdex_command("grep", "--body", "failed", root).out.splitlines()
    assert whole[1:] == ["    body: order-30 failed"]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["order-[0-9]"], 2),
        (["-F", "order-[0-9]"], 0),
        (["-i", "order-[0-9]"], 3),
        (["-w", "order-3"], 0),
        (["-w", "order-30"], 1),
        (["-v", "order-[0-9]"], 1),
        (["order", "--in", "keys"], 1),
        (["order|trace=x1", "--in", "keys,properties"], 2),
        (["k1|4", "--in", "body,keys"], 2),
        (["order", "--topic", "Other"], 0),
        (["order", "--tag", "A"], 1),
        (["order", "--key", "order-9"], 1),
        (["order", "-m", "1"], 1),
        (["order", "-m", "0"], 0),
    ],
)
def test_options_and_counts(root: Path, logdex_command: Callable[..., Any], words: list[str], count: int) -> None:
    counted = logdex_command("grep", *words, root, "-c")
    assert (counted.out, counted.code, counted.err) == (f"{count}\n", 0 if count else 1, "")
    rows = logdex_command("grep", *words, root, "--json")
    assert len(rows.rows) == count
    assert rows.code == counted.code
    assert bool(rows.err) == (count == 0 and "-m" not in words)


def test_json_has_all_positions(root: Path, logdex_command: Callable[..., Any]) -> None:
    pattern = "order-[0-9]+|x1"
    rows = logdex_command("grep", pattern, root, "--in", "body,properties,keys", "--json", "--body").rows
    matches = 0
    for row in rows:
        for each in row["matches"]:
            name = each.get("name")
            content = row[each["field"]] if name is None else f"{name}={row['properties'][name]}"
            if content is None:
                continue
            assert re.fullmatch(pattern, content.encode()[each["begin"] : each["end"]].decode())
            matches += 1
    assert matches == 6
    assert [[each["field"] for each in row["matches"]] for row in rows] == [
        ["body", "body"],
        ["properties", "keys", "body"],
        ["properties"],
    ]
    heads = logdex_command("grep", pattern, root, "--json").rows
    assert "body" not in heads[0]
    assert heads[0]["matches"] == [each for each in rows[0]["matches"] if each["field"] == "body"]


def test_several_paths_and_only_matches(root: Path, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "kafka")
    assert logdex_command("grep", "-o", "order-[0-9]+", root).out == "order-1\norder-2\norder-30\n"
    ran = logdex_command("grep", "order-3", root, logs, "-c")
    assert (ran.out, ran.code) == (f"{root}: 1\n{logs}: 0\n", 0)
    counts = logdex_command("grep", "order-3", root, logs, "-c", "--json").rows
    assert counts == [{"path": str(root), "messages": 1}, {"path": str(logs), "messages": 0}]
    lines = logdex_command("grep", "-o", "-F", "order", root, root, "-m", "1").out.splitlines()
    assert lines == [f"{root}: order"] * 4
    found = logdex_command("grep", "key", logs, root, "--in", "key", "--json").rows
    assert {row["path"] for row in found} == {str(logs)}
    assert all("key" in row["key"] for row in found if row["key"] is not None)
    assert len(found) > 10
    # A path that cannot be opened is refused before another one is searched.
    ran = logdex_command("grep", "order", root, tmp_path / "missing")
    assert (ran.out, ran.code) == ("", 2)


def test_refusals(root: Path, logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("grep", "a(", root)
    assert (ran.code, ran.out) == (2, "")
    assert 'matches="a(": expected a regular expression, found at position 1: unclosed group' in ran.err
    assert logdex_command("cat", root, "--grep", "a(").code == 2
    ran = logdex_command("grep", "a", root, "--in", "body,topic")
    assert ran.code == 2
    assert "'topic': expected names of body, value" in ran.err


def test_matches_are_coloured_on_a_terminal(
    root: Path, logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for is_plain in (False, True):
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        logdex_command("grep", "paid", root)
        shown = "paid" if is_plain else "\x1b[1;31mpaid\x1b[0m"
        assert f"    body@8: order-1 {shown} order-2\n" in terminal.getvalue()
        monkeypatch.setenv("NO_COLOR", "1")


def test_cat_and_export_take_a_pattern(root: Path, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    rows = logdex_command("cat", root, "--json", "--body").rows
    found = logdex_command("cat", root, "--json", "--body", "--grep", "order-[13]").rows
    assert found == rows[:2]
    assert logdex_command("cat", root, "--json", "--body", "--grep", "order", "--tail", "1").rows == rows[1:2]
    target = tmp_path / "rows.jsonl"
    assert logdex_command("export", root, target, "--grep", "order-30").code == 0
    assert [json.loads(line) for line in target.read_text().splitlines()] == rows[1:2]
    assert logdex_command("cat", root, "--grep", "no such").code == 1


def test_a_body_that_cannot_be_decompressed_is_named(
    tmp_path: Path, logdex_command: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        writer.put_message("T", b"no zlib data", sys_flag=1)
        writer.put_message("T", b"order")
    ran = logdex_command("grep", "-c", "order", tmp_path / "store")
    assert (ran.out, ran.code) == ("1\n", 1)
    assert "at byte 0: expected a body that can be decompressed" in caplog.text


def test_decoded_bodies_are_searched_as_json(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = tmp_path / "store"
    bodies = [msgpack.packb({"status": "FAILED", "user": {"id": 7}}), msgpack.packb({"other": "FAILED"}), b"\xc1FAILED"]
    with StoreWriter.open(root, services=False) as writer:
        for body in bodies:
            writer.put_message("T", body, tags="A")
    decode = ["--decode", "body=msgpack"]
    assert logdex_command("grep", "-c", "FAILED", root).out == "3\n"
    ran = logdex_command("grep", '"status" *: *"FAILED"', root, *decode, "--json", "--body")
    [row] = ran.rows
    assert (ran.code, json.loads(row["body"])) == (0, {"status": "FAILED", "user": {"id": 7}})
    [match] = row["matches"]
    assert row["body"][match["begin"] : match["end"]] == '"status":"FAILED"'
    assert "messages that do not decode, and were not searched there: 1;" in ran.err
    # Each object is searched with all of its fields.
    assert logdex_command("grep", "-c", "FAILED", root, *decode).out == "2\n"
    assert logdex_command("grep", "-c", "-v", '"status"', root, *decode).out == "2\n"
    assert logdex_command("grep", "-c", "FAILED", root, *decode, "-m", "1").out == "1\n"
    assert logdex_command("grep", "-o", '"id":[0-9]', root, *decode).out == '"id":7\n'
    assert logdex_command("grep", "-c", "A", root, *decode, "--in", "keys").code == 1
    where = logdex_command("grep", "-o", "FAILED", root, *decode, "--where", "body.user.id = 7")
    assert (where.out, where.code) == ("FAILED\n", 0)
    assert logdex_command("grep", "FAILED", root, *decode, "--where", "body.user.id = 8").code == 1
    assert logdex_command("grep", "FAILED", root, "--decode", "value=json").code == 2
