"""Figures formatted as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .rounds import Spread


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def ends(figures: Spread, *, percent: bool = False) -> str:
    """Return the median, followed by least and most."""
    if percent:
        median, least, most = (f"{100 * figure:.0f}" for figure in figures)
        return f"{median} % [{least}..{most}]"
    median, least, most = (short(figure) for figure in figures)
    return f"{median} [{least}..{most}]"


def short(figure: float) -> str:
    """Return a figure with about three digits."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def per_second(nanoseconds: float) -> str:
    """Return a rate in millions a second."""
    return short(1e3 / nanoseconds)
