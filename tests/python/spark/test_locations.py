"""Formats and functions take the same paths and URLs, and a relative path means the same directory in all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from logdex import spark as ls

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

URL = "s3n://bucket/x"
KEYS = "topic string, key string"


def test_functions_and_formats_refuse_another_scheme(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, store = Path.cwd(), shared_store("basic")
    before = set(started.iterdir())
    monkeypatch.chdir(tmp_path)
    keys = spark.createDataFrame([("TopicTest", "k")], KEYS)
    written = ls.arrange(
        spark.createDataFrame([("t", "k", 1, 1)], "topic string, key string, phy_offset long, store_timestamp long")
    )
    calls: dict[str, Callable[[], Any]] = {
        "find": lambda: ls.find(keys, URL),
        "lookup": lambda: ls.lookup(keys, URL),
        "query_offset": lambda: ls.query_offset(URL),
        "build_index store": lambda: ls.build_index(spark, URL, tmp_path / "index"),
        "build_index": lambda: ls.build_index(spark, store, URL),
        "build_key_index": lambda: ls.build_key_index(spark, store, URL),
        "build_key_index log_dir": lambda: ls.build_key_index(spark, URL, tmp_path / "index"),
        "rocketmq": lambda: spark.read.format("rocketmq").load(URL).count(),
        "rocketmq commitLog": lambda: spark.read.format("rocketmq").option("commitLog", URL).load(str(store)).count(),
        "rocketmq_index": lambda: spark.read.format("rocketmq_index").load(URL).count(),
        "kafka_log": lambda: spark.read.format("kafka_log").load(URL).count(),
        "rocketmq_index save": lambda: written.write.format("rocketmq_index").mode("append").save(URL),
    }
    for call in calls.values():
        with pytest.raises(Exception, match=r'expected a local path.* found the scheme "s3n"'):
            call()
    assert list(tmp_path.iterdir()) == []
    assert set(started.iterdir()) == before


def test_functions_take_file_urls(spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path) -> None:
    store = shared_store("basic")
    local = spark.read.format("rocketmq").load(str(store))
    rows = local.count()
    assert rows > 100
    keys = local.where("uniq_key is not null").selectExpr("topic", "uniq_key as key").limit(5)
    for form in ("file:{}", "FILE://{}", "file://localhost{}"):
        url = form.format(str(store).replace("a", "%61"))
        assert spark.read.format("rocketmq").load(url).count() == rows
        assert ls.find(keys, url).count() == 5
        target = tmp_path / f"index {len(form)}"
        report = ls.build_index(spark, url, form.format(str(target).replace(" ", "%20")))
        assert report.checked["messages"] == rows
        assert len(list(target.glob("2*"))) == report.checked["index_files"] > 0
        assert ls.lookup(keys, form.format(f"{store}/index")).count() >= 5


def test_a_relative_path_is_in_the_directory_of_the_driver(
    spark: SparkSession, shared_store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the process changed its directory: formats are planned by processes of the JVM."""
    store = shared_store("basic")
    relative = os.path.relpath(store, Path.cwd())
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    relative_logs, relative_index = os.path.relpath(logs, Path.cwd()), os.path.relpath(tmp_path / "index", Path.cwd())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    messages = spark.read.format("rocketmq").load(relative)
    keys = messages.where("uniq_key is not null").selectExpr("topic", "uniq_key as key").limit(5)
    assert ls.find(keys, relative).count() == 5
    assert ls.lookup(keys, f"{relative}/index").count() >= 5
    report = ls.build_index(spark, relative, relative_index)
    assert report.checked["messages"] == messages.count()
    assert (tmp_path / "index").is_dir()
    assert spark.read.format("rocketmq_index").load(relative_index).count() == report.checked["entries"]
    assert ls.build_key_index(spark, relative_logs, f"{relative_index}-keys").checked["partitions"] > 0
    assert spark.read.format("kafka_log").load(relative_logs).count() > 0
