"""MessageStore.messages(matches=...): the messages that a search by Python's `re` selects from a full read."""

from __future__ import annotations

import random
import re
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex import Pattern
from logdex.errors import DamageWarning
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261128
Row = dict[str, Any]


def rows_of(stream: Any) -> list[Row]:
    rows: list[Row] = pa.table(stream).to_pylist()
    return rows


def texts(row: Row, field: str) -> list[bytes]:
    """Return what is searched in a field of a message."""
    if field == "body":
        return [] if row["body"] is None else [row["body"]]
    if field == "keys":
        return [row[name].encode() for name in ("keys", "uniq_key") if row[name] is not None]
    return [f"{name}={value}".encode() for name, value in row["properties"]]


def expected(rows: list[Row], pattern: Pattern) -> list[int]:
    text = pattern.text if isinstance(pattern.text, bytes) else pattern.text.encode()
    text = re.escape(text) if pattern.literal else text
    if pattern.word:
        text = rb"(?<!\w)(?:" + text + rb")(?!\w)"
    found = re.compile(text, re.IGNORECASE if pattern.ignore_case else 0)
    offsets = []
    for row in rows:
        is_found = any(found.search(each) for field in pattern.fields for each in texts(row, field))
        # Nobody knows what is in a body that cannot be decompressed.
        is_known = is_found or "body" not in pattern.fields or row["body_error"] is None
        if is_known and is_found != pattern.invert:
            offsets.append(row["phy_offset"])
    return offsets


def patterns(rows: list[Row], chance: random.Random) -> list[Pattern]:
    """Choose patterns of which some rows have a match."""
    found = [Pattern(b""), Pattern(b"no such text"), Pattern(rb"[0-9]{2,}[a-z]?"), Pattern(rb"^.{3}\w*\W")]
    for _ in range(12):
        row = chance.choice(rows)
        field = chance.choice(("body", "keys", "properties"))
        content = chance.choice(texts(row, field) or [b"x"])
        at = chance.randrange(len(content) + 1)
        part = content[at : at + chance.randint(1, 6)]
        flags = {name: chance.random() < 0.3 for name in ("ignore_case", "word", "invert")}
        part = part.swapcase() if flags["ignore_case"] else part
        fields = {field, chance.choice(("body", "keys", "properties"))}
        found.append(Pattern(part, literal=True, fields=sorted(fields), **flags))
    return found


@pytest.mark.filterwarnings("ignore::logdex.DamageWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_matches_are_those_of_a_full_read(store: Callable[[str], Path], case: str) -> None:
    chance = random.Random(SEED)
    compared = selective = 0
    with MessageStore.open(store(case)) as opened:
        rows = rows_of(opened.messages())
        unreadable = sum(row["body_error"] is not None for row in rows)
        topics = sorted({row["topic"] for row in rows})
        for pattern in patterns(rows, chance):
            offsets = expected(rows, pattern)
            for options in ({}, {"threads": 1}, {"threads": 2, "body": "stored"}):
                stream = opened.messages(matches=pattern, columns=["phy_offset"], **options)
                assert [row["phy_offset"] for row in rows_of(stream)] == offsets, (pattern, options)
                assert [each.kind for each in stream.findings] == ["log-body"] * len(stream.findings)
                if pattern.fields == ("body",):
                    assert len(stream.findings) == unreadable
            compared += len(offsets)
            selective += 0 < len(offsets) < len(rows)
            topic = chance.choice(topics)
            of_topic = [row for row in rows if row["topic"] == topic]
            for scan in (True, False):
                found = rows_of(opened.messages(topic, matches=pattern, columns=["phy_offset"], scan=scan))
                assert {row["phy_offset"] for row in found} <= set(expected(of_topic, pattern))
                if scan:
                    assert [row["phy_offset"] for row in found] == expected(of_topic, pattern)
    assert compared > 100
    assert selective >= 5


@pytest.mark.parametrize("case", ["basic", "v5-basic"])
def test_whole_rows_and_pages(store: Callable[[str], Path], case: str) -> None:
    with MessageStore.open(store(case)) as opened:
        rows = rows_of(opened.messages())
        pattern = Pattern(rb"[0-4]\b", fields=("body", "keys"))
        offsets = expected(rows, pattern)
        assert 0 < len(offsets) < len(rows)
        assert rows_of(opened.messages(matches=pattern)) == [row for row in rows if row["phy_offset"] in offsets]
        position, found = None, list[int]()
        while True:
            page = opened.page(position, matches=pattern, limit=7, newest_first=False, columns=["phy_offset"])
            found += page.batch.column("phy_offset").to_pylist()
            position = page.next_position
            if position is None:
                break
        assert found == offsets


def test_text_and_bytes(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        for body in ("caf\u00e9 1".encode(), b"caf\xe9 2", b"cafe 3", b""):
            writer.put_message("T", body)
    with MessageStore.open(tmp_path / "store") as opened:

        def bodies(matches: str | bytes | Pattern) -> list[bytes]:
            return [row["body"][-1:] for row in rows_of(opened.messages(matches=matches))]

        assert bodies("caf\\w ") == [b"1", b"3"]
        assert bodies(b"caf\xe9 ") == [b"2"]
        assert bodies(b"caf.") == [b"1", b"2", b"3"]
        assert bodies(Pattern("CAF\u00c9", ignore_case=True)) == [b"1"]
        assert bodies("^$") == [b""]
        assert bodies(Pattern("caf", invert=True)) == [b""]
        with pytest.raises(ValueError, match="unclosed group"):
            opened.messages(matches="(")
        with pytest.raises(TypeError, match="expected str, bytes or Pattern"):
            opened.messages(matches=1)  # type: ignore[arg-type]


def _damaged(root: Path) -> int:
    """Write a store of which a body in the middle cannot be decompressed; return its offset."""
    at = -1
    with StoreWriter.open(root, services=False) as writer:
        for number in range(200):
            writer.put_message("T", zlib.compress(f"body {number}".encode()), sys_flag=1, keys=f"k{number}")
            if number == 99:
                at = writer.put_message("T", b"no zlib data", sys_flag=1, keys="odd").phy_offset
    return at


@pytest.mark.parametrize("options", [{}, {"topic": "T", "scan": False}, {"topic": "T", "keys": ["k7", "odd"]}])
def test_a_body_that_cannot_be_decompressed_is_damage(tmp_path: Path, options: dict[str, Any]) -> None:
    at = _damaged(tmp_path / "store")
    with MessageStore.open(tmp_path / "store") as opened:
        for threads in (1, 2):
            stream = opened.messages(matches="body .*7", threads=threads, columns=["body"], **options)
            with pytest.warns(DamageWarning, match="a body that can be decompressed"):
                found = [row["body"] for row in rows_of(stream)]
            numbers = [7] if "keys" in options else range(200)
            assert found == [f"body {n}".encode() for n in numbers if "7" in str(n)]
            assert [(each.kind, each.offset) for each in stream.findings] == [("log-body", at)]
        page = opened.page(matches="body 1.0", limit=100, newest_first=False)
        assert page.batch.num_rows == 10
        assert [(each.kind, each.offset) for each in page.findings] == [("log-body", at)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # The keys need no body.
            found = rows_of(opened.messages(matches=Pattern("odd|^k7$", fields=("keys",)), columns=["keys"]))
            assert [row["keys"] for row in found] == ["k7", "odd"]
