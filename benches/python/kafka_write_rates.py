"""Measure appends to a Kafka log from Arrow beside the real broker's classes, and copies beside a plain copy of the bytes.

    python benches/python/kafka_write_rates.py [--mebibytes 256] [--rounds 7] [--json] [--short]

Java builds batches with `MemoryRecordsBuilder` and appends them with `UnifiedLog#appendAsLeader` (3.9.2), on one thread, in a
warm JVM. Both sides append the same records, which lie in memory, in batches of 16 KiB, and leave them to the page cache. They
take turns, and each ratio is taken within a round. The limit is what no writer can avoid: blocks of 16 KiB of the same bytes are
compressed, one by one, and written. The plain copy reads and writes the files in blocks of 1 MiB, and like `kafka.copy` it
waits for the disk at the end. Needs Maven and a JDK.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from benches.report.server import kafka_jvm
from logdex import kafka

if TYPE_CHECKING:
    from benches.report.server import Server

CODECS = {"none": None, "lz4": pa.Codec("lz4_raw"), "zstd": pa.Codec("zstd", 3)}
"""With what compresses alone: the library of the codec."""
VALUE_BYTES = (100, 1_024)
COLUMNS = ["key", "value", "headers", "timestamp"]
SEGMENT_BYTES = 256 << 20
BLOCK = 1 << 20
BATCH = 1 << 14
WARM_ROUNDS = 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--mebibytes", type=int, default=256, help="size of the records of a round, uncompressed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    size, rounds = (1 << 20, 1) if given.short else (given.mebibytes << 20, given.rounds)
    with tempfile.TemporaryDirectory(prefix="logdex-bench-") as scratch, kafka_jvm(Path(scratch)) as real:
        for value_bytes in VALUE_BYTES:
            source = Path(scratch) / f"source-{value_bytes}" / "orders-0"
            source.mkdir(parents=True)
            segment = source / f"{0:020d}.log"
            real.ask("rounds_write_segment", path=segment, bytes=size, codec="none", value_bytes=value_bytes)
            for codec in CODECS:
                _say(given.json, f"append {codec}, {value_bytes:,} B", _appends(real, segment, codec, rounds))
        for codec, value_bytes in product(("none", "zstd"), VALUE_BYTES):
            source = Path(scratch) / f"copied-{codec}-{value_bytes}"
            (source / "orders-0").mkdir(parents=True)
            segment = source / "orders-0" / f"{0:020d}.log"
            real.ask("rounds_write_segment", path=segment, bytes=2 * size, codec=codec, value_bytes=value_bytes)
            _say(given.json, f"copy {codec}, {value_bytes:,} B", _copies(source, Path(scratch) / "copy", rounds))


def _appends(real: Server, segment: Path, codec: str, rounds: int) -> list[tuple[int, float, float, float]]:
    """Return for each round the number of records, and the seconds of logdex, of Java and of the limit."""
    raw = memoryview(segment.read_bytes())
    with kafka.Log.open(segment.parent) as log:
        records = log.records(columns=COLUMNS).read_all()
    taken = []
    for number in range(-WARM_ROUNDS, rounds):
        directory = segment.parents[1] / "written-0"
        question = {"path": segment, "dir": directory, "codec": codec, "segment_bytes": SEGMENT_BYTES}
        theirs = real.ask("rounds_append", **question)
        shutil.rmtree(directory)
        with kafka.LogWriter.open(directory, config={"segment.bytes": SEGMENT_BYTES}) as writer:
            writer.become_leader(0)
            begun = time.perf_counter()
            writer.append(records, codec=codec)
            ours = time.perf_counter() - begun
            if writer.end_offset != theirs["records"]:
                raise RuntimeError(f"{writer.end_offset} records appended, expected {theirs['records']}")
        shutil.rmtree(directory)
        limit = _limit(raw, codec, segment.with_name("limit"))
        if number >= 0:
            taken.append((theirs["records"], ours, theirs["seconds"], limit))
    return taken


def _limit(raw: memoryview, codec: str, path: Path) -> float:
    """Return the seconds to compress and write bytes in blocks."""
    compressor = CODECS[codec]
    begun = time.perf_counter()
    with path.open("wb", 0) as out:
        for at in range(0, len(raw), BATCH):
            block = raw[at : at + BATCH]
            out.write(block if compressor is None else compressor.compress(block))
    taken = time.perf_counter() - begun
    path.unlink()
    return taken


def _copies(source: Path, target: Path, rounds: int) -> list[tuple[int, float, float, float]]:
    """Return for each round the number of records, and the seconds of `kafka.copy` and of a plain copy."""
    taken = []
    for number in range(-WARM_ROUNDS, rounds):
        begun = time.perf_counter()
        target.mkdir()
        for path in (source / "orders-0").iterdir():
            with path.open("rb", 0) as given, (target / path.name).open("wb", 0) as out:
                shutil.copyfileobj(given, out, BLOCK)
                os.fsync(out.fileno())
        theirs = time.perf_counter() - begun
        shutil.rmtree(target)
        begun = time.perf_counter()
        report = kafka.copy(source, target)
        ours = time.perf_counter() - begun
        shutil.rmtree(target)
        target.with_name(f"{target.name}.steps.txt").unlink()
        if number >= 0:
            taken.append((report.checked["records"], ours, theirs, theirs))
    return taken


def _say(as_json: bool, what: str, taken: list[tuple[int, float, float, float]]) -> None:  # noqa: FBT001 -- an option of the program
    """Print the medians of the rates, of the ratios with least and most, and of the share of the limit."""
    ratios = sorted(theirs / ours for _, ours, theirs, _ in taken)
    row: dict[str, Any] = {
        "what": what,
        "logdex_records_s": round(statistics.median(count / ours for count, ours, _, _ in taken)),
        "other_records_s": round(statistics.median(count / theirs for count, _, theirs, _ in taken)),
        "times": round(statistics.median(ratios), 2),
        "least": round(ratios[0], 2),
        "most": round(ratios[-1], 2),
        "of_limit": round(statistics.median(limit / ours for _, ours, _, limit in taken), 2),
    }
    if as_json:
        print(json.dumps(row))
        return
    rates = f"{row['logdex_records_s']:>12,} {row['other_records_s']:>12,} records/s"
    ratio = f"{row['times']:7.2f} [{row['least']:.2f}..{row['most']:.2f}]"
    print(f"{what:22} {rates} {ratio} {row['of_limit']:8.0%} of the limit", flush=True)


if __name__ == "__main__":
    main()
