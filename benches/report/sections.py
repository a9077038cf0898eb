"""Sections of docs/benchmarks.md, one for each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rounds import spread
from .tables import ends, per_second, short, table

if TYPE_CHECKING:
    from .plan import Part

PUTS = {
    "java": "Java `IndexFile#putKey`, a fresh `String` each",
    "java_hashed": "the same, strings that know their hash already",
    "fresh": "**logdex**, one call for all, new file",
    "prepared": "**logdex**, one call for all, file prepared ahead",
    "two_fresh": "**logdex**, 2 threads, new file",
    "two_prepared": "**logdex**, 2 threads, file prepared ahead",
    "sse2": "logdex, vectors of 16 bytes (a processor without AVX2), new file",
    "swar": "logdex without vector instructions, new file",
    "batches": "logdex, batches of 16,384, new file",
    "python": "logdex from Python, Arrow batches of 16,384, new file",
    "limit_fresh": "traffic limit, new file",
    "limit_prepared": "traffic limit, file prepared ahead",
}
LOOKUPS = {
    "java": "Java `IndexFile#selectPhyOffset`, at most 32",
    "one": "**logdex**, batches of 65,536",
    "two": "**logdex**, batches of 65,536, 2 threads",
    "thousand": "logdex, batches of 1,024",
    "batches": "logdex, batches of 16,384",
    "python_one": "logdex from Python, Arrow batches of 16,384",
    "python_two": "the same, 2 Python threads",
    "limit_one": "traffic limit",
    "limit_two": "traffic limit, 2 threads",
}
LIMIT_OF_PUT = {
    "fresh": "fresh",
    "prepared": "prepared",
    "sse2": "fresh",
    "swar": "fresh",
    "batches": "fresh",
    "python": "fresh",
}
LIMIT_OF_LOOKUP = {
    "one": "one",
    "two": "two",
    "thousand": "one",
    "batches": "one",
    "python_one": "one",
    "python_two": "two",
}
COLD = {
    "java": "Java `IndexFile#selectPhyOffset`, its usual map",
    "serial_reads": "the same reads one after the other, the system told that they are random",
    "one_by_one": "logdex, one call a key",
    "batch": "**logdex**, one batch of 1,000",
    "large_batch": "**logdex**, one batch of 20,000",
}
STEPS_OF_PEERS = {"build": "to build", "open": "to open", "one": "key by key", "batch": "in batches"}


def put(part: Part) -> str:
    """Puts."""
    measured, count = part.measured, part.operations
    rows = []
    for name, words in PUTS.items():
        nanoseconds = measured.nanoseconds(name, count)
        limit = LIMIT_OF_PUT.get(name)
        share = ends(measured.times(name, f"limit_{limit}"), percent=True) if limit else ""
        times = ends(measured.times(name, "java")) if name != "java" else "1"
        rows.append([words, ends(nanoseconds), per_second(nanoseconds.median), times, share])
    cpu = [ends(measured.times(name, f"cpu_{name}"), percent=True) for name in ("fresh", "prepared")]
    python = ends(measured.times("python", "batches"), percent=True)
    return f"""\
{count:,} puts fill one index file of the broker's default geometry (420 MB). All files are equal byte for byte: the real
class's, and logdex's by one thread, by two, by smaller vectors and by none; that is checked before anything is timed.

{table(["who", "ns a put", "M/s", "times the real class", "of the traffic limit"], rows)}

- *Prepared ahead*: while one file fills, a helper thread creates the next one and brings its pages into memory. Rolling then
  costs the writer nothing, and page faults are off its path.
- *Strings that know their hash*: Java keeps a string's hash in the string, and newer JDKs compute it by vector instructions. This
  row is what such a JDK cannot beat; a broker of 4.9.3 makes a fresh string of topic and key for every put.
- From Python, with Arrow in, the same batches reach {python} of the speed in Rust.
- The build for every x86-64, which picks its instructions at run time, reaches {cpu[0]} (new file) and {cpu[1]} (prepared)
  of the speed of a build for this very processor.
"""


def select(part: Part) -> str:
    """Lookups in memory."""
    measured, count = part.measured, part.operations
    tables = []
    for kind in ("present", "absent"):
        rows = []
        for name, words in LOOKUPS.items():
            step = f"{kind}_{name}"
            nanoseconds = measured.nanoseconds(step, count)
            limit = LIMIT_OF_LOOKUP.get(name)
            share = ends(measured.times(step, f"{kind}_limit_{limit}"), percent=True) if limit else ""
            times = ends(measured.times(step, f"{kind}_java")) if name != "java" else "1"
            rows.append([words, ends(nanoseconds), per_second(nanoseconds.median), times, share])
        accesses = part.facts[f"{kind}_accesses"]
        head = [f"{kind} keys ({accesses:.1f} reads a key)", "ns a key", "M/s", "times the real class", "of the limit"]
        tables.append(table(head, rows))
    first = [ends(measured.times(f"{kind}_first", f"{kind}_java_first")) for kind in ("present", "absent")]
    cpu = [ends(measured.times(f"{kind}_one", f"{kind}_cpu"), percent=True) for kind in ("present", "absent")]
    python = [
        ends(measured.times(f"{kind}_python_one", f"{kind}_batches"), percent=True) for kind in ("present", "absent")
    ]
    both = "\n\n".join(tables)
    return f"""\
{count:,} random keys a round in a full file of the default geometry, all of it in memory. Everybody gives the same candidates.

{both}

With one candidate at most, logdex is {first[0]} (present) and {first[1]} (absent) times as fast as the real class with the same
limit. The build for every x86-64 reaches {cpu[0]} (present) and {cpu[1]} (absent) of the speed of a build for this processor.
From Python, with Arrow in and out, the same batches reach {python[0]} (present) and {python[1]} (absent) of the speed in Rust.

A single lookup waits for memory five or six times in a row, in any program. A batch is faster because tens of them wait
together; a program that asks key by key gains little (see *From Python*).
"""


def batches(part: Part) -> str:
    """Batch sizes."""
    measured = part.measured
    sizes = [int(step.removeprefix("put_")) for step in measured.seconds if step.startswith("put_")]
    rows = [
        [f"{size:,}", *(ends(measured.nanoseconds(f"{what}_{size}", 1)) for what in ("put", "select"))]
        for size in sorted(sizes)
    ]
    return f"""\
Puts into a prepared file of {part.facts["puts"]:,} entries, and lookups of present keys in a full file of the default geometry,
by one thread.

![Nanoseconds a key by the size of a batch](benchmarks-batches.svg)

{table(["keys a call", "put, ns a key", "lookup, ns a key"], rows)}
"""


def cold(part: Part) -> str:
    """Lookups on disk."""
    measured = part.measured
    rows = []
    for name, words in COLD.items():
        times = ends(measured.times(name, "serial_reads")) if name != "serial_reads" else "1"
        microseconds = spread([1e6 * seconds for seconds in measured.each(name, 1)])
        rows.append([words, f"{measured.amounts[name]:,}", ends(microseconds), times])
    return f"""\
The file is dropped from the page cache before each. A lookup needs about six reads, each of which depends on the one before.

{table(["who", "keys", "us a key", "times serial reads"], rows)}

A broker's map reads megabytes around every access, which is why its first lookups take milliseconds each, and later ones find the
file in memory.
"""


def boundary(part: Part) -> str:
    """Python's calls."""
    measured, small = part.measured, part.facts["small"]
    rows = []
    for name, words in {
        "put": f"`put_key`, file of {small:,}",
        "small": f"`select_phy_offset`, file of {small:,}",
        "large": "`select_phy_offset`, full file of the default geometry",
    }.items():
        python, native = (measured.nanoseconds(f"{name}_{who}", 1) for who in ("python", "native"))
        share = ends(measured.times(f"{name}_python", f"{name}_native"), percent=True)
        rows.append([words, ends(python), per_second(python.median), ends(native), share])
    put_us, select_us = (short(measured.nanoseconds(f"{what}_call", 1).median / 1e3) for what in ("put", "select"))
    return f"""\
Batches from Python are in the tables above. Calls of one key each, beside the same call in Rust:

{table(["call", "ns", "M/s", "in Rust, ns", "of its speed"], rows)}

A batch call costs {select_us} us (`select_batch` of one key in a small file) or {put_us} us (`put_batch` of no row) before
it does any work: from some hundred keys on, that no longer matters.
"""


def peers(part: Part) -> str:
    """Other stores."""
    measured, facts = part.measured, part.facts
    rows = []
    for name in facts["bytes_per_key"]:
        figures = {step: measured.nanoseconds(f"{name}/{step}", 1) for step in STEPS_OF_PEERS}
        rows.append(
            [
                f"**{name}**" if name == "logdex" else name,
                ends(figures["build"]),
                short(figures["open"].median / 1e6),
                ends(figures["one"]),
                ends(figures["batch"]),
                ends(measured.times("logdex/batch", f"{name}/batch")) if name != "logdex" else "1",
                short(facts["bytes_per_key"][name]),
            ]
        )
    rows.sort(key=lambda row: "logdex" not in row[0])
    head = [
        "store",
        "build, ns a key",
        "open, ms",
        "one get, ns",
        "batch get, ns a key",
        "logdex's batch is faster by",
        "bytes a key",
    ]
    losses = "\n".join(f"- {words}: {_ahead(part, step)}" for step, words in STEPS_OF_PEERS.items())
    versions = ", ".join(sorted(set(facts["versions"].values()) - {facts["versions"]["logdex"]}))
    return f"""\
{facts["held"]:,} keys of 42 characters, each with an offset of 8 bytes; a batch is {facts["asked"]:,} present keys at
random. Everything is in memory and called from Python (the real class: from Java). Each is used as its friends would: sorted
bulk loads, no flush for each write, maps, prepared statements, its own batch call. Keys are given in the form that the store
takes.

![Gets of a batch and one by one](benchmarks-peers.svg)

{table(head, rows)}

Who is faster than logdex

{losses}

What to make of it:

- logdex keeps no keys, only their hashes: that is why it is small. Its answers are *candidates*, which `MessageStore.find` checks
  against the messages. LMDB, RocksDB, SQLite, DuckDB, the dict and `lexindex, exact` give only what belongs to the key.
- A key of a message index has many offsets, one a message. logdex and the real class hold them as they come; each of the others
  would need another layout for that, and was measured with one offset a key.
- lexindex is built once and never changed. Where the set of keys is fixed and each has one offset, look at it first: its perfect
  hash reads one place where a chain has several, and with 8 bits a key it needs the least space. (Its figure
  includes the 8 bytes of the offset: it numbers the keys, and a column of offsets stands beside it.)
- To open a dict is to unpickle it. Its bytes are in memory, those of all others on disk.
- A single get from logdex makes a list of all candidates; a batch makes one Arrow column.

Versions: {versions}.
"""


def _ahead(part: Part, step: str) -> str:
    """Return the names of the peers that are faster than logdex in a step."""
    names = [name for name in part.facts["bytes_per_key"] if name != "logdex"]
    times = {name: part.measured.times(f"{name}/{step}", f"logdex/{step}").median for name in names}
    ahead = sorted((name for name in names if times[name] > 1), key=lambda name: -times[name])
    return ", ".join(f"{name} ({short(times[name])} times as fast)" for name in ahead) or "nobody is faster"


def spark(part: Part) -> str:
    """Spark."""
    rows = []
    for figure in part.facts["figures"]:
        rounds = spread(figure["rounds"])
        rows.append([figure["what"], f"{ends(rounds)} {figure['unit']}"])
    return f"""\
`local[2]`, rows and keys from Parquet, {part.facts["keys"]:,} keys asked and {part.facts["rows"]:,} rows indexed; by itself:
`python benches/python/spark_rates.py`. The join is Spark's own, of the same keys with the same rows, and the fastest of its
kinds.

{table(["what", "rate"], rows)}
"""
