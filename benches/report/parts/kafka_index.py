"""Offset index: random lookups in a full index of the default size, by the real class and by logdex."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdex.kafka import OffsetIndex

from .. import keys
from ..plan import BATCH, Part
from ..rounds import take_turns
from ..server import kafka_jvm, native

if TYPE_CHECKING:
    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

OFFSETS_AN_ENTRY = 100
SINGLES = 200_000


def measure(plan: Plan) -> Part:
    """Measure in turns: all steps of a round look up the same offsets, and each round has other offsets."""
    path = plan.scratch / f"{0:020d}.index"
    below = OFFSETS_AN_ENTRY * plan.offset_entries
    question = {"path": path, "asked": plan.offsets_asked, "below": below}
    singles = min(SINGLES, plan.offsets_asked)
    with ExitStack() as stack:
        real = stack.enter_context(kafka_jvm(plan.scratch))
        ours = stack.enter_context(native(plan.scratch))
        assert real.ask("rounds_write_index", path=path, entries=plan.offset_entries)["full"]
        index = stack.enter_context(OffsetIndex.open(path))
        same_answers(plan, real, ours, index, question)
        steps: dict[str, Step] = {
            "java": partial(_ask, real, "rounds_lookup", question),
            "native_single": partial(_ask, ours, "kafka_lookup", question | {"single": True}),
            "native_batch": partial(_ask, ours, "kafka_lookup", question),
            "python_single": lambda number: _singles(index, targets(plan, number)[:singles]),
            "python_batch": lambda number: _batches(index, pa.array(targets(plan, number))),
        }
        part = Part("kafka_index", plan.offsets_asked, take_turns(steps, plan.rounds), {"entries": plan.offset_entries})
    part.measured.amounts = dict.fromkeys(steps, plan.offsets_asked) | {"python_single": singles}
    path.unlink()
    return part


def targets(plan: Plan, number: int) -> Any:
    """Return the offsets of a round, by the rule of the other programs."""
    first = 777_000_000 + number * plan.offsets_asked
    noise = keys.mix(np.arange(first, first + plan.offsets_asked, dtype=np.uint64))
    return (noise % np.uint64(OFFSETS_AN_ENTRY * plan.offset_entries)).astype(np.int64)


def _ask(server: Server, op: str, question: dict[str, Any], number: int) -> float:
    return server.seconds(op, round=number, **question)


def _batches(index: OffsetIndex, column: Any) -> float:
    start = time.perf_counter()
    for first in range(0, len(column), BATCH):
        index.lookup_batch(column.slice(first, BATCH))
    return time.perf_counter() - start


def _singles(index: OffsetIndex, offsets: Any) -> float:
    asked = offsets.tolist()
    start = time.perf_counter()
    for offset in asked:
        index.lookup(offset)
    return time.perf_counter() - start


def same_answers(plan: Plan, real: Server, ours: Server, index: OffsetIndex, question: dict[str, Any]) -> None:
    """Check, before the measurement, that all steps find the same.

    Raises:
        RuntimeError: The answers differ.
    """
    found = pa.array(index.lookup_batch(pa.array(targets(plan, 0))))
    sums = [sum(pc.sum(found.field(name)).as_py() for name in ("offset", "position"))]
    sums.append(real.ask("rounds_lookup", round=0, **question)["sum"])
    sums += [ours.ask("kafka_lookup", round=0, single=single, **question)["sum"] for single in (True, False)]
    if len(set(sums)) != 1:
        raise RuntimeError(f"lookups differ: from Python, the real class, native one by one and in batches: {sums}")
