"""Sections of docs/benchmarks.md about whole stores."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from .rounds import Measured, spread
from .tables import ends, short, table

if TYPE_CHECKING:
    from .plan import Part


def message_store(part: Part) -> str:
    """Find messages in a store of millions."""
    rows = [[figure["what"], f"{ends(spread(figure['rounds']))} {figure['unit']}"] for figure in part.facts["figures"]]
    return f"""\
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


def sealed(part: Part) -> str:
    """Seal an index, and search it beside the index files."""
    rows = []
    for figure in part.facts["figures"]:
        both = {"sealed": figure["rounds"], "files": figure["files"]}
        row = [
            f"{figure['what']} ({figure['unit']})" if figure["unit"] else figure["what"],
            ends(spread(both["sealed"])),
        ]
        if both["files"]:
            row += [ends(spread(both["files"])), ends(Measured(both).times("sealed", "files"))]
        rows.append([*row, "", ""][:4])
    return f"""\
`MessageStore.seal` of one full index file of {part.facts["entries"]:,} entries, and searches in the sealed store beside those
in a store with the index file alone, in turns. By itself: `python benches/python/sealed_rates.py --spark`.

{table(["what", "sealed", "index files", "times as fast, or as small"], rows)}

- Every twentieth key is one that was asked for; the keys are in another order than the rows.
- A store with both, and one with the index files only. In memory the first asks its index files, too, where they answer sooner:
  up to some keys for each row group, and once it was asked for 16 keys.
- *Cold*: the files are dropped from the page cache before. Of one key the index files answer with a read for each entry of its
  chain; the sealed rows with a page.
"""


def bucket(part: Part) -> str:
    """Search in a bucket."""
    rows = [
        [
            figure["what"],
            f"{ends(spread(figure['rounds']))} {figure['unit']}",
            *(short(statistics.median(figure[name])) for name in ("turns", "requests")),
        ]
        for figure in part.facts["figures"]
    ]
    return f"""\
Open a store in a bucket and find one key, with nothing in memory, over a server of this machine that answers each request after
50 ms. Each index file is full: 20,000,000 entries. By itself: `python benches/python/remote_rates.py [--sealed]`.

{table(["store", "time", "rounds of requests", "requests"], rows)}

- Requests of a round are sent together, so the time is the rounds, each of 50 ms, and little else. The rounds of index files are
  those of the longest chain; sealed rows have none.
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
    return f"""\
A store of {part.facts["messages"]:,} messages with bodies of 1 KB of words, in the page cache; one message in 10,000 has the
searched text. Everything runs on the same two processors. By itself: `python benches/python/grep_rates.py 10000000 --spark`.

{table(["what", "bodies", "times the read", "times the pipe"], rows)}

- *The read* is a scan of `phy_offset` that decompresses every body, the most that a search can reach; *the pipe* is
  `logdex cat --body | grep`.
- Each program starts anew in each round, Spark does not.
"""


def serve(part: Part) -> str:
    """Serve a store beside a real broker."""
    rows = []
    for figure in part.facts["figures"]:
        row = [f"{figure['what']} ({figure['unit']})", ends(spread(figure["rounds"]))]
        for other in ("broker", "limit"):
            its = figure[other]
            row.append(ends(spread(its)) if its else "")
            row.append(ends(spread([own / one for own, one in zip(figure["rounds"], its, strict=True)])) if its else "")
        rows.append(row)
    return f"""\
`logdex serve` and a broker of RocketMQ 4.9.3, asked by one client of that release in turns, all on the same two processors.
By itself: `python benches/python/serve_rates.py`.

{table(["what", "logdex", "broker", "ratio", "every answer known", "ratio"], rows)}

- *Every answer known* is the same server, which looks up each request only once: what this client leaves for a server here.
- A pull is answered by one thread of Python; the broker has as many as it wants. The client is Java and takes most of both
  processors.
- Of processor time and memory, less is better.
"""
