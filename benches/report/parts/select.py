"""Lookups in a full file that is in memory: the real IndexFile, logdex natively and from Python, and the traffic limit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from logdex.rocketmq import IndexFile

from .. import keys
from ..plan import BATCH, LARGE_BATCH, MAX_NUM, Part, geometry
from ..rounds import take_turns
from ..server import all_three
from .put import WHOLE

if TYPE_CHECKING:
    from typing import Any

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

NATIVE: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"threads": 2},
    "first": {"max_num": 1},
    "thousand": {"batch": 1_024},
    "batches": {"batch": BATCH},
}
"""Options with which the native program looks keys up."""


def measure(plan: Plan) -> Part:
    """Measure in turns: all steps of a round look up the same keys, and each round has other keys."""
    path = plan.scratch / "20260321000000000"
    with ExitStack() as stack:
        real, ours, cpu = all_three(stack, plan)
        ours.ask("put", path=path, keep=True, batch=WHOLE, threads=1, **plan.file())
        steps: dict[str, Step] = {}
        facts = {}
        with IndexFile.open(path, **geometry(plan.held)) as file:
            for kind in ("present", "absent"):
                asked = {"path": path, "asked": plan.asked, "present": kind == "present", **plan.file()}
                by_default = {"batch": LARGE_BATCH, "threads": 1, "max_num": MAX_NUM}
                same_answers(plan, real, ours, file, asked | by_default)
                for name, max_num in (("java", MAX_NUM), ("java_first", 1)):
                    steps[f"{kind}_{name}"] = partial(_ask, real, "rounds_select", asked | {"max_num": max_num})
                for name, way in NATIVE.items():
                    steps[f"{kind}_{name}"] = partial(_ask, ours, "select", asked | by_default | way)
                steps[f"{kind}_cpu"] = partial(_ask, cpu, "select", asked | by_default)
                for threads, name in ((1, "one"), (2, "two")):
                    steps[f"{kind}_limit_{name}"] = partial(_ask, ours, "select_limit", asked | {"threads": threads})
                    steps[f"{kind}_python_{name}"] = partial(from_python, plan, file, kind == "present", threads)
                facts[f"{kind}_accesses"] = ours.ask("select_limit", threads=1, **asked)["accesses"]
            part = Part("select", plan.asked, take_turns(steps, plan.rounds), facts)
    path.unlink()
    return part


def _ask(server: Server, op: str, question: dict[str, Any], number: int) -> float:
    return server.seconds(op, round=number, **question)


def from_python(plan: Plan, file: IndexFile, present: bool, threads: int, number: int) -> float:  # noqa: FBT001
    """Look keys up from Python, in Arrow batches divided among threads."""
    column = keys.asked(plan.held, plan.asked, number, present=present)
    batches = [column.slice(first, BATCH) for first in range(0, len(column), BATCH)]

    def ask(mine: list[Any]) -> None:
        for batch in mine:
            file.select_batch(batch, max_num=MAX_NUM)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(ask, [[]] * threads))  # start the threads
        start = time.perf_counter()
        list(pool.map(ask, [batches[first::threads] for first in range(threads)]))
        return time.perf_counter() - start


def same_answers(plan: Plan, real: Server, ours: Server, file: IndexFile, question: dict[str, Any]) -> None:
    """Check, before the measurement, that all steps find the same.

    Raises:
        RuntimeError: The answers differ.
    """
    theirs = real.ask("rounds_select", round=0, **question)
    native = ours.ask("select", round=0, **question)
    column = keys.asked(plan.held, plan.asked, 0, present=question["present"])
    offsets = pa.array(file.select_batch(column, max_num=MAX_NUM)).flatten()
    python = {"found": len(offsets), "sum": pc.sum(offsets).as_py() or 0}
    for name in ("found", "sum"):
        # The JVM's JSON writes large numbers as text.
        if not int(theirs[name]) == native[name] == python[name]:
            raise RuntimeError(f"{name}: the real IndexFile {theirs}, native {native}, from Python {python}")
