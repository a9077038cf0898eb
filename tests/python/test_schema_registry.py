"""`decode=` with the URL of a schema registry, on a real HTTP server."""

from __future__ import annotations

import base64
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest

import logdex.duckdb
import logdex.polars
from logdex import _schema_registry
from logdex.cli import main
from logdex.rocketmq import MessageStore, StoreWriter
from schema_registry import Registry, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**OLDER, "fields": [*OLDER["fields"], {"name": "country", "type": "string", "default": "?"}]}
_PASSWORD = "s3cr:t/@"  # noqa: S105 -- of the test's server


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve() as running:
        yield running


def _avro(schema: dict[str, Any], value: dict[str, Any], number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def _store(root: Path, bodies: list[bytes]) -> Path:
    with StoreWriter.open(root) as writer:
        writer.put_messages({"topic": ["T"] * len(bodies), "body": bodies})
    return root


def _bodies(root: Path, url: str) -> list[tuple[Any, str | None]]:
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": f"avro:{url}"}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def test_each_schema_is_requested_once(tmp_path: Path, registry: Registry) -> None:
    registry.add(3, schema=json.dumps(OLDER))
    registry.add(12, schema=json.dumps(NEWER), schemaType="AVRO")
    registry.add(90, schema=json.dumps(OLDER))
    registry.add(20, schema='syntax = "proto3";', schemaType="PROTOBUF")
    registry.add(21, schema=json.dumps(OLDER), references=[{"name": "x", "subject": "x", "version": 1}])
    bodies = [
        _avro(NEWER if row % 3 else OLDER, {"id": row, "country": "de"}, 12 if row % 3 else 3) for row in range(9_000)
    ]
    bodies += [_avro(OLDER, {"id": -1}, 90), *(_avro(OLDER, {"id": 1}, number) for number in (20, 21, 22, 22)), b"x"]
    found = _bodies(_store(tmp_path / "store", bodies), registry.url())
    assert found[:9_000] == [({"id": row, "country": "de" if row % 3 else "?"}, None) for row in range(9_000)]
    # Only the first batch shows the type.
    assert found[9_000] == ({"id": -1, "country": "?"}, None)
    assert [body for body, _ in found[9_001:]] == [None] * 5
    errors = [error or "" for _, error in found[9_001:]]
    assert errors[0] == "schema 20: expected one of AVRO, found PROTOBUF"
    assert errors[1] == "schema 21: the registry lacks version 1 of 'x', to which it refers"
    assert errors[2:4] == ["no schema with the number 22"] * 2
    numbered = [f"/api/schemas/ids/{number}" for number in (3, 12, 90, 20, 21, 22)]
    assert sorted(registry.requests) == sorted([*numbered, "/api/subjects/x/versions/1"])


def test_credentials_are_sent_and_not_shown(
    tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.add(3, schema=json.dumps(OLDER))
    registry.authorization = "Basic " + base64.b64encode(f"me:{_PASSWORD}".encode()).decode()
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    user = "me:s3cr%3At%2F%40@"
    assert _bodies(root, registry.url(user)) == [({"id": 5}, None)]
    assert main(["cat", str(root), "--decode", f"body=avro:{registry.url(user)}", "--json"]) == 0
    assert '"body": {"id":5}' in capsys.readouterr().out
    with pytest.raises(OSError, match=r"http://\*\*\*@127\.0\.0\.1:\d+/api/: /schemas/ids/3: .* 401") as caught:
        _bodies(root, registry.url("me:wrongpw@"))
    assert "wrongpw" not in str(caught.value)
    assert main(["cat", str(root), "--decode", f"body=avro:{registry.url('me:wrongpw@')}"]) == 2
    assert "wrongpw" not in capsys.readouterr().err


def test_bad_answers_end_the_read(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    path = "/api/schemas/ids/3"
    monkeypatch.setattr(_schema_registry, "_MOST_BYTES", 100_000)
    for code, body, message in [
        (500, b"no", "the registry answered 500"),
        (302, b"", "the registry answered 302"),
        (200, b"{", "expected a JSON object"),
        (200, b"[]", "expected a JSON object, found list"),
        (200, b"{}", "expected an object with a schema"),
        (200, b" " * 200_000, "at most 100,000 bytes"),
    ]:
        registry.answers[path] = (code, body)
        with pytest.raises(OSError, match=message):
            _bodies(root, registry.url())
    assert registry.requests == [path] * 6
    registry.add(3, schema="{")
    with pytest.raises(ValueError, match=r"/api/: schema 3: "):
        _bodies(root, registry.url())
    registry.server_close()
    with pytest.raises(OSError, match="refused"):
        _bodies(root, "http://127.0.0.1:9")


def test_a_silent_registry_is_not_awaited_for_ever(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _store(tmp_path / "store", [_avro(OLDER, {"id": 5}, 3)])
    registry.is_silent = True
    with monkeypatch.context() as patch:
        patch.setattr(_schema_registry, "_TIMEOUT_S", 0.2)
        with pytest.raises(OSError, match="timed out"):
            _bodies(root, registry.url())
    registry.interrupts = True
    try:
        with pytest.raises(KeyboardInterrupt):
            _bodies(root, registry.url())
    finally:
        registry.released.set()


def test_a_store_without_values_has_no_fields(tmp_path: Path, registry: Registry) -> None:
    found = _bodies(_store(tmp_path / "store", [b"x"]), registry.url())
    assert found == [(None, "expected a zero and the number of a schema")]
    assert not registry.requests


# Schemas that refer to others: in another namespace, in the same one; one is used twice, one only by another reference.
_REFERENCED: dict[str, dict[str, Any]] = {
    "shop.v1.Money": {
        "type": "record",
        "name": "Money",
        "namespace": "shop.v1",
        "fields": [{"name": "units", "type": "long"}, {"name": "currency", "type": "Currency"}],
    },
    "shop.v1.Currency": {"type": "enum", "name": "shop.v1.Currency", "symbols": ["EUR", "CNY"]},
    "shop.Line": {
        "type": "record",
        "name": "shop.Line",
        "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "shop.v1.Money"}],
    },
}
_REFERRING = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "first", "type": "Line"},
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
        {"name": "total", "type": ["null", "shop.v1.Money"]},
    ],
}


def _with_references(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    references = [{"name": name, "subject": f"{name}-value", "version": at} for at, name in enumerate(names, 1)]
    return {"schema": json.dumps(schema), "references": references}


def test_a_schema_has_the_types_to_which_it_refers(tmp_path: Path, registry: Registry) -> None:
    money = _with_references(_REFERENCED["shop.v1.Money"], "shop.v1.Currency")
    registry.add_version("shop.v1.Money-value", 1, **money)
    registry.add_version("shop.v1.Money-value", 2, **money)
    registry.add_version("shop.v1.Currency-value", 1, schema=json.dumps(_REFERENCED["shop.v1.Currency"]))
    registry.add_version("shop.Line-value", 1, **_with_references(_REFERENCED["shop.Line"], "shop.v1.Money"))
    registry.add(3, **_with_references(_REFERRING, "shop.Line", "shop.v1.Money"))
    # The measure: fastavro puts the named schemas together.
    named: dict[str, Any] = {}
    for name in ("shop.v1.Currency", "shop.v1.Money", "shop.Line"):
        fastavro.parse_schema(_REFERENCED[name], named_schemas=named)
    parsed = fastavro.parse_schema(_REFERRING, named_schemas=named)
    line = {"sku": "a", "price": {"units": 5, "currency": "CNY"}}
    values = [{"first": line, "lines": [line] * (n % 3), "total": None if n % 2 else line["price"]} for n in range(50)]
    bodies = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        bodies.append(struct.pack(">bI", 0, 3) + out.getvalue())
    found = _bodies(_store(tmp_path / "store", bodies), registry.url())
    assert found == [(value, None) for value in values]
    assert registry.requests.count("/api/schemas/ids/3") == 1


def test_references_that_lead_back_or_are_missing(tmp_path: Path, registry: Registry) -> None:
    registry.add_version("shop.Line-value", 1, **_with_references(_REFERENCED["shop.Line"], "shop.Line"))
    registry.add(5, **_with_references(OLDER, "shop.Line"))
    registry.add(6, schema=json.dumps(OLDER), references=[{"name": "a"}])
    registry.add(7, schema=json.dumps(OLDER), references=7)
    registry.add(8, **_with_references(OLDER, *(f"T{number}" for number in range(300))))
    for number in range(300):
        registry.add_version(f"T{number}-value", number + 1, schema='"int"')
    bodies = [_avro(OLDER, {"id": 1}, number) for number in (5, 6, 7, 8)]
    found = _bodies(_store(tmp_path / "store", bodies), registry.url())
    assert found[0] == ({"id": 1}, None)
    assert [body for body, _ in found[1:]] == [None] * 3
    errors = [error or "" for _, error in found[1:]]
    assert errors[0].startswith("schema 6: 'subject'")
    assert errors[1].startswith("schema 7: ")
    assert errors[2] == "schema 8: expected at most 200 references"


def test_a_query_has_the_fields_of_the_first_rows_whatever_its_conditions_are(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(3, schema=json.dumps(OLDER))
    registry.add(12, schema=json.dumps(NEWER))
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("Old", _avro(OLDER, {"id": 1}, 3))
        writer.put_message("New", _avro(NEWER, {"id": 2, "country": "de"}, 12))
    decode = {"body": f"avro:{registry.url()}"}
    with MessageStore.open(tmp_path / "store") as store:
        scan = logdex.polars.scan(store, decode=decode)
        for topic, order in (("Old", {"id": 1, "country": "?"}), ("New", {"id": 2, "country": "de"})):
            rows = scan.filter(pl.col("topic") == topic).select("body").collect()
            assert rows.schema == scan.select("body").collect_schema()
            assert rows["body"].to_list() == [order]
        database = logdex.duckdb.connect(store, decode=decode)
        assert database.sql("SELECT body.country FROM messages WHERE topic = 'Old'").fetchall() == [("?",)]
