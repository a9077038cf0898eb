"""`ls.seal` writes the rows that `MessageStore.seal` writes, each range of hashes by a task."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden_kafka
import object_store
import store_answers
from logdex import spark as ls
from logdex._core import forget_lists, locate, read_file
from logdex.errors import CorruptFileError
from logdex.kafka import LogDir, LogSegment
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", ["rolled", "killed"])
def test_the_rows_are_those_of_a_local_seal(
    spark: SparkSession, store: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    root = store(case)
    report = ls.seal(spark, str(root), str(tmp_path / "spark"))
    with MessageStore.open(root) as plain:
        local = plain.seal(tmp_path / "local")
        keys = store_answers.keys_of(pa.table(plain.messages()))[::5]
    assert report.findings == local.findings
    assert report.checked["entries"] == local.checked["entries"] > 1000
    made, expected = (store_answers.sealed_rows(tmp_path / place / "_logdex") for place in ("spark", "local"))
    assert made.schema.equals(expected.schema)
    assert made.to_pylist() == expected.to_pylist()
    assert not [path for path in (tmp_path / "spark/_logdex/keys").iterdir() if path.is_dir()]
    with (
        MessageStore.open(root, sealed="never") as plain,
        MessageStore.open(root, sealed=tmp_path / "spark") as sealed,
    ):
        assert f"{report.checked['entries']:,} entries" in str(sealed.sealed)
        columns = [list(column) for column in zip(*keys, strict=True)]
        assert pa.table(sealed.find_batch(*columns)).to_pylist() == pa.table(plain.find_batch(*columns)).to_pylist()
        assert sealed.verify().ok == plain.verify().ok


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_index_may_be_in_a_bucket(
    spark: SparkSession, server: object_store.ObjectStore, store: Callable[[str], Path], tmp_path: Path, is_remote: bool
) -> None:
    root = object_store.whole_seconds(store("rolled"))
    url = server.put("spark-seal", root)
    out = f"s3://{object_store.BUCKET}/spark-sealed-{is_remote}"
    options = server.options
    place = url if is_remote else str(root)
    ls.seal(spark, place, out, storage_options=options)
    report = ls.seal(spark, place, out, storage_options=options)
    with MessageStore.open(root) as plain:
        local = plain.seal(tmp_path / "local")
        keys = store_answers.keys_of(pa.table(plain.messages()))[::7]
    assert report.ok
    assert report.checked["entries"] == local.checked["entries"] > 1000
    # The job before left nothing, and tasks no attempt.
    names = list(locate(f"{out}/_logdex/keys", options).iterdir())
    assert len(names) == report.checked["key_files"] == 1
    columns = [list(column) for column in zip(*keys, strict=True)]
    with (
        MessageStore.open(root, sealed="never") as plain,
        MessageStore.open(url if is_remote else root, sealed=out, storage_options=options) as sealed,
    ):
        assert f"{report.checked['entries']:,} entries" in str(sealed.sealed)
        assert pa.table(sealed.find_batch(*columns)).to_pylist() == pa.table(plain.find_batch(*columns)).to_pylist()
        assert sealed.verify().kinds.get("sealed-row") is None
    content = read_file(names[0])
    assert content == next((tmp_path / "local/_logdex/keys").iterdir()).read_bytes()


@pytest.mark.parametrize("case", ["codecs", "damaged-crc"])
def test_the_rows_of_kafka_are_those_of_a_local_seal(spark: SparkSession, tmp_path: Path, case: str) -> None:
    root = golden_kafka.unpack(case, tmp_path / case)
    pairs = [pair for row in golden_kafka.rows("codecs", "records") for pair in row["headers"] or []]
    header = next(name for name, value in pairs if value)
    with LogDir.open(root) as logs:
        local = logs.seal(tmp_path / "local", header=header)
    report = ls.seal(spark, str(root), str(tmp_path / "spark"), header=header)
    assert report.findings == local.findings
    assert report.checked == local.checked
    made, expected = (store_answers.sealed_rows(tmp_path / place / "_logdex") for place in ("spark", "local"))
    assert made.schema.equals(expected.schema)
    assert made.to_pylist() == expected.to_pylist()
    assert report.checked["entries"] > 0
    with LogDir.open(root, sealed=tmp_path / "spark") as logs:
        assert logs.verify().kinds.get("sealed-row") is None


def test_a_store_may_grow_meanwhile(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    module = import_module("logdex.spark.seal")
    describe = module._described
    with StoreWriter.open(root, file_size=1 << 20, hash_slots=100, max_entries=400) as writer:

        def put(count: int) -> None:
            for number in range(count):
                writer.put_message("T", b"body", keys=f"k{number}")
            writer.dispatch()
            writer.flush()

        def described(*arguments: object) -> object:
            found = describe(*arguments)
            put(50)
            return found

        put(500)
        monkeypatch.setattr(module, "_described", described)
        report = ls.seal(spark, str(root), str(tmp_path / "out"))
    assert [finding.kind for finding in report.findings] == ["sealed-file"]
    with MessageStore.open(root, sealed=tmp_path / "out") as store:
        assert len(store.find("T", "k7").messages) == 2


def test_a_log_may_grow_meanwhile(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    newest = max(root.glob("*/*.log"), key=lambda path: path.stat().st_size)
    whole = newest.read_bytes()
    with LogSegment.open(newest) as segment:
        last = pa.table(segment.batches())["position"].to_pylist()[-1]
    newest.write_bytes(whole[:last])
    module = import_module("logdex.spark.seal")
    describe = module._described

    def described(*arguments: object) -> object:
        found = describe(*arguments)
        newest.write_bytes(whole)
        return found

    monkeypatch.setattr(module, "_described", described)
    report = ls.seal(spark, str(root), str(tmp_path / "out"))
    assert [(finding.kind, finding.path) for finding in report.findings] == [("sealed-file", str(newest))]
    with LogDir.open(root, sealed=tmp_path / "out") as logs:
        assert logs.verify().kinds.get("sealed-row") is None


def test_a_header_is_kafkas(spark: SparkSession, store: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="header='h': expected a Kafka log directory"):
        ls.seal(spark, str(store("basic")), tmp_path, header="h")


def test_a_job_that_fails_leaves_the_index_of_before(
    spark: SparkSession,
    server: object_store.ObjectStore,
    store: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = object_store.whole_seconds(store("basic"))
    out = f"s3://{object_store.BUCKET}/spark-seal-fails"
    ls.seal(spark, str(root), out, storage_options=server.options)
    keys = locate(f"{out}/_logdex/keys", server.options)
    before = list(keys.iterdir())

    module = import_module("logdex.spark.seal")
    write = module._written

    def lose_a_file(*arguments: object) -> list[bytes]:
        written: list[bytes] = write(*arguments)
        forget_lists(keys)
        assert len(list(keys.iterdir())) == len(before) + len(written) == 2
        return []

    monkeypatch.setattr(module, "_written", lose_a_file)
    with pytest.raises(CorruptFileError, match="rows"):
        ls.seal(spark, str(root), out, storage_options=server.options)
    forget_lists(keys)
    assert list(keys.iterdir()) == before
    with MessageStore.open(root, sealed=out, storage_options=server.options) as sealed:
        assert "index files" in str(sealed.sealed)
