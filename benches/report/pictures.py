"""Pictures of docs/benchmarks.md, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from .plan import Part
    from .rounds import Spread

BLUE, GREY, LIGHT = "#2a6fb0", "#8a8a8a", "#c9ced6"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "logdex",  # the same picture for the same figures
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


def draw(parts: dict[str, Part], folder: Path) -> None:
    """Draw the pictures of all parts that have results."""
    with mpl.rc_context(STYLE):
        if {"put", "select"} <= parts.keys():
            _save(_index(parts["put"], parts["select"]), folder / "benchmarks-index.svg")
        if "batches" in parts:
            _save(_batches(parts["batches"]), folder / "benchmarks-batches.svg")
        if "peers" in parts:
            _save(_peers(parts["peers"]), folder / "benchmarks-peers.svg")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


def _index(put: Part, select: Part) -> Any:
    bars: dict[str, Spread] = {"the real class": put.measured.times("java", "java")}
    for name, words in {
        "fresh": "put, new file",
        "two_fresh": "put, new file, 2 threads",
        "prepared": "put, prepared file",
        "two_prepared": "put, prepared file, 2 threads",
    }.items():
        bars[words] = put.measured.times(name, "java")
    for threads, more in (("one", ""), ("two", ", 2 threads")):
        for kind in ("present", "absent"):
            bars[f"lookup, {kind} keys{more}"] = select.measured.times(f"{kind}_{threads}", f"{kind}_java")
    figure, axes = plt.subplots(figsize=(7.5, 3.4))
    # The traffic limit, at the bar that it limits.
    limits = {1: put.measured.times("limit_fresh", "java"), 3: put.measured.times("limit_prepared", "java")}
    lookups = [(threads, kind) for threads in ("one", "two") for kind in ("present", "absent")]
    for at, (threads, kind) in enumerate(lookups, 5):
        limits[at] = select.measured.times(f"{kind}_limit_{threads}", f"{kind}_java")
    medians = [bar.median for bar in bars.values()]
    spans = [[bar.median - bar.least for bar in bars.values()], [bar.most - bar.median for bar in bars.values()]]
    axes.barh(list(bars), medians, xerr=spans, color=[GREY] + [BLUE] * (len(bars) - 1), ecolor="#333333", capsize=2)
    allowed = [limit.median for limit in limits.values()]
    axes.plot(allowed, list(limits), "|", color="#c0392b", markersize=14, label="traffic limit")
    axes.legend(frameon=False, loc="upper right")
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as Java's IndexFile 4.9.3 (median, least to most)")
    axes.grid(axis="x", color=LIGHT, linewidth=0.5)
    axes.set_axisbelow(True)
    return figure


def _batches(part: Part) -> Any:
    figure, axes = plt.subplots(figsize=(7.5, 3.4))
    sizes = sorted(int(step.removeprefix("put_")) for step in part.measured.seconds if step.startswith("put_"))
    for what, words, colour in (("put", "put, prepared file", BLUE), ("select", "lookup, present keys", GREY)):
        spreads = [part.measured.nanoseconds(f"{what}_{size}", 1) for size in sizes]
        axes.plot(sizes, [its.median for its in spreads], marker="o", markersize=4, color=colour, label=words)
        axes.fill_between(sizes, [its.least for its in spreads], [its.most for its in spreads], color=colour, alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xlabel("keys a call")
    axes.set_ylabel("ns a key")
    axes.grid(color=LIGHT, linewidth=0.5)
    axes.legend(frameon=False)
    return figure


def _peers(part: Part) -> Any:
    figure, both = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    names = list(part.facts["bytes_per_key"])
    names.sort(key=lambda name: part.measured.nanoseconds(f"{name}/batch", 1).median)
    for axes, step, words in zip(both, ("batch", "one"), ("batch get", "one get"), strict=True):
        spreads = [part.measured.nanoseconds(f"{name}/{step}", 1) for name in names]
        colours = [BLUE if name == "logdex" else GREY for name in names]
        axes.barh(names, [its.median for its in spreads], color=colours)
        axes.set_xscale("log")
        axes.set_xlim(left=10)
        axes.set_xlabel(f"{words}, ns a key (shorter is faster)")
        axes.grid(axis="x", color=LIGHT, linewidth=0.5)
        axes.set_axisbelow(True)
    both[0].invert_yaxis()
    figure.tight_layout()
    return figure
