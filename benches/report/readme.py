"""The short table in README.md, between two marks, with the same figures as docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kafka_sections, writer_section
from .rounds import spread
from .tables import ends, per_second, table

if TYPE_CHECKING:
    from pathlib import Path

    from .plan import Part

BEGIN, END = "<!-- made by make bench-report -->\n", "<!-- end -->\n"


def update(parts: dict[str, Part], path: Path) -> None:
    """Write the table. Rows of parts without results stay as they are.

    Raises:
        RuntimeError: The marks are not there.
    """
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RuntimeError(f"{path} has no lines {BEGIN!r} and {END!r}")
    kept = [line.strip("| ").split(" | ") for line in rest.partition(END)[0].splitlines()[2:]]
    rows = [
        make(parts[name]) if name in parts else kept[number]
        for number, (name, make) in enumerate(ROWS.items())
        if name in parts or number < len(kept)
    ]
    path.write_text(f"{before}{begin}{table(['what', 'figure'], rows)}\n{end}{after}")


def _put(part: Part) -> list[str]:
    rate = per_second(part.measured.nanoseconds("fresh", part.operations).median)
    times = ends(part.measured.times("fresh", "java"))
    return ["index: `put_batch` beside the real Java `IndexFile#putKey`", f"{times} times as fast, {rate} M/s"]


def _select(part: Part) -> list[str]:
    rate = per_second(part.measured.nanoseconds("present_one", part.operations).median)
    times = ends(part.measured.times("present_one", "present_java"))
    words = "index: `select_batch` beside the real Java `IndexFile#selectPhyOffset`"
    return [words, f"{times} times as fast, {rate} M/s"]


def _message_store(part: Part) -> list[str]:
    figures = {figure["figure"]: figure for figure in part.facts["figures"]}
    times = [ends(spread(figures[name]["rounds"])) for name in ("store-find", "store-first")]
    words = (
        f"one key in a store of {part.facts['messages']:,} messages, from Python: warm / cold, with opening the store"
    )
    return [words, f"{' / '.join(times)} ms"]


ROWS = {
    "put": _put,
    "select": _select,
    "message_store": _message_store,
    "store_writer": writer_section.readme,
    "kafka": kafka_sections.readme,
}
