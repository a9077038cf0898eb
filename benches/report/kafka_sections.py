"""Sections of docs/benchmarks.md about Kafka, and their lines in README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .segments import VALUE_BYTES
from .tables import ends, per_second, short, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Part

RECORDS = {
    "java": "Java `FileRecords`, streaming iterator",
    "native": "**logdex**",
    "views": "logdex, keys and values as views",
    "python": "**logdex**, from Python",
    "two": "logdex, 2 threads",
    "python_two": "logdex, 2 Python threads",
}
WALKS = {
    "heads": {
        "java": "heads of batches, checksums compared: Java `FileRecords#batches`",
        "native": "**logdex**, the same fields as columns",
        "python": "**logdex**, from Python",
        "all": "logdex, all 22 columns",
    },
    "recover": {
        "java": "offset and time index made anew: Java `LogSegment#recover`",
        "native": "**logdex**",
        "python": "logdex from Python, not written",
    },
}
LOOKUPS = {
    "java": "Java `OffsetIndex#lookup`",
    "native_single": "**logdex**, a call each",
    "native_batch": "**logdex**, one batch",
    "python_single": "logdex from Python, a call each",
    "python_batch": "logdex from Python, Arrow batches of 16,384",
}
LARGER = "logdex, a larger part"
DUMPED = {
    LARGER: "logdex to Arrow",
    "kafka-dump-log": "`kafka-dump-log --print-data-log`",
    "logdex kafka dump": "`logdex kafka dump --print-data-log`",
}


def segments(part: Part) -> str:
    """Whole segments."""
    measured, facts = part.measured, part.facts["segments"]
    two = [ends(measured.times(f"{kind}_records_two", f"{kind}_records_native")) for kind in facts]
    views = [ends(measured.times(f"{kind}_records_views", f"{kind}_records_native")) for kind in facts]
    share = [ends(measured.times(f"{kind}_records_python", f"{kind}_records_native"), percent=True) for kind in facts]
    mib = round(max(fact["size"] for fact in facts.values()) / 2**20)
    ratios = "; ".join(
        f"{_kind(kind)}: {short(fact['raw'] / fact['size'])}"
        for kind, fact in facts.items()
        if fact["raw"] > fact["size"]
    )
    records = table(["segment", "who", "ns a record", "M/s", "GB/s of file", "times Java"], _records(part))
    walks = table(["values, B", "who", "ns a batch", "GB/s of file", "times Java"], _walks(part))
    return f"""\
Segments of {mib} MiB, all in memory, that Kafka's own `MemoryRecordsBuilder` wrote: batches of 16 KiB before compression, keys of
24 bytes, one header of 16 bytes, values of 100 or 1,024 bytes that look like JSON. Raw bytes per byte of file:
{ratios}.
Java is Kafka 3.9.2 in a warm JVM: offset, timestamp, key, value, header key and value of each record are touched. logdex makes
Arrow columns of them, copied out of the file; `views=True` does not copy keys and values of uncompressed batches. Both compare
checksums. One thread where nothing else is said.

{records}

In the order of the table, two threads are
{"; ".join(two)}
times as fast as one, with keys and values as views a scan is
{"; ".join(views)}
times as fast as with copies of them, and from Python a scan has
{"; ".join(share)}
of the speed in Rust.

{walks}

The real class writes its indexes through maps, logdex writes them as files; both are left to the page cache. `rebuild_indexes`
also waits until they are on the disk.
"""


def _kind(name: str) -> str:
    codec, _, value_bytes = name.partition("_")
    return f"{codec}, {int(value_bytes):,} B"


def _records(part: Part) -> Iterator[list[str]]:
    measured = part.measured
    for kind, fact in part.facts["segments"].items():
        for who, words in RECORDS.items():
            step, java = f"{kind}_records_{who}", f"{kind}_records_java"
            took = measured.nanoseconds(step, 1)
            rate = short(fact["size"] / (took.median * fact["records"]))
            times = "1" if step == java else ends(measured.times(step, java))
            yield ["" if step != java else _kind(kind), words, ends(took), per_second(took.median), rate, times]


def _walks(part: Part) -> Iterator[list[str]]:
    measured = part.measured
    for value_bytes in VALUE_BYTES:
        kind = f"none_{value_bytes}"
        fact = part.facts["segments"][kind]
        for what, ways in WALKS.items():
            java = f"{kind}_{what}_java"
            for who, words in ways.items():
                step = f"{kind}_{what}_{who}"
                took = measured.nanoseconds(step, 1)
                rate = short(fact["size"] / (took.median * fact["batches"]))
                times = "1" if step == java else ends(measured.times(step, java))
                yield ["" if step != java else f"{value_bytes:,}", words, ends(took), rate, times]


def lookups(part: Part) -> str:
    """Lookups in an offset index."""
    measured, count = part.measured, part.operations
    rows = []
    for name, words in LOOKUPS.items():
        nanoseconds = measured.nanoseconds(name, count)
        times = ends(measured.times(name, "java")) if name != "java" else "1"
        rows.append([words, ends(nanoseconds), per_second(nanoseconds.median), times])
    return f"""\
{count:,} offsets at random a round, in an index file of {part.facts["entries"]:,} entries, 10 MiB, which is full and in memory.
Everybody gives the same entries.

{table(["who", "ns a lookup", "M/s", "times Java"], rows)}
"""


def readers(part: Part) -> str:
    """Segments read from Python, and printed."""
    measured = part.measured
    versions = ", ".join(f"{name} {which}" for name, which in part.facts["versions"].items())
    rows: list[list[str]] = []
    dumped: list[list[str]] = []
    for step in measured.seconds:
        kind, _, who = step.partition("/")
        printed = who in DUMPED
        took = measured.nanoseconds(step, 1)
        ours = f"{kind}/{LARGER if printed else 'logdex'}"
        times = "1" if step == ours else ends(measured.times(ours, step))
        row = [_kind(kind), DUMPED.get(who, who), ends(took), per_second(took.median), times]
        (dumped if printed else rows).append(row)
    head = ["segment", "who", "ns a record", "M/s", "logdex to Arrow is faster by"]
    return f"""\
Smaller segments of the same kind. The clients' `MemoryRecords` give a Python object a record, of which offset, timestamp, key,
value and headers are taken; logdex gives Arrow batches. All compare checksums.
Versions: {versions}, with their fast codecs and checksums.

{table(head, sorted(rows, key=lambda row: row[0]))}

Printing is timed as whole processes, start included, their text thrown away:

{table(head, sorted(dumped, key=lambda row: row[0]))}
"""


def readme(part: Part) -> list[str]:
    """Return the row of the short table."""
    times = [
        ends(part.measured.times(f"none_{size}_records_native", f"none_{size}_records_java")) for size in VALUE_BYTES
    ]
    words = "Kafka: a segment to Arrow beside Java's `FileRecords`, values of 100 B / 1 KB"
    return [words, f"{' / '.join(times)} times as fast"]
