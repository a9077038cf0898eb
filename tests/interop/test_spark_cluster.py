"""A Spark standalone cluster whose workers share no disk, with store and logs in a bucket: all answers are those of the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import golden
import golden_kafka
import object_store
import store_answers
from logdex._core import locate, read_file
from logdex.kafka import LogDir, build_key_index
from logdex.rocketmq import IndexService, MessageStore
from spark_cluster import standalone

_PROGRAM = Path(__file__).parent / "spark_cluster_program.py"
_SECONDS = 600


def local_answers(store: Path, logs: Path, directory: Path, asked: list[tuple[str, str]], topic: str) -> dict[str, Any]:
    """Return what plain logdex says."""
    with MessageStore.open(store) as opened, LogDir.open(logs) as log_dir, IndexService.open(store / "index") as index:
        messages = pa.table(opened.messages()).to_pylist()
        records = pa.table(log_dir.records()).to_pylist()
        with IndexService.open(directory / "index", mode="a", hash_slots=128, max_entries=300, zone="UTC") as built:
            built.build_index(opened.commit_log.scan())
        topics, keys = [topic for topic, _ in asked], [key for _, key in asked]
        with IndexService.open(directory / "index") as built:
            entries, files = sum(map(len, built.files)), len(built.files)
            candidates = sum(map(len, built.query_batch(topics, keys).to_pylist()))
        return {
            "messages": sorted([row["phy_offset"], zlib.crc32(row["body"] or b"")] for row in messages),
            "topic": sum(row["topic"] == topic for row in messages),
            "entries": sum(map(len, index.files)),
            "found": sorted([key, each.phy_offset] for name, key in asked for each in opened.find(name, key)),
            "candidates": sum(map(len, index.query_batch(topics, keys).to_pylist())),
            "records": sorted([row["topic"], row["partition"], row["offset"]] for row in records),
            "keys": build_key_index(logs, directory / "keys").checked,
            "built_entries": entries,
            "built_candidates": candidates,
            "files": files,
            "log_files": len(opened.commit_log.files),
            "sealed": opened.seal(directory / "sealed").checked,
        }


@pytest.mark.timeout(2 * _SECONDS)
def test_a_cluster_without_a_shared_disk_reads_finds_builds_and_seals(tmp_path: Path) -> None:
    here = tmp_path / "here"
    store, logs = golden.unpack("rolled", here / "store"), golden_kafka.unpack("codecs", here / "logs")
    messages = golden.rows("rolled", "messages")
    asked = [(message["topic"], message["uniqKey"]) for message in messages[::40] if message["uniqKey"]]
    topic = messages[0]["topic"]
    expected = local_answers(store, logs, here, asked, topic)
    index = [path.read_bytes() for path in sorted((here / "index").iterdir())]
    sealed_rows = store_answers.sealed_rows(here / "sealed" / "_logdex")
    with object_store.serve() as server:
        out = f"s3://{object_store.BUCKET}/out"
        given = {
            "store": server.put("store", store),
            "logs": server.put("logs", logs),
            "out": out,
            "options": server.options,
            "keys": asked,
            "topic": topic,
            "events": f"file:{tmp_path / 'events'}",
        }
        # Nothing but the bucket is left.
        shutil.rmtree(here)
        (tmp_path / "events").mkdir()
        (tmp_path / "driver").mkdir()
        with standalone(tmp_path / "cluster", 2) as cluster:
            program = subprocess.run(
                [sys.executable, str(_PROGRAM)],
                input=json.dumps({**given, "cluster": cluster}),
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                cwd=tmp_path / "driver",
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        assert program.returncode == 0, program.stderr[-4000:]
        answers = json.loads(program.stdout)
        files = json.loads(read_file(locate(f"{out}/index/_committed.json", server.options)))["files"]
        for path in locate(f"{out}/sealed/_logdex/keys", server.options).iterdir():
            copy = tmp_path / "sealed" / "keys" / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(read_file(path))
        catalog = read_file(locate(f"{out}/sealed/_logdex/catalog.parquet", server.options))
        (tmp_path / "sealed" / "catalog.parquet").write_bytes(catalog)
        built = [read_file(locate(f"{out}/index/{files[name]['object']}", server.options)) for name in sorted(files)]
    workers = {Path(each).relative_to(tmp_path / "cluster").parts[0] for each in answers.pop("directories")}
    assert workers == {"worker-0", "worker-1"}
    assert answers.pop("built") == {
        "log_files": expected.pop("log_files"),
        "messages": len(expected["messages"]),
        "entries": expected["built_entries"],
        "index_files": expected.pop("files"),
        "reserved_bytes": sum(map(len, index)),
    }
    sealed, local = answers.pop("sealed"), expected.pop("sealed")
    # Another writer, other bytes.
    assert {**sealed, "key_bytes": 0} == {**local, "key_bytes": 0}
    assert answers == expected
    assert built == index
    assert store_answers.sealed_rows(tmp_path / "sealed").to_pylist() == sealed_rows.to_pylist()
    assert len(sealed_rows) > 3000
    assert len(answers["found"]) > 50
    # Logs of master, workers, tasks and driver, and what Spark keeps of plans and settings.
    said = [program.stdout, program.stderr]
    said += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(said) > 8
    assert any("SparkListenerSQLExecutionStart" in text for text in said)
    assert [text for text in said if object_store.SECRET in text or object_store.ACCESS_KEY in text] == []
