"""Logs that the classes of Kafka 3.9.2 and 4.3.1 wrote: the same operations give the same files and the same results."""

from __future__ import annotations

import base64
import io
import json
import lzma
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logdex import KafkaError
from logdex.kafka import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-write"
CASES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())
RELEASES = ("3.9.2", "4.3.1")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def _files(case: Path, release: str) -> dict[str, bytes]:
    """Return the files of the partition directory that a release left."""
    path = case / "log.tar.xz"
    path = path if path.exists() else case / f"log-{release}.tar.xz"
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(path.read_bytes()))) as tar:
        members = [member for member in tar.getmembers() if member.isfile()]
        contents = {Path(member.name).name: tar.extractfile(member) for member in members}
        return {name: content.read() for name, content in contents.items() if content}


@dataclass
class Partition:
    """A partition directory, to which operations are applied."""

    spec: dict[str, Any]
    directory: Path
    release: str
    now: int = 0
    writer: LogWriter | None = None
    operations: dict[str, Callable[[LogWriter, dict[str, Any]], object]] = field(
        default_factory=lambda: {
            "leader": lambda writer, op: writer.become_leader(op["epoch"]),
            "highWatermark": lambda writer, op: writer.advance_high_watermark(op.get("to")),
            "logStart": lambda writer, op: writer.delete_records(op["to"]),
            "truncate": lambda writer, op: writer.truncate_to(op["to"]),
            "truncateFully": lambda writer, op: writer.truncate_fully(op["to"]),
            "roll": lambda writer, _: writer.roll(),
            "flush": lambda writer, _: writer.flush(),
        }
    )

    def open(self, *, clean: bool, log_start: int, recovery_point: int) -> None:
        self.writer = LogWriter.open(
            self.directory,
            topic_id=self.spec.get("topicId"),
            config=self.spec["config"],
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            producer_id_expiration_ms=self.spec.get("producerIdExpirationMs", 86_400_000),
            clock=lambda: self.now,
            compat=self.release,
        )

    def apply(self, op: dict[str, Any]) -> dict[str, Any]:
        """Apply an operation, and return its result."""
        writer, result = self.writer, {}
        if op["op"] in ("remove", "rename", "cut", "patch"):
            self._damage(op)
        elif op["op"] == "advance":
            self.now += op["ms"]
        elif op["op"] == "open":
            start, point = op.get("logStart", 0), op.get("recoveryPoint", 0)
            self.open(clean=op.get("clean", True), log_start=start, recovery_point=point)
        elif writer is not None and op["op"] == "append":
            place = writer.append_batches(
                base64.b64decode(op["records"]),
                leader_epoch=op["epoch"],
                origin=op["origin"],
                transaction_version=op.get("transactionVersion", 1),
            )
            names = ("firstOffset", "lastOffset", "maxTimestamp", "logAppendTime")
            result = dict(zip(names, place, strict=True))
        elif writer is not None and op["op"] == "retention":
            result = {"deleted": writer.delete_expired()}
        elif writer is not None and op["op"] in ("close", "kill"):
            writer.close() if op["op"] == "close" else writer.abandon()
            self.writer = None
            result = {"recoveryPoint": writer.recovery_point}
            if op["op"] == "close":
                result["logStartOffset"] = writer.log_start_offset
        else:
            assert writer is not None
            self.operations[op["op"]](writer, op)
        return result

    def _damage(self, op: dict[str, Any]) -> None:
        for name in [op["file"]] if "file" in op else op["files"]:
            path = self.directory / name
            if op["op"] == "remove":
                path.unlink()
            elif op["op"] == "rename":
                path.rename(path.with_name(name + op["suffix"]))
            elif op["op"] == "cut":
                with path.open("r+b") as file:
                    file.truncate(op["size"])
            else:
                path.touch()
                with path.open("r+b") as file:
                    file.seek(op["at"])
                    file.write(bytes.fromhex(op["hex"]))

    def state(self) -> dict[str, Any]:
        """Return the offsets after an operation."""
        writer = self.writer
        if writer is None:
            return {}
        segments = writer.segments
        return {
            "logStartOffset": writer.log_start_offset,
            "logEndOffset": writer.end_offset,
            "recoveryPoint": writer.recovery_point,
            "lastStableOffset": writer.last_stable_offset,
            "segments": len(segments),
            "activeSegment": segments[-1],
        }


def _run(name: str, release: str, root: Path) -> Partition:
    case = GOLDEN / name
    spec = json.loads((case / "case.json").read_text())
    partition = Partition(spec, root / f"{spec['topic']}-{spec['partition']}", release, now=spec["now"])
    results = case / "results.jsonl.xz"
    expected = _lines(results if results.exists() else case / f"results-{release}.jsonl.xz")
    partition.open(clean=True, log_start=spec.get("logStart", 0), recovery_point=spec.get("recoveryPoint", 0))
    assert partition.writer is not None
    partition.writer.run_due_tasks()
    operations = _lines(case / "ops.jsonl.xz")
    for number, (op, answer) in enumerate(zip(operations, expected, strict=True)):
        try:
            result = partition.apply(op)
        except KafkaError as error:
            result = {"error": error.error}
        if partition.writer is not None:
            partition.writer.run_due_tasks()
        known = {"n", "op", "message", "files", "at", "size", "activeSize"}
        told = {key: value for key, value in answer.items() if key not in known}
        assert {**result, **partition.state()} == told, (number, op["op"])
        if "activeSize" in answer and partition.writer is not None:
            active = partition.directory / f"{partition.writer.segments[-1]:020}.log"
            if spec["config"].get("preallocate") != "true":
                assert active.stat().st_size == answer["activeSize"], (number, op["op"])
    return partition


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", CASES)
def test_a_log_is_that_of_the_broker(name: str, release: str, tmp_path: Path) -> None:
    partition = _run(name, release, tmp_path)
    expected = _files(GOLDEN / name, release)
    found = {path.name: path.read_bytes() for path in partition.directory.iterdir()}
    assert sorted(found) == sorted(expected)
    for file in sorted(expected):
        assert found[file] == expected[file], file
