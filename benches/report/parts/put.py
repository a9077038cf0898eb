"""Puts: whole files, by the real IndexFile, by logdex natively and from Python, and the traffic limit."""

from __future__ import annotations

import time
from contextlib import ExitStack
from filecmp import cmp
from functools import partial
from typing import TYPE_CHECKING

from logdex.rocketmq import IndexFile

from .. import keys
from ..plan import BATCH, Part, geometry
from ..rounds import take_turns
from ..server import all_three

if TYPE_CHECKING:
    from typing import Any

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

WHOLE = 1 << 30
"""A batch of this size is one call for all rows."""

NATIVE: dict[str, dict[str, Any]] = {
    "fresh": {},
    "prepared": {"prepared": True},
    "two_fresh": {"threads": 2},
    "two_prepared": {"threads": 2, "prepared": True},
    "sse2": {"kernel": "sse2"},
    "swar": {"kernel": "swar"},
    "batches": {"batch": BATCH},
}
"""Options with which the native program puts all rows into a new file."""


def measure(plan: Plan) -> Part:
    """Measure in turns, a whole file in each step."""
    path = plan.scratch / "20260321000000000"
    with ExitStack() as stack:
        real, ours, cpu = all_three(stack, plan)
        same_bytes(plan, real, ours)
        columns = keys.columns(plan.held)
        asked = {"path": path, **plan.file()}
        by_default = {"threads": 1, "batch": WHOLE}
        steps: dict[str, Step] = {
            "java": lambda _: real.seconds("rounds_put", **asked),
            "java_hashed": lambda _: real.seconds("rounds_put", hashed=True, **asked),
            "python": lambda _: from_python(plan, columns),
            "limit_fresh": lambda _: ours.seconds("put_limit", **asked),
            "limit_prepared": lambda _: ours.seconds("put_limit", prepared=True, **asked),
        }
        for name, way in NATIVE.items():
            steps[name] = partial(_native, ours, asked | by_default | way)
        for name in ("fresh", "prepared"):
            steps[f"cpu_{name}"] = partial(_native, cpu, asked | by_default | NATIVE[name])
        # A prepared file has its memory touched before the time begins.
        memory = Memory(ours, plan)
        steps = {name: step if "prepared" in name else memory.before(step) for name, step in steps.items()}
        return Part("put", plan.held, take_turns(steps, plan.rounds))


def _native(server: Server, question: dict[str, Any], _: int) -> float:
    return server.seconds("put", **question)


class Memory:
    """Touches memory before a step, and again if the host had taken pages back.

    The first touch of such a page costs ten times as much as any other.
    """

    TRIES = 5
    SLOW = 1.5
    """Factor to the fastest touch so far."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self._server = server
        self._path = plan.scratch / "touched"
        self._tries = 0 if plan.short else self.TRIES
        self._fastest = float("inf")

    def before(self, step: Step) -> Step:
        """Return the step, preceded by a touch."""

        def both(number: int) -> float | dict[str, float]:
            for _ in range(self._tries):
                took = self._server.seconds("touch_memory", path=self._path)
                self._fastest = min(self._fastest, took)
                if took < self.SLOW * self._fastest:
                    break
            return step(number)

        return both


def from_python(plan: Plan, columns: tuple[Any, Any, Any]) -> float:
    """Put all rows from Python, in Arrow batches."""
    path = plan.scratch / "20260321000000000"
    batches = [tuple(column.slice(first, BATCH) for column in columns) for first in range(0, plan.held, BATCH)]
    with IndexFile.create(path, **geometry(plan.held)) as file:
        start = time.perf_counter()
        for batch in batches:
            file.put_batch(*batch)
        took = time.perf_counter() - start
        assert file.is_full
    path.unlink()
    return took


def same_bytes(plan: Plan, real: Server, ours: Server) -> None:
    """Check, before the measurement, that all steps write the same file.

    Raises:
        RuntimeError: The files differ.
    """
    one, other = plan.scratch / "1", plan.scratch / "2"
    real.ask("rounds_put", path=one, keep=True, **plan.file())
    ways: list[dict[str, Any]] = [{"threads": 1}, {"threads": 2}]
    ways += [{"threads": 1, "kernel": name} for name in ("sse2", "swar")]
    for way in ways:
        ours.ask("put", path=other, keep=True, batch=WHOLE, **way, **plan.file())
        if not cmp(one, other, shallow=False):
            raise RuntimeError(f"{other} ({way}) differs from the file of the real IndexFile")
        other.unlink()
    one.unlink()
