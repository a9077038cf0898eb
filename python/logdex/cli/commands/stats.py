"""`logdex stats`: how full an index is, and how evenly its keys are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._files import refuse_broker_directory
from logdex.cli.arguments import GEOMETRY, Command, add_options, add_source, open_options
from logdex.cli.output import Progress, say, say_json, table, time_text
from logdex.cli.sources.rocketmq import open_index
from logdex.errors import LogdexError
from logdex.hash_index.index_directory import measure
from logdex.source import Kind, kind_to_open, refusal

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_DETAILS = """\
Reads every entry. If the keys are spread evenly, the lengths of the chains follow the Poisson
curve that is printed next to them. Longer chains come from repeated keys or from collisions.

  logdex stats /data/store/index
  logdex stats /data/store/index --plot chains.png      (needs matplotlib)"""
_BAR = 40
_BLUE = "#2a6fb0"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "an index directory or file, or a store", metavar="INDEX")
    add_options(parser, *GEOMETRY, "--tz", "--wide")
    parser.add_argument("--plot", metavar="FILE.png", help="write the three charts to a file (.png, .svg or .pdf)")


def _run(arguments: argparse.Namespace) -> int:
    """Measure and print; 1 if the index is empty."""
    path, options = _core.locate(arguments.path), open_options(arguments)
    kind = kind_to_open(path, options)
    if kind is Kind.STORE:
        path, kind = path / "index", Kind.INDEX
    if kind not in (Kind.INDEX, Kind.INDEX_FILE):
        if kind is None:
            raise refusal(path)
        raise ValueError(f"{path}: expected an index directory or an index file, found a {kind.value}")
    chart = _core.local_path(arguments.plot) if arguments.plot else None
    if chart is not None:
        refuse_broker_directory(chart)
    plot = _pyplot() if chart else None
    with open_index(kind, path, options) as source, Progress("stats") as progress:
        statistics, regions = measure(source.files, progress)
    # Before printing: the reader of a pipe may close it early.
    if plot is not None:
        _draw(plot, statistics, regions, arguments.plot)
    if arguments.json:
        say_json({"path": str(path), **statistics})
    else:
        _show(path, statistics)
    return 0 if statistics["entries"] else 1


def _show(path: Path, statistics: dict[str, Any]) -> None:
    entries, slots, chains = statistics["entries"], statistics["slots"], statistics["chains"]
    say(f"{path}: {statistics['files']} files, {entries:,} entries in {slots:,} slots")
    if not entries:
        return
    used = statistics["used_slots"]
    say(f"  slots in use  {used:,} ({used / slots:.1%}; expected {1 - chains[0]['expected'] / slots:.1%})")
    say(f"  longest chain {statistics['longest_chain']:,}")
    say(f"  distinct hashes {statistics['distinct_hashes']:,} of {entries:,} entries")
    say()
    say("  chain lengths: # slots, | expected of random hashes (Poisson)")
    lengths = [(each["length"], each["slots"], each["expected"]) for each in chains]
    most = max(max(count, expected) for _, count, expected in lengths)
    bars = [(n, count, round(expected), _bar(count, expected, most)) for n, count, expected in lengths]
    table(bars, ("length", "slots", "expected", ""), indent="  ")
    say()
    say("  entries over store time")
    times = [(time_text(each["begin_timestamp"]), each["entries"]) for each in statistics["times"]]
    most = max(count for _, count in times)
    table(
        [(time, count, "#" * round(_BAR * count / most)) for time, count in times], ("from", "entries", ""), indent="  "
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


def _draw(pyplot: Any, statistics: dict[str, Any], regions: list[int], path: str) -> None:  # noqa: ANN401 -- matplotlib
    figure, (chains, slots, times) = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    lengths, counts, expected = zip(*(each.values() for each in statistics["chains"]), strict=True)
    chains.bar(lengths, counts, color=_BLUE, label="slots")
    chains.plot(lengths, expected, "o-", color="#cc3311", label="Poisson")
    chains.set(title="chain lengths", xlabel="entries in the chain", ylabel="slots")
    chains.legend(frameon=False)
    slots.bar(range(len(regions)), regions, width=1.0, color=_BLUE)
    slots.set(title="slot use", xlabel=f"{len(regions)} equal parts of the slots", ylabel="entries")
    spans = statistics["times"]
    times.bar(range(len(spans)), [span["entries"] for span in spans], width=1.0, color=_BLUE)
    ends = sorted({0, len(spans) // 2, len(spans) - 1})
    times.set_xticks(ends, [(time_text(spans[at]["begin_timestamp"]) or "").replace("T", "\n") for at in ends])
    times.set(title="entries over store time", ylabel="entries")
    for axes in (chains, slots, times):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


COMMAND = Command("stats", "print slot use, chain lengths and times of an index", _DETAILS, _add_arguments, _run)
