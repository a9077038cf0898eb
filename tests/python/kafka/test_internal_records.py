"""`internal_as_json`: messages of Kafka's internal topics, as Kafka's own classes show them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa

from logdex._core import internal_as_json

_GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-restore" / "internal-messages.jsonl.xz"
_METADATA = "__cluster_metadata"


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.decompress(_GOLDEN.read_bytes()).splitlines()]


def _key(row: dict[str, Any]) -> bytes | None:
    return None if row["topic"] == _METADATA else row["type"].to_bytes(2, "big") + bytes.fromhex(row["key"])


def _value(row: dict[str, Any]) -> bytes:
    # All numbers of the frame are below 128.
    is_metadata = row["topic"] == _METADATA
    frame = bytes([1, row["type"], row["version"]]) if is_metadata else row["version"].to_bytes(2, "big")
    return frame + bytes.fromhex(row["value"])


def _shown(topics: list[str], keys: list[bytes | None], values: list[bytes | None]) -> list[tuple[Any, Any]]:
    columns = {"topic": topics, "key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    table = pa.record_batch(internal_as_json(pa.record_batch(columns)))
    return list(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))


def test_messages_are_those_of_kafkas_classes() -> None:
    rows = _rows()
    shown = _shown([row["topic"] for row in rows], [_key(row) for row in rows], [_value(row) for row in rows])
    for row, (key, value) in zip(rows, shown, strict=True):
        if row["topic"] == _METADATA:
            assert key is None
            assert json.loads(value)["version"] == row["version"]
        else:
            assert json.dumps(json.loads(key)) == json.dumps({"type": str(row["type"]), "data": row["keyData"]})
            assert json.loads(value)["version"] == str(row["version"])
        assert json.dumps(json.loads(value)["data"]) == json.dumps(row["valueData"])
    assert len({(row["topic"], row["type"], row["version"]) for row in rows}) == 71


def test_cut_and_longer_messages_stay_bytes() -> None:
    cases = 0
    for row in _rows()[::8]:
        key, value = _key(row), _value(row)
        bad = [*(value[:length] for length in range(len(value))), value + b"\0"]
        shown = _shown([row["topic"]] * len(bad), [key] * len(bad), list(bad))
        assert [each for _, each in shown] == bad
        cases += len(bad)
    assert cases > 2_000


def test_damaged_messages_are_json_or_bytes() -> None:
    for row in _rows()[::16]:
        key, value = _key(row), _value(row)
        bad = [
            value[:at] + bytes([byte]) + value[at + 1 :] for at in range(len(value)) for byte in (0, 0x7F, 0x80, 0xFF)
        ]
        for given, (_, shown) in zip(bad, _shown([row["topic"]] * len(bad), [key] * len(bad), list(bad)), strict=True):
            assert shown == given or "data" in json.loads(shown)


def test_other_topics_and_batches_stay_as_they_are() -> None:
    key, value = _key(_rows()[0]), _value(_rows()[0])
    assert _shown(["orders", "__consumer_offsets"], [key, b"\0\x7f"], [value, None]) == [
        (key, value),
        (b"\0\x7f", None),
    ]
    batch = pa.record_batch({"topic": ["__consumer_offsets"], "value": [value], "key": ["a text"]})
    assert pa.record_batch(internal_as_json(batch)) == batch
