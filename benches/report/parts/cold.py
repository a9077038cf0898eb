"""Lookups in a full file that is not in memory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..plan import MAX_NUM, Part
from ..rounds import Measured, take_turns
from ..server import jvm, native
from .put import WHOLE

if TYPE_CHECKING:
    from ..plan import Plan
    from ..rounds import Step

AMOUNTS = {"java": 30, "serial_reads": 300, "one_by_one": 300, "batch": 1_000, "large_batch": 20_000}
"""Keys of each lookup step."""


def measure(plan: Plan) -> Part:
    """Measure in turns; the file is dropped from memory before each step."""
    path = plan.scratch / "20260321000000000"
    with ExitStack() as stack:
        real = stack.enter_context(jvm(plan.scratch))
        # A file that a program maps does not leave memory, so no program here keeps a map.
        ours = stack.enter_context(native(plan.scratch))
        ours.ask("put", path=path, keep=True, batch=WHOLE, threads=1, **plan.file())
        asked = {"path": path, "present": True, **plan.file()}

        def from_java(number: int) -> float:
            ours.ask("evict", path=path)
            return real.seconds(
                "rounds_select", cold=True, asked=AMOUNTS["java"], round=number, max_num=MAX_NUM, **asked
            )

        def select(name: str, batch: int) -> Step:
            return lambda number: ours.seconds("select_cold", asked=AMOUNTS[name], round=number, batch=batch, **asked)

        steps = {
            "java": from_java,
            "serial_reads": lambda number: ours.seconds(
                "select_serial", asked=AMOUNTS["serial_reads"], round=number, **asked
            ),
            "one_by_one": select("one_by_one", 1),
            "batch": select("batch", AMOUNTS["batch"]),
            "large_batch": select("large_batch", AMOUNTS["large_batch"]),
        }
        measured: Measured = take_turns(steps, plan.rounds)
    measured.amounts = dict(AMOUNTS)
    path.unlink()
    return Part("cold", 1, measured)
