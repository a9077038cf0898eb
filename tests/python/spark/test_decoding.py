"""The option `decode` of the formats `rocketmq` and `kafka_log`: Spark's rows are those of `decode=` in Python."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fastavro
import msgpack
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from logdex.kafka import LogDir, LogDirWriter
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_ORDERS: list[dict[str, Any]] = [
    {
        "id": number,
        "user": {"name": f"\u00e9{number % 7}", "age": None},
        "total": number / 4,
        "tags": ["a"] * (number % 3),
    }
    for number in range(3_000)
]
_LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "lines", "type": {"type": "array", "items": _LINE}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "Line"]}},
        {"name": "nothing", "type": "null"},
        {"name": "maybe", "type": ["null", "string"]},
    ],
}


def _avro_values(count: int) -> list[dict[str, Any]]:
    at = dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)
    return [
        {
            "id": number,
            "at": at + dt.timedelta(milliseconds=number),
            "local": dt.datetime(2026, 3, 1) + dt.timedelta(microseconds=number),  # noqa: DTZ001 -- a local time
            "day": dt.date(2026, 1, 1 + number % 28),
            "time": dt.time(1, 2, 3, number % 1000 * 1000),
            "price": decimal.Decimal(number).scaleb(-2),
            "state": ["OPEN", "PAID"][number % 2],
            "four": number.to_bytes(4, "big"),
            "lines": [{"sku": f"s{each}"} for each in range(number % 3)],
            "by_name": {"a": {"sku": "x"}, "b": None} if number % 2 else {},
            "nothing": None,
            "maybe": None if number % 3 else "m",
        }
        for number in range(count)
    ]


def _avro(schema: dict[str, Any], value: dict[str, Any], number: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return (b"" if number is None else struct.pack(">bI", 0, number)) + out.getvalue()


def _store(root: Path, bodies: Sequence[bytes], topic: str = "T") -> Path:
    with StoreWriter.open(root, file_size=1 << 20) as writer:
        writer.put_messages({"topic": [topic] * len(bodies), "body": list(bodies)})
    return root


def _read(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    # Several tasks, so that several workers decode.
    return spark.read.format("rocketmq").options(maxPartitionBytes="200000", **options).load(str(root))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _kinds(frame: DataFrame) -> dict[str, str]:
    """Return the types of the fields of the decoded bodies."""
    body = frame.schema["body"].dataType
    assert isinstance(body, StructType)
    return {field.name: field.dataType.simpleString() for field in body}


def _in_python(root: Path, how: object) -> list[dict[str, Any]]:
    with MessageStore.open(root) as store:
        columns = ["phy_offset", "body", "body_error"]
        found: list[dict[str, Any]] = pa.table(store.messages("T", columns=columns, decode={"body": how})).to_pylist()
        return found


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_fields_of_objects_are_inferred_once(spark: SparkSession, tmp_path: Path, form: str) -> None:
    encode = (lambda value: json.dumps(value).encode()) if form == "json" else msgpack.packb
    bad = [b"none", encode({"id": 1, "other": 2}), encode({"id": "text"}), b""]
    # After the sample of Python, of 8,192 rows, and that of Spark, of the first task.
    bodies = [*map(encode, _ORDERS)] * 4 + bad * 10
    root = _store(tmp_path / "store", bodies)
    frame = _read(spark, root, decode=f"body={form}", columns="phy_offset,body")
    assert frame.columns == ["phy_offset", "body", "body_error"]
    assert frame.rdd.getNumPartitions() > 1
    found, wanted = _rows(frame.orderBy("phy_offset")), _in_python(root, form)
    assert found == wanted
    assert sum(row["body"] is None for row in found) == 40
    assert frame.selectExpr("body.user.name").distinct().count() == 8
    # A field that only a body after the sample has.
    assert "'other'" in next(row["body_error"] for row in found if row["body_error"] and "other" in row["body_error"])


def test_a_declared_struct_chooses_the_fields_of_objects(spark: SparkSession, tmp_path: Path) -> None:
    root = _store(tmp_path / "store", [json.dumps(order).encode() for order in _ORDERS[:50]] + [b"[]"])
    reader = spark.read.format("rocketmq").schema(
        "body struct<id: bigint, user: struct<name: string>>, body_error string"
    )
    rows = _rows(reader.option("decode", "body=json").load(str(root)))
    assert rows[:50] == [
        {"body": {"id": order["id"], "user": {"name": order["user"]["name"]}}, "body_error": None}
        for order in _ORDERS[:50]
    ]
    assert rows[50]["body"] is None
    assert rows[50]["body_error"]


def test_avro_has_the_types_of_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    values, schema = _avro_values(2_000), tmp_path / "order.avsc"
    schema.write_text(json.dumps(_AVRO))
    bodies = [_avro(_AVRO, value) for value in values]
    # A time that Spark cannot hold is null, and ends no job.
    bodies += [bodies[0][:-1], bodies[0] + b"\0", b"\x02" + b"\xfe" + b"\xff" * 8 + b"\x01" + bodies[0][7:]]
    root = _store(tmp_path / "store", bodies)
    frame = _read(spark, root, decode=f"body=avro:{schema}")
    kinds = _kinds(frame)
    assert kinds["at"] == "timestamp"
    assert kinds["local"] == "timestamp_ntz"
    assert kinds["price"] == "decimal(12,2)"
    assert kinds["state"] == "string"
    assert kinds["lines"] == "array<struct<sku:string>>"
    rows = _rows(frame.orderBy("phy_offset").selectExpr("body", "body_error"))
    wanted = [
        value
        | {
            "at": value["at"].replace(tzinfo=None),
            "time": (value["time"].second * 1000 + value["time"].microsecond // 1000) + 3_720_000,
        }
        for value in values
    ]
    assert [row["body_error"] for row in rows[:2_000]] == [None] * 2_000
    assert [row["body"] for row in rows[:2_000]] == wanted
    assert [row["body"] for row in rows[2_000:2_002]] == [None, None]
    assert all(row["body_error"] for row in rows[2_000:2_002])
    # Another column of the read than that of the option.
    assert _read(spark, root, columns="topic").columns == ["topic"]


def test_protobuf_has_the_types_of_its_message(spark: SparkSession, tmp_path: Path) -> None:
    text = """name: "shop.proto" package: "shop" syntax: "proto3"
        message_type { name: "Order"
            field { name: "id" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
            field { name: "count" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }
            field { name: "tags" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
            field { name: "hash" number: 4 type: TYPE_BYTES label: LABEL_OPTIONAL } }"""
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    orders = [order(id=2**64 - 1 - n, count=2**32 - 1, tags=["a"] * (n % 3), hash=b"\0\xff") for n in range(300)]
    root = _store(tmp_path / "store", [each.SerializeToString() for each in orders] + [b"\x08"])
    frame = _read(spark, root, decode=f"body=protobuf:{tmp_path / 'shop.desc'}:shop.Order", columns="body")
    kinds = _kinds(frame)
    assert kinds == {"id": "decimal(20,0)", "count": "bigint", "tags": "array<string>", "hash": "binary"}
    rows = _rows(frame)
    assert [(int(row["body"]["id"]), row["body"]["count"], row["body"]["tags"]) for row in rows[:300]] == [
        (each.id, each.count, list(each.tags)) for each in orders
    ]
    assert rows[300]["body_error"]


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """Return the URL of a registry with two schemas, and the paths that are requested."""
    older = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    newer = {**older, "fields": [*older["fields"], {"name": "country", "type": "string", "default": "?"}]}
    schemas, requests = {"/schemas/ids/3": older, "/schemas/ids/9": newer}, list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            found = schemas.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(found)}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://me:secret@127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def test_a_registry_gives_the_type(spark: SparkSession, tmp_path: Path, registry: tuple[str, list[str]]) -> None:
    url, requests = registry
    older = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    newer = {**older, "fields": [*older["fields"], {"name": "country", "type": "string", "default": "?"}]}
    # The tasks after the first have no value of the newer schema.
    bodies = [_avro(newer, {"id": -1, "country": "de"}, 9)] + [_avro(older, {"id": n}, 3) for n in range(9_000)]
    root = _store(tmp_path / "store", [*bodies, struct.pack(">bI", 0, 4)])
    frame = _read(spark, root, decode=f"body=avro:{url}", columns="phy_offset,body")
    assert frame.rdd.getNumPartitions() > 1
    rows = _rows(frame.orderBy("phy_offset"))
    assert [row["body"] for row in rows[:-1]] == [
        {"id": -1, "country": "de"}, *({"id": number, "country": "?"} for number in range(9_000))
    ]  # fmt: skip
    assert rows[-1]["body_error"] == "no schema with the number 4"
    assert set(requests) == {f"/schemas/ids/{number}" for number in (3, 4, 9)}
    plan = frame._jdf.queryExecution().toString()
    assert "secret" not in plan


def test_values_and_keys_of_records(spark: SparkSession, tmp_path: Path) -> None:
    count = 2_000
    records = {
        "key": [f"k{number}".encode() if number % 5 else None for number in range(count)] + [b"\xff"],
        "value": [json.dumps(order).encode() for order in _ORDERS[:count]] + [b"x"],
    }
    with LogDirWriter.open(tmp_path / "logs") as writer:
        writer.append("t", 0, records)
    options = {"decode": '["value=json", "key=text"]', "columns": "key,value,offset"}
    frame = spark.read.format("kafka_log").options(**options).load(str(tmp_path / "logs"))
    with LogDir.open(tmp_path / "logs") as logs:
        reader = logs.records("t", columns=["key", "value", "offset"], decode={"value": "json", "key": "text"})
        wanted = pa.table(reader).to_pylist()
    assert _rows(frame.orderBy("offset")) == wanted
    assert "key: not UTF-8" in wanted[-1]["body_error"]
    every = spark.read.format("kafka_log").option("decode", "value=json").load(str(tmp_path / "logs"))
    assert every.columns[-1] == "body_error"
    assert isinstance(every.schema["value"].dataType, StructType)
    assert every.where("value.id = 7").count() == 1


def test_a_stream_decodes(spark: SparkSession, tmp_path: Path) -> None:
    root = _store(tmp_path / "store", [json.dumps({"id": number}).encode() for number in range(100)])
    stream = spark.readStream.format("rocketmq").option("decode", "body=json").option("columns", "body").load(str(root))
    assert stream.schema["body"].dataType == StructType([StructField("id", LongType())])
    query = stream.writeStream.format("memory").queryName("decoded").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert sorted(row.id for row in spark.sql("SELECT body.id FROM decoded").collect()) == list(range(100))


def test_a_damaged_body_keeps_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        bodies = [zlib.compress(b'{"a": 1}'), b"no zlib", b"x"]
        flags = pa.array([1, 1, 0], pa.int32())
        writer.put_messages({"topic": ["T"] * 3, "body": bodies, "sys_flag": flags}, body="stored")
    rows = _rows(_read(spark, root, decode="body=json", columns="body"))
    assert [row["body"] for row in rows] == [{"a": 1}, None, None]
    assert rows[1]["body_error"] == _in_python(root, "json")[1]["body_error"]
    assert rows[2]["body_error"]


def test_wrong_options_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = _store(tmp_path / "store", [b"x"])
    union = {"type": "record", "name": "U", "fields": [{"name": "u", "type": ["string", "long"]}]}
    (tmp_path / "union.avsc").write_text(json.dumps(union))
    wrong = {
        "body": "expected COLUMN=FORMAT, such as body=json",
        '["body=json", "body=text"]': "body has two formats",
        "topic=text": r"expected a column of bytes \(body\), found topic",
        "body=yaml": "expected text, json, avro:FILE.avsc",
        "body=json": r"no row shows the fields of body: write their types in .schema",
        f"body=avro:{tmp_path / 'union.avsc'}": "Spark has no type for the column body",
    }
    for given, message in wrong.items():
        with pytest.raises(PySparkException, match=message):
            _read(spark, root, decode=given).collect()
    reader = spark.read.format("rocketmq").option("decode", "body=json")
    with pytest.raises(PySparkException, match="body is not read"):
        reader.schema("topic string").load(str(root)).collect()
    with pytest.raises(PySparkException, match="column body is a struct, not string"):
        reader.schema("body string").load(str(root)).collect()
