"""`decode=`: generated bodies have in their columns the values that the usual Python package of each format reads.

`LOGDEX_BODIES=1000000 python -m pytest -q --timeout 0 tests/python/test_decode_peers.py` compares a million bodies of each
format, in equal parts for its shapes. Protobuf has a file of its own, `test_decode_protobuf.py`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import json
import math
import os
import random
import shutil
import struct
import uuid
from typing import TYPE_CHECKING, Any

import fastavro
import msgpack
import pyarrow as pa
import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_COUNT = int(os.environ.get("LOGDEX_BODIES", "20000"))
"""Bodies of each format."""
_TOGETHER = 20_000
"""Bodies of one store."""
_BAD = object()
"""The value of a body that must not decode."""

_INTEGERS = [0, 1, -1, 127, -128, 2**31, -(2**31) - 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
_DOUBLES = [0.0, -0.0, 0.1, 1 / 3, -1e-300, 5e-324, 1.7976931348623157e308, 123456789.125]
_TEXTS = ["", "a", "\u00e9\u4e2d\U0001f600", 'quote " and \\ and \n', "\x00\x1f\x7f", "x" * 300, "null", "1"]
_UTC = dt.timezone.utc
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=_UTC)

_Row = tuple[bytes, Any]


def _integer(chance: random.Random) -> int:
    return chance.choice(_INTEGERS) if chance.random() < 0.5 else chance.randrange(-(2**62), 2**62)


def _double(chance: random.Random) -> float:
    if chance.random() < 0.3:
        return chance.choice(_DOUBLES)
    return float(struct.unpack(">d", struct.pack(">Q", chance.getrandbits(62)))[0])


def _text(chance: random.Random) -> str:
    return chance.choice(_TEXTS) + str(chance.randrange(100))


def _few(chance: random.Random, most: int = 4) -> range:
    return range(chance.choice([0, 1, 2, most]))


def _maybe(chance: random.Random, value: Any) -> Any:
    return None if chance.random() < 0.3 else value


def _compare(
    tmp_path: Path, how: object, rows: Callable[[random.Random, int], list[_Row]], shapes: int, seed: int
) -> None:
    """Compare the columns of generated bodies with the expected values, store by store."""
    chance, compared, refused = random.Random(seed), 0, 0
    count = _COUNT // shapes
    while compared < count:
        made = rows(chance, min(_TOGETHER, count - compared))
        found = _decoded(tmp_path / "store", [body for body, _ in made], how)
        assert len(found) == len(made)
        for (body, wanted), (value, error) in zip(made, found, strict=True):
            if wanted is _BAD:
                assert value is None, body
                assert error, body
                refused += 1
            else:
                assert error is None, (body, error)
                assert _bits(value) == _bits(wanted), body
        compared += len(made)
    assert compared / 100 < refused < compared / 10


def _decoded(root: Path, bodies: Sequence[bytes], how: object) -> list[tuple[Any, str | None]]:
    shutil.rmtree(root, ignore_errors=True)
    with StoreWriter.open(root) as writer:
        writer.put_messages({"topic": ["T"] * len(bodies), "body": list(bodies)})
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": how}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def _bits(value: Any) -> Any:
    """Return a value in which equal numbers have equal bits, and maps have no order."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: _bits(each) for name, each in value.items()} or []
    if isinstance(value, list):
        # A map of Arrow is a list of pairs, and an empty map is an empty list.
        is_map = bool(value) and isinstance(value[0], tuple)
        return _bits(dict(value)) if is_map else [_bits(each) for each in value]
    return value


def _spoiled(chance: random.Random, body: bytes) -> bytes:
    """Return a body that is cut, or has bytes after it."""
    return body[: chance.randrange(len(body))] if chance.random() < 0.7 else body + b"\x02"


def _with_bad(chance: random.Random, rows: list[_Row]) -> list[_Row]:
    """Replace some rows, not the first one, by bad bodies."""
    return rows[:1] + [
        (_spoiled(chance, body), _BAD) if chance.random() < 0.03 else (body, value) for body, value in rows[1:]
    ]


# JSON


def _flat(chance: random.Random) -> dict[str, Any]:
    return {
        "id": _integer(chance),
        "price": _maybe(chance, _double(chance)),
        "name": _maybe(chance, _text(chance)),
        "\u00e9 \U0001f600": chance.choice([True, False, None]),
        "": _text(chance),
        "always": None,
    }


def _nested(chance: random.Random) -> dict[str, Any]:
    def line() -> dict[str, Any]:
        deep = {"city": _text(chance), "at": [_double(chance), 1.5], "none": None, "empty": []}
        return {"sku": _text(chance), "count": _integer(chance), "address": _maybe(chance, deep)}

    return {
        "user": _maybe(chance, {"id": _text(chance), "tags": [_text(chance) for _ in _few(chance)]}),
        "lines": [line() for _ in _few(chance)],
        "grid": [[_integer(chance) for _ in _few(chance)] for _ in _few(chance)],
        "with_nulls": [_maybe(chance, _integer(chance)) for _ in _few(chance)],
        "first": line(),
    }


def _mixed(chance: random.Random) -> dict[str, Any]:
    """Return an object whose fields have values of several kinds."""
    return {
        "code": chance.choice(["a", 1, -2.5, True, None, 10**19]),
        "amount": chance.choice([1, 2.5, None, -7]),
        "large": chance.choice([1, 2**64 - 1, 2**63]),
        "list": [chance.choice([1, "x"]) for _ in _few(chance)],
    }


def _as_columns(value: dict[str, Any]) -> dict[str, Any]:
    """Return what the columns of such an object have: texts and numbers are texts, integers and doubles are doubles."""
    return {
        "code": value["code"] if isinstance(value["code"], str | None) else json.dumps(value["code"]),
        "amount": None if value["amount"] is None else float(value["amount"]),
        "large": str(value["large"]),
        "list": [str(each) for each in value["list"]],
    }


def _all_fields(shape: Callable[[random.Random], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects that show each field and kind of a shape, so that the first batch has them."""
    return [shape(random.Random(seed)) for seed in range(64)]


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


_SHAPES: dict[str, tuple[Callable[[random.Random], Any], Callable[[Any], Any]]] = {
    "flat": (_flat, _same),
    "nested": (_nested, _same),
    "mixed": (_mixed, _as_columns),
}


@pytest.mark.parametrize("shape", _SHAPES)
def test_json_is_as_python_reads_it(tmp_path: Path, shape: str) -> None:
    make, columns = _SHAPES[shape]

    def rows(chance: random.Random, count: int) -> list[_Row]:
        objects = _all_fields(make) + [make(chance) for _ in range(count - 64)]
        found: list[_Row] = []
        for each in objects:
            indent, ascii_only = chance.choice([None, None, 1]), chance.random() < 0.5
            text = json.dumps(each, indent=indent, ensure_ascii=ascii_only).encode()
            assert json.loads(text) == each
            found.append((text, columns(each)))
        bad = [b"{'a': 1}", b"nan", b"[]", b"1", b"", b" ", b'{"id": NaN}', b'{"id": 01}', b'{"user": "\xff"}', b"{}{}"]
        return _with_bad(chance, found[: -len(bad)]) + [(each, _BAD) for each in bad]

    _compare(tmp_path, "json", rows, len(_SHAPES), 1)


# Avro

_LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        {"name": "note", "type": ["string", "null"]},
    ],
}
_AVRO: dict[str, dict[str, Any]] = {
    "plain": {
        "type": "record",
        "name": "Plain",
        "namespace": "shop.v1",
        "fields": [
            {"name": "b", "type": "boolean"},
            {"name": "i", "type": "int"},
            {"name": "l", "type": "long"},
            {"name": "f", "type": "float"},
            {"name": "d", "type": "double"},
            {"name": "s", "type": "string"},
            {"name": "y", "type": "bytes"},
            {"name": "x", "type": {"type": "fixed", "name": "Four", "size": 4}},
            {"name": "e", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID", "SENT"]}},
            *(
                {"name": f"m{name[0]}", "type": ["null", name]}
                for name in ("boolean", "int", "long", "float", "double", "string")
            ),
            {"name": "me", "type": ["null", "State"]},
            {"name": "n", "type": "null"},
            {"name": "last", "type": ["long", "null"]},
        ],
    },
    "logical": {
        "type": "record",
        "name": "Logical",
        "fields": [
            {"name": "date", "type": {"type": "int", "logicalType": "date"}},
            {"name": "ms", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "us", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "at_us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "small", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {
                "name": "large",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}],
            },
            {
                "name": "fixed",
                "type": {
                    "type": "fixed",
                    "name": "D",
                    "size": 12,
                    "logicalType": "decimal",
                    "precision": 28,
                    "scale": 6,
                },
            },
        ],
    },
    "nested": {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "first", "type": _LINE},
            {"name": "maybe", "type": ["null", "Line"]},
            {"name": "lines", "type": {"type": "array", "items": "Line"}},
            {"name": "by_name", "type": {"type": "map", "values": "Line"}},
            {"name": "maps", "type": {"type": "array", "items": {"type": "map", "values": ["null", "long"]}}},
            {"name": "lists", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
            {"name": "grid", "type": {"type": "array", "items": {"type": "array", "items": "double"}}},
        ],
    },
    "unions": {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "value", "type": ["null", "string", "long", "double", "boolean"]},
            {"name": "what", "type": [_LINE, "string"]},
            {"name": "list", "type": {"type": "array", "items": ["long", "string"]}},
            {"name": "by_name", "type": ["null", "long", "Line"]},
            {"name": "lines", "type": {"type": "array", "items": ["Line", "double"]}},
            {"name": "after", "type": "long"},
        ],
    },
}


def _decimal(chance: random.Random, precision: int, scale: int) -> decimal.Decimal:
    digits = chance.choice([0, 1, -1, 10**precision - 1, 1 - 10**precision, chance.randrange(10**precision)])
    return decimal.Decimal(digits).scaleb(-scale, decimal.Context(prec=60))


def _value(chance: random.Random, schema: Any, names: dict[str, Any]) -> Any:  # noqa: C901, PLR0911, PLR0912 -- a case for each type
    """Return a value of an Avro schema."""
    if isinstance(schema, list):
        return _value(chance, chance.choice(schema), names)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in names:
        return _value(chance, names[kind], names)
    if isinstance(schema, dict) and "name" in schema:
        names[schema["name"]] = schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        return _decimal(chance, schema["precision"], schema["scale"])
    if logical is not None:
        us = chance.choice([0, 1, 86_399_999_999, chance.randrange(86_400_000_000)])
        at = _EPOCH + dt.timedelta(microseconds=chance.choice([0, -1, chance.randrange(-(10**16), 10**17)]))
        return {
            "date": at.date(),
            "time-millis": (_EPOCH + dt.timedelta(milliseconds=us // 1000)).time(),
            "time-micros": (_EPOCH + dt.timedelta(microseconds=us)).time(),
            "timestamp-millis": at.replace(microsecond=at.microsecond // 1000 * 1000),
            "timestamp-micros": at,
            "local-timestamp-micros": at.replace(tzinfo=None),
            "uuid": uuid.UUID(int=chance.getrandbits(128)),
        }[logical]
    match kind:
        case "null":
            return None
        case "boolean":
            return chance.random() < 0.5
        case "int":
            return chance.choice([0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(10**6)])
        case "long":
            return _integer(chance)
        case "float":
            number = struct.unpack(">f", struct.pack(">I", chance.getrandbits(32)))[0]
            return chance.choice([0.0, -0.0, math.inf, math.nan, 0.5, number])
        case "double":
            return chance.choice([math.inf, -math.inf, math.nan, _double(chance)])
        case "string":
            return _text(chance)
        case "bytes" | "fixed":
            return chance.randbytes(schema["size"] if kind == "fixed" else chance.choice([0, 1, 40]))
        case "enum":
            return chance.choice(schema["symbols"])
        case "array":
            return [_value(chance, schema["items"], names) for _ in _few(chance)]
        case "map":
            return {_text(chance): _value(chance, schema["values"], names) for _ in _few(chance)}
        case "record":
            return {each["name"]: _value(chance, each["type"], names) for each in schema["fields"]}
    raise AssertionError(schema)


@pytest.mark.parametrize("name", _AVRO)
def test_avro_is_as_fastavro_reads_it(tmp_path: Path, name: str) -> None:
    schema = _AVRO[name]
    parsed = fastavro.parse_schema(schema)
    path = tmp_path / "schema.avsc"
    path.write_text(json.dumps(schema))

    def rows(chance: random.Random, count: int) -> list[_Row]:
        found: list[_Row] = []
        for _ in range(count):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, _value(chance, schema, {"Line": _LINE}))
            out.seek(0)
            read = fastavro.schemaless_reader(out, parsed, None)
            found.append((out.getvalue(), _in_columns(read)))
        return _with_bad(chance, found)

    _compare(tmp_path, f"avro:{path}", rows, len(_AVRO) + 1, 2)


def _in_columns(value: Any) -> Any:
    """Return a value of fastavro as a column has it."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dict):
        return {name: _in_columns(each) for name, each in value.items()}
    return [_in_columns(each) for each in value] if isinstance(value, list) else value


def test_avro_with_the_numbers_of_schemas(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    older = _AVRO["plain"] | {"fields": _AVRO["plain"]["fields"][:9]}
    newer = {**older, "fields": [*older["fields"], {"name": "country", "type": ["string", "null"], "default": "?"}]}
    parsed = {3: fastavro.parse_schema(older), 70_000: fastavro.parse_schema(newer)}
    for number, schema in ((3, older), (70_000, newer)):
        (schemas / f"{number}.avsc").write_text(json.dumps(schema))

    def rows(chance: random.Random, count: int) -> list[_Row]:
        found: list[_Row] = []
        for _ in range(count):
            number, out = chance.choice([3, 70_000]), io.BytesIO()
            fastavro.schemaless_writer(out, parsed[number], _value(chance, older if number == 3 else newer, {}))
            out.seek(0)
            read: Any = fastavro.schemaless_reader(out, parsed[number], parsed[70_000])
            if chance.random() < 0.02:
                number, read = chance.choice([0, 4, 2**32 - 1]), _BAD
            found.append((struct.pack(">bI", 0, number) + out.getvalue(), read))
        return _with_bad(chance, found)

    _compare(tmp_path, f"avro:{schemas}", rows, len(_AVRO) + 1, 3)


# MessagePack


def _map(chance: random.Random) -> dict[Any, Any]:
    at = _EPOCH + dt.timedelta(microseconds=chance.randrange(-(10**15), 10**17))

    def line() -> dict[Any, Any]:
        return {"sku": _text(chance), "count": _integer(chance), "no": None, 5: chance.random() < 0.5}

    return {
        "id": _integer(chance),
        "price": chance.choice([math.nan, math.inf, -math.inf, _double(chance)]),
        "name": _maybe(chance, _text(chance)),
        "flag": chance.choice([True, False, None]),
        "bytes": chance.randbytes(chance.choice([0, 1, 300])),
        "at": _maybe(chance, at),
        "lines": [line() for _ in _few(chance, 20 if chance.random() < 0.05 else 3)],
        "deep": {"line": _maybe(chance, line()), "list": [[_integer(chance)] for _ in _few(chance)], "empty": []},
        "large": chance.choice([1, 2**63, 2**64 - 1]),
        7: _text(chance),
    }


def _as_json(value: Any) -> Any:
    """Return a value of the package as a column has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        digits = 0 if not value.microsecond else 3 if value.microsecond % 1000 == 0 else 6
        part = f".{value.microsecond:06}"[: digits + 1] if digits else ""
        return f"{value:%Y-%m-%dT%H:%M:%S}{part}Z"
    if isinstance(value, dict):
        return {str(name): _as_json(each) for name, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list) else value


def test_messagepack_is_as_its_package_reads_it(tmp_path: Path) -> None:
    def rows(chance: random.Random, count: int) -> list[_Row]:
        found: list[_Row] = []
        for each in [*_all_fields(_map), *(_map(chance) for _ in range(count - 64))]:
            body = msgpack.packb(each, datetime=True)
            read = _as_json(msgpack.unpackb(body, timestamp=3, strict_map_key=False))
            found.append((body, read | {"large": str(read["large"])}))
        bad = [b"", b"\xc1", b"\x01", b"\x90", b"\x81\xa1", b"\xdf\xff\xff\xff\xff"]
        return _with_bad(chance, found[: -len(bad)]) + [(each, _BAD) for each in bad]

    _compare(tmp_path, "msgpack", rows, 1, 4)
