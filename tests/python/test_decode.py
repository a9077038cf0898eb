"""`decode=`: bodies and values as typed columns, as the libraries of the formats read them."""

from __future__ import annotations

import io
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from logdex.cli import main
from logdex.kafka import LogDir, LogDirWriter
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
    ],
}
OLDER = {**ORDER, "fields": ORDER["fields"][:3]}
NEWER = {**OLDER, "fields": [*OLDER["fields"], {"name": "country", "type": "string", "default": "?"}]}


def _orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number * 7 - 40,
            "customer": None if number % 5 == 0 else f"customer \u00e9 {number}",
            "price": number / 3,
            "lines": [f"line {line}" for line in range(number % 4)],
            "tags": {"a": number} if number % 2 else {},
            "state": "PAID" if number % 3 else "OPEN",
        }
        for number in range(count)
    ]


def _avro(schema: dict[str, Any], value: dict[str, Any], number: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return (b"" if number is None else struct.pack(">bI", 0, number)) + out.getvalue()


def _store(root: Path, bodies: Sequence[bytes]) -> Path:
    with StoreWriter.open(root) as writer:
        writer.put_messages({"topic": ["T"] * len(bodies), "body": list(bodies)})
    return root


def _bodies(root: Path, how: object) -> list[tuple[Any, str | None]]:
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": how}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def _plain(value: Any) -> Any:
    """Return a value of Arrow as the libraries return it: maps are pairs there."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and isinstance(value[0], tuple)
        return dict(value) if is_map else [_plain(each) for each in value]
    return value


def test_avro_values_are_those_of_another_reader(tmp_path: Path) -> None:
    orders = _orders(2_000)
    root = _store(tmp_path / "store", [_avro(ORDER, order) for order in orders])
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    found = _bodies(root, f"avro:{tmp_path / 'order.avsc'}")
    assert {error for _, error in found} == {None}
    read = [_plain(body) | {"tags": dict(body["tags"])} for body, _ in found]
    assert read == orders


def test_values_with_the_number_of_their_schema(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    for number, schema in ((3, OLDER), (12, NEWER)):
        (schemas / f"{number}.avsc").write_text(json.dumps(schema))
    values = [{"id": number, "customer": None, "price": 0.5, "country": "de"} for number in range(300)]
    bodies = [_avro(NEWER if row % 3 else OLDER, value, 12 if row % 3 else 3) for row, value in enumerate(values)]
    bodies += [_avro(NEWER, values[0], 13), b"", b"\1" + bodies[0][1:], bodies[0][:-1], bodies[0] + b"x"]
    found = _bodies(_store(tmp_path / "store", bodies), f"avro:{schemas}")
    wanted = [value if row % 3 else {**value, "country": "?"} for row, value in enumerate(values)]
    assert [body for body, _ in found[: len(values)]] == wanted
    assert [body for body, _ in found[len(values) :]] == [None] * 5
    errors = [error or "" for _, error in found[len(values) :]]
    assert errors[0] == "no schema with the number 13"
    assert errors[1] == "expected a zero and the number of a schema"
    assert errors[2] == "expected 0 at byte 0, found 1"
    assert all(errors[3:])


def test_json_objects_have_the_fields_of_the_first_batch(tmp_path: Path) -> None:
    orders = _orders(500)
    bodies = [json.dumps(order | {"tags": None}).encode() for order in orders]
    bad = [b"not json", b"[1]", b"", b'{"id": 1}{"id": 2}', b'{"id": 1', b"\xff", b"5"]
    found = _bodies(_store(tmp_path / "store", bodies + bad), "json")
    assert found[:500] == [(order | {"tags": None}, None) for order in orders]
    assert [(body, bool(error)) for body, error in found[500:]] == [(None, True)] * len(bad)


def test_names_that_no_column_can_have_are_errors_of_their_bodies(tmp_path: Path) -> None:
    bodies = [b'{"a": 1}', b'{"a\\u0000": 1}', b'{"a": 2, "xs": [{"\\u0000": 1}]}']
    found = _bodies(_store(tmp_path / "store", bodies), "json")
    assert [(body, bool(error)) for body, error in found] == [({"a": 1}, False), (None, True), (None, True)]


def test_a_later_object_with_another_field_is_named(tmp_path: Path) -> None:
    bodies = [b'{"a": 1, "b": null}'] * 10_000 + [b'{"a": 1, "c": 2}', b'{"a": "x"}', b'{"a": 2, "b": 3}']
    found = _bodies(_store(tmp_path / "store", bodies), "json")
    assert found[:10_000] == [({"a": 1, "b": None}, None)] * 10_000
    (first, named), (second, text), last = found[10_000:]
    assert (first, second, last) == (None, None, ({"a": 2, "b": "3"}, None))
    assert "'c'" in (named or "")
    assert "Int64" in (text or "")


def test_json_with_a_schema_reads_its_fields(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    bodies = [json.dumps(order).encode() for order in _orders(50)] + [b'{"id": 2.5}', b'{"id": "n"}', b'{"price": 1}']
    found = _bodies(_store(tmp_path / "store", bodies), schema)
    for (body, error), order in zip(found[:50], _orders(50), strict=True):
        assert error is None
        assert body["id"] == order["id"]
        assert math.isclose(body["price"], order["price"])
    assert found[51][0] is None
    assert "failed to parse" in (found[51][1] or "")
    assert found[52] == ({"id": None, "price": 1.0}, None)


def test_a_text_is_as_its_bytes(tmp_path: Path) -> None:
    found = _bodies(_store(tmp_path / "store", [b"a", "\u00e9".encode(), b"", b"a\xff"]), "text")
    assert found == [("a", None), ("\u00e9", None), ("", None), (None, "not UTF-8 at byte 1")]


def test_values_and_keys_of_records(tmp_path: Path) -> None:
    records = {"key": [b"k1", None, b"\xff"], "value": [b'{"a": 1}', None, b"x"]}
    with LogDirWriter.open(tmp_path / "logs") as writer:
        writer.append("t", 0, records)
    with LogDir.open(tmp_path / "logs") as logs:
        reader = logs.records("t", columns=["key", "value"], decode={"value": "json", "key": "text"})
        assert reader.schema.names == ["key", "value", "body_error"]
        rows = pa.table(reader).to_pylist()
        assert rows[:2] == [
            {"key": "k1", "value": {"a": 1}, "body_error": None},
            {"key": None, "value": None, "body_error": None},
        ]
        assert rows[2]["body_error"].startswith("value: ")
        assert rows[2]["body_error"].endswith("; key: not UTF-8 at byte 0")
        [log] = [logs.log("t", 0)]
        assert pa.table(log.records(columns=["value"], decode={"value": "json"})).column("value").to_pylist()[0] == {
            "a": 1
        }


def test_wrong_formats_are_refused(tmp_path: Path) -> None:
    root = _store(tmp_path / "store", [b'{"a": 1}', b'{"a": {"b": 1}}'])
    (tmp_path / "bad.avsc").write_text("{")
    (tmp_path / "empty").mkdir()
    wrong = {
        "yaml": '"yaml": expected text, json, avro:FILE.avsc',
        "avro": "expected text, json",
        "avro:": "expected text, json",
        "json:x": "expected text, json",
        f"avro:{tmp_path / 'bad.avsc'}": "bad.avsc: ",
        f"avro:{tmp_path / 'empty'}": "expected schemas NUMBER.avsc, found none",
        "json": "no common schema, pass one",
    }
    for how, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            _bodies(root, how)
    with pytest.raises(FileNotFoundError, match=r"missing\.avsc"):
        _bodies(root, f"avro:{tmp_path / 'missing.avsc'}")
    with MessageStore.open(root) as store:
        with pytest.raises(ValueError, match="decode: value: expected one of the columns topic, "):
            store.messages("T", decode={"value": "json"})
        with pytest.raises(ValueError, match="decode: topic: expected a column of bytes, found Utf8"):
            store.messages("T", decode={"topic": "text"})


def test_a_damaged_body_keeps_its_reason(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        writer.put_messages(
            {"topic": ["T"] * 2, "body": [b"no zlib", b'{"a": 1}'], "sys_flag": pa.array([1, 0], pa.int32())},
            body="stored",
        )
    [(body, error), (valid, none)] = _bodies(root, "json")
    assert (body, valid, none) == (None, {"a": 1}, None)
    assert error


def test_commands_print_and_export_decoded_bodies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(_store(tmp_path / "store", [b'{"name": "\\u00e9", "xs": [1, 2]}', b"none"]))
    assert main(["cat", root, "--decode", "body=json", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["body"] == {"name": "\u00e9", "xs": [1, 2]}
    assert rows[1]["body"] is None
    assert rows[1]["body_error"]
    assert main(["cat", root, "--decode", "body=json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == '    {"name":"\\u00e9","xs":[1,2]}'
    assert lines[3].startswith("    (")
    target = tmp_path / "out.parquet"
    assert main(["export", root, str(target), "--decode", "body=json"]) == 0
    capsys.readouterr()
    assert pa.parquet.read_table(target).column("body").to_pylist() == [{"name": "\u00e9", "xs": [1, 2]}, None]
    assert main(["export", root, str(tmp_path / "out.csv"), "--decode", "body=json"]) == 0
    capsys.readouterr()
    assert '"{""name"":""\\u00e9"",""xs"":[1,2]}"' in (tmp_path / "out.csv").read_text()
    assert main(["cat", root, "--decode", "body"]) == 2
    assert "expected COLUMN=FORMAT" in capsys.readouterr().err


def test_unions_are_printed_as_their_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    union = [
        "null",
        "string",
        "long",
        {"type": "record", "name": "shop.Line", "fields": [{"name": "sku", "type": "string"}]},
    ]
    fields = [{"name": "u", "type": union}, {"name": "list", "type": {"type": "array", "items": ["shop.Line", "long"]}}]
    schema = {"type": "record", "name": "shop.Union", "fields": fields}
    (tmp_path / "union.avsc").write_text(json.dumps(schema))
    values: list[dict[str, Any]] = [
        {"u": None, "list": []},
        {"u": "\u00e9", "list": [5, {"sku": "b"}]},
        {"u": -7, "list": []},
        {"u": {"sku": "a"}, "list": [1]},
    ]
    root = str(_store(tmp_path / "store", [_avro(schema, value) for value in values]))
    how = f"body=avro:{tmp_path / 'union.avsc'}"
    assert main(["cat", root, "--decode", how, "--json"]) == 0
    assert [json.loads(line)["body"] for line in capsys.readouterr().out.splitlines()] == values
    assert main(["export", root, str(tmp_path / "out.csv"), "--decode", how]) == 0
    capsys.readouterr()
    assert main(["export", root, str(tmp_path / "out.parquet"), "--decode", how]) == 2
    assert "Parquet has no such type, .json and .csv have: " in capsys.readouterr().err
    assert not (tmp_path / "out.parquet").exists()


def test_a_pair_chooses_the_fields_of_maps(tmp_path: Path) -> None:
    bodies = [b"\x82\xa1a\x01\xa1b\xc0", b"\x81\xa1b\x02", b"\x81\xa1a\xa1x"]
    found = _bodies(_store(tmp_path / "store", bodies), ("msgpack", pa.schema([("a", pa.int64())])))
    assert [body for body, _ in found] == [{"a": 1}, {"a": None}, None]
    assert found[2][1]


def test_texts_that_are_almost_json_are_refused(tmp_path: Path) -> None:
    bodies = [
        b'{"id": 1, "text": "a"}',
        b'{"id": 01, "text": "a"}',
        b'{"id": 1, "text": 1-2+3}',
        b'{"id": 1., "text": ""}',
    ]
    found = _bodies(_store(tmp_path / "store", bodies), "json")
    assert found[0] == ({"id": 1, "text": "a"}, None)
    assert [(body, bool(error)) for body, error in found[1:]] == [(None, True)] * 3
