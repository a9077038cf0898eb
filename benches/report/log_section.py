"""Section of docs/benchmarks.md about commit logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tables import ends, per_second, short, table

if TYPE_CHECKING:
    from .plan import Part

COMPARED = ("without", "with")
"""Steps that Java also runs."""
READERS = {
    "java_without": "Java `MessageDecoder#decode`, bodies skipped, no checksum",
    "one_without": "**logdex**, all columns but the body",
    "two_without": "**logdex**, 2 threads",
    "python_without": "logdex from Python",
    "java_with": "Java `MessageDecoder#decode`, bodies copied, no checksum",
    "one_with": "**logdex**, all columns",
    "two_with": "**logdex**, 2 threads",
    "python_with": "logdex from Python",
    "struct": "plain Python: `struct`, slices, splits, `zlib.crc32`",
    "read": "plain read, nothing decoded",
}


def commit_log(part: Part) -> str:
    """Scans of whole logs."""
    sizes = [int(size) for size in part.facts]
    logs = "\n\n".join(_log(part, size) for size in sizes)
    gains = ", ".join(
        f"{ends(part.measured.times(f'{size}_two_{kind}', f'{size}_one_{kind}'))} ({words} bodies of {size:,} bytes)"
        for size in sizes
        for kind, words in (("without", "without the"), ("with", "with"))
    )
    resident = [
        [f"{size:,}", threads, *(short(mib) for mib in part.facts[str(size)]["resident"][name])]
        for size in sizes
        for name, threads in (("one", "1"), ("two", "2"))
    ]
    head = ["bytes of a body", "threads", "after 10 %", "after 50 %", "at the end"]
    return f"""\
Messages as producers make them: five properties, hosts of IPv4, bodies of noise that are not compressed; in files of 1 GiB that
lie in the page cache. Every reader but the plain one makes all fields of a message, and logdex checks the checksum of each body,
which the broker's decoder does not. Batches are dropped as they come.

{logs}

Two threads are faster than one by {gains}.

MiB of memory that the native program has in the course of a scan with bodies, without pages of files:

{table(head, resident)}

By itself, without Java: `cargo bench --bench commit_log`.
"""


def _log(part: Part, size: int) -> str:
    measured, facts = part.measured, part.facts[str(size)]
    bytes_each = facts["bytes"] / facts["messages"]
    rows = []
    for name, words in READERS.items():
        step = f"{size}_{name}"
        nanoseconds = measured.nanoseconds(step, 1)
        kind = name.rpartition("_")[2]
        java = kind in COMPARED and not name.startswith("java")
        times = ends(measured.times(step, f"{size}_java_{kind}")) if java else "1" if kind in COMPARED else ""
        share = ends(measured.times(step, f"{size}_read"), percent=True) if name != "read" else ""
        rate = short(bytes_each / nanoseconds.median)
        rows.append([words, ends(nanoseconds), per_second(nanoseconds.median), rate, times, share])
    head = [
        f"{facts['messages']:,} messages of {size:,} bytes",
        "ns a message",
        "M/s",
        "GB/s",
        "times Java",
        "of the plain read",
    ]
    return table(head, rows)
