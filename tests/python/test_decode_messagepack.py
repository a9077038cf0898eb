"""`decode=` with `msgpack`: values are those of the package msgpack."""

from __future__ import annotations

import base64
import datetime as dt
import math
import random
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def _bodies(root: Path, bodies: Sequence[bytes]) -> list[tuple[Any, str | None]]:
    with StoreWriter.open(root) as writer:
        writer.put_messages({"topic": ["T"] * len(bodies), "body": list(bodies)})
    with MessageStore.open(root) as store:
        table = pa.table(store.messages("T", columns=["body"], decode={"body": "msgpack"}))
    return list(zip(*(table.column(name).to_pylist() for name in ("body", "body_error")), strict=True))


def test_values_are_those_of_the_package(tmp_path: Path) -> None:
    chance = random.Random(5)
    orders = [
        {
            "id": chance.choice([0, -1, 127, -33, 2**31, -(2**63), 2**63 - 1]),
            "price": chance.choice([0.5, -1e300, math.inf, -math.inf]),
            "name": chance.choice(["", "\u00e9" * 40, "x" * 70_000]),
            "flag": chance.choice([True, False, None]),
            "lines": [{"sku": str(number), "count": number} for number in range(chance.choice([1, 2, 20]))],
        }
        for _ in range(1_000)
    ]
    bodies = [msgpack.packb(order, use_single_float=False) for order in orders]
    found = _bodies(tmp_path / "store", bodies)
    assert [error for _, error in found] == [None] * 1_000
    assert [body for body, _ in found] == [msgpack.unpackb(body) for body in bodies] == orders


def test_values_that_json_does_not_have(tmp_path: Path) -> None:
    time = dt.datetime(2026, 11, 28, 10, 0, 0, 250_000, tzinfo=dt.timezone.utc)
    value = {"bytes": b"\0\xff", "nan": math.nan, "at": time, "ext": msgpack.ExtType(5, b"x"), 7: "number", "f": 0.5}
    [(body, error)] = _bodies(tmp_path / "store", [msgpack.packb(value, datetime=True, use_single_float=True)])
    assert error is None
    assert body["bytes"] == base64.b64encode(b"\0\xff").decode()
    assert math.isnan(body["nan"])
    assert body["at"] == "2026-11-28T10:00:00.250Z"
    assert body["ext"] == {"ext": 5, "data": "eA=="}
    assert (body["7"], body["f"]) == ("number", 0.5)


def test_forms_that_the_package_does_not_write(tmp_path: Path) -> None:
    # Keys that are no text, bytes that are no UTF-8, an empty array, timestamps of 4, 8 and 12 bytes.
    body = b"\x87\x01\xc3\xc0\x01\xa1s\xa1\xff\xa1i\xd3\x80\0\0\0\0\0\0\0"
    body += b"\xa1t\xd6\xff\0\0\0\x01\xa1u\xd7\xff\x77\x35\x94\x00\0\0\0\x01"
    body += b"\xa1v\xc7\x0c\xff\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff"
    [(value, error)] = _bodies(tmp_path / "store", [body])
    assert error is None
    assert value == {
        "1": True,
        "null": 1,
        "s": "/w==",
        "i": -(2**63),
        "t": "1970-01-01T00:00:01Z",
        "u": "1970-01-01T00:00:01.500Z",
        "v": "1969-12-31T23:59:59.000000001Z",
    }


def test_other_bodies_are_null(tmp_path: Path) -> None:
    valid = msgpack.packb({"a": 1})
    bad = [b"", valid[:-1], valid + b"\0", msgpack.packb([1]), msgpack.packb({"b": 1}), msgpack.packb({"a": "x"})]
    bad += [b"\x91" * 100_000, b"\x81\xa1a\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
    found = _bodies(tmp_path / "store", [valid] * 9_000 + bad)
    assert found[:9_000] == [({"a": 1}, None)] * 9_000
    assert [(body, bool(error)) for body, error in found[9_000:]] == [(None, True)] * len(bad)
    assert found[9_003][1] == "expected one MessagePack map"


def test_maps_without_common_fields_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="decode: body: the maps have no common schema"):
        _bodies(tmp_path / "store", [msgpack.packb({"a": 1}), msgpack.packb({"a": {"b": 1}})])
