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
    say(f"{path}: {statistics.files} files, {statistics.entries:,} entries in {statistics.slots:,} slots")
    if not statistics.entries:
        return
    say(
        f"  slots in use  {statistics.used_slots:,} ({statistics.used_slots / statistics.slots:.1%}; "
        f"expected {1 - statistics.expected(0) / statistics.slots:.1%})"
    )
    say(f"  longest chain {statistics.longest:,}")
    say(f"  distinct hashes {statistics.distinct_hashes:,} of {statistics.entries:,} entries")
    say()
    say("  chain lengths: # slots, | expected of random hashes (Poisson)")
    table(
        [
            (length, slots, round(expected), _bar(slots, expected, statistics.most_slots))
            for length, slots, expected in statistics.chain_rows()
        ],
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
    rows = statistics.chain_rows()
    lengths = [length for length, _, _ in rows]
    chains.bar(lengths, [count for _, count, _ in rows], color=_BLUE, label="slots")
    chains.plot(lengths, [expected for _, _, expected in rows], "o-", color="#cc3311", label="Poisson")
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
        chains: Number of slots by the length of their chain; 0: empty slots.
        loads: Entries and slots of each file: the mean length of its chains differs where a file is not full.
        distinct_hashes: Key hashes, the same hash in two files counted twice.
        regions: Entries in each of equal parts of the slots.
        times: Begin of each time span in ms, and the entries in it.
    """

    files: int
    entries: int
    slots: int
    chains: dict[int, int]
    loads: list[tuple[int, int]]
    distinct_hashes: int
    regions: list[int]
    times: list[tuple[int, int]]

    @property
    def used_slots(self) -> int:
        """Slots with an entry."""
        return self.slots - self.chains.get(0, 0)

    @property
    def longest(self) -> int:
        """Entries of the longest chain."""
        return max(self.chains, default=0)

    @property
    def most_slots(self) -> float:
        """The largest number in a chart of the chains."""
        return max(max(slots, expected) for _, slots, expected in self.chain_rows())

    def expected(self, length: int) -> float:
        """Return how many slots would have a chain of this length if the hashes were random (Poisson)."""
        total = 0.0
        for entries, slots in self.loads:
            mean = entries / slots
            log = (
                length * math.log(mean) - mean - math.lgamma(length + 1) if mean else (0.0 if not length else -math.inf)
            )
            total += slots * math.exp(log)
        return total

    def chain_rows(self) -> list[tuple[int, int, float]]:
        """Return length, slots and expected slots for each length that occurs or is expected."""
        last = max((length for length in range(_SHOWN_LENGTHS) if self.expected(length) >= 0.5), default=0)  # noqa: PLR2004
        lengths = sorted({*range(last + 1), *(length for length, slots in self.chains.items() if slots)})
        return [(length, self.chains.get(length, 0), self.expected(length)) for length in lengths]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "files": self.files,
            "entries": self.entries,
            "slots": self.slots,
            "used_slots": self.used_slots,
            "longest_chain": self.longest,
            "distinct_hashes": self.distinct_hashes,
            "chains": [
                {"length": length, "slots": slots, "expected": round(expected, 3)}
                for length, slots, expected in self.chain_rows()
            ],
            "times": [{"begin_timestamp": time, "entries": count} for time, count in self.times],
        }


def measure(files: Sequence[IndexFile], progress: _types.Progress) -> IndexStatistics:
    """Count the entries of index files; linear, and 4 bytes of memory for each slot and entry of a file."""
    total = sum(map(len, files)) * ENTRY_SIZE
    begin, end = _time_span(files)
    width = max(1, -(-(end - begin + 1) // _TIME_BINS))
    chains: Counter[int] = Counter()
    regions: Counter[int] = Counter()
    bins: Counter[int] = Counter()
    distinct = done = 0
    for file in files:
        lengths, of_regions, of_bins, hashes = _core.chain_statistics(
            file, begin=begin, end=end, width=width, regions=_REGIONS
        )
        chains.update(lengths)
        regions.update(dict(enumerate(of_regions)))
        bins.update(dict(enumerate(of_bins)))
        distinct += hashes
        done += len(file) * ENTRY_SIZE
        progress(done, total)
    return IndexStatistics(
        files=len(files),
        entries=sum(map(len, files)),
        slots=sum(file.hash_slots for file in files),
        chains=dict(chains),
        loads=[(len(file), file.hash_slots) for file in files],
        distinct_hashes=distinct,
        regions=[regions[region] for region in range(_REGIONS)],
        times=[(begin + number * width, bins[number]) for number in range(max(bins, default=-1) + 1)],
    )


def _time_span(files: Sequence[IndexFile]) -> tuple[int, int]:
    """Return the first and the last time of the headers."""
    headers = [file.header for file in files if len(file)]
    times = [time for header in headers for time in (header.begin_timestamp, header.end_timestamp)]
    return min(times, default=0), max(times, default=0)
