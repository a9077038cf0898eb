"""Size of batches: the same puts and lookups in batches of several sizes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..plan import MAX_NUM, Part
from ..rounds import take_turns
from ..server import native
from .put import WHOLE

if TYPE_CHECKING:
    from typing import Any

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

SIZES = (1, 4, 16, 64, 256, 1_024, 16_384, 65_536)
PUTS = 4_000_000
ASKED = 200_000


def measure(plan: Plan) -> Part:
    """Measure in turns: puts into a prepared file, lookups of keys of a full file of the default geometry."""
    path, full = plan.scratch / "1", plan.scratch / "2"
    puts, asked = min(PUTS, plan.held), min(ASKED, plan.asked)
    with native(plan.scratch) as ours:
        ours.ask("put", path=full, keep=True, batch=WHOLE, threads=1, **plan.file())
        put = {"path": path, "threads": 1, "prepared": True, **plan.file(puts)}
        select = {"path": full, "asked": asked, "present": True, "threads": 1, "max_num": MAX_NUM, **plan.file()}
        steps: dict[str, Step] = {}
        amounts: dict[str, int] = {}
        for size in SIZES:
            steps[f"put_{size}"] = partial(_put, ours, put | {"batch": size})
            steps[f"select_{size}"] = partial(_select, ours, select | {"batch": size})
            amounts |= {f"put_{size}": puts, f"select_{size}": asked}
        part = Part("batches", 1, take_turns(steps, plan.rounds), {"puts": puts})
    part.measured.amounts = amounts
    full.unlink()
    return part


def _put(server: Server, question: dict[str, Any], _: int) -> float:
    return server.seconds("put", **question)


def _select(server: Server, question: dict[str, Any], number: int) -> float:
    return server.seconds("select", round=number, **question)
