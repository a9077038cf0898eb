"""Section of docs/benchmarks.md about writing stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parts.store_writer import CLIENT_BATCH
from .tables import ends, per_second, table

if TYPE_CHECKING:
    from .plan import Part

PUTS = {
    "java/put": "Java `DefaultMessageStore#putMessage`, one by one",
    "java_batches/put": f"Java `DefaultMessageStore#putMessages`, clients' batches of {CLIENT_BATCH}",
    "native_1": "logdex, one message a call",
    "native_32": "**logdex**, batches of 32",
    "native_1024": "**logdex**, batches of 1,024",
    "python_32/put": "logdex from Python, Arrow batches of 32",
    "python_1024/put": "**logdex** from Python, Arrow batches of 1,024",
    "one": "logdex from Python, `put_message`",
}
DISPATCH = {
    "java/dispatch": "Java `ReputMessageService`, everything in the log",
    "python_1024/dispatch": "**logdex** `StoreWriter.dispatch`, everything in the log",
}
WHOLE = {
    "java_running": "Java, dispatch beside the puts: until all is dispatched",
    "running": "**logdex** from Python, batches of 1,024, the same",
}


def store_writer(part: Part) -> str:
    """Puts and dispatch."""
    sizes = part.facts["sizes"]
    tables = "\n\n".join(_table(part, size) for size in sizes)
    ratios = ", ".join(
        f"{ends(part.measured.times(f'{size}_native_1024', f'{size}_java_batches/put'))} ({size:,} bytes)"
        for size in sizes
    )
    return f"""\
{part.facts["messages"]:,} messages with five properties go into a new store of the broker's default sizes: a log, 40 queues of 20
topics, an index with two keys a message. Both sides compute the checksum of each body and flush in the background
(`ASYNC_FLUSH`); messages and batches are made before the time begins. Both logs hold the same messages, which is checked before
anything is timed. The real class takes messages one by one, or as the batches that clients make, each of one topic and queue.

{tables}

- *Dispatch* makes the queue units and index entries of everything in the log: by itself, and while messages are put.
- Beside clients' batches, which share topic, queue, hosts and times, logdex's batches of 1,024 are {ratios} times
  as fast. Its own may be of any topics and queues, and each message has fields of its own.
- A message put by itself is a write of its own to the file, where the real class copies into a map.
- To hand an Arrow batch over from Python has a price of its own: larger batches are the way to put many messages.
"""


def _table(part: Part, size: int) -> str:
    measured = part.measured
    rows = []
    for names, java in ((PUTS, "java/put"), (DISPATCH, "java/dispatch"), (WHOLE, "java_running")):
        for name, words in names.items():
            nanoseconds = measured.nanoseconds(f"{size}_{name}", 1)
            times = "1" if name == java else ends(measured.times(f"{size}_{name}", f"{size}_{java}"))
            rows.append([words, ends(nanoseconds), per_second(nanoseconds.median), times])
    return table([f"bodies of {size:,} bytes", "ns a message", "M/s", "times Java"], rows)


def readme(part: Part) -> list[str]:
    """Return the row of the short table."""
    put = f"{part.facts['sizes'][0]}_native_1024"
    rate = per_second(part.measured.nanoseconds(put, 1).median)
    times = ends(part.measured.times(put, f"{part.facts['sizes'][0]}_java/put"))
    words = "store: put messages of 1 KB in batches of 1,024 beside Java `DefaultMessageStore#putMessage`"
    return [words, f"{times} times as fast, {rate} M/s"]
