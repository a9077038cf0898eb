"""Cost of a call from Python: an almost empty batch, and single puts and lookups beside the same calls in Rust."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from logdex.rocketmq import IndexFile

from .. import keys
from ..plan import MAX_NUM, Part, geometry
from ..rounds import take_turns
from ..server import native
from .put import WHOLE

if TYPE_CHECKING:
    from typing import Any

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

CALLS = 20_000
SINGLES = 200_000
SMALL = 1_000_000


def measure(plan: Plan) -> Part:
    """Measure in turns on a file of a million entries and on a full one of the default geometry."""
    small, calls, singles = min(SMALL, plan.held), min(CALLS, plan.asked), min(SINGLES, plan.asked)
    paths = {"small": plan.scratch / "1", "large": plan.scratch / "2"}
    held = {"small": small, "large": plan.held}
    columns = keys.columns(small)
    with ExitStack() as stack:
        ours = stack.enter_context(native(plan.scratch))
        steps: dict[str, Step] = {
            "put_native": lambda _: ours.seconds("put_one", path=plan.scratch / "3", **plan.file(small)),
            "put_python": lambda _: _put(plan, columns),
        }
        amounts = {"put_native": small, "put_python": small, "select_call": calls, "put_call": calls}
        for size, path in paths.items():
            ours.ask("put", path=path, keep=True, batch=WHOLE, threads=1, **plan.file(held[size]))
            file = stack.enter_context(IndexFile.open(path, **geometry(held[size])))
            asked = {"path": path, "asked": singles, "present": True, "max_num": MAX_NUM, **plan.file(held[size])}
            steps[f"{size}_native"] = partial(_native, ours, asked)
            steps[f"{size}_python"] = partial(_select, file, held[size], singles)
            amounts |= {f"{size}_native": singles, f"{size}_python": singles}
        one = tuple(column.slice(0, 1) for column in columns)
        tiny = stack.enter_context(IndexFile.create(plan.scratch / "4", **geometry(1_000)))
        tiny.put_batch(*one)
        steps["select_call"] = lambda _: _select_calls(tiny, one[0], calls)
        steps["put_call"] = lambda _: _put_calls(tiny, one, calls)
        part = Part("boundary", 1, take_turns(steps, plan.rounds), {"small": small})
    part.measured.amounts = amounts
    for path in (*paths.values(), plan.scratch / "4"):
        path.unlink()
    return part


def _put(plan: Plan, columns: tuple[Any, Any, Any]) -> float:
    path = plan.scratch / "3"
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    with IndexFile.create(path, **geometry(len(rows))) as file:
        start = time.perf_counter()
        for key, phy_offset, store_timestamp in rows:
            file.put_key(key, phy_offset, store_timestamp)
        took = time.perf_counter() - start
        assert file.is_full
    path.unlink()
    return took


def _native(server: Server, question: dict[str, Any], number: int) -> float:
    return server.seconds("select_one", round=number, **question)


def _select(file: IndexFile, held: int, asked: int, number: int) -> float:
    texts = keys.asked(held, asked, number, present=True).to_pylist()
    took = 0.0
    for _ in range(2):  # the first pass maps the pages
        start = time.perf_counter()
        for key in texts:
            file.select_phy_offset(key, MAX_NUM)
        took = time.perf_counter() - start
    return took


def _select_calls(file: IndexFile, key: Any, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        file.select_batch(key)
    return time.perf_counter() - start


def _put_calls(file: IndexFile, row: tuple[Any, Any, Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        file.put_batch(*row, start=1)  # after the last row: nothing is put
    return time.perf_counter() - start
