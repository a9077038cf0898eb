"""`logdex stats`: how full an index is, and how evenly its keys are spread."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex.cli.arguments import add_geometry, command
from logdex.cli.output import Progress, say, say_json, table, time_text
from logdex.cli.sources.registry import open_source
from logdex.cli.sources.rocketmq import IndexSource
from logdex.errors import LogdexError
from logdex.hash_index.geometry import ENTRY_SIZE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from logdex import _types
    from logdex.cli.arguments import Subparsers
    from logdex.hash_index import IndexFile

_DETAILS = """\
Reads every entry. If the keys are spread evenly, the lengths of the chains follow the Poisson
curve that is printed beside them. Longer chains come from repeated keys or from collisions.

  logdex stats /data/store/index
  logdex stats /data/store/index --plot chains.png      (needs matplotlib)"""
_BAR = 40
_BLUE = "#2a6fb0"
_TIME_BINS = 24
_REGIONS = 64
_SHOWN_LENGTHS = 24


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "stats", "slot use, chain lengths and times of an index", _DETAILS)
    parser.add_argument("index", metavar="INDEX", help="an index directory or file, or a store")
    add_geometry(parser)
    parser.add_argument("--plot", metavar="FILE.png", help="write the three charts to a file (.png, .svg or .pdf)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; 1 if the index is empty."""
    path = Path(arguments.index)
    if (path / "commitlog").is_dir():
        path /= "index"
    plot = _pyplot() if arguments.plot else None
    with open_source(path, hash_slots=arguments.hash_slots, max_entries=arguments.max_entries) as source:
        if not isinstance(source, IndexSource):
            raise ValueError(f"{path}: expected an index directory or an index file")  # noqa: TRY004 -- the content of a path, not a type
        with Progress("stats") as progress:
            statistics = measure(source.files, progress)
    # Before printing: the reader of a pipe may close it early.
    if plot is not None:
        _draw(plot, statistics, arguments.plot)
    if arguments.json:
        say_json({"path": str(path), **statistics.to_dict()})
    else:
        _show(path, statistics)
    return 0 if statistics.entries else 1


def _show(path: Path, statistics: IndexStatistics) -> None:
    slots = statistics.slots
    say(f"{path}: {statistics.files} files, {statistics.entries:,} entries in {slots:,} slots")
    if not statistics.entries:
        return
    facts, (_, _, empty) = statistics.to_dict(), statistics.chains[0]
    used = facts["used_slots"]
    say(f"  slots in use  {used:,} ({used / slots:.1%}; expected {1 - empty / slots:.1%})")
    say(f"  longest chain {facts['longest_chain']:,}")
    say(f"  distinct hashes {statistics.distinct_hashes:,} of {statistics.entries:,} entries")
    say()
    say("  chain lengths: # slots, | expected of random hashes (Poisson)")
    most = max(max(count, expected) for _, count, expected in statistics.chains)
    table(
        [(n, count, round(expected), _bar(count, expected, most)) for n, count, expected in statistics.chains],
        ("length", "slots", "expected", ""),
        indent="  ",
    )
    say()
    say("  entries over store time")
    most = max(count for _, count in statistics.times)
    table(
        [(time_text(time), count, "#" * round(_BAR * count / most)) for time, count in statistics.times],
        ("from", "entries", ""),
        indent="  ",
    )


def _bar(value: float, expected: float, most: float) -> str:
    """Return a bar with a mark at the expected value."""
    length, mark = round(_BAR * value / most), round(_BAR * expected / most)
    return "".join("|" if at == mark else "#" if at < length else " " for at in range(max(length, mark + 1)))


def _pyplot() -> Any:  # noqa: ANN401 -- a module
    try:
        import matplotlib as mpl  # noqa: PLC0415 -- optional

        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415 -- optional
    except ImportError:
        raise LogdexError("--plot needs matplotlib: pip install matplotlib") from None
    return plt


def _draw(pyplot: Any, statistics: IndexStatistics, path: str) -> None:  # noqa: ANN401 -- matplotlib
    figure, (chains, slots, times) = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    lengths, counts, expected = zip(*statistics.chains, strict=True)
    chains.bar(lengths, counts, color=_BLUE, label="slots")
    chains.plot(lengths, expected, "o-", color="#cc3311", label="Poisson")
    chains.set(title="chain lengths", xlabel="entries in the chain", ylabel="slots")
    chains.legend(frameon=False)
    slots.bar(range(len(statistics.regions)), statistics.regions, width=1.0, color=_BLUE)
    slots.set(title="slot use", xlabel=f"{len(statistics.regions)} equal parts of the slots", ylabel="entries")
    times.bar(range(len(statistics.times)), [count for _, count in statistics.times], width=1.0, color=_BLUE)
    ends = sorted({0, len(statistics.times) // 2, len(statistics.times) - 1})
    times.set_xticks(ends, [(time_text(statistics.times[at][0]) or "").replace("T", "\n") for at in ends])
    times.set(title="entries over store time", ylabel="entries")
    for axes in (chains, slots, times):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Counts over the files of an index.

    Attributes:
        files: Index files.
        entries: Entries in all of them.
        slots: Slots of all of them.
        chains: Length of a chain, number of slots with it, and the number expected of random hashes (Poisson).
        distinct_hashes: Key hashes; the same hash in two files counts twice.
        regions: Entries in each of equal parts of the slots.
        times: Begin of each time span in ms, and the entries in it.
    """

    files: int
    entries: int
    slots: int
    chains: list[tuple[int, int, float]]
    distinct_hashes: int
    regions: list[int]
    times: list[tuple[int, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "files": self.files,
            "entries": self.entries,
            "slots": self.slots,
            "used_slots": sum(slots for length, slots, _ in self.chains if length),
            "longest_chain": max((length for length, slots, _ in self.chains if slots), default=0),
            "distinct_hashes": self.distinct_hashes,
            "chains": [{"length": n, "slots": slots, "expected": round(e, 3)} for n, slots, e in self.chains],
            "times": [{"begin_timestamp": time, "entries": count} for time, count in self.times],
        }


def measure(files: Sequence[IndexFile], progress: _types.Progress) -> IndexStatistics:
    """Count the entries of index files; linear, and 4 bytes of memory for each slot and entry of a file."""
    total = sum(map(len, files)) * ENTRY_SIZE
    begin, end = _time_span(files)
    width = max(1, -(-(end - begin + 1) // _TIME_BINS))
    chains, regions, times = Counter[int](), Counter[int](), Counter[int]()
    distinct = done = 0
    for file in files:
        lengths, of_regions, of_times, hashes = _core.chain_statistics(
            file, begin=begin, end=end, width=width, regions=_REGIONS
        )
        chains.update(lengths)
        regions.update(dict(enumerate(of_regions)))
        times.update(dict(enumerate(of_times)))
        distinct += hashes
        done += len(file) * ENTRY_SIZE
        progress(done, total)
    return IndexStatistics(
        files=len(files),
        entries=sum(map(len, files)),
        slots=sum(file.hash_slots for file in files),
        chains=_chains(files, chains),
        distinct_hashes=distinct,
        regions=[regions[region] for region in range(_REGIONS)],
        times=[(begin + number * width, times[number]) for number in range(max(times, default=-1) + 1)],
    )


def _chains(files: Sequence[IndexFile], counted: Counter[int]) -> list[tuple[int, int, float]]:
    """Return length, slots and expected slots for each length that occurs or is expected."""
    longest = max((length for length in range(_SHOWN_LENGTHS) if _expected(files, length) >= 0.5), default=0)  # noqa: PLR2004
    lengths = sorted({*range(longest + 1), *(length for length, slots in counted.items() if slots)})
    return [(length, counted[length], _expected(files, length)) for length in lengths]


def _expected(files: Sequence[IndexFile], length: int) -> float:
    """Return how many slots would have a chain of this length if the hashes were random (Poisson)."""
    total = 0.0
    for file in files:
        mean = len(file) / file.hash_slots
        if mean:
            total += file.hash_slots * math.exp(length * math.log(mean) - mean - math.lgamma(length + 1))
        elif not length:
            total += file.hash_slots
    return total


def _time_span(files: Sequence[IndexFile]) -> tuple[int, int]:
    """Return the first and the last time of the headers."""
    headers = [file.header for file in files if len(file)]
    times = [time for header in headers for time in (header.begin_timestamp, header.end_timestamp)]
    return min(times, default=0), max(times, default=0)
