"""Rounds in which all steps take turns, so that ratios compare steps that ran one after another."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .load import Watch, wait_for_quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Step = Callable[[int], float | dict[str, float]]
    """Runs in the round of that number and returns its seconds, or those of each of its parts."""

DISTURBED = 0.1
"""A round is dropped if other processes used more than this share of one core during it."""


class Spread(NamedTuple):
    """Median, least and most of some rounds."""

    median: float
    least: float
    most: float


@dataclass
class Measured:
    """Seconds of each step, one figure for each round that counts."""

    seconds: dict[str, list[float]]
    dropped: int = 0
    """Rounds that other processes disturbed."""
    amounts: dict[str, int] = field(default_factory=dict)
    """Operations of a step that has its own number."""

    def each(self, step: str, operations: int) -> list[float]:
        """Return the seconds of one operation, one figure for each round."""
        return [seconds / self.amounts.get(step, operations) for seconds in self.seconds[step]]

    def nanoseconds(self, step: str, operations: int) -> Spread:
        """Return the nanoseconds of one operation."""
        return spread([1e9 * seconds for seconds in self.each(step, operations)])

    def times(self, step: str, other: str) -> Spread:
        """Return how many times as fast as `other` a step is, round by round."""
        pairs = zip(self.each(other, 1), self.each(step, 1), strict=True)
        return spread([its / mine for its, mine in pairs])


def together(groups: Iterable[Measured]) -> Measured:
    """Join the results of groups of steps, each with its own rounds."""
    whole = Measured({})
    for group in groups:
        whole.seconds |= group.seconds
        whole.dropped += group.dropped
        whole.amounts |= group.amounts
    return whole


def spread(figures: list[float]) -> Spread:
    """Return median, least and most."""
    return Spread(statistics.median(figures), min(figures), max(figures))


def take_turns(steps: Mapping[str, Step], rounds: int) -> Measured:
    """Run all steps in turns, in rounds of which the first (the warm-up) and the disturbed ones do not count.

    With one round there is no warm-up and nothing is dropped: that is a trial whether all still works.

    Raises:
        RuntimeError: The machine was never quiet enough.
    """
    trial = rounds == 1
    measured = Measured({})
    kept = 0
    for number in range(0 if trial else -1, 3 * rounds):
        if kept == rounds:
            break
        if not trial:
            wait_for_quiet()
        watch = Watch()
        seconds = _one_round(steps, number)
        others = watch.others()
        if number < 0:
            continue
        if others > DISTURBED and not trial:
            measured.dropped += 1
            print(f"  dropped a round: others used {others:.2f} of a core", file=sys.stderr, flush=True)
            continue
        kept += 1
        for name, took in seconds.items():
            measured.seconds.setdefault(name, []).append(took)
    if not kept:
        raise RuntimeError(f"every one of {measured.dropped} rounds was disturbed by other programs")
    return measured


def _one_round(steps: Mapping[str, Step], number: int) -> dict[str, float]:
    seconds: dict[str, float] = {}
    # Every second round is reversed, so that no step always follows the same one.
    for name, step in list(steps.items())[:: -1 if number % 2 else 1]:
        took = step(max(number, 0))
        if isinstance(took, float):
            seconds[name] = took
        else:
            seconds |= {f"{name}/{part}": its for part, its in took.items()}
    return seconds
