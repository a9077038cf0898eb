"""Read a whole commit log: logdex from Rust and Python, the broker's own decoder, and a plain read of the files."""

from __future__ import annotations

import struct
import time
import zlib
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from logdex.rocketmq import CommitLog

from ..plan import Part
from ..rounds import Measured, take_turns
from ..server import jvm, native

if TYPE_CHECKING:
    from pathlib import Path

    from ..plan import Plan
    from ..rounds import Step
    from ..server import Server

BODIES = (1024, 200)
"""Bytes of a body; each size has its own log."""
PYTHON_MESSAGES = 20_000
"""Messages for the reader in plain Python, which is slow."""
PYTHON_BYTES = 32 << 20
"""Upper limit of their bytes."""
COLUMNS = {"without": False, "with": True}
"""Whether bodies are read."""
THREADS = {"one": 1, "two": 2}


def measure(plan: Plan) -> Part:
    """Measure in turns, a whole log in each step."""
    part = Part("commit_log", 1, Measured({}))
    with ExitStack() as stack:
        real = stack.enter_context(jvm(plan.scratch))
        ours = stack.enter_context(native(plan.scratch))
        steps: dict[str, Step] = {}
        amounts: dict[str, int] = {}
        for size in BODIES:
            path = plan.scratch / f"commitlog-{size}"
            written = ours.ask(
                "log_write", path=path, files=plan.log_files, file_len=plan.log_file_bytes, body_len=size
            )
            part.facts[str(size)] = written | {"resident": resident(ours, path, written["messages"])}
            same_messages(real, ours, path)
            of_log = steps_of_log(real, ours, path)
            steps |= {f"{size}_{name}": step for name, step in of_log.items()}
            amounts |= {f"{size}_{name}": written["messages"] for name in of_log}
            amounts[f"{size}_struct"] = min(PYTHON_MESSAGES, written["messages"])
        part.measured = take_turns(steps, plan.rounds)
        part.measured.amounts = amounts
    return part


def steps_of_log(real: Server, ours: Server, path: Path) -> dict[str, Step]:
    """Return the steps of one log."""
    steps: dict[str, Step] = {}
    for name, body in COLUMNS.items():
        steps[f"java_{name}"] = partial(_seconds, real, "rounds_decode", path=path, body=body)
        for threads, number in THREADS.items():
            steps[f"{threads}_{name}"] = partial(_seconds, ours, "log_scan", path=path, body=body, threads=number)
        steps[f"python_{name}"] = partial(from_python, path, body)
    steps["read"] = partial(_seconds, ours, "log_read", path=path)
    steps["struct"] = partial(with_struct, path)
    return steps


def _seconds(server: Server, op: str, _: int, **question: Any) -> float:
    return server.seconds(op, **question)


def same_messages(real: Server, ours: Server, path: Path) -> None:
    """Check that all programs read the same messages.

    Raises:
        RuntimeError: They do not.
    """
    answers = [real.ask("rounds_decode", path=path, body=body) for body in COLUMNS.values()]
    for threads in THREADS.values():
        answers += [ours.ask("log_scan", path=path, body=body, threads=threads) for body in COLUMNS.values()]
    if len({(answer["rows"], answer["sum"]) for answer in answers}) != 1:
        raise RuntimeError(f"{path}: the readers differ: {answers}")


def resident(ours: Server, path: Path, messages: int) -> dict[str, list[float]]:
    """Return the memory of the native program in MiB after 10 %, 50 % and all of a scan with bodies, by threads."""
    ask = partial(ours.ask, "log_resident", path=path, messages=messages, body=True)
    return {name: ask(threads=number)["mib"] for name, number in THREADS.items()}


def from_python(path: Path, body: bool, _: int) -> float:  # noqa: FBT001 a step
    """Read the log batch by batch with the package."""
    start = time.perf_counter()
    with CommitLog.open(path) as log:
        columns = [name for name in log.scan().schema.names if body or name != "body"]
        rows = sum(batch.num_rows for batch in log.scan(columns=columns))
    took = time.perf_counter() - start
    assert rows
    return took


HEAD = struct.Struct(">iIiiiqqiq4siq4siiqi")
"""A frame of version 1 with hosts of IPv4, up to the length of the body."""


def with_struct(path: Path, _: int) -> float:
    """Read the first messages as a simple script would: struct, slices, splits and the checksum."""
    with min(path.iterdir()).open("rb") as file:
        data = file.read(PYTHON_BYTES)
    start = time.perf_counter()
    at = 0
    rows: list[tuple[object, ...]] = []
    while len(rows) < PYTHON_MESSAGES:
        size, magic, crc, *fields, body_length = HEAD.unpack_from(data, at)
        if magic != 0xDAA320A7:
            break
        body_at = at + HEAD.size
        topic_at = body_at + body_length + 1
        body = data[body_at : topic_at - 1]
        properties_at = topic_at + data[topic_at - 1] + 2
        if zlib.crc32(body) & 0x7FFFFFFF != crc:
            raise ValueError(f"{path}: a wrong checksum at byte {at}")
        text = data[properties_at : at + size].decode()
        properties = dict(entry.split("\x01", 1) for entry in text.split("\x02") if entry)
        rows.append((data[topic_at : properties_at - 2].decode(), fields, properties, body))
        at += size
    return time.perf_counter() - start
