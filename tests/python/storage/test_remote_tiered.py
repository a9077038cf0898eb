"""Tiered storage in a bucket: the same answers as on the disk, and no more bytes than a read needs."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_tiered
import kafka_batches
import object_store
import slow_proxy
import store_answers
from logdex.cli import main
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 4 << 20


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_a_bucket_answers_as_the_disk_does(server: object_store.ObjectStore, tmp_path: Path, case: str) -> None:
    folder = object_store.whole_seconds(golden_tiered.unpack(case, tmp_path))
    keys = golden_tiered.keys(case)
    url = server.put(f"tiered-{case}", folder)
    options = server.options
    with LogDir.open(folder / "before") as before:
        expected = store_answers.of_log_dir(before)
    expected["verify"]["checked"]["snapshots"] -= 4
    places: list[tuple[Any, str, dict[str, str]]] = [
        (folder / "after", f"{url}/remote", options),
        (f"{url}/after", f"{url}/remote", options),
    ]
    for local, remote, storage in places:
        with LogDir.open(local, tiered=remote, tiered_keys=keys, storage_options=storage) as logs:
            found = store_answers.of_log_dir(logs)
        assert found == expected
        assert (len(found["records"]), len(found["finds"])) == (580, 13)
        assert sum(map(len, found["logs"])) > 300
        assert found["verify"]["ok"]
    with LogDir.open(f"{url}/remote", tiered_keys=keys, storage_options=options) as logs:
        assert pa.table(logs.records()).num_rows > 400


def test_the_command_line(server: object_store.ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = "aiven-encrypted"
    folder = object_store.whole_seconds(golden_tiered.unpack(case, tmp_path / "case"))
    url = server.put(f"tiered-{case}", folder)
    storage = [word for pair in server.options.items() for word in ("--storage", "=".join(pair))]
    keys = [f"--tiered-key={name}={path}" for name, path in (golden_tiered.keys(case) or {}).items()]
    tiered = ["--tiered", f"{url}/remote", *storage, *keys]
    logs = str(folder / "after")

    def run(*words: str) -> str:
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert run("cat", logs, *tiered).count("\n") == golden_tiered.RECORDS
    assert run("cat", f"{logs}/plain-1", *tiered).count("\n") == 90
    run("export", logs, str(tmp_path / "records.jsonl"), *tiered)
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == golden_tiered.RECORDS
    info = json.loads(run("info", logs, "--json", *tiered))
    assert (info["kind"], info["topics"], info["partitions"][0]["segments"]) == ("Kafka log directory", 3, 4)
    assert "valid" in run("verify", logs, *tiered)
    assert "valid" in run("kafka", "verify", logs, *tiered)
    wanted = sum(row["topic"] == "plain" and row["key"] == b"key-7" for row in golden_tiered.records(case))
    assert run("kafka", "find", logs, "plain", "key-7", *tiered).count("\n") == wanted > 3
    run("kafka", "build-index", logs, str(tmp_path / "index"), *tiered)
    index = ["--index", str(tmp_path / "index")]
    assert run("kafka", "find", logs, "plain", "key-7", *index, *tiered).count("\n") == wanted
    alone = run("cat", f"{url}/remote", *storage, *keys)
    assert 400 < alone.count("\n") < golden_tiered.RECORDS
    assert main(["cat", f"{url}/remote", *storage]) == 2
    assert "--tiered-key key-1=FILE" in capsys.readouterr().err


def _segment(directory: Path) -> list[int]:
    """Write a segment of six chunks of 4 MiB, each compressed, as the plugin does; return positions of its batches."""
    chance = random.Random(7)
    log, entries, positions = b"", b"", []
    for number in range(96):
        positions.append(len(log))
        # A broker has no entry for the first batch.
        entries += struct.pack(">ii", number, len(log)) if number else b""
        value = chance.randbytes(CHUNK // 16)
        log += kafka_batches.batch([kafka_batches.Row(number, number, f"key-{number}".encode(), value)])
    codec = pa.Codec("zstd")
    chunks = [codec.compress(log[at : at + CHUNK], asbytes=True) for at in range(0, len(log), CHUNK)]
    sizes = [len(chunk) for chunk in chunks]
    packed = struct.pack(">iib", len(sizes), 0, 4) + b"".join(struct.pack(">i", size) for size in sizes)
    parts = {"offset": entries, "timestamp": b"", "producerSnapshot": b"", "leaderEpoch": b"0\n1\n0 0\n"}
    position, indexes = 0, {}
    for name, content in parts.items():
        indexes[name] = {"position": position, "size": len(content)}
        position += len(content)
    manifest = {
        "version": "1",
        "chunkIndex": {
            "type": "variable",
            "originalChunkSize": CHUNK,
            "originalFileSize": len(log),
            "transformedChunks": base64.b64encode(codec.compress(packed, asbytes=True)).decode(),
        },
        "segmentIndexes": {**indexes, "transaction": None},
        "compression": True,
        "remoteLogSegmentMetadata": {"endOffset": 95, "segmentLeaderEpochs": {"0": 0}},
    }
    place = directory / "orders-AAAAAAAAAAAAAAAAAAAAAA" / "0"
    place.mkdir(parents=True)
    stem = place / "00000000000000000000-BBBBBBBBBBBBBBBBBBBBBB"
    stem.with_suffix(".log").write_bytes(b"".join(chunks))
    stem.with_suffix(".indexes").write_bytes(b"".join(parts.values()))
    stem.with_suffix(".rsm-manifest").write_text(json.dumps(manifest))
    return positions


def test_a_read_fetches_the_chunks_that_it_needs(server: object_store.ObjectStore, tmp_path: Path) -> None:
    positions = _segment(tmp_path / "tier")
    assert positions[-1] > 5 * CHUNK
    url = server.put("tiered-chunks", tmp_path / "tier")
    with slow_proxy.SlowProxy(server.port) as proxy:
        options = {**server.options, "aws_endpoint": proxy.endpoint}
        with LogDir.open(url, storage_options=options) as logs:
            log = logs.log("orders", 0)
            # The fifth batch is in the first chunk, the ninetieth in the sixth.
            for offset in (4, 90):
                (row,) = pa.table(log.records(offset, offset + 1, columns=["offset", "key"])).to_pylist()
                assert row == {"offset": offset, "key": f"key-{offset}".encode()}
            # Two chunks are decoded. A read of a whole chunk has the next one read ahead.
            assert _bytes_of_log(proxy) <= 4 * CHUNK, [
                each.range for each in proxy.requests if each.target.endswith(".log")
            ]
            assert pa.table(log.records(columns=["offset"])).num_rows == 96
            found = logs.find("orders", "key-95")
            assert [record.offset for record in found] == [95]


def _bytes_of_log(proxy: slow_proxy.SlowProxy) -> int:
    """Return the bytes that were asked for of the log."""
    total = 0
    for request in proxy.requests:
        if request.is_of_object and request.target.endswith(".log"):
            assert request.range is not None
            begin, end = request.range.removeprefix("bytes=").split("-")
            total += int(end) - int(begin) + 1
    return total
