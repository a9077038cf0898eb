"""Sections of docs/benchmarks.md about whole stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rounds import spread
from .tables import ends, table

if TYPE_CHECKING:
    from .plan import Part


def message_store(part: Part) -> str:
    """Find messages in a store of millions."""
    rows = [[figure["what"], f"{ends(spread(figure['rounds']))} {figure['unit']}"] for figure in part.facts["figures"]]
    return f"""## A whole store

`MessageStore` from Python, one thread, on a store of {part.facts["messages"]:,} messages of 211 bytes with two keys each, in 16
queues of 4 topics: 4.2 GB of log, index files of the broker's default geometry, consume queues. By itself:
`python benches/python/store_rates.py`.

{table(["what", "figure"], rows)}

- *Cold*: the store is closed and its files are dropped from the page cache before. To open it and to find the first key is what
  a person waits for who has one question: it tells the geometry of the index, the end of the log, and what the index does not
  cover. Most of its pages are windows of the log around the ends of index files, read in one go. Where the broker was killed
  (its file `abort` is there) the end of the log is looked for from the beginning of its last file, up to 1 GiB, once.
- The plain reads are of the same disk, one after the other: what a figure would be if it were reads alone.
- Each message that is found is read, checked against topic and key, and its checksum is verified.
{_topic(part.facts.get("topic", []))}"""


def _topic(figures: list[dict[str, Any]]) -> str:
    """Read one of many topics; nothing if it was not measured."""
    if not figures:
        return ""
    rows = [[figure["what"], f"{figure['ms']:.2f}", f"{figure['ratio']:.2f}"] for figure in figures]
    return f"""
The messages of T, one of 50 topics of equal size, with bodies of 1 KB compressed with zlib, 300,000 messages in all:
`python benches/python/filter_rates.py`. Ratios are to the scan in the first row. The limits are what the machine needs if all
its threads share the work evenly: to walk the log, or to read the messages of T, and to inflate the bodies of T.

{table(["what", "ms", "ratio"], rows)}
"""


def search(part: Part) -> str:
    """Search in the bodies of a store."""
    figures = part.facts["figures"]
    rows = [
        [
            each["what"],
            f"{ends(spread(each['rounds']))} {each['unit']}",
            f"{each['ratio']:.2f}",
            f"{each['times_pipe']:.1f}",
        ]
        for each in figures
    ]
    return f"""## Search in bodies

A store of {part.facts["messages"]:,} messages with bodies of 1 KB of words, in the page cache; one message in 10,000 has the
searched text. Everything runs on the same two processors. By itself: `python benches/python/grep_rates.py 10000000 --spark`.

{table(["what", "bodies", "times the read", "times the pipe"], rows)}

- *The read* is a scan of `phy_offset` that decompresses every body, the most that a search can reach; *the pipe* is
  `logdex cat --body | grep`.
- Each program starts anew in each round, Spark does not.
"""
