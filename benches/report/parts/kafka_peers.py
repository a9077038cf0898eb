"""Alternatives for reading segments from Python: kafka-python, aiokafka and kafka-dump-log."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from .. import segments
from ..plan import Part
from ..rounds import take_turns
from ..server import KAFKA_JAR, kafka_jvm
from .kafka import read

if TYPE_CHECKING:
    from pathlib import Path

    from ..plan import Plan
    from ..rounds import Step

READ = (("none", 100), ("none", 1_024), ("lz4", 100), ("zstd", 100))
DUMPED = (("none", 100), ("none", 1_024))
SHARE, DUMPED_SHARE = 16, 8
"""Parts of a segment: a whole one would take minutes."""


def measure(plan: Plan) -> Part:
    """Measure in turns: all steps read whole segments and compare checksums."""
    with kafka_jvm(plan.scratch) as real:
        read_ = segments.write(plan, real, plan.segment_bytes // SHARE, READ)
        dumped = segments.write(plan, real, plan.segment_bytes // DUMPED_SHARE, DUMPED)
    steps: dict[str, Step] = {}
    amounts: dict[str, int] = {}
    for segment in read_:
        ways: dict[str, Step] = {
            f"{segment.name}/logdex": partial(_logdex, segment.path),
            f"{segment.name}/aiokafka": partial(_objects, AiokafkaRecords, segment.path),
            f"{segment.name}/kafka-python": partial(_objects, KafkaPythonRecords, segment.path),
        }
        steps |= ways
        amounts |= dict.fromkeys(ways, segment.records)
    for segment in dumped:
        ways = {
            f"{segment.name}/logdex, a larger part": partial(_logdex, segment.path),
            f"{segment.name}/kafka-dump-log": partial(_dump_log, segment.path),
            f"{segment.name}/logdex kafka dump": partial(_dump, segment.path),
        }
        steps |= ways
        amounts |= dict.fromkeys(ways, segment.records)
    measured = take_turns(steps, plan.rounds)
    measured.amounts = amounts
    return Part(
        "kafka_peers", 1, measured, {"versions": {name: version(name) for name in ("kafka-python", "aiokafka")}}
    )


def _logdex(path: Path, _: int) -> float:
    return read(path, 1)


def _objects(kind: Any, path: Path, _: int) -> float:
    """Read all records as the client does after a fetch."""
    start = time.perf_counter()
    records = kind(path.read_bytes())
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise RuntimeError(f"{path}: {kind.__module__} finds a wrong checksum")
        for record in batch:
            _touched = record.offset, record.timestamp, record.key, record.value, record.headers
    return time.perf_counter() - start


def _dump_log(path: Path, _: int) -> float:
    jars = KAFKA_JAR.parent / "lib" / "*"
    command = ["java", "-cp", str(jars), "kafka.tools.DumpLogSegments", "--files", str(path), "--print-data-log"]
    return _run(command)


def _dump(path: Path, _: int) -> float:
    return _run([sys.executable, "-m", "logdex", "kafka", "dump", "--print-data-log", str(path)])


def _run(command: list[str]) -> float:
    """Run a program and discard its output; the whole process is timed."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    took = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return took
