"""Kafka segments: records to Arrow, batch headers, and rebuilt indexes, by the real classes and by logdex."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from filecmp import cmp
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from logdex.kafka import LogSegment

from .. import segments
from ..plan import Part
from ..rounds import take_turns, together
from ..server import kafka_jvm, native

if TYPE_CHECKING:
    from pathlib import Path

    from ..plan import Plan
    from ..rounds import Step
    from ..segments import Written
    from ..server import Server

INDEXES = {"index_interval_bytes": 4_096, "max_index_bytes": 10_485_760}
HEADS = ["position", "size", "baseOffset", "lastOffset", "maxTimestamp", "producerId", "baseSequence"]
"""Fields of a batch that the real classes return."""


def measure(plan: Plan) -> Part:
    """Measure in turns, in rounds of one codec: short rounds are disturbed alike."""
    rebuilt = plan.scratch / "rebuilt"
    rebuilt.mkdir()
    with ExitStack() as stack:
        real = stack.enter_context(kafka_jvm(plan.scratch))
        ours = stack.enter_context(native(plan.scratch))
        written = segments.write(plan, real, plan.segment_bytes)
        groups = []
        for codec in segments.CODECS:
            steps: dict[str, Step] = {}
            amounts: dict[str, int] = {}
            for segment in written:
                if segment.codec != codec:
                    continue
                same_records(real, segment)
                same_indexes(real, ours, segment, rebuilt)
                steps |= scans(real, ours, segment)
                if codec == "none":
                    steps |= walks(real, ours, segment, rebuilt)
                amounts |= {
                    step: segment.records if "records" in step else segment.batches
                    for step in steps
                    if step.startswith(segment.name)
                }
            measured = take_turns(steps, plan.rounds)
            measured.amounts = amounts
            groups.append(measured)
    facts = {
        segment.name: {"records": segment.records, "batches": segment.batches, "size": segment.size, "raw": segment.raw}
        for segment in written
    }
    return Part("kafka", 1, together(groups), {"segments": facts})


def scans(real: Server, ours: Server, segment: Written) -> dict[str, Step]:
    """Return the steps that read all records of a segment."""
    name, path = segment.name, segment.path
    steps: dict[str, Step] = {
        f"{name}_records_java": lambda _: real.seconds("rounds_records", path=path),
        f"{name}_records_native": lambda _: ours.seconds("kafka_records", path=path, threads=1),
        f"{name}_records_views": lambda _: ours.seconds("kafka_records", path=path, threads=1, views=True),
        f"{name}_records_python": lambda _: read(path, 1),
        f"{name}_records_two": lambda _: ours.seconds("kafka_records", path=path, threads=2),
        f"{name}_records_python_two": lambda _: read(path, 2),
    }
    return steps


def walks(real: Server, ours: Server, segment: Written, rebuilt: Path) -> dict[str, Step]:
    """Return the steps that read all batch headers, and those that rebuild the indexes."""
    name, path = segment.name, segment.path
    java = {"dir": path.parent, "base": 0, **INDEXES}
    return {
        f"{name}_heads_java": lambda _: real.seconds("rounds_headers", path=path, crc=True),
        f"{name}_heads_native": lambda _: ours.seconds("kafka_headers", path=path, crc=True),
        f"{name}_heads_all": lambda _: ours.seconds("kafka_headers", path=path, crc=True, all=True),
        f"{name}_heads_python": partial(heads, path),
        f"{name}_recover_java": lambda _: real.seconds("rounds_recover", **java),
        f"{name}_recover_native": lambda _: ours.seconds("kafka_recover", path=path, directory=rebuilt, **INDEXES),
        f"{name}_recover_python": partial(recover, path),
    }


def read(path: Path, threads: int) -> float:
    """Read all records from Python as Arrow batches, in threads that read a part of the offsets each."""

    def drain(segment: LogSegment, begin: int | None, end: int | None) -> int:
        return sum(batch.num_rows for batch in segment.records(begin_offset=begin, end_offset=end))

    if threads == 1:
        start = time.perf_counter()
        with LogSegment.open(path) as segment:
            drain(segment, None, None)
        return time.perf_counter() - start
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: None, range(threads)))  # start the threads
        start = time.perf_counter()
        with LogSegment.open(path) as segment:
            bounds = [segment.next_offset() * part // threads for part in range(threads + 1)]
            list(pool.map(partial(drain, segment), bounds, bounds[1:]))
        return time.perf_counter() - start


def heads(path: Path, _: int) -> float:
    """Read all batch headers from Python."""
    start = time.perf_counter()
    with LogSegment.open(path) as segment:
        for _batch in segment.batches(columns=HEADS):
            pass
    return time.perf_counter() - start


def recover(path: Path, _: int) -> float:
    """Build both indexes from Python, in memory; `rebuild_indexes` would also write them and wait for the disk."""
    start = time.perf_counter()
    with LogSegment.open(path) as segment:
        recovered = segment.recover(
            index_interval_bytes=INDEXES["index_interval_bytes"], max_index_bytes=INDEXES["max_index_bytes"]
        )
        assert recovered.offset_index
        assert recovered.time_index
    return time.perf_counter() - start


def same_records(real: Server, segment: Written) -> None:
    """Check, before the measurement, that both read the same.

    Raises:
        RuntimeError: They do not.
    """
    theirs = real.ask("rounds_records", path=segment.path)
    records = total = 0
    with LogSegment.open(segment.path) as reader:
        for batch in map(pa.record_batch, reader.records(columns=["offset", "timestamp", "key", "value", "headers"])):
            offset, timestamp, key, value, headers = batch.columns
            fields = headers.flatten()
            texts = [key, value, fields.field("key"), fields.field("value")]
            records += batch.num_rows
            numbers = [offset, timestamp.cast(pa.timestamp("ms", timestamp.type.tz)).cast(pa.int64())]
            total += sum(pc.sum(column).as_py() for column in (*numbers, *map(pc.binary_length, texts)))
    if not theirs["records"] == records == segment.records or (theirs["sum"] - total) % 2**64:
        raise RuntimeError(f"{segment.path}: the real class read {theirs}, logdex {records} records, sum {total}")


def same_indexes(real: Server, ours: Server, segment: Written, rebuilt: Path) -> None:
    """Check that both build the same indexes. The real class leaves its files beside the segment.

    Raises:
        RuntimeError: They do not.
    """
    real.ask("rounds_recover", dir=segment.path.parent, base=0, **INDEXES)
    ours.ask("kafka_recover", path=segment.path, directory=rebuilt, **INDEXES)
    for suffix in (".index", ".timeindex"):
        theirs = segment.path.with_suffix(suffix)
        if not cmp(theirs, rebuilt / theirs.name, shallow=False):
            raise RuntimeError(f"{theirs} differs from the index that logdex builds")
