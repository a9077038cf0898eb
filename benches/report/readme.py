"""The short table in README.md, between two marks, with the same figures as docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kafka_sections, writer_section
from .rounds import spread
from .tables import ends, per_second, short, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .plan import Part

BEGIN, END = "<!-- made by make bench-report -->\n", "<!-- end -->\n"


def update(parts: dict[str, Part], path: Path) -> None:
    """Write the table from all parts that have results.

    Raises:
        RuntimeError: The marks are not there.
    """
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RuntimeError(f"{path} has no lines {BEGIN!r} and {END!r}")
    rows = [row for name, make in ROWS.items() if name in parts for row in make(parts[name])]
    path.write_text(f"{before}{begin}{table(['what', 'figure'], rows)}\n{end}{after}")


def _put(part: Part) -> Iterator[list[str]]:
    measured = part.measured
    words = "`put_batch` beside the real Java `IndexFile#putKey`"
    for name, how in (
        ("fresh", "new file"),
        ("prepared", "file prepared ahead"),
        ("two_prepared", "the same, 2 threads"),
    ):
        rate = per_second(measured.nanoseconds(name, part.operations).median)
        yield [f"{words}, {how}", f"{ends(measured.times(name, 'java'))} times as fast, {rate} M/s"]
    share = ends(measured.times("prepared", "limit_prepared"), percent=True)
    yield ["share of what the memory allows: puts into a prepared file", share]


def _select(part: Part) -> Iterator[list[str]]:
    measured = part.measured
    words = "`select_batch` beside the real Java `IndexFile#selectPhyOffset`"
    for name, how in (("one", ""), ("two", ", 2 threads")):
        for kind in ("present", "absent"):
            rate = per_second(measured.nanoseconds(f"{kind}_{name}", part.operations).median)
            times = ends(measured.times(f"{kind}_{name}", f"{kind}_java"))
            yield [f"{words}, {kind} keys{how}", f"{times} times as fast, {rate} M/s"]
    share = ends(measured.times("present_one", "present_limit_one"), percent=True)
    yield ["share of what the memory allows: lookups of present keys", share]
    python = ends(measured.times("present_python_one", "present_batches"), percent=True)
    yield ["lookups from Python in Arrow batches of 16,384, beside the same in Rust", python]


def _cold(part: Part) -> Iterator[list[str]]:
    times = ends(part.measured.times("batch", "serial_reads"))
    yield ["1,000 lookups in a file on disk, beside the same reads one by one", f"{times} times as fast"]


def _peers(part: Part) -> Iterator[list[str]]:
    others = [name for name in part.facts["bytes_per_key"] if name not in {"logdex", "Java IndexFile"}]
    times = {name: part.measured.times("logdex/batch", f"{name}/batch").median for name in others}
    beside = "; ".join(f"{name} {short(times[name])}" for name in sorted(others, key=lambda name: -times[name]))
    yield ["batch gets from Python, 2 M keys: times as fast as others (below 1: slower)", beside]


def _message_store(part: Part) -> Iterator[list[str]]:
    figures = {figure["figure"]: figure for figure in part.facts["figures"]}
    words = f"one key in a store of {part.facts['messages']:,} messages, from Python"
    for name, how in (("store-find", "warm"), ("store-first", "cold, with opening the store")):
        yield [f"{words}: {how}", f"{ends(spread(figures[name]['rounds']))} ms"]


def _spark(part: Part) -> Iterator[list[str]]:
    for figure in part.facts["figures"]:
        if not figure["figure"].startswith(("spark-read", "spark-join")):
            yield [f"Spark: {figure['what']}", f"{ends(spread(figure['rounds']))} {figure['unit']}"]


ROWS = {
    "put": _put,
    "select": _select,
    "cold": _cold,
    "peers": _peers,
    "message_store": _message_store,
    "store_writer": writer_section.readme,
    "spark": _spark,
    "kafka": kafka_sections.readme_segments,
    "kafka_index": kafka_sections.readme_lookups,
    "kafka_peers": kafka_sections.readme_readers,
}
