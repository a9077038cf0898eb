"""`decode=` with `protobuf`: values are those of Google's own package."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import random
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
)

import schema_registry
from logdex.cli import main
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_COUNT = int(os.environ.get("LOGDEX_BODIES", "2000"))
"""Generated messages that are compared."""
_TOGETHER = 20_000
"""Messages of one store."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

_SIGNED = {32: ["int32", "sint32", "sfixed32"], 64: ["int64", "sint64", "sfixed64"]}
_UNSIGNED = {32: ["uint32", "fixed32"], 64: ["uint64", "fixed64"]}
_NUMBERS = ["double", "float", "bool", *_SIGNED[32], *_SIGNED[64], *_UNSIGNED[32], *_UNSIGNED[64]]
_SCALARS = [*_NUMBERS, "string", "bytes"]
_TYPE = {name: f"TYPE_{name.upper()}" for name in _SCALARS}


def _field(name: str, number: int, kind: str, label: str = "OPTIONAL", rest: str = "") -> str:
    of = f"type: {_TYPE[kind]}" if kind in _TYPE else f'type_name: "{kind}"'
    return f'field {{ name: "{name}" number: {number} label: LABEL_{label} {of} {rest} }}'


def _map(name: str, key: str, value: str) -> str:
    fields = _field("key", 1, key) + _field("value", 2, value)
    return f'nested_type {{ name: "{name}" {fields} options {{ map_entry: true }} }}'


_NEW = "\n".join(
    [
        'name: "shop.proto" package: "shop" syntax: "proto3"',
        'dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/struct.proto"',
        'enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 7 } }',
        'message_type { name: "Empty" }',
        'message_type { name: "Line"',
        _field("sku", 1, "string"),
        _field("count", 2, "sint64"),
        "}",
        'message_type { name: "Node"',
        _field("name", 1, "string"),
        _field("children", 2, ".shop.Node", "REPEATED"),
        _field("big", 3, "int64"),
        "}",
        'message_type { name: "Order"',
        *(_field(f"f_{kind}", number, kind) for number, kind in enumerate(_SCALARS, 1)),
        *(_field(f"r_{kind}", number, kind, "REPEATED") for number, kind in enumerate(_SCALARS, 21)),
        *(
            _field(f"u_{kind}", number, kind, "REPEATED", "options { packed: false }")
            for number, kind in enumerate(_NUMBERS, 41)
        ),
        _field("state", 60, ".shop.State"),
        _field("states", 61, ".shop.State", "REPEATED"),
        _field("line", 62, ".shop.Line"),
        _field("lines", 63, ".shop.Line", "REPEATED"),
        _field("tags", 64, ".shop.Order.TagsEntry", "REPEATED"),
        _field("by_number", 65, ".shop.Order.ByNumberEntry", "REPEATED"),
        _field("maybe", 66, "int32", rest="proto3_optional: true oneof_index: 1"),
        _field("text", 67, "string", rest="oneof_index: 0"),
        _field("detail", 68, ".shop.Line", rest="oneof_index: 0"),
        _field("at", 69, ".google.protobuf.Timestamp"),
        _field("root", 70, ".shop.Node"),
        _field("free", 71, ".google.protobuf.Struct"),
        _field("empty", 72, ".shop.Empty"),
        _map("TagsEntry", "string", "bytes"),
        _map("ByNumberEntry", "int64", ".shop.Line"),
        'oneof_decl { name: "payment" } oneof_decl { name: "_maybe" }',
        "}",
    ]
)
_OLD = "\n".join(
    [
        'name: "old.proto" package: "old" syntax: "proto2"',
        'enum_type { name: "State" value { name: "OPEN" number: 1 } }',
        'message_type { name: "Outer" nested_type { name: "Inner"',
        _field("id", 1, "int32", "REQUIRED"),
        _field("with_default", 2, "int32", rest='default_value: "9"'),
        _field("state", 3, ".old.State", "REPEATED"),
        _field("packed", 4, "int32", "REPEATED", "options { packed: true }"),
        _field("many", 5, "fixed32", "REPEATED"),
        'field { name: "group" number: 6 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".old.Outer.Inner.Group" }',
        'nested_type { name: "Group" ' + _field("x", 7, "int32") + " } } }",
    ]
)


def _files() -> dict[str, Any]:
    pool, files = descriptor_pool.DescriptorPool(), {}
    for known in (timestamp_pb2, struct_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        known.DESCRIPTOR.CopyToProto(file)
        files[file.name] = file
    for text in (_NEW, _OLD):
        file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
        files[file.name] = file
    for file in files.values():
        pool.Add(file)
    names = ("shop.Order", "shop.Line", "shop.Node", "old.Outer.Inner", "google.protobuf.Timestamp")
    classes = {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}
    return {"files": files, "classes": classes}


_ALL = _files()
_CLASSES = _ALL["classes"]
_VALUES: dict[str, list[Any]] = {
    "double": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e308],
    "float": [0.0, 0.1, math.inf, math.nan],
    **{kind: [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))] for bits, kinds in _SIGNED.items() for kind in kinds},
    **{kind: [0, 1, 2**bits - 1] for bits, kinds in _UNSIGNED.items() for kind in kinds},
    "bool": [False, True],
    "string": ["", "a", "\u00e9\U0001f600", "x" * 300],
    "bytes": [b"", b"\0\xff", b"y" * 200],
}


def _descriptor_set(path: Path, *names: str) -> Path:
    """Write the file that protoc would write."""
    found = descriptor_pb2.FileDescriptorSet()
    for name in names or _ALL["files"]:
        found.file.append(_ALL["files"][name])
    path.write_bytes(found.SerializeToString())
    return path


def _order(chance: random.Random) -> Any:  # noqa: C901 -- one choice for each kind of field
    def few() -> range:
        return range(chance.choice([0, 0, 1, 3]))

    def line() -> Any:
        return _CLASSES["shop.Line"](sku=chance.choice(_VALUES["string"]), count=chance.choice(_VALUES["int64"]))

    def node(depth: int) -> Any:
        children = [node(depth - 1) for _ in few()] if depth else []
        return _CLASSES["shop.Node"](name=f"n{depth}", children=children, big=chance.choice(_VALUES["int64"]))

    order = _CLASSES["shop.Order"]()
    for kind in _SCALARS:
        if chance.random() < 0.5:
            setattr(order, f"f_{kind}", chance.choice(_VALUES[kind]))
        getattr(order, f"r_{kind}").extend(chance.choice(_VALUES[kind]) for _ in few())
        if kind in _NUMBERS:
            getattr(order, f"u_{kind}").extend(chance.choice(_VALUES[kind]) for _ in few())
    order.state = chance.choice([0, 7, 5])
    order.states.extend(chance.choice([0, 7, -3]) for _ in few())
    order.lines.extend(line() for _ in few())
    for _ in few():
        order.tags[chance.choice(_VALUES["string"])] = chance.choice(_VALUES["bytes"])
        order.by_number[chance.choice(_VALUES["int64"])].CopyFrom(line())
    for name in ("line", "detail"):
        if chance.random() < 0.4:
            getattr(order, name).CopyFrom(line())
    if chance.random() < 0.3:
        order.maybe = chance.choice([0, 4])
    if chance.random() < 0.3:
        order.text = chance.choice(["", "cash"])
    if chance.random() < 0.5:
        order.at.FromMicroseconds(chance.randrange(-(10**15), 10**16))
        order.at.nanos += chance.randrange(1000)
    if chance.random() < 0.3:
        order.root.CopyFrom(node(3))
    if chance.random() < 0.3:
        order.free.update({"a": [1, None, {"b": "c"}]})
    if chance.random() < 0.3:
        order.empty.SetInParent()
    return order


def _expected(message: Any, within: Iterable[str] = ()) -> Any:
    """Return what a column has for a message of Google's package."""
    kind, within = message.DESCRIPTOR, [*within, message.DESCRIPTOR.full_name]

    def one(field: Any, value: Any) -> Any:
        if field.enum_type is not None:
            names = field.enum_type.values_by_number
            return names[value].name if value in names else str(value)
        if field.message_type is None:
            return value
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        if name in within or not field.message_type.fields or name == "google.protobuf.Struct":
            return json_format.MessageToDict(value, preserving_proto_field_name=True)
        return _expected(value, within)

    found: dict[str, Any] = {}
    for field in kind.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, of = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            pairs = [(each, one(of, value[each])) for each in sorted(value)]
            is_text = key.type == key.TYPE_STRING
            found[field.name] = pairs if is_text else [{"key": each, "value": item} for each, item in pairs]
        elif field.is_repeated:
            found[field.name] = [one(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = one(field, value)
    return found


def _same(value: Any, wanted: Any) -> Any:
    """Return a value with NaN as a text, and JSON parsed where Google's package has an object."""
    if isinstance(wanted, dict) and isinstance(value, str):
        return _bits(json.loads(value))
    if isinstance(wanted, dict) and isinstance(value, dict):
        return {name: _same(each, wanted[name]) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and len(value) == len(wanted or ()):
        return [_same(each, other) for each, other in zip(value, wanted, strict=True)]
    return _bits(value)


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, (list, tuple)):
        return [_bits(each) for each in value]
    return {name: _bits(each) for name, each in value.items()} if isinstance(value, dict) else value


def _bodies(root: Path, bodies: Sequence[bytes], how: str) -> list[tuple[Any, str | None]]:
    if not root.exists():
        with StoreWriter.open(root) as writer:
            writer.put_messages({"topic": ["T"] * len(bodies), "body": list(bodies)})
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": how}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def test_values_are_those_of_googles_package(tmp_path: Path) -> None:
    chance, path = random.Random(7), _descriptor_set(tmp_path / "shop.desc")
    seen: set[str] = set()
    for begin in range(0, _COUNT, _TOGETHER):
        orders = [_order(chance) for _ in range(min(_TOGETHER, _COUNT - begin))]
        root = tmp_path / f"store-{begin}"
        found = _bodies(root, [order.SerializeToString() for order in orders], f"protobuf:{path}:shop.Order")
        shutil.rmtree(root)
        for order, (body, error) in zip(orders, found, strict=True):
            wanted = _expected(order)
            assert error is None
            assert body.keys() == wanted.keys()
            assert _same(body, wanted) == _bits(wanted)
            seen |= {name for name, value in wanted.items() if value or value == {}}
    assert seen == {field.name for field in _CLASSES["shop.Order"].DESCRIPTOR.fields}


def test_merged_unknown_and_repeated_fields(tmp_path: Path) -> None:
    order = _CLASSES["shop.Order"]
    # Packed where the schema says unpacked and the reverse, a message in two parts, a later value, unknown fields, a oneof twice.
    bodies = [
        _tag(44, 2) + b"\x03\x01\x02\x03" + _tag(24, 0) + b"\x01" + _tag(24, 0) + b"\x02",
        _tag(62, 2) + b"\x03\x0a\x01a" + _tag(62, 2) + b"\x02\x10\x06",
        _tag(4, 0) + b"\x01" + _tag(4, 0) + b"\x02",
        _tag(1007, 2) + b"\x02hi" + _tag(1007, 0) + b"\x05" + _tag(1007, 5) + b"\0" * 4 + _tag(1007, 1) + b"\0" * 8,
        _tag(1007, 3) + _tag(1, 0) + b"\x01" + _tag(1007, 4) + _tag(4, 0) + b"\x01",
        _tag(67, 2) + b"\x01x" + _tag(68, 2) + b"\x02\x10\x04",
        b"",
    ]
    found = _bodies(tmp_path / "s", bodies, f"protobuf:{_descriptor_set(tmp_path / 'shop.desc')}:shop.Order")
    for body, (value, error) in zip(bodies, found, strict=True):
        assert error is None, body
        wanted = _expected(order.FromString(body))
        assert _same(value, wanted) == _bits(wanted), body
    assert found[0][0]["u_int32"] == [1, 2, 3]
    assert found[1][0]["line"] == {"sku": "a", "count": 3}
    assert found[5][0]["text"] is None


def test_fields_of_proto2(tmp_path: Path) -> None:
    inner = _CLASSES["old.Outer.Inner"]
    messages = [inner(id=1), inner(id=0, with_default=9, state=[1], packed=[1, -1], many=[5, 6]), inner(id=2)]
    messages[2].group.x = 3
    path = _descriptor_set(tmp_path / "old.desc", "old.proto")
    found = _bodies(tmp_path / "s", [each.SerializeToString() for each in messages], f"protobuf:{path}:old.Outer.Inner")
    assert [body for body, _ in found] == [_expected(each) for each in messages]
    assert found[0][0]["with_default"] is None
    assert found[2][0]["group"] == {"x": 3}


def test_bodies_that_do_not_decode(tmp_path: Path) -> None:
    chance = random.Random(11)
    how = f"protobuf:{_descriptor_set(tmp_path / 'shop.desc')}:shop.Order"
    valid = _order(chance).SerializeToString()
    deep = b""
    for _ in range(120):
        deep = b"\x12" + _varint(len(deep)) + deep
    late, negative = b"\x08" + _varint(2**62), b"\x10" + _varint(2**64 - 1)
    bad = [b"\x0a", b"\x08", b"\xff" * 11, b"\x72\x01\xff", _tag(2, 2), _tag(62, 2) + b"\x7f", b"\x0b" * 100_000]
    bad += [_tag(70, 2) + _varint(len(deep)) + deep]
    bad += [_tag(69, 2) + _varint(len(time)) + time for time in (late, negative)]
    mutated = []
    for _ in range(300):
        copy = bytearray(valid)
        for _ in range(chance.randrange(1, 4)):
            copy[chance.randrange(len(copy))] = chance.randrange(256)
        mutated.append(bytes(copy[: chance.randrange(len(copy))] if chance.random() < 0.3 else copy))
    found = _bodies(tmp_path / "store", [valid, *bad, *mutated], how)
    assert found[0][1] is None
    assert [(body, bool(error)) for body, error in found[1 : len(bad) + 1]] == [(None, True)] * len(bad)
    decoded = 0
    for body, (value, error) in zip(mutated, found[len(bad) + 1 :], strict=True):
        assert (value is None) == (error is not None)
        if value is not None:
            wanted = _expected(_CLASSES["shop.Order"].FromString(body))
            assert _same(value, wanted) == _bits(wanted)
            decoded += 1
    assert 10 < decoded < 300


@pytest.fixture
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.serve() as running:
        yield running


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(number: int, *, zigzag: bool = False) -> bytes:
    number = number << 1 if zigzag else number
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_messages_with_the_number_of_their_schema(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    _descriptor_set(schemas / "4.desc", "google/protobuf/timestamp.proto", "google/protobuf/struct.proto", "shop.proto")
    _descriptor_set(schemas / "9.desc", "old.proto")
    line = _CLASSES["shop.Line"](sku="a", count=2).SerializeToString()

    def framed(number: int, indexes: list[int], body: bytes) -> bytes:
        return struct.pack(">bI", 0, number) + b"".join(_varint(each, zigzag=True) for each in indexes) + body

    bodies = [framed(4, [1, 1], line), framed(4, [0], b""), framed(4, [1, 9], line), framed(5, [1, 1], line)]
    bodies += [framed(4, [], b""), framed(9, [2, 0, 0], b"\x08\x01"), b"\1", struct.pack(">bI", 0, 4) + b"\x03"]
    with pytest.raises(ValueError, match=r"expected a message such as old\.Outer, old\.Outer\.Inner"):
        _bodies(tmp_path / "s", bodies, f"protobuf:{schemas}:shop.Line")
    _descriptor_set(schemas / "11.desc")
    found = _bodies(tmp_path / "s", bodies, f"protobuf:{schemas}:shop.Line")
    assert found[0] == ({"sku": "a", "count": 2}, None)
    assert [error for _, error in found[1:]] == [
        "expected a message shop.Line, found shop.Empty",
        "no such type in the schema with the number 4",
        "no schema with the number 5",
        "expected the indexes of a type after the number of the schema",
        "expected a message shop.Line, found old.Outer.Inner",
        "expected a zero and the number of a schema",
        "expected the indexes of a type after the number of the schema",
    ]
    assert _bodies(tmp_path / "s", bodies, f"protobuf:{schemas}:old.Outer.Inner")[5][0]["id"] == 1


def test_wrong_descriptors_are_refused(tmp_path: Path) -> None:
    path = _descriptor_set(tmp_path / "shop.desc")
    (tmp_path / "bad.desc").write_bytes(b"\x0a\x05")
    (tmp_path / "empty").mkdir()
    alone = _descriptor_set(tmp_path / "alone.desc", "shop.proto")
    # 2 ** 30 columns.
    wide = descriptor_pb2.FileDescriptorSet()
    file = wide.file.add(name="wide.proto", syntax="proto3")
    for level in range(31):
        message = file.message_type.add(name=f"M{level}")
        for number in (1, 2) if level else ():
            message.field.add(name=f"f{number}", number=number, label=1, type=11, type_name=f".M{level - 1}")
    (tmp_path / "wide.desc").write_bytes(wide.SerializeToString())
    for how, message in {
        f"protobuf:{path}": "expected protobuf:FILE.desc:package.Message",
        "protobuf:": "expected protobuf:FILE.desc:package.Message",
        f"protobuf:{path}:": "expected protobuf:FILE.desc:package.Message",
        f"protobuf:{path}:shop.Missing": 'expected a message such as .*found "shop.Missing"',
        f"protobuf:{tmp_path / 'bad.desc'}:A": r"bad\.desc: expected a descriptor set",
        f"protobuf:{alone}:shop.Order": r"alone\.desc: expected a descriptor set of protoc --include_imports",
        f"protobuf:{tmp_path / 'empty'}:A": "expected descriptor sets NUMBER.desc, found none",
        f"protobuf:{tmp_path / 'wide.desc'}:M30": "at most 10000 fields",
        "protobuf:https://me:secret@host:81": r"https://\*\*\*@host:81.*: expected protobuf:FILE.desc:package.Message",
    }.items():
        with pytest.raises((ValueError, OSError), match=message) as caught:
            _bodies(tmp_path / "store", [b""], how)
        assert "secret" not in str(caught.value)


def test_damaged_descriptors_are_read_or_refused(tmp_path: Path) -> None:
    chance = random.Random(1)
    whole = _descriptor_set(tmp_path / "shop.desc").read_bytes()
    body = _order(random.Random(3)).SerializeToString()
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                [0, 255, chance.randrange(256), chance.choice(whole)]
            )
        (tmp_path / "damaged.desc").write_bytes(damaged)
        try:
            [_] = _bodies(tmp_path / "store", [body], f"protobuf:{tmp_path / 'damaged.desc'}:shop.Order")
        except ValueError as error:
            assert "damaged.desc" in str(error)  # noqa: PT017 -- it may be read as well
            refused += 1
    assert 200 < refused < 400


def test_commands_print_and_export_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _descriptor_set(tmp_path / "shop.desc")
    order = _order(random.Random(3))
    order.tags["a"] = b"\0\xff"
    order.by_number[3].sku = "x"
    order.at.seconds = 1
    root = str(tmp_path / "store")
    _bodies(tmp_path / "store", [order.SerializeToString(), b"\x08"], "text")
    how = f"body=protobuf:{path}:shop.Order"
    assert main(["cat", root, "--decode", how, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["body"]["state"] == _expected(order)["state"]
    assert rows[1]["body"] is None
    assert rows[1]["body_error"]
    assert main(["export", root, str(tmp_path / "out.parquet"), "--decode", how]) == 0
    capsys.readouterr()
    [body, none] = pa.parquet.read_table(tmp_path / "out.parquet").column("body").to_pylist()
    wanted = _expected(order)
    assert none is None
    assert _same(body, wanted) == _bits(wanted)


_SOURCES = {
    "shop/line.proto": """syntax = "proto3"; package shop;
        message Line { string sku = 1; sint64 count = 2; }""",
    "shop/order.proto": """syntax = "proto3"; package shop;
        import "google/protobuf/timestamp.proto";
        import "shop/line.proto";
        // A comment with a bracket: {
        message First { int32 x = 1; }
        message Outer {
            enum State { OPEN = 0; PAID = 7; }
            message Order {
                int64 id = 1;
                State state = 2;
                repeated Line lines = 3;
                map<string, Line> by_name = 4;
                google.protobuf.Timestamp at = 5;
                optional string note = 6;
                oneof payment { string card = 7; Line gift = 8; }
            }
        }""",
    "shop/newer.proto": """syntax = "proto3"; package shop;
        message Outer { message Order { int64 id = 1; string note = 6; bytes hash = 20; } }""",
}
_COMPILED = """
name: "shop/order.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Line" FIELDS_OF_LINE }
message_type { name: "First" }
message_type { name: "Outer"
    enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 7 } }
    nested_type { name: "Order" FIELDS_OF_ORDER
        oneof_decl { name: "payment" } oneof_decl { name: "_note" } ENTRY } }
"""


def _order_class() -> Any:
    """Return Google's class of the message of the sources, from a descriptor written by hand."""
    line = _field("sku", 1, "string") + _field("count", 2, "sint64")
    fields = [
        _field("id", 1, "int64"),
        _field("state", 2, ".shop.Outer.State"),
        _field("lines", 3, ".shop.Line", "REPEATED"),
        _field("by_name", 4, ".shop.Outer.Order.ByNameEntry", "REPEATED"),
        _field("at", 5, ".google.protobuf.Timestamp"),
        _field("note", 6, "string", rest="proto3_optional: true oneof_index: 1"),
        _field("card", 7, "string", rest="oneof_index: 0"),
        _field("gift", 8, ".shop.Line", rest="oneof_index: 0"),
    ]
    text = _COMPILED.replace("FIELDS_OF_LINE", line).replace("FIELDS_OF_ORDER", " ".join(fields))
    text = text.replace("ENTRY", _map("ByNameEntry", "string", ".shop.Line"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_ALL["files"]["google/protobuf/timestamp.proto"])
    pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Order"))


def test_sources_of_a_registry_are_compiled(tmp_path: Path, registry: schema_registry.Registry) -> None:
    reference = {"name": "shop/line.proto", "subject": "shop/line.proto", "version": 2}
    registry.add_version("shop%2Fline.proto", 2, schema=_SOURCES["shop/line.proto"], schemaType="PROTOBUF")
    registry.add(4, schema=_SOURCES["shop/order.proto"], schemaType="PROTOBUF", references=[reference])
    registry.add(9, schema=_SOURCES["shop/newer.proto"], schemaType="PROTOBUF")
    registry.add(10, schema="message {", schemaType="PROTOBUF")
    registry.add(11, schema='{"type": "string"}')
    registry.add(12, schema='syntax = "proto3"; import "missing.proto"; message A {}', schemaType="PROTOBUF")
    registry.add(13, schema="syntax = 'proto3';" + "message A {" * 100_000, schemaType="PROTOBUF")
    order, chance = _order_class(), random.Random(5)

    def framed(number: int, indexes: list[int], body: bytes) -> bytes:
        return struct.pack(">bI", 0, number) + b"".join(_varint(each, zigzag=True) for each in indexes) + body

    orders = []
    for number in range(200):
        made = order(id=number, state=chance.choice([0, 7, 5]), card="c" if number % 2 else "")
        made.lines.add(sku="\u00e9", count=-number)
        made.by_name["a"].count = 2**40
        if number % 3:
            made.note = ""
            made.at.FromMicroseconds(number)
        orders.append(made)
    bodies = [framed(4, [2, 1, 0], each.SerializeToString()) for each in orders]
    bodies += [framed(number, [2, 1, 0], b"") for number in (10, 11, 12, 13, 14)] + [framed(4, [0], b"")]
    root = tmp_path / "s"
    found = _bodies(root, bodies, f"protobuf:{registry.url()}:shop.Outer.Order")
    for made, (body, error) in zip(orders, found, strict=False):
        assert error is None
        wanted = _expected(made)
        assert body.keys() == wanted.keys()
        assert _same(body, wanted) == _bits(wanted)
    errors = [error or "" for _, error in found[200:]]
    assert errors[0] == "schema 10: expected an identifier, but found '{'"
    assert errors[1] == "schema 11: expected one of PROTOBUF, found AVRO"
    assert "missing.proto" in errors[2]
    assert errors[3] == "schema 13: expected at most 200 brackets around a part of a schema"
    assert errors[4] == "no schema with the number 14"
    assert errors[5] == "expected a message shop.Outer.Order, found shop.First"
    assert len(registry.requests) == len(set(registry.requests)) == 7
    # The column has the fields of the largest number in the sample.
    newer = framed(9, [2, 0, 0], b"\x08\x01\x32\x01n")
    [(body, error), (older, _)] = _bodies(
        tmp_path / "t", [newer, bodies[1]], f"protobuf:{registry.url()}:shop.Outer.Order"
    )
    assert error is None
    assert body == {"id": 1, "note": "n", "hash": b""}
    assert older == {"id": 1, "note": "", "hash": b""}
    with pytest.raises(OSError, match="refused"):
        _bodies(root, bodies, "protobuf:http://127.0.0.1:9:shop.Outer.Order")
