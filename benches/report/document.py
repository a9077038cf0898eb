"""docs/benchmarks.md, written from the results of all parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import kafka_sections, log_section, sections, store_section, writer_section
from .rounds import DISTURBED
from .tables import ends, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .plan import Part

SECTIONS: dict[str, tuple[str, Callable[[Part], str]]] = {
    "put": ("Puts", sections.put),
    "select": ("Lookups", sections.select),
    "batches": ("How large a batch", sections.batches),
    "cold": ("Lookups in a file that is not in memory", sections.cold),
    "boundary": ("From Python", sections.boundary),
    "peers": ("Beside other stores", sections.peers),
    "commit_log": ("Reading a whole commit log", log_section.commit_log),
    "message_store": ("A whole store", store_section.message_store),
    "sealed": ("A sealed index", store_section.sealed),
    "bucket": ("One search in a bucket", store_section.bucket),
    "search": ("Search in bodies", store_section.search),
    "serve": ("`logdex serve`", store_section.serve),
    "store_writer": ("Writing a store", writer_section.store_writer),
    "spark": ("Spark", sections.spark),
    "kafka": ("Kafka segments", kafka_sections.segments),
    "kafka_index": ("Kafka's offset index", kafka_sections.lookups),
    "kafka_peers": ("Kafka segments from Python", kafka_sections.readers),
}

INTRODUCTION = """# Benchmarks

How fast logdex is beside what else there is, measured on one machine by `make bench-report`, which writes this page. It is for
somebody who chooses a tool, so it also says where logdex loses.

How to read it:

- A figure is the median of several rounds, with least and most in brackets. In a round everybody takes a turn, and a ratio
  is taken within the round.
- *The real class* is `IndexFile` of Apache RocketMQ 4.9.3, *Java* in the sections on Kafka is Apache Kafka 3.9.2: both from
  their Maven artifacts, called by small drivers (tests/interop).
- *The traffic limit* makes the same memory accesses as the operation, with addresses known beforehand and nothing computed:
  what the memory of this machine allows. A figure's share of it says how much is left to win.
- All keys of message indexes are `TopicTest#` and 32 random hexadecimal digits.
"""


def write(parts: dict[str, Part], path: Path) -> None:
    """Write the page. Sections of parts without results stay as they are in it."""
    before, kept = _sections(path)
    page = [before.rstrip() + "\n"] if before else [INTRODUCTION]
    if {"put", "select"} <= parts.keys():
        page = [INTRODUCTION, _in_short(parts["put"], parts["select"])]
    for name, (title, section) in SECTIONS.items():
        text = section(parts[name]) if name in parts else kept.get(title)
        if text is not None:
            page.append(f"## {title}\n\n{text.rstrip()}\n")
    page.append(_conditions([parts[name] for name in SECTIONS if name in parts], kept.get("Conditions", "")))
    path.write_text("\n".join(page))


def _sections(path: Path) -> tuple[str, dict[str, str]]:
    """Return what is before the first section of the page, and the sections by their titles."""
    before, *rest = re.split(r"^## (.+)\n\n", path.read_text() if path.exists() else "", flags=re.MULTILINE)
    return before, dict(zip(rest[::2], rest[1::2], strict=True))


def _in_short(put: Part, select: Part) -> str:
    rows = [
        ["put, one thread, new file", ends(put.measured.times("fresh", "java"))],
        ["put, one thread, file prepared ahead", ends(put.measured.times("prepared", "java"))],
        ["put, two threads, new file", ends(put.measured.times("two_fresh", "java"))],
    ]
    for threads in ("one", "two"):
        for kind in ("present", "absent"):
            times = ends(select.measured.times(f"{kind}_{threads}", f"{kind}_java"))
            rows.append([f"lookup, {kind} keys, {threads} thread{'s' * (threads == 'two')}", times])
    return f"""In short, in batches, times as fast as the real class on the same keys:

{table(["", "times"], rows)}

![Times as fast as the real class](benchmarks-index.svg)
"""


def _conditions(parts: list[Part], kept: str) -> str:
    newest = max(parts, key=lambda part: part.made["date"]).made
    machine = [[name, words] for name, words in newest.items() if name not in {"date", "commit"}]
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in kept.splitlines()}
    cells = {name: rows[name] for name in SECTIONS if name in rows}
    for part in parts:
        counted = [len(seconds) for seconds in part.measured.seconds.values()]
        rounds = str(counted[0]) if counted else str(len(part.facts["figures"][0]["rounds"]))
        made = part.made
        facts = [made["date"], f"`{made['commit']}`", made["processor"].partition(",")[0]]
        cells[part.name] = [part.name, *facts, rounds, str(part.measured.dropped)]
    return f"""## Conditions

{table(["", ""], machine)}

{table(["part", "date", "sources", "processor", "rounds", "dropped"], [cells[name] for name in SECTIONS if name in cells])}

- Parts with another processor were measured on another machine: only their ratios can be compared.
- Before each round the machine must be quiet. A round in which other processes, or the host of a virtual machine, used more than
  {DISTURBED:.0%} of one core is dropped and repeated. The first round warms up and does not count. The order turns round every
  second time.
- Before each file is written, as much memory is touched and given back as it will take: on a virtual machine the first touch
  of a page can be the host's work, which would be counted as the program's. Where the touch was slow, it is repeated.
- Files lie on a disk, not in a memory file system, but nothing waits for the disk except where that is said.

## Repeat it

```
make bench-report                          # all of it, more than an hour; needs Maven, 24 GB of memory and 16 GB of disk
make bench-report REPORT='--only put'      # one part; the page keeps the others as they were
make bench-report REPORT='--only search'   # search in the bodies of 10 million messages
make bench-report REPORT='--only peers --rounds 7'
make bench                                 # criterion and pytest-benchmark, some minutes
```
"""
