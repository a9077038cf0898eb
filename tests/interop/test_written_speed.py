"""One Java producer sends to `logdex serve --write` and to a real broker in turns: figures are printed, none decides.

LOGDEX_INTEROP_SECONDS and _TURNS (environment) change the sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = int(os.environ.get("LOGDEX_INTEROP_SECONDS", "5"))
TURNS = int(os.environ.get("LOGDEX_INTEROP_TURNS", "3"))
SYNC = {"op": "measureSync", "threads": 64}
ASYNC = {"op": "measureAsync", "under_way": 1_000}


def _rate(producers: Program, question: dict[str, Any], seconds: int) -> float:
    """Return how many messages a second are acknowledged. A broker refuses some if it is busy."""
    said = producers.ask({"topic": "Speed", "key": "k", "body": "b", "size": 1024, "seconds": seconds, **question})
    sent, _, took = said["result"]
    return float(sent / took)


@contextmanager
def _taking(root: Path, flush: str) -> Iterator[str]:
    command = [sys.executable, "-m", "logdex", "serve", str(root), "--port", "0", "--json", "--write", "--flush", flush]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_sends_beside_a_real_broker(flush: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    broker, names, _ = start_broker(tmp_path / "broker", tmp_path / "real", flushDiskType=f"{flush.upper()}_FLUSH")
    with (
        broker,
        _taking(tmp_path / "own", flush) as address,
        Program("Producers", tmp_path / "ours", address) as ours,
        Program("Producers", tmp_path / "theirs", names) as theirs,
    ):
        for what, question in (("synchronous sends, 64 producers", SYNC), ("asynchronous sends", ASYNC)):
            rates: dict[str, list[float]] = {"logdex": [], "broker": []}
            # The first turn only warms up.
            for turn in range(-1, TURNS):
                for who, producers in (("logdex", ours), ("broker", theirs)):
                    rate = _rate(producers, question, SECONDS if turn >= 0 else 1)
                    rates[who] += [rate] if turn >= 0 else []
            own, real = (median(rates[who]) for who in ("logdex", "broker"))
            assert own > 0
            say(f"serve --write, flush {flush}: {what}, 1 KiB: {own:,.0f}/s, broker {real:,.0f}/s: {own / real:.2f}x")
