"""Log.records(matches=...) and LogDir.records: the records that a search by Python's `re` selects from a full read."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from logdex import Pattern
from logdex.errors import DamageWarning
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261128
Row = dict[str, Any]


def rows_of(stream: Any) -> list[Row]:
    rows: list[Row] = pa.table(stream).to_pylist()
    return rows


def texts(row: Row, field: str) -> list[bytes]:
    """Return what is searched in a field of a record."""
    if field in ("body", "keys"):
        content = row["value" if field == "body" else "key"]
        return [] if content is None else [content]
    return [each["key"].encode() + b"=" + (each["value"] or b"") for each in row["headers"] or ()]


def expected(rows: list[Row], pattern: Pattern) -> list[Row]:
    assert isinstance(pattern.text, bytes)
    text = re.escape(pattern.text) if pattern.literal else pattern.text
    if pattern.word:
        text = rb"(?<!\w)(?:" + text + rb")(?!\w)"
    found = re.compile(text, re.IGNORECASE if pattern.ignore_case else 0)
    return [
        row
        for row in rows
        if any(found.search(each) for field in pattern.fields for each in texts(row, field)) != pattern.invert
    ]


def patterns(rows: list[Row], chance: random.Random) -> list[Pattern]:
    """Choose patterns of which some rows have a match."""
    found = [Pattern(b""), Pattern(b"no such text"), Pattern(rb"[1-4]{2}"), Pattern(rb"=", fields=("headers",))]
    for _ in range(12):
        row = chance.choice(rows)
        field = chance.choice(("body", "keys", "properties"))
        content = chance.choice(texts(row, field) or [b"x"])
        at = chance.randrange(len(content) + 1)
        part = content[at : at + chance.randint(1, 5)]
        flags = {name: chance.random() < 0.3 for name in ("ignore_case", "word", "invert")}
        part = part.swapcase() if flags["ignore_case"] else part
        fields = {field, chance.choice(("body", "keys", "properties"))}
        found.append(Pattern(part, literal=True, fields=sorted(fields), **flags))
    return found


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_matches_are_those_of_a_full_read(kafka_logs: Callable[[str], Path], case: str) -> None:
    chance = random.Random(SEED)
    compared = selective = 0
    with LogDir.open(kafka_logs(case)) as logs:
        rows = rows_of(logs.records())
        for pattern in patterns(rows, chance):
            wanted = expected(rows, pattern)
            assert rows_of(logs.records(matches=pattern)) == wanted, pattern
            offsets = [(row["topic"], row["partition"], row["offset"]) for row in wanted]
            found = rows_of(logs.records(matches=pattern, columns=["topic", "partition", "offset"], batch_size=7))
            assert [tuple(row.values()) for row in found] == offsets
            compared += len(wanted)
            selective += 0 < len(wanted) < len(rows)
            one = chance.choice(rows)
            log = logs.log(one["topic"], one["partition"])
            key: dict[str, Any] = {"keys": [one["key"]]} if one["key"] is not None else {}
            of_log = [row for row in rows if (row["topic"], row["partition"]) == (one["topic"], one["partition"])]
            carried = [row for row in expected(of_log, pattern) if not key or row["key"] == one["key"]]
            assert rows_of(log.records(matches=pattern, **key)) == carried
    assert compared > 100
    assert selective >= 5


def test_damage_is_reported_as_without_a_pattern(kafka_logs: Callable[[str], Path]) -> None:
    with LogDir.open(kafka_logs("damaged-crc")) as logs:
        with pytest.warns(DamageWarning) as plain:
            rows = rows_of(reader := logs.records(on_error="skip"))
        with pytest.warns(DamageWarning) as searched:
            found = rows_of(other := logs.records(on_error="skip", matches=b"[0-3]"))
        assert found == expected(rows, Pattern(b"[0-3]"))
        assert 0 < len(found) < len(rows)
        assert other.findings == reader.findings != []
        assert [str(each.message) for each in searched] == [str(each.message) for each in plain]
