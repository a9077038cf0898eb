"""`logdex stats`: how full an index is, and how evenly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.cli.arguments import add_geometry, command
from logdex.cli.index_source import IndexSource
from logdex.cli.kinds import open_source
from logdex.cli.output import say, say_json, table, time_text
from logdex.cli.progress import Progress
from logdex.cli.statistics import IndexStatistics, measure
from logdex.errors import LogdexError

if TYPE_CHECKING:
    import argparse

    from logdex.cli.arguments import Subparsers

_DETAILS = """\
Reads every entry. A good hash spreads keys like balls thrown at random: the lengths of the
chains then follow the Poisson curve that stands beside them. Longer chains than that are
keys that repeat (one key, one chain) or collide.

  logdex stats /data/store/index
  logdex stats /data/store/index --plot chains.png      (needs matplotlib)"""
_BAR = 40
_BLUE = "#2a6fb0"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "stats", "slot use, chain lengths and times of an index", _DETAILS)
    parser.add_argument("index", metavar="INDEX", help="an index directory or file, or a store")
    add_geometry(parser)
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draw the three pictures into a file; .svg and .pdf will do, too"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and draw; 1 where the index holds nothing."""
    path = Path(arguments.index)
    if (path / "commitlog").is_dir():
        path /= "index"
    plot = _pyplot() if arguments.plot else None
    with open_source(path, hash_slots=arguments.hash_slots, max_entries=arguments.max_entries) as source:
        if not isinstance(source, IndexSource):
            raise ValueError(f"{path} is no index directory or file")  # noqa: TRY004 -- what lies there, not a type
        with Progress("stats") as progress:
            statistics = measure(source.files, progress)
    # Before anything is printed: who reads that may go away early.
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
    """Draw a bar with a mark where the expected value lies."""
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
