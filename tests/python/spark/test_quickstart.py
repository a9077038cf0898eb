"""The Spark lines of the quick start and of the Spark page run as they stand."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import golden
import golden_kafka

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

HOME = Path(__file__).resolve().parents[3]


def test_the_quick_start_reads_a_topic(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_kafka.unpack_archive(HOME / "examples" / "store" / "store.tar.xz", tmp_path / "build" / "guide")
    blocks = re.findall(r"```py\n(.*?)```", (HOME / "docs" / "quickstart.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    # A relative path is relative to where Spark was started.
    code = blocks[0].replace('"build/guide/', f'"{tmp_path}/build/guide/')
    exec(compile(code, "quickstart.md", "exec"), {"spark": spark})  # noqa: S102 -- our own document
    assert capsys.readouterr().out == "73\n"


def test_the_guide_decodes_bodies(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (HOME / "docs" / "guides" / "decode.md").read_text(encoding="utf-8")
    store = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    [(code, shown)] = re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(store, "decode.md", "exec"), {})  # noqa: S102 -- our own document
    code = code.replace('"build/guide/', f'"{tmp_path}/build/guide/')
    exec(compile(code, "decode.md", "exec"), {"spark": spark})  # noqa: S102 -- as above
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_reads_of_the_spark_page_run(spark: SparkSession, tmp_path: Path) -> None:
    places = {
        "/data/store": golden.unpack("basic", tmp_path / "a"),
        "/data/broker-a": golden.unpack("basic", tmp_path / "b"),
        "/data/broker-b": golden.unpack("rolled", tmp_path / "c"),
        "/var/kafka-logs": golden_kafka.unpack("codecs", tmp_path / "d"),
        "/disk1/kafka-logs": golden_kafka.unpack("codecs", tmp_path / "e"),
        "/disk2/kafka-logs": golden_kafka.unpack("timestamps", tmp_path / "f"),
    }
    page = (HOME / "docs" / "spark.md").read_text(encoding="utf-8")
    # The blocks of reads alone; those of buckets and writes have tests of their own.
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = "\n".join(block for block in blocks if ".load(" in block and "s3://" not in block and ".write" not in block)
    for said, place in places.items():
        assert said in code
        code = code.replace(f'"{said}', f'"{place}')
    code = code.replace('"subscribe", "orders"', '"subscribe", "cod-none"')
    reads = ast.parse(code).body
    assert len(reads) == 8
    for read in reads:
        assert isinstance(read, ast.Expr)
        frame = eval(compile(ast.Expression(read.value), "spark.md", "eval"), {"spark": spark})  # noqa: S307 -- as above
        # No message of this store has the topic and key of the page.
        assert frame.isStreaming or frame.count() > 0 or 'topic="orders"' in ast.unparse(read).replace("'", '"')
