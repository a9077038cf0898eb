"""Rates on a topic of millions of records: read, index by key, find one key cold and warm, read a time range.

    python benches/python/kafka_rates.py [RECORDS] [--spark] [--short]

Makes its own topic in a temporary folder: one partition, segments of 256 MiB, batches of 60 records, keys of 16 bytes that
come once each, values of 64 bytes, no compression. "Cold" drops the files from the page cache first, where the system lets us.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import struct
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logdex.kafka import Log, LogDir, LogSegment, build_key_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from logdex.kafka import FindResult

START_MS = 1_700_000_000_000
RECORDS_A_BATCH = 60  # offset deltas stay one byte long
VALUE_BYTES = 64
SEGMENT_BYTES = 256 << 20
BATCHES_A_STEP = 20_000
TOPIC = "orders"
SHORT_RECORDS = 200_000

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21
_KEY_AT = 6  # length, attributes, timestamp delta, offset delta, key length; see `_record`


def _crc_table() -> np.ndarray[Any, Any]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


def _record(offset_delta: int) -> bytes:
    body = struct.pack(">bbbb", 0, 0, offset_delta * 2, 32) + bytes(16) + b"\x80\x01" + bytes(VALUE_BYTES) + b"\0"
    length = 2 * len(body)
    return bytes([length & 0x7F | 0x80, length >> 7]) + body


def _batches(first: int, count: int) -> np.ndarray[Any, Any]:
    """Make consecutive batches from an offset on, one in each row, one second apart."""
    template = b"".join(_record(delta) for delta in range(RECORDS_A_BATCH))
    size = len(template) // RECORDS_A_BATCH
    rows = np.empty((count, 61 + len(template)), dtype=np.uint8)
    rows[:, 61:] = np.frombuffer(template, dtype=np.uint8)
    for row in range(count):
        offset = first + row * RECORDS_A_BATCH
        when = START_MS + offset // RECORDS_A_BATCH * 1_000
        header = _HEADER.pack(
            offset, rows.shape[1] - 12, 0, 2, 0, 0, RECORDS_A_BATCH - 1, when, when, -1, -1, -1, RECORDS_A_BATCH
        )
        rows[row, :61] = np.frombuffer(header, dtype=np.uint8)
    offsets = first + np.arange(count * RECORDS_A_BATCH, dtype=np.int64).reshape(count, RECORDS_A_BATCH)
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    for place in range(16):
        digit = digits[(offsets >> (4 * (15 - place))) & 15]
        rows[:, 61 + _KEY_AT + place :: size][:, :RECORDS_A_BATCH] = digit
    rng = np.random.default_rng(first)
    for delta in range(RECORDS_A_BATCH):
        at = 61 + delta * size + _KEY_AT + 16 + 2
        rows[:, at : at + VALUE_BYTES] = rng.integers(97, 123, (count, VALUE_BYTES), dtype=np.uint8)
    table, crc = _crc_table(), np.full(count, 0xFFFFFFFF, dtype=np.uint32)
    for at in range(_CRC_FROM, rows.shape[1]):
        crc = table[(crc ^ rows[:, at]) & 0xFF] ^ (crc >> 8)
    rows[:, 17:21] = (crc ^ np.uint32(0xFFFFFFFF)).astype(">u4").view(np.uint8).reshape(count, 4)
    return rows


def make_topic(root: Path, records: int) -> Path:
    """Write the topic and the indexes of its segments, and return the partition's directory."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir()
    offset, path = 0, None
    while offset < records:
        count = min(BATCHES_A_STEP, -(-(records - offset) // RECORDS_A_BATCH))
        if path is None or path.stat().st_size >= SEGMENT_BYTES:
            path = folder / f"{offset:020d}.log"
        with path.open("ab") as file:
            file.write(_batches(offset, count).tobytes())
        offset += count * RECORDS_A_BATCH
    for log_file in sorted(folder.glob("*.log")):
        with LogSegment.open(log_file) as segment:
            report = segment.rebuild_indexes(folder)
        if not report.ok:
            raise SystemExit(f"the generated topic is damaged: {report}")
    return folder


def forget(*folders: Path) -> None:
    """Drop files from the page cache."""
    os.sync()
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Run once, and return the time and the result."""
    begun = time.perf_counter()
    result = call()
    return time.perf_counter() - begun, result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=int, default=20_000_000)
    parser.add_argument("--dir", type=Path, help="make the topic here, or take the one that is there")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the Spark measurements")
    parser.add_argument("--spark", action="store_true", help="measure Spark, too")
    parser.add_argument("--short", action="store_true", help="small, to see that it runs")
    arguments = parser.parse_args()
    records = SHORT_RECORDS if arguments.short else arguments.records
    if arguments.dir is not None:
        arguments.dir.mkdir(parents=True, exist_ok=True)
        measure(arguments.dir, records, arguments.rounds, spark=arguments.spark)
        return
    with tempfile.TemporaryDirectory(prefix="kafka-rates-") as root:
        measure(Path(root), records, arguments.rounds, spark=arguments.spark)


def measure(root: Path, records: int, rounds: int, *, spark: bool) -> None:
    """Measure one topic."""
    folder, index = root / f"{TOPIC}-0", root.with_name(f"{root.name}-index")
    if not folder.exists():
        took, _ = seconds(lambda: make_topic(root, records))
        print(f"made {records:,} records in {took:.1f} s")
    with Log.open(folder) as log:
        size, end = log.size, log.log_end_offset
        print(f"{end:,} records, {size / 2**30:.2f} GiB of log, {len(log.segments)} segments")

        def drain(**options: Any) -> tuple[int, int]:
            stream = log.records(**options)
            rows = sum(batch.num_rows for batch in stream)
            return rows, stream.bytes_read

        for name, options in (("all columns", {}), ("offset and key", {"columns": ["offset", "key"]})):
            took, (rows, _) = seconds(lambda options=options: drain(**options))  # type: ignore[misc]
            print(f"scan, {name}: {rows / took / 1e6:.2f} M records/s, {size / took / 2**20:.0f} MiB/s")
        begin = START_MS + end // RECORDS_A_BATCH * 1_000 * 98 // 100
        took, (rows, read) = seconds(lambda: drain(begin=begin, columns=["offset"]))
        print(
            f"newest 2% by time: {rows:,} records in {took * 1e3:.1f} ms, {read / 2**20:.1f} of {size / 2**20:.0f} MiB read"
        )
    if not index.exists():
        took, report = seconds(lambda: build_key_index(root, index))
        print(f"build_key_index: {report.checked['entries'] / took / 1e6:.2f} M keys/s ({took:.1f} s)")
    held = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    print(f"index: {held / 2**20:.0f} MiB, {held / end:.1f} bytes a key")
    rng = random.Random(1)
    wanted = [rng.randrange(end) for _ in range(21)]
    forget(root, index)
    took, found = seconds(lambda: find_in(root, f"{wanted[0]:016x}", index=index))
    assert [record.offset for record in found] == wanted[:1]
    print(f"find, cold: {took * 1e3:.1f} ms")
    times = []
    for offset in wanted[1:]:
        took, found = seconds(lambda offset=offset: find_in(root, f"{offset:016x}", index=index))  # type: ignore[misc]
        assert [record.offset for record in found] == [offset]
        times.append(took)
    print(f"find, warm: median of {len(times)} {sorted(times)[len(times) // 2] * 1e3:.2f} ms")
    with LogDir.open(root) as logs:
        keys = [f"{offset:016x}" for offset in wanted]
        times = [seconds(partial(logs.find, TOPIC, key, index=index))[0] for key in keys]
    print(
        f"find, warm, in an open log directory: median of {len(times) - 1} {statistics.median(times[1:]) * 1e3:.2f} ms"
    )
    measure_sealed(root, wanted)
    times = []
    for offset in wanted[: 1 + min(rounds, 20)]:
        took, found = seconds(lambda offset=offset: find_in(root, f"{offset:016x}"))  # type: ignore[misc]
        assert [record.offset for record in found] == [offset]
        times.append(took)
    took = statistics.median(times[1:])
    print(
        f"find without an index, a full scan: {took:.2f} s, {end / took / 1e6:.2f} M records/s, median of {len(times) - 1}"
    )
    if spark:
        measure_spark(root, end, size, begin, rounds)


def find_in(root: Path, key: str, **options: Any) -> FindResult:
    """Open the log directory for one search."""
    with LogDir.open(root) as logs:
        return logs.find(TOPIC, key, **options)


def measure_sealed(root: Path, wanted: list[int]) -> None:
    """Measure sealing, and searches in the sealed index."""
    out = root.with_name(f"{root.name}-sealed")
    with LogDir.open(root) as logs:
        took, report = seconds(lambda: logs.seal(out))
    entries, held = report.checked["entries"], report.checked["key_bytes"]
    print(f"seal: {entries / took / 1e6:.2f} M keys/s ({took:.1f} s), {held / entries:.1f} bytes a key")
    forget(root, out)
    times = []
    with LogDir.open(root, sealed=out) as logs:
        for offset in wanted:
            took, found = seconds(partial(logs.find, TOPIC, f"{offset:016x}"))
            assert [record.offset for record in found] == [offset]
            assert found.scanned_offsets == 0
            times.append(took)
    warm = statistics.median(times[1:])
    print(f"find, sealed: cold {times[0] * 1e3:.1f} ms, then a median of {len(times) - 1} {warm * 1e3:.2f} ms")


def measure_spark(root: Path, records: int, size: int, begin: int, rounds: int) -> None:
    """Read the whole topic on two cores, and the newest records by time, as an option and as a filter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    from logdex import spark as ls  # noqa: PLC0415 -- optional

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    ls.register(session)

    def newest(*, option: bool) -> DataFrame:
        # Reads through a memory map are not counted, so files are read with pread.
        options = {"access": "pread", **({"begin": str(begin)} if option else {})}
        frame = session.read.format("kafka_log").options(**options).load(str(root))
        frame = frame if option else frame.where(f"timestamp >= timestamp_millis({begin})")
        return frame.selectExpr("count(*)", "min(offset)", "max(offset)")

    def drain(columns: str) -> None:
        frame = session.read.format("kafka_log").option("columns", columns).load(str(root))
        frame.write.format("noop").mode("overwrite").save()

    answers = {option: newest(option=option).collect() for option in (True, False)}
    assert answers[True] == answers[False], answers
    for name, columns in (
        ("all columns", "key,value,topic,partition,offset,timestamp,timestampType"),
        ("key", "key,offset"),
    ):
        times = [seconds(lambda columns=columns: drain(columns))[0] for _ in range(rounds)]  # type: ignore[misc]
        rates = [records / took / 1e6 for took in times], [size / took / 1e6 for took in times]
        print(f"Spark, scan of {name}: {told(rates[0])} M rows/s, {told(rates[1])} MB/s of log")
    for option in (True, False):
        times, amounts = [], []
        for _ in range(rounds):
            before = bytes_of_workers()
            times.append(seconds(lambda option=option: newest(option=option).collect())[0])  # type: ignore[misc]
            amounts.append((bytes_of_workers() - before) / 2**20)
        print(
            f"Spark, newest 2% by time, as {'an option' if option else 'a filter'}: {answers[True][0][0]:,} rows, "
            f"{told(times)} s, {told(amounts)} of {size / 2**20:,.0f} MiB read"
        )
    session.stop()


def told(values: list[float]) -> str:
    """Return the median, the least and the most."""
    return f"{statistics.median(values):.3g} [{min(values):.3g}..{max(values):.3g}]"


def bytes_of_workers() -> int:
    """Return the bytes that Spark's Python workers have read so far, from the page cache or from the disk."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark" in (folder / "cmdline").read_bytes() and b"java" not in (folder / "cmdline").read_bytes():
                total += int((folder / "io").read_text(encoding="ascii").split()[1])
        except OSError:
            continue  # the process has just ended
    return total


if __name__ == "__main__":
    main()
