"""The option `matches` of the formats `rocketmq` and `kafka_log`: rows that Python's `re` selects from a whole read."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import golden_kafka
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def _rows(spark: SparkSession, name: str, root: Path, **options: str) -> list[dict[str, Any]]:
    # Small tasks, so that several workers get the pattern.
    rows: list[dict[str, Any]] = (
        spark.read.format(name).options(maxPartitionBytes="20000", **options).load(str(root)).toArrow().to_pylist()
    )
    return rows


@pytest.mark.parametrize("way", [{}, {"topic": "t"}, {"topic": "t", "pushdown": "false"}])
def test_messages(spark: SparkSession, shared_store: Callable[[str], Path], way: dict[str, str]) -> None:
    rows = _rows(spark, "rocketmq", shared_store("basic"), **way)
    found = _rows(spark, "rocketmq", shared_store("basic"), matches="(?i)ALPHA [0-9]", **way)
    expected = [row for row in rows if re.search(rb"(?i)ALPHA [0-9]", row["body"])]
    assert 0 < len(expected) < len(rows)

    def by_offset(row: dict[str, Any]) -> int:
        return int(row["phy_offset"])

    assert sorted(found, key=by_offset) == sorted(expected, key=by_offset)


def test_fields_and_flags(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    options = {"matches": "k1", "matchesIn": "keys, properties", "matchesWord": "true", "columns": "keys,properties"}
    root = shared_store("basic")
    rows = _rows(spark, "rocketmq", root, columns="keys,properties,uniq_key")

    def has(row: dict[str, Any]) -> bool:
        pairs = (f"{name}={value}" for name, value in row["properties"])
        return any(re.search(r"\bk1\b", text) for text in (row["keys"] or "", row["uniq_key"] or "", *pairs))

    count = sum(map(has, rows))
    assert 0 < count < len(rows)
    assert len(_rows(spark, "rocketmq", root, **options)) == count
    assert len(_rows(spark, "rocketmq", root, matchesInvert="true", **options)) == len(rows) - count


def test_records(spark: SparkSession, tmp_path: Path) -> None:
    root = golden_kafka.unpack("transactions", tmp_path / "logs")
    options = {"subscribePattern": ".*", "includeHeaders": "true"}
    rows = _rows(spark, "kafka_log", root, **options)
    for names, column in (("value", "value"), ("key", "key")):
        texts = [row[column] for row in rows if row[column]]
        text = next(each for each in texts if each.isascii() and each.isalnum())[:3].decode()
        found = _rows(spark, "kafka_log", root, matches=text, matchesLiteral="true", matchesIn=names, **options)
        expected = [row for row in rows if row[column] and text.encode() in row[column]]
        assert len(found) == len(expected) > 0
        assert all(text.encode() in row[column] for row in found)


def test_refusals(spark: SparkSession, shared_store: Callable[[str], Path]) -> None:
    with pytest.raises(PySparkException, match="found at position 0: unclosed group"):
        _rows(spark, "rocketmq", shared_store("basic"), matches="(")
    with pytest.raises(PySparkException, match="option matchesIn: expected the option matches as well"):
        _rows(spark, "rocketmq", shared_store("basic"), matchesIn="keys")


def test_a_body_that_cannot_be_decompressed_is_damage(
    spark: SparkSession, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        writer.put_message("T", zlib.compress(b"order"), sys_flag=1)
        writer.put_message("T", b"no zlib data", sys_flag=1)
    found = _rows(spark, "rocketmq", tmp_path / "store", matches="order", columns="body")
    assert [row["body"] for row in found] == [b"order"]
    assert any("a body that can be decompressed" in str(each.message) for each in recwarn)
