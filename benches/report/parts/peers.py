"""Alternatives: the same keys and offsets in other stores, and in the real IndexFile."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benches.peers import PEERS

from .. import keys
from ..plan import MAX_NUM, Part
from ..rounds import take_turns
from ..server import jvm

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.peers.peer import Peer

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

BATCH_ASKED = 500_000


def measure(plan: Plan) -> Part:
    """Measure in turns: each peer builds, opens, gets a batch and single keys, and removes its files."""
    held, asked = plan.peer_keys, min(BATCH_ASKED, plan.peer_keys)
    columns = keys.held(held), pa.array(1024 * np.arange(held))
    bytes_per_key: dict[str, float] = {}
    versions: dict[str, str] = {}
    with jvm(plan.scratch) as real:
        steps: dict[str, Step] = {"Java IndexFile": partial(_java, plan, real, asked)}
        for kind in PEERS:
            steps[kind.name] = partial(_turn, plan, kind, columns, asked, notes=(bytes_per_key, versions))
        measured = take_turns(steps, plan.rounds)
    bytes_per_key["Java IndexFile"] = bytes_per_key["logdex"]  # the same bytes
    versions["Java IndexFile"] = "rocketmq-store 4.9.3"
    singles = {kind.name: min(kind.singles_asked, asked) for kind in PEERS}
    for name in steps:
        amounts = {"build": held, "open": 1, "batch": asked, "one": singles.get(name, asked)}
        measured.amounts |= {f"{name}/{part}": amount for part, amount in amounts.items()}
    facts = {"held": held, "asked": asked, "bytes_per_key": bytes_per_key, "versions": versions}
    return Part("peers", held, measured, facts)


def _turn(
    plan: Plan,
    kind: type[Peer],
    columns: tuple[Any, Any],
    asked: int,
    number: int,
    *,
    notes: tuple[dict[str, float], dict[str, str]],
) -> dict[str, float]:
    folder = plan.scratch / "peer"
    folder.mkdir()
    peer = kind(folder)
    column = keys.asked(len(columns[0]), asked, number, present=True)
    wanted = 1024 * keys.asked_numbers(len(columns[0]), asked, number).astype(np.int64)
    rows = peer.rows(*columns)
    build, _ = _timed(lambda: peer.build(rows))
    open_, _ = _timed(peer.open)
    many, few = peer.batch(column), peer.singles(column.slice(0, kind.singles_asked))
    peer.get_batch(many)  # the pages are mapped, caches filled
    batch, answer = _timed(lambda: peer.get_batch(many))
    if not peer.is_right(answer, wanted):
        raise RuntimeError(f"{kind.name} answers wrong")
    one, _ = _timed(lambda: peer.get(few))
    bytes_per_key, versions = notes
    bytes_per_key[kind.name], versions[kind.name] = peer.size() / len(columns[0]), peer.version
    peer.close()
    shutil.rmtree(folder)
    return {"build": build, "open": open_, "batch": batch, "one": one}


def _java(plan: Plan, real: Server, asked: int, number: int) -> dict[str, float]:
    path = plan.scratch / "1"
    file = {"path": path, **plan.file(plan.peer_keys)}
    build = real.seconds("rounds_put", keep=True, **file)
    answer = real.ask("rounds_select", asked=asked, round=number, present=True, max_num=MAX_NUM, **file)
    path.unlink()
    # The class has no batches: a broker looks up key by key.
    return {"build": build, "open": answer["open"], "batch": answer["seconds"], "one": answer["seconds"]}


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = run()
    return time.perf_counter() - start, answer
