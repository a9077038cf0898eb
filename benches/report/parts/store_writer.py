"""Write a store: puts into the log, dispatch to queues and index, by the real DefaultMessageStore and by logdex."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.rocketmq import CommitLog, StoreWriter

from ..plan import Part
from ..rounds import Measured, take_turns
from ..server import jvm, native

if TYPE_CHECKING:
    from pathlib import Path

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

BODIES = (1024, 200)
"""Bytes of a body."""
FRAME_BYTES = 400
"""Upper limit of a message's bytes besides its body."""
BATCHES = (32, 1_024)
"""Messages in a call."""
CLIENT_BATCH = 32
"""Messages in a client's batch."""
ONE_BY_ONE = 8
"""Python puts one of this many messages with its own call, because such calls are slow."""
COMPARED = 2_000
"""Messages whose fields are compared before the measurement."""


def measure(plan: Plan) -> Part:
    """Measure in turns, a new store in each step."""
    part = Part("store_writer", 1, Measured({}))
    count, sizes = plan.put_messages, BODIES[:1] if plan.short else BODIES
    with ExitStack() as stack:
        real = stack.enter_context(jvm(plan.scratch))
        ours = stack.enter_context(native(plan.scratch))
        steps: dict[str, Step] = {}
        amounts: dict[str, int] = {}
        for size in sizes:
            log = plan.scratch / f"put-{size}"
            ours.ask("log_write", path=log, files=1, file_len=count * (size + FRAME_BYTES), body_len=size)
            puts = Puts(plan.scratch / "store", log, count)
            same_store(real, puts)
            of_size: dict[str, Step] = {
                "java": partial(puts.java, real, 1),
                "java_batches": partial(puts.java, real, CLIENT_BATCH),
                "java_running": partial(puts.java_running, real),
                **{f"native_{batch}": partial(puts.native, ours, batch) for batch in (1, *BATCHES)},
                **{f"python_{batch}": partial(puts.python, batch) for batch in BATCHES},
                "one": puts.one_by_one,
                "running": puts.running,
            }
            steps |= {f"{size}_{name}": step for name, step in of_size.items()}
            amounts |= {f"{size}_{name}": count // ONE_BY_ONE if name == "one" else count for name in of_size}
        part.facts |= {"messages": count, "sizes": sizes}
        part.measured = take_turns(steps, plan.rounds)
        for name in part.measured.seconds:
            part.measured.amounts[name] = amounts[name.partition("/")[0]]
    return part


class Puts:
    """The first messages of a log, put into new stores."""

    def __init__(self, root: Path, log: Path, count: int) -> None:
        self.root, self.count = root, count
        self.log = log
        with closing(CommitLog.open(log)) as source:
            columns = [name for name in source.scan().schema.names if name != "store_timestamp"]
            rows = pa.table(source.scan(columns=columns, body="stored")).slice(0, count)
        assert rows.num_rows == count
        self.rows = rows.combine_chunks()

    def batches(self, size: int) -> list[pa.RecordBatch]:
        """Return the messages as arguments of single calls."""
        [whole] = self.rows.to_batches()
        return [whole.slice(first, size) for first in range(0, self.count, size)]

    def java(self, real: Server, batch: int, _: int) -> dict[str, float]:
        """Put, then dispatch, timed separately."""
        done = self.ask_java(real, batch=batch)
        return {"put": done["put"], "dispatch": done["dispatch"]}

    def java_running(self, real: Server, _: int) -> float:
        """Put while dispatch runs, and wait until it is done."""
        done = self.ask_java(real, batch=1, running=True)
        return float(done["put"] + done["dispatch"])

    def ask_java(self, real: Server, **question: Any) -> dict[str, Any]:
        """Put into a new store of the real class, with its own flush and dispatch."""
        [source] = self.log.iterdir()
        done = real.ask("rounds_store_put", root=self.root, config={}, source=source, count=self.count, **question)
        assert done["behind"] == 0
        assert done["units"] == self.count
        return done

    def native(self, ours: Server, batch: int, _: int) -> float:
        """Put into a log from Rust."""
        return ours.seconds("log_put", path=self.root, source=self.log, count=self.count, batch=batch)

    def python(self, batch: int, _: int) -> dict[str, float]:
        """Put from Python in batches of a size, then dispatch, timed separately."""
        batches = self.batches(batch)
        with StoreWriter.open(self.root, services=False) as writer:
            start = time.perf_counter()
            for messages in batches:
                writer.put_messages(messages, body="stored")
            put = time.perf_counter()
            writer.dispatch()
            dispatched = time.perf_counter()
        shutil.rmtree(self.root)
        return {"put": put - start, "dispatch": dispatched - put}

    def one_by_one(self, _: int) -> float:
        """Put from Python with plain values, one message in a call."""
        rows = self.rows.slice(0, self.count // ONE_BY_ONE)
        names = ["topic", "body", "queue_id", "properties", "flag"]
        values = [
            dict(zip(names, row, strict=True)) for row in zip(*(rows[name].to_pylist() for name in names), strict=True)
        ]
        for value in values:
            value["properties"] = dict(value["properties"])
        with StoreWriter.open(self.root, services=False) as writer:
            start = time.perf_counter()
            for value in values:
                writer.put_message(**value)
            took = time.perf_counter() - start
        shutil.rmtree(self.root)
        return took

    def running(self, _: int) -> float:
        """Put from Python while dispatch runs, and wait until it is done."""
        batches = self.batches(BATCHES[-1])
        with StoreWriter.open(self.root) as writer:
            start = time.perf_counter()
            for messages in batches:
                writer.put_messages(messages, body="stored")
            writer.dispatch()
            took = time.perf_counter() - start
        shutil.rmtree(self.root)
        return took


def same_store(real: Server, puts: Puts) -> None:
    """Check, before the measurement, that both sides write the same store.

    Raises:
        RuntimeError: They do not.
    """
    done = puts.ask_java(real, batch=1, keep=True)
    theirs = _rows(puts.root)
    shutil.rmtree(puts.root)
    with StoreWriter.open(puts.root, services=False) as writer:
        writer.put_messages(puts.batches(puts.count)[0], body="stored")
        dispatched, end = writer.dispatch(), writer.max_offset
    ours = _rows(puts.root)
    shutil.rmtree(puts.root)
    if ours != theirs or (end, dispatched) != (done["end"], puts.count):
        raise RuntimeError(f"{puts.log}: the stores differ")


def _rows(root: Path) -> list[dict[str, Any]]:
    """Return messages without their store times; Java orders properties by its map."""
    with closing(CommitLog.open(root / "commitlog")) as log:
        [batch, *_] = log.scan(batch_size=COMPARED)
    rows = pa.record_batch(batch).drop_columns("store_timestamp").to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]
